"""One fuzzing trial: a number of mutated messages against one target, under a cap of memory and with a watch for hangs."""

from __future__ import annotations

import faulthandler
import json
import logging
import random
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from campaign.fuzz_targets import TARGETS, Target
from campaign.mutating import Parts, mutate
from headrace.common.metrics import process_memory

CAP_BYTES = 1 << 30
HANG_S = 20.0  # for LOOK_EVERY messages, which take a second at most
LOOK_EVERY, RENEW_EVERY = 1000, 10_000  # messages
HONEST = 0.3  # of the mutated messages have an honest one before them
MOST_TOLD = 3
PARTS = ("codec", "session", "service")
MESSAGES, TRIALS = 100_000, 10  # of each part


@dataclass
class Trial:
    """What came of a trial.

    Attributes:
        part: the target.
        messages: that were sent.
        accepted: of them, as a whole or in part.
        crashes: messages that did what none may.
        peak_bytes: most memory of the process.
        seconds: of all.
        found: the first crashes, each with its message in hex.
    """

    part: str
    messages: int = 0
    accepted: int = 0
    crashes: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    found: list[str] = field(default_factory=list)


def run(part: str, seed: int, messages: int) -> Trial:
    """Send ``messages`` mutated messages to a target."""
    rng, trial, begun = random.Random(f"{part} {seed}"), Trial(part), time.monotonic()
    target = _fresh(part)
    while trial.messages < messages:
        origin = rng.randrange(len(target.honest))
        parts = mutate(target.honest[origin], target.honest, rng)
        trial.messages += 1
        if trial.messages % RENEW_EVERY == 0:
            target = _fresh(part)
        try:
            if rng.random() < HONEST:
                target.feed(target.honest[origin], origin)  # so that there are rows, weights and sessions to lie about
            trial.accepted += target.feed(parts, origin)
            if trial.messages % LOOK_EVERY == 0:
                target.look()
                faulthandler.dump_traceback_later(HANG_S, exit=True)
        except Exception as error:
            trial.crashes += 1
            if len(trial.found) < MOST_TOLD:
                trial.found.append(_told(error, parts))
            target = _fresh(part)
    faulthandler.cancel_dump_traceback_later()
    trial.peak_bytes = process_memory().get("peak_bytes", 0)
    trial.seconds = round(time.monotonic() - begun, 1)
    return trial


def worker(words: str) -> int:
    """The process of one trial; its last line is what came of it."""
    asked = json.loads(words)
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_DATA, (CAP_BYTES, CAP_BYTES))
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    print(json.dumps(asdict(run(asked["part"], asked["seed"], asked["messages"]))), flush=True)
    sys.stdout.flush()
    return 0


_places: list[tempfile.TemporaryDirectory[str]] = []


def _fresh(part: str) -> Target:
    """A target as it is at its start; what the one before left on disk is gone."""
    while _places:
        _places.pop().cleanup()
    _places.append(tempfile.TemporaryDirectory(prefix="headrace-fuzz-"))
    return TARGETS[part](Path(_places[-1].name))


def _told(error: Exception, parts: Parts) -> str:
    return f"{type(error).__name__}: {error}"[:300] + " <- " + " ".join(part[:512].hex() or "-" for part in parts[:8])
