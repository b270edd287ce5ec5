"""The spread of discounted returns: what a pool counts once per committed row, however the rows came."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lane_pool import SPECS, put
from helpers.lane_rows import Lane
from helpers.pinned_pool import demos_of

from headrace.buffer import SACReplayPool, returns
from headrace.buffer.returns import Returns
from headrace.common.errors import PoolDamaged
from headrace.common.statistics import ReturnStatistics

SPEC = SPECS["plain"]
GAMMA = 0.9
LENGTHS = (7, 1, 12)  # of a lane's episodes, whose step t gives reward t


def make(capacity=1000, spec=SPEC, **more):
    return SACReplayPool(capacity, spec=spec, return_gamma=GAMMA, rng=np.random.default_rng(0), **more)


def so_far(steps, gamma=GAMMA, lengths=LENGTHS):
    """G of the first steps of a lane."""
    out, episode = [], 0
    while len(out) < steps:
        g = 0.0
        for t in range(lengths[episode % len(lengths)]):
            g = gamma * g + t
            out.append(g)
        episode += 1
    return np.array(out[:steps])


def told(pool):
    return pool.statistics().returns


def assert_spread(pool, values):
    assert told(pool).count == len(values)
    assert told(pool).var == pytest.approx(np.var(values), rel=1e-12)


def test_by_hand():
    pool, lane = make(), Lane(SPEC, 1, lengths=(3, 2))
    assert told(pool) == ReturnStatistics(0, 1.0)
    block = lane.block(5)
    block.rows["rewards"][:, 0] = [1, 2, 3, 1, 2]
    pool.insert(block, "a", 1, 1)
    values = [1, 2.9, 5.61, 1, 2.9]  # 2 + .9, 3 + .9 * 2.9; the second episode begins anew
    assert told(pool).count == 5
    assert told(pool).var == pytest.approx(np.var(values), rel=1e-6)
    assert SACReplayPool(10, spec=SPEC).statistics().returns is None  # nobody asked for it


@pytest.mark.parametrize("sizes", [[60], [1] * 60, [7, 20, 3, 30], [19, 2, 39]])
def test_it_does_not_matter_how_the_rows_are_cut_into_blocks(sizes):
    pool, lane = make(), Lane(SPEC, 1)
    for n in sizes:
        put(pool, lane, n)
    assert_spread(pool, so_far(60))
    assert pool.get_state()["returns"]["running"] == []  # all of them have ended


def test_lanes_and_actors_have_episodes_of_their_own():
    pool, one, two = make(), Lane(SPEC, 1), Lane(SPEC, 2)
    for n in (3, 10, 1, 16):
        put(pool, one, n)
        put(pool, two, n)
    assert_spread(pool, np.tile(so_far(30), 2))


@pytest.mark.parametrize("window", ["n-step", "chunk"])
def test_overlapping_windows_count_one_step_and_chunks_all_that_were_executed(window):
    spec = SPECS[window]
    pool, lane = make(spec=spec), Lane(spec, 1)
    for n in (1, 4, 3, 2):
        put(pool, lane, n)
    assert pool.env_steps == told(pool).count
    assert_spread(pool, so_far(pool.env_steps))


def test_behind_a_gap_an_episode_begins_anew():
    pool, lane = make(), Lane(SPEC, 1)
    put(pool, lane, 3)
    lane.block(2)  # lost on the way
    put(pool, lane, 2)
    assert_spread(pool, [0, 1, 0.9 + 2, 5, 0.9 * 5 + 6])


def test_rows_that_are_gone_stay_counted_and_labels_change_nothing():
    pool, lane = make(capacity=5), Lane(SPEC, 1)
    put(pool, lane, 40)
    before = told(pool)
    assert_spread(pool, so_far(40))
    pool.amend_rewards("actor-1", 1, 36, np.full(5, 99.0))
    pool.discard("actor-1", 1, 37, 38)
    assert told(pool) == before


def test_duplicates_do_not_count():
    pool, lane = make(), Lane(SPEC, 1)
    block = lane.block(10)
    for _ in range(2):
        pool.insert(block, "a", 1, 1)
    assert_spread(pool, so_far(10))


@pytest.mark.parametrize("kept", [10, 1000])
def test_a_snapshot_goes_on_to_the_bit_inside_an_episode(tmp_path, kept):
    straight, lane = make(kept), Lane(SPEC, 1)
    put(straight, lane, 33)
    straight.save(tmp_path / "s")
    again = make(kept)
    assert again.load(tmp_path / "s")
    assert again.get_state()["returns"] == straight.get_state()["returns"]
    rest = [lane.block(n) for n in (1, 6, 9)]
    for pool in (straight, again):
        seq = 34
        for block in rest:
            pool.insert(block, "actor-1", 1, seq)
            seq += block.n_rows
    assert told(straight) == told(again)
    assert_spread(straight, so_far(49))


def test_what_is_opened_again_counts_the_rows_that_are_there(tmp_path):
    pool, lane = make(capacity=20, path=tmp_path / "pool"), Lane(SPEC, 1)
    put(pool, lane, 40)
    pool.close()
    pool = make(capacity=20, path=tmp_path / "pool")
    assert_spread(pool, so_far(40)[20:])  # the 20 that are left begin with an episode
    put(pool, lane, 5)
    assert_spread(pool, so_far(45)[20:])
    pool.close()


def test_a_snapshot_of_another_gamma_or_without_returns_leaves_those_of_its_rows(tmp_path):
    for gamma in (0.5, None):
        pool, lane = SACReplayPool(30, spec=SPEC, return_gamma=gamma), Lane(SPEC, 1)
        put(pool, lane, 25)
        pool.save(tmp_path / str(gamma))
        again = make()
        again.load(tmp_path / str(gamma))
        assert_spread(again, so_far(25))


def test_an_older_pool_that_a_run_begins_with_is_counted_too():
    old = SACReplayPool(50, spec=SPEC)
    put(old, Lane(SPEC, 1), 25)
    pool = make()
    pool.adopt(old)
    assert_spread(pool, so_far(25))


def test_demonstrations_count_once():
    pool, lane = make(demos=demos_of(20)), Lane(SPEC, 1)
    assert_spread(pool, so_far(20))
    put(pool, lane, 30)
    both = np.concatenate([so_far(20), so_far(30)])
    assert_spread(pool, both)
    state = pool.get_state()
    again = make(demos=demos_of(20))
    again.set_state(state)
    assert told(again) == told(pool)


def test_running_episodes_are_bounded(monkeypatch):
    monkeypatch.setattr(returns, "MOST_RUNNING", 2)
    pool = make()
    lanes = [Lane(SPEC, actor, lengths=(9,)) for actor in range(3)]
    for lane in lanes:
        put(pool, lane, 2)
    assert [running[0] for running in pool.get_state()["returns"]["running"]] == [1, 2]  # the newest
    put(pool, lanes[0], 1)  # forgotten, so it begins anew
    put(pool, lanes[2], 1)
    assert_spread(pool, [0, 1] * 3 + [2, 2.9])


@pytest.mark.parametrize(
    "bad",
    [
        {"moments": [1, 2.0]},
        {"moments": [-1, 0.0, 0.0]},
        {"moments": [1, 0.0, float("nan")]},
        {"running": [[1, 1, 1]]},
        {"running": [[1, 1, 1, 0, "x"]]},
        {"gamma": None},
    ],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(bad):
    pool, lane = make(), Lane(SPEC, 1)
    put(pool, lane, 5)
    state = pool.get_state()
    state["returns"] = {**state["returns"], **bad}
    other = make()
    put(other, Lane(SPEC, 1), 9)
    with pytest.raises(PoolDamaged, match="not the state of a pool"):
        other.set_state(state)
    assert other.size == 9
    assert_spread(other, so_far(9))


def test_check_valid():
    found = Returns(GAMMA)
    assert found.check_valid() == (True, "")
    found._moments = (3, 0.0, -1.0)
    assert found.check_valid() == (False, "(3, 0.0, -1.0) are no moments of returns")
