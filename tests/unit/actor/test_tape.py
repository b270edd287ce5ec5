"""The tape: ids stay valid through growth and forgetting, and memory stays bounded."""

import numpy as np
import pytest

from headrace.actor.tape import START, Tape
from headrace.common.errors import EnvError


def tape(limit=1 << 20):
    return Tape({"id": ((), "<i8"), "pair": ((2,), "<f4")}, limit)


def push(t, n):
    return [t.append((t.end, (t.end, -t.end))) for _ in range(n)]


def check(t):
    ids = np.arange(t.start, t.end)
    assert (t.column("id", ids) == ids).all()
    assert (t.column("pair", ids) == np.stack([ids, -ids], 1)).all()


def test_ids_survive_growth_and_forgetting():
    t, rng = tape(), np.random.default_rng(0)
    for _ in range(300):
        push(t, int(rng.integers(0, 50)))
        t.forget(int(rng.integers(t.start, t.end + 1)))
        t.forget(t.start - 5)  # never goes back
        check(t)


def test_a_steady_reader_needs_no_growth():
    t = tape(limit=START)
    for _ in range(1000):
        push(t, 7)
        t.forget(t.end - 3)
        check(t)


def test_the_limit_is_kept():
    t = tape(limit=100)
    push(t, 100)
    with pytest.raises(EnvError, match="100 entries wait to be taken, allowed 100"):
        push(t, 1)
    t.forget(1)
    push(t, 1)
    check(t)


def test_columns_are_copies_and_ranges_are_written():
    t = tape()
    push(t, 5)
    column = t.column("id", np.array([1, 2]))
    t.write("id", 1, 3, 77)
    assert column.tolist() == [1, 2]
    assert t.column("id", np.arange(5)).tolist() == [0, 77, 77, 3, 4]


def test_state():
    t, other = tape(), tape()
    push(t, 200)
    t.forget(30)
    other.set_state(t.get_state())
    push(other, 40)
    check(other)
    assert (other.start, other.end) == (30, 240)
