import random

import numpy as np
import pytest
from helpers.lane_rows import lane_spec

from headrace.buffer.ledger import MAX_NAME_BYTES, STREAMS_PER_ACTOR, Ledger
from headrace.common.errors import BlockRefused, ConfigError, PoolDamaged

SPEC = lane_spec()


def reason(error):
    return error.value.reason


def test_a_stream_starts_at_zero_and_remembers_its_last():
    ledger = Ledger(4)
    assert ledger.last("a", 7) == 0
    index = ledger.open("a", 7)
    ledger.advance(index, 7, 5, 3, 3)
    assert (ledger.last("a", 7), ledger.lost_before, ledger.env_steps) == (5, 2, 3)
    assert ledger.streams("a") == {7: 5}
    assert ledger.streams("b") == {}


def test_more_actors_than_declared_are_refused_by_name():
    ledger = Ledger(2)
    ledger.open("a", 1)
    ledger.open("b", 1)
    with pytest.raises(BlockRefused, match=r"'c' .* max_actors 2") as error:
        ledger.open("c", 1)
    assert reason(error) == "actor-limit"
    assert ledger.open("a", 2) == 0


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_BYTES + 1), "a\0", "a\nfake log line", "\ud800", "é" * MAX_NAME_BYTES])
def test_names_that_cannot_be_kept_are_refused(name):
    with pytest.raises(BlockRefused) as error:
        Ledger(4).open(name, 1)
    assert reason(error) == "actor-name"
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("stream", [-1, 1 << 62, 1 << 64])
def test_streams_outside_the_range_are_refused(stream):
    with pytest.raises(BlockRefused) as error:
        Ledger(4).open("a", stream)
    assert reason(error) == "stream"


def test_one_stream_more_closes_the_lowest_for_ever():
    ledger = Ledger(1)
    for stream in range(10, 10 + STREAMS_PER_ACTOR):
        ledger.advance(ledger.open("a", stream), stream, stream, stream, 0)
    ledger.open("a", 100)
    assert 10 not in ledger.streams("a")
    for closed in (10, 3):
        for call in (ledger.open, ledger.last):
            with pytest.raises(BlockRefused) as error:
                call("a", closed)
            assert reason(error) == "stream-closed"
    assert ledger.last("a", 11) == 11
    with pytest.raises(BlockRefused):  # older than all open ones, and no place is free
        ledger.open("a", 10)
    assert ledger.check_valid() == (True, "")


def test_what_is_written_down_follows_every_change_since_the_time_before():
    ledger, again = Ledger(3), Ledger(3)
    steps = [
        lambda: ledger.open("a", 1),
        lambda: ledger.advance(0, 1, 5, 5, 5),
        lambda: ledger.open("b", 4),
        lambda: ledger.open("a", 2),
        lambda: ledger.reject(1, 4, 3, 3),
        lambda: ledger.advance(0, 2, 2, 1, 1),
        lambda: ledger.set_state(again.get_state()),
        lambda: ledger.advance(0, 2, 9, 7, 7),
    ]
    for step in steps:
        step()
        again.decode(ledger.encode())
        assert [again.streams(name) for name in ("a", "b")] == [ledger.streams(name) for name in ("a", "b")]
        assert again.counters() == ledger.counters()


def test_encoded_state_is_of_one_size_and_comes_back():
    ledger = Ledger(3)
    assert len(ledger.encode()) == Ledger.nbytes(3)
    for actor, stream, seq in [("a", 1, 9), ("äö", 4, 2), ("a", 2, 1)]:
        ledger.advance(ledger.open(actor, stream), stream, seq, 1, 2)
    ledger.reject(0, 2, 4, 3)
    data = ledger.encode()
    assert len(data) == Ledger.nbytes(3)
    again = Ledger(3)
    again.decode(data)
    assert again.encode() == data
    assert again.actors == ["a", "äö"]
    assert (again.env_steps, again.lost_before, again.rejected) == (6, 9, 3)


def test_state_of_too_many_actors_is_refused_naming_both():
    ledger = Ledger(3)
    for actor in "abc":
        ledger.open(actor, 1)
    small = Ledger(2)
    with pytest.raises(ConfigError, match="max_actors: 2, but 3"):
        small.set_state(ledger.get_state())
    large = Ledger(9)
    large.set_state(ledger.get_state())
    assert large.actors == ["a", "b", "c"]


def test_replay_equals_what_was_advanced():
    draw = random.Random(0)
    live, stamped = Ledger(3), Ledger(3)
    rows = []
    for actor in "abc":
        for stream in (1, 2):
            live.open(actor, stream)
    stamped.decode(live.encode())
    for _ in range(200):
        actor, stream, n, gap = draw.randrange(3), draw.choice([1, 2]), draw.randint(1, 5), draw.choice([0, 0, 3])
        first = live.last("abc"[actor], stream) + 1 + gap
        live.advance(actor, stream, first + n - 1, n, n)
        block = np.zeros(n, SPEC.row_dtype)
        block["actor"], block["stream"], block["seq"], block["steps"] = actor, stream, np.arange(first, first + n), 1
        rows.append(block)
    stamped.replay(np.concatenate(rows[:70]), SPEC)
    stamped.replay(np.concatenate(rows[70:]), SPEC)
    stamped.replay(np.zeros(0, SPEC.row_dtype), SPEC)
    assert stamped.encode() == live.encode()
    assert stamped.covers(np.concatenate(rows)) == (True, "")


def test_rows_that_the_table_does_not_know_are_damage():
    rows = np.zeros(1, SPEC.row_dtype)
    rows["stream"], rows["seq"] = 5, 1
    ledger = Ledger(2)
    with pytest.raises(PoolDamaged, match="actor 0 stream 5"):
        ledger.replay(rows, SPEC)
    ledger.open("a", 5)
    assert not ledger.covers(rows)[0]
    ledger.replay(rows, SPEC)
    with pytest.raises(PoolDamaged):  # the same row twice
        ledger.replay(rows, SPEC)
