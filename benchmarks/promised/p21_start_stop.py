"""P21: roles start in any order, end in order when they are asked to, and say what is wrong with a config.

orders  buffer, learner and actor are started in each of their six orders, with random pauses in between, until the learner has
        made updates; then all are told to end at once.
stops   one role is told to end at a random time after its first line, while the others are killed, stopped by SIGSTOP, or were
        never there.
trains  `headrace train` is stopped by SIGINT or SIGTERM at a random time, and resumed to its end.
wrong   each misconfiguration of campaign/misconfigured.py: the process ends by itself, and one line names the field.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml
from campaign.leftovers import Leftovers
from campaign.misconfigured import CASES
from campaign.process import ProcessFailed, headrace
from campaign.promise import Outcome, Part, Promise, Trial, at_most, never, told
from helpers.roles import Roles, free_port, roles, scripted

from headrace.launch.leash import leash

ROLES = ("buffer", "learner", "actor")
ORDERS = tuple(itertools.permutations(ROLES))
PEERS = ("killed", "stopped", "absent")
TRAIN_S, EXIT_S, NAMED_S, LATE_S, RUN_S = 90.0, 10.0, 30.0, 90.0, 240.0
PAUSE_S, ANY_S = 1.5, 8.0
STOPPED = 130  # exit code of a run that was stopped
SMALL: dict[str, Any] = {
    "model": {"options": {"hidden": [16]}},
    "learner": {"batch_size": 32, "checkpoint_every_updates": 50},
    "pacing": {"env_steps": 0, "min_fill": 64, "random_steps": 64},
}
TRAIN: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "max_episode_steps": 40},
    "actor": {"count": 2},
    "pool": {"capacity": 2000},
    "pacing": {"env_steps": 3000, "min_fill": 64, "random_steps": 64},
    "learner": {"batch_size": 16, "checkpoint_every_updates": 100},
    "model": {"options": {"hidden": [16, 16]}},
    "eval": {"every": 1000, "episodes": 1, "final_episodes": 1},
    "sinks": {"tensorboard": False},
    "network": {"heartbeat_s": 0.1, "lease_s": 2},
}
CLEAN = never("orphans", "sockets", "shared_files")
WRONG = (*at_most("ended_s", NAMED_S), *never("not_named", "exit_0"))


def orders(trial: Trial) -> Outcome:
    """One order."""
    left = Leftovers(trial.place)
    with roles(trial.place, scripted(**SMALL)) as run:
        for name in ORDERS[trial.number % len(ORDERS)]:
            time.sleep(float(trial.rng.uniform(0, PAUSE_S)))
            start(run, name)
        begun = time.monotonic()
        run.wait(lambda s: s["updates"] > 0, TRAIN_S, watch=ROLES)
        trained_s = time.monotonic() - begun
        exit_s, codes = end(run, list(trial.rng.permutation(ROLES)))
    bad = {name: code for name, code in codes.items() if code != 0}
    problems = tuple(f"{name} ended with {code}: {tail(run, name)}" for name, code in bad.items())
    return Outcome({"training_s": trained_s, "exit_s": exit_s, "bad_codes": len(bad), **left.count(run.endpoint)}, problems)


def stops(trial: Trial) -> Outcome:
    """One role, with its peers in one way unreachable."""
    victim, peers = ROLES[trial.number % len(ROLES)], PEERS[trial.number // len(ROLES) % len(PEERS)]
    others = [name for name in ROLES if name != victim]
    left = Leftovers(trial.place)
    with roles(trial.place, scripted(**SMALL)) as run:
        for name in ROLES if peers != "absent" else (victim,):
            start(run, name)
        wait_heard(run, victim)
        time.sleep(float(trial.rng.uniform(0, ANY_S)))
        for name in others if peers != "absent" else ():
            os.kill(run.processes[name].pid, signal.SIGKILL if peers == "killed" else signal.SIGSTOP)
        time.sleep(float(trial.rng.uniform(0, PAUSE_S)))
        exit_s, codes = end(run, [victim])
        said = tail(run, victim)
    problems = () if codes[victim] == 0 else (f"{victim}, others {peers}: ended with {codes[victim]}: {said}",)
    return Outcome({"exit_s": exit_s, "bad_codes": len(problems), **left.count(run.endpoint)}, problems)


def trains(trial: Trial) -> Outcome:
    """One run."""
    number = (signal.SIGINT, signal.SIGTERM)[trial.number % 2]
    config, left = trial.place / "config.yaml", Leftovers(trial.place)
    config.write_text(yaml.safe_dump({**TRAIN, "run": {"dir": str(trial.place), "name": "run"}}))
    child = train(trial.place, str(config))
    try:
        wait(lambda: hears(child.pid), "train listens for signals", 20.0)
        time.sleep(float(trial.rng.uniform(0, 2 * ANY_S)))
        child.send_signal(number)
        begun = time.monotonic()
        code = child.wait(LATE_S)
        exit_s = time.monotonic() - begun
        counts = left.count()
        problems = () if code in (0, STOPPED) else (f"{number.name}: ended with {code}: {said(trial.place)}",)
        resumed = 0
        if (trial.place / "run" / "config.yaml").exists():
            child = train(trial.place, "--resume", str(trial.place / "run"))
            resumed = child.wait(RUN_S)
            problems += () if resumed == 0 else (f"resumed, it ended with {resumed}: {said(trial.place)}",)
    finally:
        child.kill()
        child.wait(10)
    counts = {key: counts[key] + more for key, more in left.count().items()}
    return Outcome({"exit_s": exit_s, "bad_codes": len(problems), **counts}, problems)


def wrong(trial: Trial) -> Outcome:
    """One misconfiguration."""
    case = CASES[trial.number % len(CASES)]
    with roles(trial.place, scripted(**SMALL)) as run:
        name = case.begin(run)
        begun = time.monotonic()
        code = run.processes[name].wait(LATE_S)
        ended_s, log = time.monotonic() - begun, run.log(name)
        words = case.words(run)
    return named(case.name, words, log, code, ended_s)


def named(what: str, words: Sequence[str], log: str, code: int, ended_s: float) -> Outcome:
    """Whether a process that ended so after such words has named what is wrong."""
    last = log.strip().splitlines()[-1] if log.strip() else ""
    is_named = "error: " in last and all(word in last for word in words)
    problems = () if is_named else (f"{what}: its last line does not name {words}: {last[-300:]}",)
    problems += () if code != 0 else (f"{what}: exit code 0",)
    problems += (f"{what}: a traceback",) if "Traceback" in log else ()
    return Outcome({"ended_s": ended_s, "not_named": not is_named, "exit_0": code == 0}, problems)


def unnamed(place: Path) -> dict[str, bool]:
    """Whether ends that do not say what is wrong are found."""
    good = "begun\nheadrace buffer: error: pool.capacty: no such key; nearest valid: 'capacity'\n"

    def found(log: str, code: int = 2, ended_s: float = 1.0) -> bool:
        part = Part("wrong", 1, wrong, WRONG)
        return bool(part.problems(named("unknown key", ("pool.capacty", "'capacity'"), log, code, ended_s)))

    return {
        "nothing": not found(good),
        "another field": found(good.replace("capacty", "size")),
        "not in the last line": found(good + "bye\n"),
        "a traceback": found("Traceback (most recent call last):\n" + good),
        "nothing said": found(""),
        "exit code 0": found(good, code=0),
        "too late": found(good, ended_s=2 * NAMED_S),
    }


def start(run: Roles, name: str) -> None:
    """Start a role by hand."""
    if name == "buffer":
        run.buffer()
    elif name == "learner":
        run.start(name, "learner", str(run.config), "--connect", run.endpoint)
    else:
        run.actor(name)


def end(run: Roles, names: list[str]) -> tuple[float, dict[str, int]]:
    """SIGTERM all at once; the time (s) until the last has ended, and the exit codes."""
    begun = time.monotonic()
    for name in names:
        run.processes[name].send_signal(signal.SIGTERM)
    codes = {name: run.processes[name].wait(LATE_S) for name in names}
    return time.monotonic() - begun, codes


def train(place: Path, *words: str) -> subprocess.Popen[bytes]:
    """`headrace train`; what it says goes to a log."""
    with (place / "train.log").open("ab") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            headrace("train", *words), stdout=log, stderr=log, cwd=place, env=environment, preexec_fn=leash()
        )


def hears(pid: int) -> bool:
    """Whether a process has begun to listen for SIGTERM: before its first line nothing of it can."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt"))[7:], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def wait_heard(run: Roles, name: str) -> None:
    """Wait until a role listens for signals."""
    wait(lambda: hears(run.processes[name].pid), f"{name} listens for signals", 20.0)


def wait(what: Any, text: str, seconds: float) -> None:
    """Wait for ``what``, or say that it did not come."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise ProcessFailed(f"not within {seconds:g} s: {text}")
        time.sleep(0.01)


def tail(run: Roles, name: str) -> str:
    """The end of a role's log."""
    return run.log(name)[-400:]


def said(place: Path) -> str:
    """The end of what train said."""
    return (place / "train.log").read_text(errors="replace")[-400:]


def litter(place: Path) -> dict[str, bool]:
    """Whether a process, a port and a file in shared memory that are left are found."""
    left, port = Leftovers(place), free_port()
    shared = Path("/dev/shm") / f"headrace-litter-{os.getpid()}"
    words = ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(place)]
    child = psutil.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        shared.write_text("")
        wait(lambda: left.count_sockets(f"tcp://127.0.0.1:{port}"), "listens", 20.0)
        found = left.count(f"tcp://127.0.0.1:{port}")
    finally:
        child.kill()
        child.wait(10)
        shared.unlink()
    return {name: count == 1 for name, count in found.items()}


PROMISE = Promise(
    "P21",
    "Roles start in any order, end within 10 s when they are told to, leave nothing behind, and name what is misconfigured.",
    (
        Part(
            "orders",
            20 * len(ORDERS),
            orders,
            (*at_most("exit_s", EXIT_S), *never("bad_codes"), *CLEAN, *told("training_s")),
            quick=2,
            control=litter,
        ),
        Part("stops", 63, stops, (*at_most("exit_s", EXIT_S), *never("bad_codes"), *CLEAN), quick=9, control=litter),
        Part("trains", 20, trains, (*at_most("exit_s", EXIT_S), *never("bad_codes"), *CLEAN), control=litter),
        Part("wrong", len(CASES), wrong, WRONG, quick=len(CASES), control=unnamed),
    ),
)
