"""A shard that a run has no more: its rows enter the home shard's pool once, and the sum of env steps stays."""

from __future__ import annotations

import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.buffer.satellites import Satellites
from headrace.common.wire.fleet import Session
from headrace.common.wire.messages import Hello, Holdings
from headrace.launch import merging
from headrace.launch.cli import main

SPEC = lane_spec()


def fill(path, capacity, *actors):
    """A pool with so many rows of each actor; its identity and its env steps."""
    with SACReplayPool(capacity, path=path, spec=SPEC) as pool:
        for number, (actor, rows) in enumerate(actors):
            lane = Lane(SPEC, number)
            for _ in range(rows // 10):
                first = lane.seq
                pool.insert(lane.block(10), actor, 1, first)
        return pool.info()["uuid"], pool.env_steps


def sum_of(home):
    with SACReplayPool(200, path=home) as pool:
        return pool.env_steps + Satellites(Pacing(PacingConfig()), home).env_steps


def rows_of(path):
    with SACReplayPool(200, path=path) as pool:
        return sorted((r["actor"], r["stream"], r["seq"], tuple(r["obs"]) if "obs" in r else r["digest"]) for r in pool.dump())


@pytest.fixture
def pools(tmp_path):
    """Home with 60 rows; a satellite that did 90 steps and holds the newest 50 of them."""
    home, other = tmp_path / "pool", tmp_path / "shard-1" / "pool"
    fill(home, 200, ("a", 30), ("b", 30))
    uuid, steps = fill(other, 50, ("b", 40), ("c", 50))
    satellites = Satellites(Pacing(PacingConfig()), home)
    session = Session(b"S", "shard", "shard-1", 1, b"1", "host", 7, 0.0, 0.0)
    satellites.join(session, Hello(1, "shard", "shard-1", b"1", "host", 7))
    satellites.holds(session, Holdings(uuid, steps, 50))
    satellites.tick(0.0)
    assert sum_of(home) == 60 + 90
    return home, other


def test_the_rows_enter_once_and_the_sum_stays(pools, capsys):
    home, other = pools
    mine, theirs = rows_of(home), rows_of(other)
    assert main(["pool", "merge", str(other), str(home)]) == 0
    assert "50 rows entered, 110 are live" in capsys.readouterr().out
    assert sum_of(home) == 150  # 40 steps of rows that the shard had evicted are still counted, and none twice
    renamed = {"b": "b@2"}  # the home shard has rows of b with the same numbers
    expected = mine + [(renamed.get(actor, actor), *rest) for actor, *rest in theirs]
    assert rows_of(home) == sorted(expected)
    assert not other.exists()
    with SACReplayPool(200, path=home) as pool:
        assert pool.last_seq("c", 1) == 50  # the ledger knows them: what is sent again is dropped


@pytest.mark.parametrize("cut", ["before", "within", "after"])
def test_a_merge_that_was_cut_is_finished_by_the_next(pools, monkeypatch, cut):
    home, other = pools
    expected = len(rows_of(home)) + len(rows_of(other))
    real = merging.import_pool

    def stops(out, pool, **how):
        if cut == "after":
            real(out, pool, **how)
        elif cut == "within":
            insert, done = pool.insert, []

            def once(*args):
                if done:
                    raise KeyboardInterrupt
                done.append(insert(*args))

            monkeypatch.setattr(pool, "insert", once)
            real(out, pool, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr(merging, "import_pool", stops)
    assert main(["pool", "merge", str(other), str(home)]) == 130
    assert sum_of(home) <= 150
    monkeypatch.setattr(merging, "import_pool", real)
    assert main(["pool", "merge", str(other), str(home)]) == 0
    assert sum_of(home) == 150
    assert len(rows_of(home)) == expected


def test_what_has_no_room_or_is_of_another_run_is_refused(pools, tmp_path, capsys):
    home, other = pools
    stranger = tmp_path / "stranger"
    fill(stranger, 50, ("d", 10))
    assert main(["pool", "merge", str(stranger), str(home)]) == 1
    assert "no shard of this run ever held the pool" in capsys.readouterr().err
    with SACReplayPool(100, path=home):
        pass  # its capacity is 100 from now on
    assert main(["pool", "merge", str(other), str(home)]) == 1
    assert "10 rows will be evicted" in capsys.readouterr().err
    assert main(["pool", "merge", str(other), str(home), "--evict"]) == 0
    with SACReplayPool(100, path=home) as pool:
        assert (pool.size, pool.env_steps) == (100, 60 + 50)
