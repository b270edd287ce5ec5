"""What an evaluator reports of a played policy."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from headrace.actor import evaluator
from headrace.actor.best import read_evaluation
from headrace.actor.config import ActorConfig, EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.joining import ActorSettings, Joined
from headrace.actor.outbox import Outbox
from headrace.actor.policy import make_policy
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.common.weights import AVERAGE, WeightSet
from headrace.common.wire.codec import decode, take_array
from headrace.common.wire.messages import Evaluation, Stop, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.launch.chaos.canary import canary_weights


class Link:
    def check(self):
        pass

    wake = check


def start(success=False, lengths=(2, 4)):
    """An evaluator that has joined, and its settings."""
    env = EnvConfig(id="headrace.launch.chaos.scripted:make", kwargs={"lengths": lengths, "success": success})
    spec = make_spec(env, WindowConfig())
    uplink = Uplink(spec, Outbox(Memory(1 << 20)), 1 << 20)
    player = ActorSettings("", "e", env, WindowConfig(), ActorConfig(), NetworkConfig(), 0)
    here = Joined(spec, lambda block: block, uplink, Link(), Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 30), threading.Event())
    return evaluator.EvaluatorSettings(player, 100, 4), here


def play(success):
    settings, here = start(success)
    weights, uplink = canary_weights(here.spec, "l", 1, 7), here.uplink
    evaluator._evaluate(settings, here, make_policy(weights, here.spec), weights.version, 500)
    (parts,) = uplink.outgoing(1 << 20)
    head = decode(parts[0])
    assert head == Evaluation(1, 7, 500, 4)
    return [take_array(f, d, (4,), "x").tolist() for f, d in zip(parts[1:], ("<f8", "<i8", "|u1"), strict=True)]


def test_returns_lengths_and_both_outcomes_are_reported():
    returns, lengths, outcomes = play(True)
    assert sorted(lengths) == [2, 2, 4, 4]
    assert returns == [float(sum(range(n))) for n in lengths]
    assert sorted(outcomes) == [OUTCOME_SUCCESS, OUTCOME_SUCCESS, OUTCOME_FAILURE, OUTCOME_FAILURE]


def test_the_best_policy_is_kept_with_its_evaluation(tmp_path, monkeypatch):
    settings, here = start(True)
    sets = [canary_weights(here.spec, "l", 1, 7)]
    monkeypatch.setattr(evaluator, "WAIT_S", 0.0)
    monkeypatch.setattr(here.uplink, "take_weights", lambda **_: sets.pop(0) if sets else here.stop.set())
    evaluator._follow(dataclasses.replace(settings, checkpoints=tmp_path), here, make_policy)
    kept = read_evaluation(tmp_path)
    assert (kept["epoch"], kept["step"], kept["env_steps"], kept["episodes"]) == (1, 7, 0, 4)
    assert (kept["return_mean"], kept["length_mean"], kept["success_rate"]) == ((1 + 1 + 6 + 6) / 4, 3.0, 0.5)
    assert WeightSet.unpack((tmp_path / "best" / "policy.hrw").read_bytes()).version.step == 7


def test_the_average_is_judged_where_it_is_asked_for(tmp_path, monkeypatch):
    settings, here = start()
    plain = canary_weights(here.spec, "l", 1, 7)
    averages = {AVERAGE + name: tensor + 1 for name, tensor in plain.tensors.items()}
    here.uplink.inbox.newest = WeightSet(plain.version, plain.policy, {**plain.tensors, **averages})
    monkeypatch.setattr(evaluator, "WAIT_S", 0.0)
    monkeypatch.setattr(here.uplink, "wait", lambda timeout_s: here.stop.set())
    player = dataclasses.replace(settings.player, actor=ActorConfig(ema=True))
    evaluator._follow(dataclasses.replace(settings, player=player, checkpoints=tmp_path), here, make_policy)
    kept = WeightSet.unpack((tmp_path / "best" / "policy.hrw").read_bytes())
    assert {name: t.tolist() for name, t in kept.tensors.items()} == {n: (t + 1).tolist() for n, t in plain.tensors.items()}


def test_an_env_that_tells_no_success_has_unknown_outcomes():
    assert set(play(False)[2]) == {OUTCOME_UNKNOWN}


@pytest.mark.parametrize("who", ["a signal", "the buffer"])
def test_an_end_ends_it_before_the_next_step(who, monkeypatch):
    """However long the episode: a supervisor waits for 2.7 s."""
    settings, here = start(lengths=(20,))
    weights = canary_weights(here.spec, "l", 1, 7)
    policy, steps = make_policy(weights, here.spec), []

    def act(*words):
        steps.append(1)
        if who == "a signal":
            here.stop.set()
        else:
            here.uplink.received(Stop(True, ""), [])
        return np.zeros((1, 1), np.float32)

    monkeypatch.setattr(policy, "act", act)
    with pytest.raises(evaluator._LeavingError):
        evaluator._evaluate(settings, here, policy, weights.version, 500)
    assert len(steps) == 1
    assert not list(here.uplink.outgoing(1 << 20))


def test_the_policy_is_made_of_the_first_weights_and_loads_those_that_are_due(monkeypatch):
    """Torch and a model of one's own take seconds to load, which a short run has only before its first update."""
    settings, here = start()
    sets = [canary_weights(here.spec, "l", 1, step) for step in (0, 7, 8)]
    made, judged = [], []

    def make(weights, spec, config):
        made.append(weights.version.step)
        return make_policy(weights, spec, config)

    monkeypatch.setattr(evaluator, "WAIT_S", 0.0)
    monkeypatch.setattr(evaluator, "_evaluate", lambda settings, here, policy, version, steps: judged.append(version.step))
    monkeypatch.setattr(here.uplink, "take_weights", lambda **_: sets.pop(0) if sets else here.stop.set())
    evaluator._follow(settings, here, make)
    assert (made, judged) == ([0], [7])
