"""Runs of gates: what their settings are, and what becomes of a result and of a peer's answer."""

from __future__ import annotations

import json

import pytest
from campaign import learning, peer_learning, records, runs
from campaign.gate import SB3
from campaign.registry import COMPARISONS, DEMOS, GATES, PICTURES

RESULT = {
    **{"eval_return_mean": -3.0, "eval_return_std": 1.5, "eval_success_rate": 0.9, "episodes": 50, "env_steps": 3000},
    **{"updates": 2500, "achieved_ratio": 1.0, "wall_s": 61.26, "seed": 0},
}


def judged(env_steps, mean, success):
    head = {"env_steps": env_steps, "return_mean": mean, "return_std": 2.0, "success_rate": success}
    return {"run/env_steps": env_steps, "run/return_mean": mean - 1, "run/evaluation": head}


@pytest.mark.parametrize("name", GATES)
def test_every_gate_has_a_config_that_resolves_and_settings_that_json_holds(name):
    gate = GATES[name]
    config = learning.resolve(gate, 3)
    assert (config.env.id, config.seed) == (gate.env, 3)
    assert (config.pacing.env_steps, config.eval.final_episodes) == (gate.env_steps, gate.episodes)
    assert gate.mode in (SB3, config.run.mode)
    assert set(gate.marks) <= set(range(config.eval.every, gate.env_steps + 1))
    settings = learning.settings(gate, 3)
    assert records.same_settings(json.loads(json.dumps(settings)), settings)
    assert str(records.ROOT) not in json.dumps(settings)


def test_every_gate_is_in_one_picture_and_a_picture_shows_one_env():
    assert sorted(name for names in PICTURES.values() for name in names) == sorted(GATES)
    assert all(len({GATES[name].env for name in names}) == 1 for names in PICTURES.values())


def test_a_preset_is_laid_over_its_example_and_its_words_say_so():
    gate = GATES["halfcheetah-100k-crossq"]
    config = learning.resolve(gate, 0)
    assert (config.model.options["critic_hidden"], config.learner.actor_update_interval) == ([512, 512], 3)
    assert (config.pacing.random_steps, config.pool.capacity) == (5000, 100_000)
    words = learning.command(gate, 0).split()
    assert words[words.index("--preset") + 1].endswith("examples/presets/crossq.yaml")


def test_the_sparse_task_differs_in_its_demonstrations_alone():
    ours, plain = (learning.settings(GATES[name], 0) for name in ("reach-rlpd", "reach-sac"))
    assert (ours["pool"]["demos"], plain["pool"]["demos"]) == ([DEMOS], [])
    assert ours["env"] == plain["env"]
    for key in ("env_steps", "ratio", "min_fill"):
        assert ours["pacing"][key] == plain["pacing"][key]


@pytest.mark.parametrize("name", ["pendulum", "halfcheetah"])
def test_bfloat16_is_judged_by_the_same_bars_and_differs_in_nothing_else(name):
    narrow, plain = GATES[f"{name}-bf16"], GATES[f"{name}-async"]
    assert (narrow.bars, narrow.marks, narrow.episodes) == (plain.bars, plain.marks, plain.episodes)
    ours, theirs = (learning.settings(gate, 0) for gate in (narrow, plain))
    assert (ours["learner"].pop("precision"), theirs["learner"].pop("precision")) == ("bf16", "fp32")
    assert ours == theirs


@pytest.mark.parametrize("name", [name for name, comparison in COMPARISONS.items() if comparison.same_settings])
def test_a_peer_runs_at_the_settings_of_ours(name):
    comparison = COMPARISONS[name]
    theirs = learning.settings(comparison.theirs, 0)
    assert records.same_settings(learning.settings(comparison.ours, 0), theirs)
    options = peer_learning.options_of(theirs, 2)
    assert (options["lr"], options["batch"], options["warmup"], options["buffer"]) == (1e-3, 256, 5000, 100_000)
    assert (options["gamma"], options["tau"], options["hidden"], options["seed"]) == (0.99, 0.005, [256, 256], 2)
    assert (options["final_episodes"], options["evaluate_every"]) == (10, comparison.ours.env_steps // 25)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pacing.ratio": 2}, "pacing.ratio: 2.0"),
        ({"learner.temperature": "fixed"}, "learner.temperature: fixed"),
        ({"learner.actor_lr": 3e-4}, "learner.actor_lr"),
        ({"pacing.random_steps": 100}, "random_steps 100"),
        ({"model.options.critic_layer_norm": True}, "critic_layer_norm"),
    ],
)
def test_settings_that_the_peer_cannot_take_are_refused(changes, named):
    gate = GATES["halfcheetah-sb3"]
    with pytest.raises(ValueError, match=named):
        peer_learning.settings(runs.resolve(gate.config, {**gate.overrides(0), **changes}))


def test_a_record_holds_the_curve_of_what_is_judged_with_the_final_evaluation_at_its_end():
    metrics = [judged(1000, -9.0, 0.0), judged(2000, -5.0, 0.5), judged(3000, -1.0, 1.0)]
    told = learning.told_of(RESULT, metrics, "success_rate")
    assert told["evaluations"] == [(1000, 0.0, 0.0), (2000, 0.5, 0.5), (3000, 0.9, 0.3)]
    assert (told["success_rate"], told["return_mean"], told["return_std"]) == (0.9, -3.0, 1.5)
    told = learning.told_of(RESULT, metrics, "return_mean")
    assert told["evaluations"] == [(1000, -9.0, 2.0), (2000, -5.0, 2.0), (3000, -3.0, 1.5)]
    assert (told["wall_s"], told["updates"], told["training"][0]) == (61.3, 2500, (1000, -10.0))


def test_an_env_that_says_no_success_leaves_none():
    told = learning.told_of({**RESULT, "eval_success_rate": None}, [judged(1000, -9.0, None)], "success_rate")
    assert (told["success_rate"], told["evaluations"]) == (None, [])


def test_what_a_peer_answers_becomes_the_same_record():
    options = {"final_episodes": 10, "warmup": 100}
    answer = {
        **{"final": [420.5, 12.25], "evaluations": [[200, 50.0, 5.0, 1e9], [300, 99.0, 9.0, 1e9]], "env_steps": 300},
        **{"updates": 200, "end": 1040.06, "versions": {"torch": "2"}},
    }
    told = peer_learning.told(answer, options, 1000.0)
    assert told["evaluations"] == [(200, 50.0, 5.0), (300, 420.5, 12.25)]
    assert (told["achieved_ratio"], told["wall_s"], told["episodes"], told["return_std"]) == (1.0, 40.1, 10, 12.25)
    assert set(told) - {"versions"} == {*learning.told_of(RESULT, [], "return_mean"), "began"}
