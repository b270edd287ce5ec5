"""The best policy: the highest mean return, kept whole with its evaluation, whatever kills the evaluator."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.weights import small_spec

from headrace.actor import best
from headrace.actor.best import BestPolicy, read_evaluation
from headrace.actor.evaluate import EvalResult
from headrace.common.policy_files import parse_spec
from headrace.common.weights import Version, WeightSet

SPEC = small_spec()


def weights(step):
    return WeightSet(Version("learner", 1, step), {"type": "none"}, {"w": np.full(3, step, np.float32)})


def offer(directory, step, score, **more):
    result = EvalResult(np.array([score, score]), np.array([3, 5]), None)
    return BestPolicy(directory).offer(weights(step), SPEC, {**result.verdict(weights(step).version, 10 * step), **more})


def kept(directory):
    """Step and return of what is kept, which must belong together."""
    place = directory / "best"
    policy = WeightSet.unpack((place / "policy.hrw").read_bytes())
    evaluation = json.loads((place / "evaluation.json").read_text())
    assert (policy.tensors["w"] == evaluation["step"]).all()
    assert parse_spec((place / "spec.json").read_bytes()) == SPEC
    return evaluation["step"], evaluation["return_mean"]


def test_only_a_better_policy_takes_the_place(tmp_path):
    directory = tmp_path / "checkpoints"
    assert read_evaluation(directory) is None
    taken = [offer(directory, step, score) for step, score in enumerate([-9.0, -10.0, -9.0, -3.0, -4.0, 0.5, float("nan")], 1)]
    assert taken == [True, False, False, True, False, True, False]
    assert kept(directory) == (6, 0.5)
    assert read_evaluation(directory)["episodes"] == 2
    assert sorted(path.name for path in directory.iterdir()) == ["best", "best.0"]


def test_numbers_that_json_has_not_are_not_kept(tmp_path):
    assert not offer(tmp_path, 1, 2.0, return_std=float("inf"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_evaluation_makes_room(tmp_path):
    offer(tmp_path, 1, 5.0)
    (tmp_path / "best" / "evaluation.json").write_text('{"return_mean": null}')
    assert read_evaluation(tmp_path) is None
    assert offer(tmp_path, 2, 4.0)
    assert kept(tmp_path) == (2, 4.0)


def test_a_full_disk_leaves_the_one_before_and_a_line_in_the_log(tmp_path, monkeypatch, caplog):
    offer(tmp_path, 1, 1.0)

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(best, "write_directory", full)
        assert not offer(tmp_path, 2, 2.0)
    assert "the best policy so far, of update 2, is not kept: [Errno 28] No space left on device" in caplog.text
    assert kept(tmp_path) == (1, 1.0)


class Killed(BaseException):
    """Stands for a kill: no handler of the code under test keeps it."""


@pytest.mark.parametrize("call", ["rename", "replace", "symlink_to", "write_bytes", "unlink"])
def test_a_kill_before_any_call_leaves_a_policy_with_its_own_evaluation(tmp_path, call, monkeypatch):
    offer(tmp_path, 1, 1.0)
    offer(tmp_path, 2, 2.0)  # so that both places have been used
    (tmp_path / ".best.link").symlink_to("best.0")  # and what an earlier kill left is in the way
    real, calls = getattr(Path, call), []

    def dying(self, *args, **kwargs):
        calls.append(self)
        if len(calls) == k:
            raise Killed
        return real(self, *args, **kwargs)

    for k in range(1, 10):
        calls.clear()
        before = kept(tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(Path, call, dying)
            try:
                offer(tmp_path, 10 * k, 10.0 * k)
            except Killed:
                assert kept(tmp_path) in (before, (10 * k, 10.0 * k))
            else:
                break
    assert k > 1
    assert kept(tmp_path) == (10 * k, 10.0 * k)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted(["best", os.readlink(tmp_path / "best")])
