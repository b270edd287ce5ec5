#!/usr/bin/env python
"""A run on many hosts that are rebooted: network namespaces with their own addresses on a bridge, TCP and keys between them.

    .venv/bin/python benchmarks/many_hosts.py                  # HalfCheetah-v4 to its gate, undisturbed
    .venv/bin/python benchmarks/many_hosts.py --hurt           # the same, and each host is rebooted once meanwhile
    .venv/bin/python benchmarks/many_hosts.py --links          # Pendulum-v1; links are cut, slow, half open, and open one way
    .venv/bin/python benchmarks/many_hosts.py --quick          # Pendulum-v1 and three reboots, not recorded: a smoke run
    .venv/bin/python benchmarks/many_hosts.py --control        # the same, and a disk is lost: exit code 0 if that is found
    .venv/bin/python benchmarks/many_hosts.py --dir PLACE      # files in PLACE, which stay

What it measures: two hosts have an actor each, two a buffer each (the shards of the run), two a rank of the learner each (by
torchrun, over gloo), one of them the evaluator too. Keys are made, copied and used, and every process is started, by what
`headrace launch plan` prints of one cluster.yaml; each host starts its own again as an init system would (2 s after an
error). A reboot: all processes of the namespace end by SIGKILL, the namespace goes with all that it knew of connections, so
nobody is told, and a second later it is there again and starts what it had. Files stay, and the boot's number: it is no power
cut (benchmarks/powercut.py).

A wrapper around the env writes down each step as the pool must hold it, before its actor hears of it. Asked for: every step
of every process is in one of the two pools, once, in order and unchanged, but for what a killed process had not handed over;
counters of both shards balance; the goal is met to the step; the return passes the gate; within 30 s of each trouble (of a
reboot: from its SIGKILL; of a link: from its mending) env steps and updates come as fast again as before it, to a tenth: in
a window of 8 s, and from there to the end of a minute. Then four planted faults of the rows (removed, doubled, changed,
replayed) must be found in each pool.

Envs set the pace, 80 env steps a second at most, so that there is time for all troubles however fast a machine is.

How long: HalfCheetah-v4 a quarter of an hour on two cores of its own, hurt 25 minutes; the others some minutes. It needs root
and iproute2 with tc. Each finished run adds a line to docs/results/many_hosts.jsonl; what has passed is not repeated, what
has failed only on another commit. The last line on stdout is that record as one JSON object. Exit code 0: every bar is met.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from campaign import provenance, records
from campaign.hosts_run import HOSTS, Course, Run, Trial, tell
from campaign.lan import Lan
from campaign.process import guarded
from campaign.registry import GATES
from campaign.spaces import move_in
from campaign.troubles import CUT, EMPTIED, HALF_OPEN, REBOOT, SLOW, Trouble

from headrace.common.config import merge

FILE = records.RESULTS / "many_hosts.jsonl"
EXAMPLES = records.ROOT / "examples"
OWN: Mapping[str, Any] = {
    # Hosts share a disk here, and do not in the world; two ranks make one update of the example's 256 rows.
    "learner": {"reading": "socket", "batch_size": 128, "threads": 1, "rank_timeout_s": 10, "checkpoint_every_updates": 500},
    "run": {"curve_s": 0},
}
DOWN_S, LINK_S = 1.0, 8.0
ORDER = ("store-1", "sim-0", "gpu-1", "store-0", "sim-1", "gpu-0")
SMALL: Mapping[str, Any] = {  # so that a busy machine has the time for it
    "eval": {"every": 2_000, "episodes": 1},
    "pool": {"capacity": 20_000},
    "pacing": {"ratio": 0.25},
    "learner": {"batch_size": 32, "checkpoint_every_updates": 100},
    "model": {"options": {"hidden": [32, 32]}},
}


def _pendulum(env_steps: int, course: Course, one_way: str = "") -> Trial:
    changes = merge(SMALL, {"pacing": {"env_steps": env_steps}})
    return Trial("pendulum.yaml", changes, course, None, 2, 1_800.0, 0.04, one_way)


def _cheetah(course: Course) -> Trial:
    gate = GATES["halfcheetah-async"]
    changes = {"eval": {"every": gate.env_steps // 2}, "pool": {"capacity": gate.env_steps + 5_000}}
    return Trial(gate.example, changes, course, gate.bars.each, gate.episodes, gate.deadline_s, 0.025)


def _reboots(*hosts: str) -> tuple[Trouble, ...]:
    return tuple(Trouble(REBOOT, host, DOWN_S) for host in hosts)


LINKS = (
    *(Trouble(CUT, host, LINK_S) for host in ("sim-0", "store-1")),
    Trouble(SLOW, "store-1", LINK_S),
    *(Trouble(HALF_OPEN, host, LINK_S) for host in ("sim-1", "store-0", "gpu-1")),
)
QUICK_COURSE = {"first": 500, "gap": 1_000, "before_s": 6.0, "window_s": 5.0, "settle_s": 30.0, "bar_s": 120.0}
TRIALS = {
    "undisturbed": _cheetah(Course()),
    "hurt": _cheetah(Course(_reboots(*ORDER), 8_000, 6_500)),
    "links": _pendulum(16_000, Course(LINKS, **{**QUICK_COURSE, "bar_s": 30.0}), "sim-0"),
    "quick": _pendulum(8_000, Course(_reboots("store-1", "sim-0", "gpu-1"), **QUICK_COURSE)),
    "control": _pendulum(3_000, Course((Trouble(EMPTIED, "store-1", DOWN_S),), **QUICK_COURSE)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--hurt", action="store_const", const="hurt", dest="trial", help="reboot each host once")
    which.add_argument("--links", action="store_const", const="links", dest="trial", help="trouble links in place of hosts")
    which.add_argument("--quick", action="store_const", const="quick", dest="trial", help="a short one, not recorded")
    which.add_argument("--control", action="store_const", const="control", dest="trial", help="a loss that must be found")
    parser.add_argument("--dir", type=Path, help="new directory for all files, which stay; default: a temporary one")
    parser.set_defaults(trial="undisturbed")
    args = parser.parse_args()
    recorded = args.trial not in ("quick", "control")
    origin = provenance.commit()
    plan = [(args.trial, args.seed)]
    if recorded and not records.unpassed(plan, records.read(FILE), origin["commit"], "trial", "seed"):
        print(json.dumps({"trial": args.trial, "seed": args.seed, "done": True}))
        return 0
    move_in("tc")
    trial = TRIALS[args.trial]
    with records.place(args.dir, "hosts-") as place:
        found = measure(trial, args.seed, place)
    if args.trial == "control":
        found = {**found, "passed": bool(found["lost"])}
    record = {"trial": args.trial, "seed": args.seed, "example": trial.example, **found}
    record |= {**origin, "machine": provenance.machine(), "date": provenance.stamp()}
    if recorded:
        records.append(FILE, record)
    print(json.dumps(record))
    return 0 if record["passed"] else 1


def measure(trial: Trial, seed: int, place: Path) -> dict[str, Any]:
    """One run of a trial, in an empty directory."""
    plain = yaml.safe_load((EXAMPLES / trial.example).read_text(encoding="utf-8"))
    config = merge(merge(plain, OWN), merge(trial.changes, {"seed": seed}))
    with Lan(HOSTS) as lan, contextlib.ExitStack() as stack:
        dialled: dict[str, bool] = {}
        if trial.one_way:
            dialled["before"] = _can_dial(lan, trial.one_way)
            stack.enter_context(lan.hosts[trial.one_way].drops("calls"))
            dialled["then"] = _can_dial(lan, trial.one_way)
        run = Run(lan, place, config, trial.course, trial.deadline_s, trial.pause_s)
        found = run.go()
    found |= run.judged(trial.episodes)
    missed = list(found.pop("problems"))
    if trial.least is not None and found["return_mean"] < trial.least:
        missed.append(f"return {found['return_mean']}, bar {trial.least:g}")
    if dialled:
        found["dialled"] = dialled
        missed += [] if dialled == {"before": True, "then": False} else [f"{trial.one_way} can be dialled: {dialled}"]
    if len(found["controls"]) < 4:
        missed.append(f"planted faults found: {found['controls']}")
    for problem in missed:
        tell(f"missed: {problem}")
    return {**found, "env": config["env"]["id"], "problems": missed, "passed": not missed}


def _can_dial(lan: Lan, name: str) -> bool:
    """Whether a connection to a host can be made, on which somebody listens meanwhile."""
    host = lan.hosts[name]
    with host.listening() as port:
        try:
            socket.create_connection((host.address, port), 2.0).close()
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(guarded(main))
