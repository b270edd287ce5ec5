"""News of an evaluation that takes its time."""

import numpy as np
import pytest
from helpers.playing import Centre, scripted

from headrace.actor.config import WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.evaluate import evaluate
from headrace.common.clock import ManualClock
from headrace.common.errors import EnvError
from headrace.launch.eval_news import EvalNews


class Ticking(ManualClock):
    """A second later at each look."""

    def now(self):
        self.advance(1.0)
        return super().now()


def played(lengths, episodes, monkeypatch, **options):
    monkeypatch.setattr("headrace.launch.eval_news.LONG_EPISODE", 20)
    monkeypatch.setattr("headrace.actor.evaluate.MAX_EPISODE_STEPS", 30)
    config, said = scripted(lengths=lengths), []
    policy = Centre(make_spec(config, WindowConfig()))
    try:
        evaluate(policy, config, WindowConfig(), episodes, 5, watch=EvalNews(said.append, options.get("clock", ManualClock())))
    except EnvError as error:
        said.append(str(error))
    return said


def test_how_far_it_is_every_few_seconds(monkeypatch):
    said = played([4], 3, monkeypatch, clock=Ticking())
    assert said == ["evaluation: 1 of 3 episodes, 4 env steps", "evaluation: 2 of 3 episodes, 8 env steps"]


def test_an_episode_without_an_end_is_named_once_before_it_is_refused(monkeypatch):
    said = played([3, 1000], 2, monkeypatch)
    hint = "episode 1 has run 20 steps without an end: set env.max_episode_steps"
    assert said == [hint, "evaluation: episode 1 runs for 30 steps; set env.max_episode_steps"]


@pytest.mark.parametrize("length", [19, 20])
def test_a_long_episode_that_ends_and_a_short_evaluation_say_nothing(length, monkeypatch):
    assert played([length], 3, monkeypatch) == []


def test_the_hint_comes_at_ten_thousand_steps():
    said = []
    news = EvalNews(said.append, ManualClock())
    news(0, np.array([10_000, 0]))
    assert said == []
    news(0, np.array([10_001, 0]))
    assert said == ["episode 0 has run 10,000 steps without an end: set env.max_episode_steps"]
