"""The averaged policy: its closed form, and that nothing of training sees it."""

import math

import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.common.errors import CheckpointError
from headrace.common.weights import AVERAGE, Version
from headrace.learner.average import PolicyAverage
from headrace.learner.config import ModelConfig

SPEC = make_spec()
OWN = ModelConfig("helpers.learner:OwnModel", {})
GO, SKIP = torch.zeros(()), torch.ones(())


def test_n_steps_towards_a_policy_that_stands_still():
    average = PolicyAverage({"w": torch.zeros(3)}, 0.995)
    for _ in range(100):
        average.follow({"w": torch.ones(3)}, GO)
    torch.testing.assert_close(average.tensors["w"], torch.full((3,), 0.394230), rtol=0, atol=1e-6)  # 1 - 0.995^100


def test_n_steps_behind_a_policy_that_moves():
    average = PolicyAverage({"w": torch.tensor(8.0)}, 0.5)
    for value in (4.0, 2.0, 1.0):
        average.follow({"w": torch.tensor(value)}, GO)
    assert average.tensors["w"].item() == 8 / 8 + 4 / 8 + 2 / 4 + 1 / 2


def test_a_step_that_was_skipped_moves_nothing_and_counters_are_copied():
    tensors = {"w": torch.tensor([1.0]), "wide": torch.tensor([1.0], dtype=torch.float64), "calls": torch.tensor(1)}
    average = PolicyAverage(tensors, 0.5)
    later = {"w": torch.tensor([3.0]), "wide": torch.tensor([3.0], dtype=torch.float64), "calls": torch.tensor(7)}
    average.follow(later, SKIP)
    assert {name: t.item() for name, t in average.tensors.items()} == {"w": 1, "wide": 1, "calls": 1}
    average.follow(later, GO)
    assert {name: t.item() for name, t in average.tensors.items()} == {"w": 2, "wide": 2, "calls": 7}
    average.restart(later)
    assert {name: t.item() for name, t in average.get_state().items()} == {"w": 3, "wide": 3, "calls": 7}


def test_state_and_validity():
    average = PolicyAverage({"w": torch.zeros(2)}, 0.9)
    average.set_state({"w": torch.ones(2)})
    assert average.tensors["w"].tolist() == [1, 1]
    assert average.check_valid() == (True, "")
    with pytest.raises(CheckpointError, match=r"average: tensor 'w' is \(3,\)"):
        average.set_state({"w": torch.ones(3)})
    average.tensors["w"][0] = math.nan
    assert average.check_valid() == (False, "w is not finite")


@pytest.mark.parametrize("model", [None, OWN], ids=["mlp", "own"])
def test_it_follows_each_step_of_the_actor_by_its_own_decay(model):
    sac = make_sac(SPEC, model=model, ema_decay=0.75, tau=0.5, actor_update_interval=2, actor_lr=0.01)
    expected = {name: t.detach().clone() for name, t in sac.model.policy_tensors().items()}
    for i in range(6):
        sac.update(make_batch(SPEC, seed=i))
        for name, now in sac.model.policy_tensors().items() if i % 2 else ():
            expected[name] = 0.75 * expected[name] + 0.25 * now if now.is_floating_point() else now.clone()
    for name, value in expected.items():
        torch.testing.assert_close(sac.average.tensors[name], value, msg=name)
    assert any(not torch.equal(t, expected[name]) for name, t in sac.model.policy_tensors().items())


def test_training_is_the_same_to_the_bit_with_and_without_it():
    runs = []
    for decay in (None, 0.9):
        sac = make_sac(SPEC, ema_decay=decay)
        for i in range(5):
            sac.update(make_batch(SPEC, seed=i))
        runs.append({name: t for name, t in sac.get_state()["tensors"].items() if not name.startswith("average.")})
    assert runs[0].keys() == runs[1].keys()
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_both_travel_in_one_set_of_weights():
    sac = make_sac(SPEC, ema_decay=0.5, normalise_obs=True)
    sac.update(make_batch(SPEC))
    weights = sac.weights(Version("learner", 1, 1))
    plain, average = weights.chosen(), weights.chosen(ema=True)
    assert set(plain.tensors) == set(average.tensors) == {n for n in weights.tensors if not n.startswith(AVERAGE)}
    for name, tensor in sac.model.policy_tensors().items():
        assert plain.tensors[name].tolist() == tensor.tolist()
        assert average.tensors[name].tolist() == sac.average.tensors[name].tolist()
    assert average.tensors["mean.obs"] is plain.tensors["mean.obs"]  # the statistics are those of both
    assert (plain.tensors["head.bias"] != average.tensors["head.bias"]).any()
    assert plain.policy == average.policy == weights.policy


@pytest.mark.parametrize("ema", [False, True], ids=["policy", "average"])
def test_a_run_begins_with_either_of_another_run_and_its_average_begins_there_too(ema):
    old = make_sac(SPEC, ema_decay=0.5)
    old.update(make_batch(SPEC))
    weights = old.weights(Version("learner", 1, 1)).chosen(ema=ema)
    for decay in (None, 0.9):
        new = make_sac(SPEC, seed=1, ema_decay=decay)
        new.load_policy(weights)
        for name, tensor in new.model.policy_tensors().items():
            assert tensor.tolist() == weights.tensors[name].tolist()
            assert new.average is None or torch.equal(new.average.tensors[name], tensor)


def test_a_checkpoint_without_it_is_refused_where_it_is_wanted():
    state = make_sac(SPEC).get_state()
    with pytest.raises(CheckpointError, match=r"average: tensor 'head\.bias' is missing"):
        make_sac(SPEC, ema_decay=0.9).set_state(state)
    with pytest.raises(CheckpointError, match=r"tensor 'average\.head\.bias' is unknown here"):
        make_sac(SPEC).set_state(make_sac(SPEC, ema_decay=0.9).get_state())
