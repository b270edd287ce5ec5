"""One model shared by the ranks of a group, as real processes over gloo: the sums of one process, and the same checkpoints."""

from __future__ import annotations

import pytest
import torch
from helpers.group import WAIT_S, alone, finish, require_close, start
from helpers.learner import OwnModel, make_spec
from helpers.rank import TIED_FLOW, TiedNoise, spec

from headrace.common.errors import ConfigError
from headrace.learner.config import LearnerConfig
from headrace.learner.sac import SAC
from headrace.learner.sharding import Sharding, units_of
from headrace.learner.shards import cut, gathered, held

CASES = {
    "plain": {"rows": 25},
    "nested": {"model_options": {"nested": True}, "options": {"grad_clip": 0.3}},
    "redq": {"model_options": {"critics": 3, "width": 5}, "options": {"target_critics": 2}},
    "parts": {"options": {"micro_batch_size": 3}},
    "td3-bc": {"options": {"bc_weight": 1.0, "td3_bc_alpha": 2.5, "ema_decay": 0.9}},
    "tied-flow": TIED_FLOW,
}
MLP = {"hidden": [16, 16]}
FLOW = {**TIED_FLOW["model_options"], "strides": [2]}
CAMERA = {"channels": [4], "strides": [2], "projection": 6, "hidden": [8], "shift": 1}
NOISY = {  # the noise is of each rank's own, so they are compared with a group of the same size
    "mlp": {"model": "mlp", "model_options": MLP},
    "droq": {"model": "mlp", "model_options": {**MLP, "critic_layer_norm": True, "critic_dropout": 0.1}},
    "crossq": {"model": "mlp", "model_options": {**MLP, "critic_batch_norm": True}},
    "pixels": {"model": "pixels", "model_options": CAMERA},
    "flow": {"model": "flow", "model_options": FLOW, "options": {"bc_weight": 0.5}},
    "cql": {"model": "mlp", "model_options": MLP, "options": {"cql_weight": 1.0, "cql_actions": 1, "ema_decay": 0.9}},
}
HUNGRY = {"fed": {}, "late": {"hungry": [[2, 1]]}, "ill": {"hungry": [[2, 1]], "poisoned": [[1, 1], [2, 1]]}}


def sharded(cases):
    return {name: {**how, "options": {**how.get("options", {}), "strategy": "sharded"}} for name, how in cases.items()}


def resuming(place, updates):
    return {"resuming": {"rows": 25, "load": str(place), "save": str(place), "updates": updates}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def two(place):
    replicated = {f"replicated {name}": how for name, how in NOISY.items()}
    return finish(start(2, **sharded({**CASES, **NOISY, **HUNGRY, **resuming(place, 1)}), **replicated))


@pytest.fixture(scope="module")
def three(place, two):
    return finish(start(3, **sharded({**CASES, **resuming(place, 2)})))


@pytest.fixture(scope="module")
def one():
    return alone(**CASES)


def digests(lines):
    return [line.get("digest") for line in lines]


@pytest.mark.parametrize("size", ["two", "three"])
@pytest.mark.parametrize("case", CASES)
def test_ranks_that_share_a_model_make_the_sums_of_one_process(case, size, one, request):
    ranks = request.getfixturevalue(size)
    for said in ranks:
        assert digests(said[case]) == digests(ranks[0][case])
        require_close(said[case], one[case])


def test_every_gradient_is_there(one, two):
    model = TiedNoise(spec())
    names = {name for part in (model.actor_params, model.critic_params) for name, _ in part()}
    for line in two[1]["nested"][:-1]:
        assert set(line["gradients"]) == names
        assert all(any(line["gradients"][name]) for name in names)


@pytest.mark.parametrize("case", NOISY)
def test_models_with_noise_norms_and_cameras_are_shared_as_they_are_replicated(case, two):
    for said in two:
        require_close(said[case], said[f"replicated {case}"])


def test_a_checkpoint_is_that_of_any_strategy_and_number_of_ranks(place, one, two, three):
    for said, update in ((two[0], 0), (three[0], 1)):
        require_close(said["resuming"][:1], one["plain"][update : update + 1])
    *lines, end = alone(**resuming(place, 4))["resuming"]
    require_close([*lines, end], one["plain"][2:])


def test_a_rank_without_rows_counts_nothing_whatever_its_last_ones_hold(two):
    first, second = two
    fed, late = digests(first["fed"]), digests(first["late"])
    assert [a == b for a, b in zip(fed, late, strict=True)][:4] == [True, True, False, False]
    assert [line["skipped"] for line in first["ill"][:-1]] == [0, 1, 1, 1]
    for case in HUNGRY:
        assert digests(first[case]) == digests(second[case])


def test_a_killed_rank_ends_the_others_and_says_so():
    ranks = start(2, **sharded({"plain": {"updates": 100_000}}))
    for process in ranks:
        assert process.stdout.readline()
    ranks[1].kill()
    _, err = ranks[0].communicate(timeout=WAIT_S)
    assert ranks[0].returncode == 1
    assert "GroupLost: rank 0 of 2 could not" in err
    ranks[1].communicate(timeout=WAIT_S)


def test_a_single_rank_has_nobody_to_share_with():
    with pytest.raises(ConfigError, match=r"learner\.strategy: sharded, but this learner is a single rank.*replicated"):
        SAC(OwnModel(make_spec()), make_spec(), LearnerConfig(batch_size=8, strategy="sharded"), 0)


def test_a_parameter_without_rows_is_named():
    model = OwnModel(make_spec())
    model.log_std = torch.nn.Parameter(torch.zeros(()))
    with pytest.raises(
        ConfigError, match=r"log_std of the model is a single number.*shape \(1,\), or take strategy replicated"
    ):
        Sharding(model, units_of(model), (), 2)


def test_units_are_the_largest_modules_that_are_called():
    model = OwnModel(make_spec())
    assert units_of(model) == [model.encoder, model.mean, *model.q, *model.q_target]


def test_what_is_no_shard_is_held_whole():
    tensor = torch.arange(3.0)
    assert held(tensor) is gathered(tensor) is cut(tensor, torch.zeros(3)) is tensor
