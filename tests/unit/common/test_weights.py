"""A weight set that holds a policy and its average: either is chosen whole."""

import numpy as np
import pytest

from headrace.common.errors import SpecError
from headrace.common.weights import AVERAGE, Version, WeightSet

BOTH = WeightSet(
    Version("learner", 1, 7),
    {"type": "mlp"},
    {"w": np.array([1.0]), "b": np.array([2.0]), f"{AVERAGE}w": np.array([3.0]), "mean.obs": np.array([4.0])},
)


def values(weights):
    return {name: float(tensor[0]) for name, tensor in weights.tensors.items()}


def test_the_policy_or_its_average_is_chosen_with_what_belongs_to_both():
    assert values(BOTH.chosen()) == {"w": 1, "b": 2, "mean.obs": 4}
    assert values(BOTH.chosen(ema=True)) == {"w": 3, "b": 2, "mean.obs": 4}
    assert BOTH.chosen(ema=True).version == BOTH.version
    assert values(WeightSet.unpack(BOTH.pack()).chosen(ema=True)) == {"w": 3, "b": 2, "mean.obs": 4}


@pytest.mark.parametrize("ema", [False, True])
def test_what_was_chosen_holds_no_average_any_more(ema):
    one = BOTH.chosen(ema=ema)
    assert values(one.chosen()) == values(one)
    with pytest.raises(SpecError, match=r"the policy of update 7 comes without an average: .*learner\.ema_decay"):
        one.chosen(ema=True)
