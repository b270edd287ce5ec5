"""A packed set in pieces is what it is whole: the same tensors, the same refusals, and NaN found wherever it stands."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.common.errors import WireError
from headrace.common.lent import Lender
from headrace.common.weights import Version, WeightSet
from headrace.common.wire.weight_reader import WeightReader

TENSORS = {
    "a": np.arange(7, dtype="<f4"),
    "b": np.arange(5, dtype="<i8"),
    "c": np.linspace(0, 1, 9, dtype="<f8").reshape(3, 3),
    "d": np.zeros((0, 4), "<f4"),
    "e": np.array([1, 2, 3], "<f2"),
    "f": np.array(True),
}


def packed(halved=(), **changed):
    return WeightSet(Version("l", 1, 7), {"type": "mlp"}, {**TENSORS, **changed}).pack(halved)


def read(blob, size, lender=None):
    reader = WeightReader(len(blob), lender or Lender())
    for at in range(0, len(blob), size):
        reader.add(blob[at : at + size])
    return reader


@pytest.mark.parametrize("size", [1, 3, 13, 64, 1 << 20])
@pytest.mark.parametrize("halved", [(), ("a",)])
def test_pieces_of_any_size_make_the_set(size, halved):
    blob = packed(halved)
    reader = read(blob, size)
    assert (reader.held, reader.not_finite) == (len(blob), "")
    ours, whole = reader.finish(), WeightSet.unpack(blob)
    assert ours.fingerprint() == whole.fingerprint()
    assert all((ours.tensors[name] == tensor).all() for name, tensor in whole.tensors.items())


@pytest.mark.parametrize("size", [1, 13, 1 << 20])
@pytest.mark.parametrize(("name", "halved", "at"), [("a", (), 0), ("a", (), 6), ("a", ("a",), 3), ("c", (), 8), ("e", (), 1)])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_number_that_is_none_is_found_in_any_piece(size, name, halved, at, value):
    ill = TENSORS[name].copy()
    ill.flat[at] = value
    assert read(packed(halved, **{name: ill}), size).not_finite == name


@pytest.mark.parametrize("at", [0, 5, 20, 150, -40, -1])
def test_a_flipped_bit_is_refused_by_the_end(at):
    blob = bytearray(packed())
    blob[at] ^= 4
    with pytest.raises(WireError, match="weights"):
        read(bytes(blob), 13).finish()


def test_the_memory_of_a_set_that_is_gone_is_lent_again_and_that_of_one_that_is_not_stays():
    lender, first, second = Lender(), packed(a=np.ones(7, "<f4")), packed(a=np.full(7, 2, "<f4"))
    kept = read(first, 64, lender).finish()
    where = read(second, 64, lender).finish().tensors["a"].ctypes.data
    assert read(first, 64, lender).finish().tensors["a"].ctypes.data == where
    assert kept.tensors["a"].tolist() == [1.0] * 7
    one, other = (read(blob, 64, lender).finish() for blob in (first, second))
    assert (one.tensors["a"].tolist(), other.tensors["a"].tolist()) == ([1.0] * 7, [2.0] * 7)
