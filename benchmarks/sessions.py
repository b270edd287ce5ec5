#!/usr/bin/env python
"""Many sessions on one buffer: what 1,000 actors cost it, without envs and policies, and whether it is up to them.

    .venv/bin/python benchmarks/sessions.py                    # every trial
    .venv/bin/python benchmarks/sessions.py --only idle,storm
    .venv/bin/python benchmarks/sessions.py --quick            # 100 sessions, short, not recorded: a smoke run

What it measures: `headrace buffer`, and actors of the wire (speed/crowd.py: the product's session, uplink and connection, many
of them in each of a few processes) with HalfCheetah's rows, over loopback, pool on disk, heartbeats as they come.

idle    sessions that only beat: time until all are there, share of a core, and private memory a session (RssAnon with all less
        that with one): after 20 s, and when it grows no more. ZeroMQ keeps 512 places for messages in each direction of each
        connection once that many have passed; `zmq_kb` is what a bare ROUTER takes for the same.
acks    each offers 8 rows as soon as those before are acknowledged: acknowledgements a second, and for each second of the
        buffer's processor.
paced   each offers 8 rows a second, as a fleet does: the time from offer to acknowledgement.
fanout  a new policy of 256 x 256 is published: time until every session holds it, complete and verified.
storm   as paced, and the buffer is killed by SIGKILL and started again: time from the kill until each session is back, and has
        rows of afterwards acknowledged.

How long: eight minutes, of which `idle` is five. Each trial adds a line to docs/results/sessions.jsonl and is not repeated on
the same commit.

The last line on stdout is one JSON object: trial -> its figures, checks and whether it passed. Exit code 0: all did.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np
import zmq
from campaign import provenance, records
from campaign.choosing import add_only
from campaign.footprint import counted
from campaign.hall import Figures, Scale, anonymous, busy, hall
from campaign.process import guarded
from helpers.publishing import publish

from headrace.common.limits import raise_open_files
from headrace.common.weights import Version, WeightSet

FILE = records.RESULTS / "sessions.jsonl"
SESSIONS = 1000
MEMORY_KB, STORM_S, HIDDEN = 64, 15.0, 256
EARLY_S, STEADY_S = 20.0, 280.0  # of 512 messages at two a second
BARE, BARE_ROUNDS = 100, 600
PUBLISHES = 2
Check = tuple[str, float, float]  # what, the value, the most that it may be


def idle(scale: Scale) -> tuple[Figures, list[Check]]:
    """Sessions that only beat."""
    with hall(scale) as here:
        buffer = here.start()
        here.admit(1, -1.0)
        here.window(3.0)
        before = anonymous(buffer)
        joined_s = here.admit(scale.sessions, -1.0)
        early_s = min(EARLY_S, scale.settle_s)
        here.window(early_s)
        early = (anonymous(buffer) - before) / scale.sessions / 1024
        with busy(buffer) as share:
            answers = here.window(scale.settle_s)
        late = (anonymous(buffer) - before) / scale.sessions / 1024
        asked = time.monotonic()
        status = here.run.status(30.0)
        status_s = time.monotonic() - asked
    figures = {
        "joined_s": joined_s,
        "early_kb": early,
        "session_kb": late,
        "zmq_kb": bare_kb(BARE_ROUNDS if scale.settle_s >= STEADY_S else 10),
        "core_share": share(),
        "status_s": status_s,
        "status_kb": len(json.dumps(status)) / 1024,
        "live": sum(a["live"] for a in answers),
    }
    missing = scale.sessions + 1 - figures["live"]
    return figures, [("missing", missing, 0), ("early_kb", early, MEMORY_KB), ("session_kb", late, MEMORY_KB)]


def bare_kb(rounds: int) -> float:
    """KB that a bare ROUTER takes for each of its peers when so many messages have gone each way."""
    with subprocess.Popen([sys.executable, __file__, "--bare"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = process.stdout.readline().strip()
            before = counted(process.pid, "RssAnon")
            with zmq.Context() as context:
                peers = [context.socket(zmq.DEALER) for _ in range(BARE)]
                for peer in peers:
                    peer.connect(endpoint)
                for _ in range(rounds):
                    for peer in peers:
                        peer.send(bytes(300))
                    for peer in peers:
                        peer.recv()
                taken = counted(process.pid, "RssAnon") - before
                for peer in peers:
                    peer.close(0)
        finally:
            process.kill()
    return taken / BARE / 1024


def bare() -> int:
    """The bare ROUTER: it answers every message."""
    raise_open_files()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        print(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}", flush=True)
        while True:
            peer, _ = socket.recv_multipart()
            socket.send_multipart([peer, bytes(60)])


def acks(scale: Scale) -> tuple[Figures, list[Check]]:
    """As many rows as are acknowledged."""
    return offered(scale, 0.0)


def paced(scale: Scale) -> tuple[Figures, list[Check]]:
    """Eight rows a second each."""
    return offered(scale, 1.0)


def offered(scale: Scale, period_s: float) -> tuple[Figures, list[Check]]:
    """Rows by everybody."""
    with hall(scale) as here:
        buffer = here.start()
        here.admit(scale.sessions, period_s)
        here.window(scale.seconds)  # each one's first block makes its place in the ledger
        with busy(buffer) as share:
            answers = here.window(scale.seconds)
        counters = here.run.status(30.0)["counters"]
    blocks = sum(a["blocks"] for a in answers) / scale.seconds
    figures = {
        "acks_s": blocks,
        "rows_s": sum(a["rate"] for a in answers),
        "acks_per_core_s": blocks / max(0.001, share()),
        "core_share": share(),
        "ack_p50_s": median(a["ack_p50_s"] for a in answers),
        "ack_p99_s": max(a["ack_p99_s"] for a in answers),
        "heard": sum(a["heard"] for a in answers),
        "sessions_lost": sum(a["lost"] for a in answers),
        "rows_lost": counters["lost_before"],
    }
    return figures, [("not acked", scale.sessions - figures["heard"], 0), ("rows_lost", figures["rows_lost"], 0)]


def fanout(scale: Scale) -> tuple[Figures, list[Check]]:
    """New weights for everybody."""
    rng, took = np.random.default_rng(0), []
    shapes = {"trunk.0": (HIDDEN, 17), "trunk.1": (HIDDEN, HIDDEN), "head": (12, HIDDEN)}
    tensors = {f"{name}.weight": rng.standard_normal(shape, "f4") for name, shape in shapes.items()}
    with hall(scale) as here:
        buffer = here.start()
        here.admit(scale.sessions, -1.0)
        with busy(buffer) as share:
            for step in range(1, PUBLISHES + 1):
                here.ask(2 * scale.seconds)
                begun = time.monotonic()
                weights = publish(here.run.endpoint, WeightSet(Version("learner", 0, step), {"type": "bench"}, tensors))
                got = [a["weights"].get(str(step), (0, begun)) for a in here.answers()]
                took.append((sum(count for count, _ in got), max(at for _, at in got) - begun))
    figures = {
        "nbytes": len(weights.pack()),
        "all_have_s": median(s for _, s in took),
        "all_have_max_s": max(s for _, s in took),
        "core_share": share(),
        "have": min(count for count, _ in took),
    }
    return figures, [("without it", scale.sessions - figures["have"], 0)]


def storm(scale: Scale) -> tuple[Figures, list[Check]]:
    """SIGKILL of the buffer, and all come back at once."""
    with hall(scale) as here:
        here.start()
        here.admit(scale.sessions, 1.0)
        here.window(scale.seconds)
        here.ask(2 * STORM_S)
        time.sleep(2.0)
        here.run.kill("buffer")
        killed = time.monotonic()
        here.run.buffer()
        answers = here.answers()
        status = here.run.status(30.0)
    acknowledged, accepted = sum(a["acknowledged"] for a in answers), status["counters"]["rows_accepted"]
    figures = {
        "all_back_s": max(a["back_at"] for a in answers) - killed,
        "all_acked_s": max(a["acked_at"] for a in answers) - killed,
        "back": sum(a["live"] for a in answers),
        "acked": sum(a["acked"] for a in answers),
        "rows_lost": status["counters"]["lost_before"] + max(0, acknowledged - accepted),
        "rows_duplicate": status["counters"]["rows_duplicate"],
    }
    return figures, [
        ("not back", scale.sessions - figures["back"], 0),
        ("not acked", scale.sessions - figures["acked"], 0),
        ("all_acked_s", figures["all_acked_s"], STORM_S),
        ("rows_lost", figures["rows_lost"], 0),
    ]


TRIALS: Mapping[str, Callable[[Scale], tuple[Figures, list[Check]]]] = {
    **{"idle": idle, "acks": acks, "paced": paced},
    **{"fanout": fanout, "storm": storm},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, TRIALS, "trial")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="actors at a time")
    parser.add_argument("--quick", action="store_true", help="100 sessions, short windows, not recorded")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        return bare()
    raise_open_files()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    scale = Scale(100, 3.0, 5.0) if args.quick else Scale(args.sessions, 20.0, STEADY_S)
    origin, out = provenance.commit(), {}
    known = {} if args.quick else records.latest(records.read(FILE), "trial", "sessions", "commit")
    for name in args.only:
        found = known.get((name, scale.sessions, origin["commit"]))
        if found is None or origin["dirty"]:
            figures, checks = TRIALS[name](scale)
            found = {"trial": name, "sessions": scale.sessions, "figures": _digits(figures), "checks": _judge(checks)}
            found["passed"] = all(check["met"] for check in found["checks"])
            found |= {**origin, "machine": provenance.machine(), "date": provenance.stamp()}
            if not args.quick:
                records.append(FILE, found)
        out[name] = {key: found[key] for key in ("figures", "checks", "passed")}
        print(f"{name}: {'passed' if found['passed'] else 'MISSED'} {found['figures']}", flush=True)
    print(json.dumps(out))
    return 0 if all(found["passed"] for found in out.values()) else 1


def _judge(checks: list[Check]) -> list[Figures]:
    return [{"what": what, "value": round(value, 3), "at_most": most, "met": value <= most} for what, value, most in checks]


def _digits(figures: Figures) -> Figures:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}


if __name__ == "__main__":
    sys.exit(guarded(main))
