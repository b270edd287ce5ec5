"""Fuzzing: a short trial of each part with a fixed seed finds nothing, and a planted defect is found."""

from __future__ import annotations

import random

import numpy as np
import pytest
from campaign import fuzzing, honest
from campaign.fuzz_table import fuzz_line, fuzz_section
from campaign.gate import FAILED, PASSED, UNFINISHED
from campaign.mutating import mutate

from headrace.actor.outbox import Outbox
from headrace.buffer.intake import Intake
from headrace.common.block import Block
from headrace.common.weights import WeightSet
from headrace.common.wire import codec

ORIGIN = {"date": "2026-01-02T03:04:05Z", "commit": "abc123", "dirty": False, "machine": {"cpu": "Test CPU", "cores": 2}}


@pytest.mark.parametrize("part", fuzzing.PARTS)
def test_mutated_messages_crash_nothing(part):
    trial = fuzzing.run(part, 3, 2500)
    assert trial.found == []
    assert (trial.messages, trial.crashes) == (2500, 0)
    assert trial.accepted > 100  # or it would only be the doors that are tried


def wrong_bytes(head, frames, spec):
    block = PARSE(head, frames, spec)
    return Block(block.rows, {key: np.zeros_like(frame) for key, frame in block.frames.items()}, block.priorities)


PARSE = codec.parse_block
PLANTED = {
    "codec": (codec, "parse_block", wrong_bytes, "does not encode to the bytes it came as"),
    "session": (Outbox, "check_sent", lambda self, seq: None, "and rows up to"),
    "service": (Intake, "acks", lambda self: [], "of the honest actor are not acknowledged"),
}


@pytest.mark.parametrize("part", fuzzing.PARTS)
def test_what_is_accepted_as_something_else_or_not_answered_is_found(monkeypatch, part):
    place, name, fault, words = PLANTED[part]
    monkeypatch.setattr(place, name, fault)
    trial = fuzzing.run(part, 3, 1500)
    assert trial.crashes > 0
    assert any(words in told for told in trial.found)


def test_an_exception_that_is_no_refusal_is_found_and_told_with_its_message(monkeypatch):
    monkeypatch.setattr(WeightSet, "unpack", classmethod(lambda cls, blob: vars()["none"]))
    trial = fuzzing.run("codec", 3, 300)
    assert trial.crashes > 0
    assert trial.found[0].startswith("KeyError: 'none' <- 93")
    assert len(trial.found) <= 3


def test_the_same_seed_makes_the_same_messages_and_most_of_them_are_changed():
    messages = honest.of_actors()
    one, two = ([mutate(messages[i % 10], messages, rng) for i in range(500)] for rng in (random.Random(1), random.Random(1)))
    assert one == two
    assert sum(changed == messages[i % 10] for i, changed in enumerate(one)) < 50


def record(part, trial, **changes):
    counts = {"messages": 100_000, "accepted": 9000, "crashes": 0, "hangs": 0, "peak_bytes": 50 << 20, "cap_bytes": 1 << 30}
    return {"part": part, "trial": trial, "passed": True, **counts, **changes, **ORIGIN}


def test_records_become_a_verdict_over_a_million_messages_of_each_part():
    whole = [record(part, trial) for part in fuzzing.PARTS for trial in range(10)]
    assert fuzz_line(whole).state == PASSED
    assert fuzz_line(whole).text == "3,000,000 messages: 0 crashes, 0 hangs; memory at most 50 MiB"
    assert fuzz_line(whole[1:]).state == UNFINISHED
    assert fuzz_line([*whole, record("codec", 3, crashes=1)]).state == FAILED
    assert "| codec | 10 | 1,000,000 | 90,000 | 0 | 0 | 50 of 1024 | `abc123` |" in fuzz_section(whole)
