"""Normalising observations."""

import numpy as np
import pytest
import torch
from helpers.learner import make_spec

from headrace.common.errors import CheckpointError, SpecError
from headrace.common.specs import ObsSpec
from headrace.common.statistics import ObsStatistics
from headrace.learner.normalise import ObsNormaliser

SPEC = make_spec(obs=(ObsSpec("arm", (2,), "<f4"), ObsSpec("eye", (2,), "|u1")))
STATISTICS = ObsStatistics(7, {"arm": np.array([1, -1], "<f4")}, {"arm": np.array([4, 0], "<f4")})


def test_values_are_centred_scaled_and_bounded():
    normalise = ObsNormaliser(SPEC)
    obs = {"arm": torch.tensor([[5.0, -1.0], [99.0, 1.0]]), "eye": torch.tensor([[1, 2]], dtype=torch.uint8)}
    assert torch.equal(normalise(obs)["arm"], torch.tensor([[5.0, -1.0], [10.0, 1.0]]))  # identity, but for the bound
    normalise.load(STATISTICS)
    assert torch.equal(normalise(obs)["arm"], torch.tensor([[2.0, 0.0], [10.0, 10.0]]))
    assert normalise(obs)["eye"] is obs["eye"]
    assert obs["arm"][0, 0] == 5  # the batch is as it was


def test_empty_statistics_change_nothing():
    normalise = ObsNormaliser(SPEC)
    normalise.load(STATISTICS)
    normalise.load(ObsStatistics())
    assert normalise.get_state()["mean.arm"].tolist() == [1, -1]


def test_statistics_that_do_not_fit_are_refused():
    normalise = ObsNormaliser(SPEC)
    with pytest.raises(SpecError, match=r"statistics\.mean\.arm: nothing, expected \(2,\)"):
        normalise.load(ObsStatistics(1, {}, {}))
    with pytest.raises(SpecError, match=r"statistics\.var\.arm: \(3,\), expected \(2,\)"):
        normalise.load(ObsStatistics(1, STATISTICS.mean, {"arm": np.ones(3, "<f4")}))


def test_state():
    first, second = ObsNormaliser(SPEC), ObsNormaliser(SPEC)
    first.load(STATISTICS)
    second.set_state(first.get_state())
    obs = {"arm": torch.tensor([[5.0, -1.0]])}
    assert torch.equal(first(obs)["arm"], second(obs)["arm"])
    with pytest.raises(CheckpointError, match="'mean.arm' is missing"):
        second.set_state({})
    bad = {**first.get_state(), "var.arm": torch.tensor([1.0, -1.0])}
    second.set_state(bad)
    assert second.check_valid() == (False, "normaliser: var.arm is not finite or negative")
