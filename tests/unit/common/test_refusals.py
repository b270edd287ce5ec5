"""What the log tells of refusals: each reason at once, all together seldom, and what goes on for ever almost never."""

from __future__ import annotations

import logging

from headrace.common.wire.refusals import Refusals


def lines(caplog):
    told = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return told


def test_a_new_reason_is_not_hidden_by_one_that_goes_on(caplog):
    caplog.set_level(logging.WARNING)
    refusals = Refusals("messages")
    told = []
    for now in range(0, 7200, 5):
        refusals.add("actor/a", "held", "held by pid 7")
        refusals.tick(float(now))
        told += [now] * len(lines(caplog))
    assert told == [0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110]
    refusals.add("actor/b", "size", "rows: 8 bytes, expected 121", n=3)
    refusals.tick(7200.0)
    assert lines(caplog) == ["3 messages refused: actor/b size 3; the last one: rows: 8 bytes, expected 121"]
    refusals.add("actor/c", "arity", "no frames")
    for now in (7201.0, 7209.0):
        refusals.tick(now)
    assert lines(caplog) == []
    refusals.tick(7210.0)
    assert lines(caplog) == ["1 messages refused: actor/c arity 1; the last one: no frames"]  # one line in ten seconds
    assert refusals.by_reason == {"held": 1440, "size": 3, "arity": 1}


def test_reasons_that_are_due_share_a_line_with_the_newest_detail(caplog):
    caplog.set_level(logging.WARNING)
    refusals = Refusals("rows")
    refusals.add("actor/a", "size", "first", n=2)
    refusals.add("actor/b", "size", "second")
    refusals.add("actor/a", "steps", "third")
    refusals.add("actor/a", "size", "fourth")
    refusals.tick(0.0)
    refusals.tick(10.0)
    assert lines(caplog) == ["5 rows refused: actor/a size 3, actor/b size 1, actor/a steps 1; the last one: fourth"]
