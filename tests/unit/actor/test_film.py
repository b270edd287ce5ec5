"""The film: one frame a step, what stands below it, and what is said when there is none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.playing import Centre, scripted

from headrace.actor import film as films
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.deciding import Acts
from headrace.actor.envs import make_spec
from headrace.actor.film import Caption, captioned, film


def record(config, directory, **changes):
    return film(Centre(make_spec(config, WindowConfig())), config, WindowConfig(), 5, directory, **changes)


def step_of(reward, terminated=False, truncated=False):
    return SimpleNamespace(rewards=np.float32([reward]), terminated=np.array([terminated]), truncated=np.array([truncated]))


def test_a_frame_a_step_of_the_first_episode(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    told = []
    path, note = record(replace(scripted(lengths=[6, 2]), lanes=2), tmp_path / "videos", told=told.append)
    assert (path, note) == (tmp_path / "videos" / "episode-0.mp4", "")
    assert ffmpeg.count_frames_and_secs(path)[0] == 6
    assert told == [1, 2, 3, 4, 5, 6]


def test_each_frame_says_what_was_done_in_it(tmp_path, monkeypatch):
    """The scripted env sees (env, episode, t); its last step ends the episode."""
    pytest.importorskip("imageio_ffmpeg")
    seen, told = [], []

    def value(obs, action):
        seen.append((float(obs["obs"][0, 2]), action.shape))
        return np.float32([10 * obs["obs"][0, 2]])

    def spy(frame, lines):
        told.append(lines)
        return captioned(frame, lines)

    monkeypatch.setattr(films, "captioned", spy)
    record(scripted(lengths=[3]), tmp_path, value=value)
    assert [t for t, _ in seen] == [0, 1, 2]
    assert {shape[0] for _, shape in seen} == {1}
    assert [line[0].split()[1] for line in told] == ["0", "1", "2"]
    assert [line[1].split("Q ")[1].split()[0] for line in told] == ["0.00", "10.00", "20.00"]
    assert [line[1].endswith(("terminated", "truncated")) for line in told] == [False, False, True]


ACTS = Acts(np.zeros((1, 1)), np.ones(1, bool), np.zeros((1, 1)))


def test_a_caption_adds_up_rewards_and_names_both_ends():
    caption = Caption()
    assert caption.lines({}, ACTS, step_of(1.5)) == ("t 0  return 1.50", "r +1.500")
    last = caption.lines({}, ACTS, step_of(-4.0, terminated=True, truncated=True))
    assert last == ("t 1  return -2.50", "r -4.000  terminated  truncated")


@pytest.mark.parametrize("shape", [(48, 48, 3), (500, 501, 3), (7, 300, 3)])
def test_the_bar_is_below_the_picture_and_both_sides_are_even(shape):
    pytest.importorskip("PIL")
    frame = np.full(shape, 200, np.uint8)
    whole = captioned(frame, ("t 0", "r 1"))
    times = -(-240 // shape[1])
    height, width = shape[0] * times, shape[1] * times
    assert whole.shape[0] % 2 == whole.shape[1] % 2 == 0
    assert (whole[:height, :width] == 200).all()
    bar = whole[height:]
    assert 0 < (bar > 100).sum() < bar.size / 2
    assert not np.array_equal(bar, captioned(frame, ("t 1", "r 1"))[height:])


def test_nothing_is_rendered_before_the_first_reset(tmp_path):
    """As every env of gymnasium.make demands."""
    path, note = record(replace(scripted(lengths=[3]), wrappers=("OrderEnforcing",)), tmp_path)
    assert (path is not None, note) == (True, "")


def test_no_film_says_why(tmp_path):
    path, note = record(EnvConfig("helpers.seeds:make"), tmp_path)
    assert path is None
    assert "no video: env.id: 'helpers.seeds:make' could not be made: TypeError" in note
