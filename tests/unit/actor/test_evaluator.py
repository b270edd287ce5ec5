"""What an evaluator reports of a played policy."""

from __future__ import annotations

import threading

import pytest
from helpers.canary import canary_weights

from headrace.actor import evaluator
from headrace.actor.config import ActorConfig, EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.joining import ActorSettings, Joined
from headrace.actor.uplink import Uplink
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.common.wire.codec import decode, take_array
from headrace.common.wire.messages import Evaluation, Welcome
from headrace.common.wire.network import NetworkConfig


def play(success, stop=None):
    env = EnvConfig(id="helpers.scripted:make", kwargs={"lengths": [2, 4], "success": success})
    spec = make_spec(env, WindowConfig())
    uplink = Uplink(spec, 1 << 20, 1 << 20)
    player = ActorSettings("", "e", env, WindowConfig(), ActorConfig(), NetworkConfig(), 0)
    here = Joined(spec, uplink, None, Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 30), stop or threading.Event())
    settings = evaluator.EvaluatorSettings(player, 100, 4)
    evaluator._evaluate(settings, here, canary_weights(spec, "l", 1, 7), 500)
    (parts,) = uplink.outgoing(1 << 20)
    head = decode(parts[0])
    assert head == Evaluation(1, 7, 500, 4)
    return [take_array(f, d, (4,), "x").tolist() for f, d in zip(parts[1:], ("<f8", "<i8", "|u1"), strict=True)]


def test_returns_lengths_and_both_outcomes_are_reported():
    returns, lengths, outcomes = play(True)
    assert sorted(lengths) == [2, 2, 4, 4]
    assert returns == [float(sum(range(n))) for n in lengths]
    assert sorted(outcomes) == [OUTCOME_SUCCESS, OUTCOME_SUCCESS, OUTCOME_FAILURE, OUTCOME_FAILURE]


def test_an_env_that_tells_no_success_has_unknown_outcomes():
    assert set(play(False)[2]) == {OUTCOME_UNKNOWN}


def test_a_stop_ends_it_after_the_running_episode():
    stop = threading.Event()
    stop.set()
    with pytest.raises(evaluator._StoppedError):
        play(True, stop)
