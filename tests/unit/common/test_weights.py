"""A weight set that holds a policy and its average: either is chosen whole."""

import hashlib

import numpy as np
import pytest

from headrace.common.errors import SpecError, WireError
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


def test_halved_tensors_come_back_rounded_to_the_nearest_bfloat16_and_all_others_whole():
    numbers = np.array([1.0, 1.00390625, 1.01171875, -3.14159, 1e-30, 3.4e38, 0.0, -0.0, np.inf, 65504.3], "<f4")
    wanted = np.array([1.0, 1.0, 1.015625, -3.140625, 9.98402e-31, np.inf, 0.0, -0.0, np.inf, 65536.0], "<f4")
    full = WeightSet(Version("l", 1, 1), {}, {"w": np.tile(numbers, (3, 1)), "mean.obs": numbers})
    back = WeightSet.unpack(full.pack(halved=["w"]))
    np.testing.assert_allclose(back.tensors["w"], np.tile(wanted, (3, 1)), rtol=1e-4)
    assert back.tensors["w"].dtype == np.dtype("<f4")
    assert (back.tensors["mean.obs"] == numbers).all()
    assert back.fingerprint() == full.fingerprint()
    assert len(full.pack()) - len(full.pack(halved=["w"])) == 30 * 2 - 1  # the dtype's name is a letter longer
    twice = WeightSet.unpack(WeightSet.unpack(full.pack(halved=["w"])).pack(halved=["w"]))
    assert twice.tensors["w"].tobytes() == back.tensors["w"].tobytes()
    ill = WeightSet(Version("l", 1, 1), {}, {"w": np.full(2, np.frombuffer(b"\x01\x00\x80\x7f", "<f4")[0])})
    assert np.isnan(WeightSet.unpack(ill.pack(halved=["w"])).tensors["w"]).all()
    with pytest.raises(WireError, match="cut or named twice"):
        WeightSet.unpack(resealed(full.pack(halved=["w"]), b"\x92\x03\x0a", b"\x92\x05\x0a"))


def resealed(blob, old, new):
    """The blob with other bytes in its head, under a digest of its own."""
    assert blob.count(old) == 1
    body = blob[:-32].replace(old, new)
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize("ema", [False, True])
def test_what_was_chosen_holds_no_average_any_more(ema):
    one = BOTH.chosen(ema=ema)
    assert values(one.chosen()) == values(one)
    with pytest.raises(SpecError, match=r"the policy of update 7 comes without an average: .*learner\.ema_decay"):
        one.chosen(ema=True)
