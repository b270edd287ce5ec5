"""Evaluation: exactly the asked episodes, with their own seeds, fair to long ones."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.playing import Centre, scripted

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.evaluate import EvalResult, bootstrap_interval, evaluate
from headrace.common.errors import EnvError
from headrace.common.seeds import derive_seed


def run(config, episodes, **kwargs):
    return evaluate(Centre(make_spec(config, WindowConfig())), config, WindowConfig(), episodes, 5, **kwargs)


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_every_episode_once_whatever_its_length(lanes, autoreset):
    lengths = [1, 9, 2, 5, 1]
    config = replace(scripted(lengths=lengths, success=True), lanes=lanes, autoreset=autoreset)
    result = run(config, 7)
    assert result.lengths.tolist() == [1, 9, 2, 5, 1, 1, 9]
    assert result.returns.tolist() == [sum(range(n)) for n in result.lengths]
    assert result.successes.tolist() == [False, True] * 3 + [False]
    assert result.success_rate == pytest.approx(3 / 7)


def test_it_can_be_ended_before_any_step():
    steps = []

    def end_at_the_third():
        steps.append(len(steps))
        if len(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(scripted(lengths=[50]), 1, before_step=end_at_the_third)
    assert steps == [0, 1, 2]


def test_seeds_do_not_depend_on_the_lanes():
    one = run(EnvConfig("Pendulum-v1", max_episode_steps=5), 5)
    three = run(EnvConfig("Pendulum-v1", max_episode_steps=5, lanes=3), 5)
    assert (one.returns == three.returns).all()
    assert (one.successes, one.success_rate) == (None, None)
    assert len(set(one.returns)) == 5


def test_episode_seeds(monkeypatch):
    seeds = []
    from helpers.seeds import SeedEnv

    reset = SeedEnv.reset
    monkeypatch.setattr(SeedEnv, "reset", lambda self, **kw: seeds.append(kw["seed"]) or reset(self, **kw))
    run(EnvConfig("helpers.seeds:make"), 3)
    assert seeds[:3] == [derive_seed(5, "eval", i) for i in range(3)]


def test_a_crash_ends_the_evaluation_by_name():
    with pytest.raises(EnvError, match="the env crashed in episode 2, which cannot be replaced without bias"):
        run(scripted(lengths=[2], ends=["truncated", "truncated", "raise"]), 5)
    with pytest.raises(EnvError, match="at least 1 episode, got 0"):
        run(scripted(), 0)


def test_an_episode_that_never_ends(monkeypatch):
    monkeypatch.setattr("headrace.actor.evaluate.MAX_EPISODE_STEPS", 50)
    with pytest.raises(EnvError, match="episode 0 runs for 50 steps; set env.max_episode_steps"):
        run(scripted(lengths=[1000]), 1)


def test_mean_deviation_and_interval():
    result = EvalResult(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4, int), None)
    assert (result.mean, result.std) == (2.5, pytest.approx(1.118034))
    rng = np.random.default_rng(0)
    values = rng.normal(10, 2, 400)
    low, high = bootstrap_interval(values, rng)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert bootstrap_interval(np.full(3, 7.0), rng) == (7.0, 7.0)
    assert bootstrap_interval(np.array([1.0, 3.0]), rng) is None
    inner = bootstrap_interval(values, rng, 0.5)
    assert low < inner[0] < inner[1] < high
