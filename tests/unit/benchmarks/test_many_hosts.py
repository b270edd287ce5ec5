"""A run on many hosts is judged by both pools and by what its envs wrote down, and its rates by the counters over time."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from campaign.conservation import SABOTAGES, Life, Step
from campaign.gate import FAILED, NOT_RUN, PASSED
from campaign.hosts_judge import Held, account, controls
from campaign.hosts_table import hosts_lines, hosts_section
from campaign.logbook import Logbook, read_lives
from campaign.troubles import back_after, rates

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.gym_spaces import spec_of
from headrace.buffer import SACReplayPool
from headrace.common.weights import Version


def life(pid, actor, steps):
    return Life(pid, pid, actor, tuple(Step(0, t, (f"{pid:08x}{t:08x}",)) for t in range(steps)))


ONE, TWO, HEIR = life(1, "sim-0-0", 30), life(2, "sim-1-0", 20), life(3, "sim-0-0", 10)
LIVES = [ONE, TWO, HEIR]


def held(*parts, **more):
    """What a shard holds: (life, stream, rows) each."""
    rows = [
        {"actor": one.actor, "stream": stream, "seq": seq, "episode": 0, "t": seq - 1, "digest": one.steps[seq - 1].digests[0]}
        for one, stream, count in parts
        for seq in range(1, count + 1)
    ]
    return Held(rows, {"rows_accepted": len(rows), "lost_before": 0, **more})


WHOLE = [held((ONE, 1, 27), (HEIR, 2, 10)), held((TWO, 1, 20))]
KILLED, ACKED = frozenset({1}), {("sim-0-0", 1): 25, ("sim-1-0", 1): 20}


def test_what_both_shards_hold_is_one_account_and_a_killed_process_may_leave_its_last_steps():
    told = account(WHOLE, LIVES, KILLED, ACKED)
    assert (told.problems, told.lost, told.duplicated, told.abandoned, told.rows) == ((), 0, 0, 3, (37, 20))
    assert controls(WHOLE, LIVES, KILLED, ACKED) == list(SABOTAGES)


def without(shard, index):
    rows = [row for n, row in enumerate(shard.rows) if n != index]
    return Held(rows, shard.counters)


@pytest.mark.parametrize(
    ("shards", "lost", "duplicated", "said"),
    [
        ([WHOLE[0], without(WHOLE[1], 4)], 1, 0, "shard 1: acked 20 rows"),
        ([WHOLE[0], held(lost_before=20)], 20, 0, "shard 1: lost_before: 20"),  # another disk, of which nobody says a word
        ([held((ONE, 1, 27), (HEIR, 2, 10), (TWO, 1, 1)), WHOLE[1]], 0, 1, "1 there twice"),
        ([held((ONE, 1, 24), (HEIR, 2, 10)), WHOLE[1]], 0, 0, "acknowledged up to seq 25, the pool ends at 24"),
    ],
)
def test_a_loss_at_one_shard_is_named_and_so_is_a_row_at_both(shards, lost, duplicated, said):
    told = account(shards, LIVES, KILLED, ACKED)
    assert (told.lost, told.duplicated) == (lost, duplicated)
    assert any(said in problem for problem in told.problems), told.problems


def test_the_logbook_of_an_env_names_the_digests_of_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["headrace", "actor", "run", "--id", "sim-0-0"])
    env = Logbook(gym.make("Pendulum-v1", max_episode_steps=4), str(tmp_path))
    spec = spec_of(env.observation_space, env.action_space, EnvConfig("Pendulum-v1"), WindowConfig())
    assembler, rng, pool = Assembler(spec), np.random.default_rng(0), SACReplayPool(100, spec=spec)
    seq = 1
    for episode in range(3):
        env.on_episode(0, episode)
        obs, _ = env.reset(seed=episode)
        assembler.begin(episode, {"obs": obs})
        over = False
        while not over:
            action = rng.uniform(-2, 2, 1).astype(np.float32)
            obs, reward, terminated, over, _ = env.step(action)
            assembler.step(action, reward, terminated, over, {"obs": obs}, version=Version("a", 1, 1))
        while (block := assembler.take(100)) is not None:
            pool.insert(block, "sim-0-0", 1, seq)
            seq += block.n_rows
    env.close()
    (logged,) = read_lives(tmp_path)
    rows = list(pool.dump())
    assert len(rows) == len(logged.steps) == 12
    for row, step in zip(rows, logged.steps, strict=True):
        assert (row["episode"], row["t"]) == (step.episode, step.t)
        assert row["digest"] in step.digests


STEADY = [(float(t), 10 * t, 5 * t) for t in range(21)]  # 10 env steps and 5 updates a second


@pytest.mark.parametrize(
    ("after", "back"),
    [
        ([(21.0 + t, 210 + 10 * t, 105 + 5 * t) for t in range(20)], [0.0, 0.0]),
        ([(21.0 + t, 200 + 10 * max(0, t - 6), 100 + 5 * max(0, t - 9)) for t in range(20)], [7.0, 10.0]),
        ([(21.0 + t, 200 + 9 * t, 100 + 4 * t) for t in range(20)], [1.0, None]),
        ([(34.0 + t, 200 + 10 * t, 100 + 5 * t) for t in range(9)], [14.0, 14.0]),  # nobody answered meanwhile
        ([(21.0, 200, 100)], [None, None]),
        # What was under way still comes, then nothing for ten seconds.
        ([(21.0 + t, 210 + 10 * min(t, 5) + 10 * max(0, t - 15), 105 + 5 * t) for t in range(40)], [16.0, 0.0]),
    ],
)
def test_rates_are_back_where_a_window_begins_that_is_as_fast_as_before(after, back):
    before = rates(STEADY, 12.0, 20.0)
    assert before == (10.0, 5.0)
    assert back_after([*STEADY, *after], 20.0, before, 4.0) == back


RECORD = {
    **{"trial": "hurt", "seed": 0, "return_mean": 4000.0, "return_std": 50.0, "env_steps": 50_000, "updates": 44_900},
    **{"rows_by_shard": [30_000, 20_000], "lost": 0, "duplicated": 0, "abandoned": 7, "wall_s": 900.0, "problems": []},
    **{
        "troubles": [{"kind": "reboot", "host": "gpu-0", "back_s": 21.5}],
        "commit": "abc",
        "dirty": False,
        "date": "2026-11-30",
    },
}


def test_the_results_page_says_what_was_lost_and_how_long_rates_took():
    states = [line.state for line in hosts_lines([RECORD])]
    assert states == [NOT_RUN, PASSED, NOT_RUN]
    assert "lost 0, doubled 0, bar 0; rates back after 21.5 s at most, bar 30; return 4000" in hosts_lines([RECORD])[1].text
    assert "| hurt, seed 0 | reboot of gpu-0 | 21.5 |" in hosts_section([RECORD])[1]
    lost = {**RECORD, "lost": 1, "problems": ["1 missing: a | b"], "troubles": [{**RECORD["troubles"][0], "back_s": None}]}
    line = hosts_lines([RECORD, lost])[1]
    assert (line.state, "rates back after - s" in line.text, "|" in line.text) == (FAILED, True, False)
    assert hosts_section([]) == [NOT_RUN]
