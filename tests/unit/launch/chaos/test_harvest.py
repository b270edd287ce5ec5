"""The harvest of a pool's rows: each once, those that change again, those that nobody could read as what they are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool
from headrace.buffer.view import PoolView
from headrace.launch.chaos import history
from headrace.launch.chaos.harvest import COLUMNS, Harvest
from headrace.launch.chaos.history import History

SPEC = lane_spec()


@pytest.fixture
def place(tmp_path):
    return tmp_path / "pool"


@pytest.fixture
def harvest(place, tmp_path):
    notes = History(tmp_path / "rows-0.jsonl", {})
    made = Harvest(place, notes)
    yield made
    notes.close()


def opened(place):
    return SACReplayPool(20, path=place, spec=SPEC)


def insert(pool, lane, rows):
    block = lane.block(rows)
    pool.insert(block, "a", 1, pool.last_seq("a", 1) + 1)


def told(tmp_path):
    return [line[1:] for line in history.read(tmp_path / "rows-0.jsonl").lines]


def ids(tmp_path):
    return [line[1] for line in told(tmp_path) if line[0] == "row"]


def test_each_row_is_told_once_as_the_dump_tells_it(place, harvest, tmp_path):
    harvest.gather()  # nothing is there yet
    lane = Lane(SPEC, 1)
    with opened(place) as pool:
        insert(pool, lane, 7)
        harvest.gather()
        insert(pool, lane, 6)
        harvest.gather()
        harvest.gather()
        last = list(pool.dump())[-1]
    assert ids(tmp_path) == list(range(13))
    assert told(tmp_path)[-1] == ["row", 12, "a", 1, 13, *(last[name] for name in COLUMNS[4:])]


def test_after_a_new_owner_all_are_read_again_and_only_what_is_another_is_told(place, harvest, tmp_path):
    lane = Lane(SPEC, 1)
    with opened(place) as pool:
        insert(pool, lane, 7)
        harvest.gather()
    with opened(place):
        harvest.gather()
    assert ids(tmp_path) == list(range(7))
    frames = np.load(next(place.rglob("frames.obs.npy")), mmap_mode="r+")
    frames[0, 0] += 1  # of the first row alone: the others begin behind it
    frames.flush()
    with opened(place) as pool:
        insert(pool, lane, 3)
        harvest.gather()
    assert ids(tmp_path) == [*range(7), 0, *range(7, 10)]


def test_rows_that_were_evicted_unread_are_told_as_a_range(place, harvest, tmp_path):
    lane = Lane(SPEC, 1)
    with opened(place) as pool:
        insert(pool, lane, 5)
        harvest.gather()
        for _ in range(4):
            insert(pool, lane, 10)
        harvest.gather()
        harvest.gather()
    assert [line for line in told(tmp_path) if line[0] == "unseen"] == [["unseen", 5, 25]]
    assert ids(tmp_path) == [*range(5), *range(25, 45)]


def test_rows_that_are_read_again_late_are_not_unseen(place, harvest, tmp_path, monkeypatch):
    """A new owner makes the harvest begin at the tail; what is evicted before it is there was read long ago."""
    lane = Lane(SPEC, 1)
    with opened(place) as pool:
        for _ in range(4):
            insert(pool, lane, 10)
            harvest.gather()
    with opened(place) as pool:

        class Late(PoolView):
            def dump(self, start=0):
                insert(pool, lane, 10)
                return super().dump(start)

        monkeypatch.setattr("headrace.launch.chaos.harvest.PoolView", Late)
        harvest.gather()
    assert not [line for line in told(tmp_path) if line[0] == "unseen"]
    assert ids(tmp_path) == list(range(50))


def test_the_last_line_says_how_many_rows_live_and_which(place, harvest, tmp_path):
    lane = Lane(SPEC, 1)
    harvest.start()
    with opened(place) as pool:
        for _ in range(3):
            insert(pool, lane, 10)
    harvest.close()
    assert told(tmp_path)[-1] == ["left", 20, 10]
    assert json.loads((tmp_path / "rows-0.jsonl").read_text().splitlines()[0])[1] == "begin"
