"""Parts of P22: hostile input is refused and harms nobody.

plain     over loopback a peer with a session and a stranger send every hostile message of tests/helpers/hostile.py, round after
          round, while an honest actor goes on.
keys      the same under a known key; beside it an unknown key and a client without any try to get in, and the known one says
          that it is another actor, and a learner.
messages  mutated messages by the million, as `fuzz.py` records them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import zmq
from campaign.fuzz_table import KINDS, LEAST, PARTS, summarise
from campaign.fuzz_table import of_kind as trials_of
from campaign.promise import MEDIAN, Outcome, Part, Recorded, Tally, Trial, at_least, counted, never, told
from campaign.records import Record
from helpers import hostile
from helpers.peer import Peer
from helpers.roles import Roles, roles, scripted

from headrace.common.wire import messages as m
from headrace.common.wire.codec import encode
from headrace.common.wire.key_files import KeyFiles

SHARE = 0.9  # of its rate without an attack that the honest actor keeps
CALM_S, QUICK_S, ROUNDS = 5.0, 1.0, 8
PAUSE_S = 0.002  # between two messages: the attacker takes its time, not the machine's
TRIALS = 5
CONFIG: dict[str, Any] = {
    "pacing": {"hold_actors": False, "random_steps": 1_000_000_000, "env_steps": 0},  # no learner is needed
    "network": {"heartbeat_s": 0.1, "lease_s": 60.0, "connect_s": 60},
    "env": {"kwargs": {"lengths": [7], "ends": ["terminated"], "delay_s": 0.002}},
}
KEYS = {"honest": "actor", "m": "actor", "operator": "operator"}


def plain(trial: Trial) -> Outcome:
    """A peer with a session, and one without."""
    with roles(trial.place, scripted(**CONFIG)) as run, zmq.Context() as context, contextlib.ExitStack() as stack:
        begin(run)
        known, stranger = (stack.enter_context(Peer(context, run.endpoint)) for _ in range(2))
        return attacked(trial, run, known, [stranger])


def keys(trial: Trial) -> Outcome:
    """A known key, an unknown one, and none."""
    ours, theirs = KeyFiles(trial.place / "keys"), KeyFiles(trial.place / "foreign")
    for name, role in KEYS.items():
        ours.new(name, role)
    theirs.new("m", "actor")
    own = ours.secret("m", "actor")
    foreign = replace(theirs.secret("m", "actor"), buffer=own.buffer)
    config = {**CONFIG, "network": {**CONFIG["network"], "keys": str(ours.path)}}
    with roles(trial.place, scripted(**config)) as run, zmq.Context() as context, contextlib.ExitStack() as stack:
        begin(run)
        known, stranger, keyless = (stack.enter_context(Peer(context, run.endpoint, key)) for key in (own, foreign, None))
        known.greet("m")
        for role, identity in (("actor", "honest"), ("learner", "m")):
            known.send([encode(m.Hello(m.PROTOCOL, role, identity, b"7", "host", 1))])
        posed = len({"key-id", "key-role"} - known.reasons(m.Refused, 2))
        let_in = sum(peer.is_let_in(1000) for peer in (stranger, keyless))
        found = attacked(trial, run, known, [])
        heard = len(stranger.heard) + len(keyless.heard)
        return Outcome({**found.figures, "accepted": found.figures["accepted"] + let_in + heard + posed}, found.problems)


def begin(run: Roles) -> None:
    """Start a buffer and its honest actor."""
    run.buffer()
    run.actor("honest")
    run.wait(lambda s: s["env_steps"] > 100, 60, watch=("buffer", "honest"))


def attacked(trial: Trial, run: Roles, known: Peer, strangers: Sequence[Peer]) -> Outcome:
    """Send everything again and again, and compare the honest actor's rate with that before."""
    marker = trial.place / "marker"
    small, _ = hostile.all_of(marker)
    calm = rate(run, QUICK_S if trial.quick else CALM_S)
    known.greet("m")
    begun, before, sent = time.monotonic(), run.status()["env_steps"], 0
    for _ in range(1 if trial.quick else ROUNDS):
        for number in trial.rng.permutation(len(small)):
            for peer in (known, *strangers):
                peer.send(small[number])
            sent += 1
            time.sleep(PAUSE_S)
    status = run.wait(lambda s: refused(s, "actor/m") >= sent, 30, watch=("buffer", "honest"))
    share = (status["env_steps"] - before) / (time.monotonic() - begun) / calm
    acked = [actor["acked"] for actor in status["actors"] if actor["id"] == "m"]
    answers = sum(isinstance(message, (m.Ack, m.Reject)) for message in known.heard)
    answers += sum(not isinstance(message, m.Refused) for peer in strangers for message in peer.heard)
    accepted = sent - refused(status, "actor/m") + sum(map(bool, acked)) + answers + marker.exists()
    deaths = sum(process.poll() is not None for process in run.processes.values())
    defects = status["counters"].get("refused_defect", 0)
    problems = () if "Traceback" not in run.log("buffer") else ("the buffer's log has a traceback",)
    run.stop()
    figures = {"hostile": sent * (1 + len(strangers)), "accepted": abs(accepted), "deaths": deaths, "defects": defects}
    return Outcome({**figures, "honest_share": share}, problems)


def rate(run: Roles, seconds: float) -> float:
    """Env steps a second."""
    begun, before = time.monotonic(), run.status()["env_steps"]
    time.sleep(seconds)
    return float((run.status()["env_steps"] - before) / (time.monotonic() - begun))


def refused(status: dict[str, Any], who: str) -> int:
    """Messages of a peer that the buffer has refused."""
    return sum(status["refused_of"].get(who, {}).values())


def tell(known: Sequence[Record]) -> Tally:
    """What the fuzzing trials say."""
    own = [record for kind in KINDS for record in trials_of(kind, known)]
    said = summarise(known)
    figures = {name: f"{sum(part[name] for part in said.values()):,}" for name in ("messages", "crashes", "hangs")}
    missed = any(said[part]["messages"] < LEAST for part in PARTS)
    return counted(own, len(own), figures, f"messages >= {LEAST:,} a part", missed=missed)


BARS = (*never("accepted", "deaths", "defects"), *at_least("honest_share", SHARE, MEDIAN), *told("hostile", over="sum"))
HOSTILE = (
    Part("plain", TRIALS, plain, BARS),
    Part("keys", TRIALS, keys, BARS),
    Recorded("messages", "fuzz.py", "fuzz.jsonl", tell),
)
