"""Exported policies: what comes back is what was written, to the bit, or is refused by name."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from helpers.weights import mlp_weights, observe, rich_spec, small_spec

from headrace.actor.policy import make_policy
from headrace.common.errors import CheckpointError
from headrace.common.exported import ABOUT, TENSORS, read_export, write_export
from headrace.common.weights import Version, WeightSet

SPEC = rich_spec()


@pytest.fixture
def export(tmp_path):
    weights = mlp_weights(SPEC, seed=3, step=17, normalise=True)
    write_export(tmp_path / "out", weights, SPEC, {"policy.pt": b"module"})
    return tmp_path / "out"


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("spec", [small_spec(), SPEC], ids=["plain", "stacked pictures"])
def test_actions_are_equal_to_the_bit(tmp_path, spec, normalise):
    weights = mlp_weights(spec, seed=1, step=41, normalise=normalise)
    write_export(tmp_path / "out", weights, spec, {})
    found, told = read_export(tmp_path / "out")
    assert (found.version, dict(found.policy), told) == (weights.version, dict(weights.policy), spec)
    assert found.fingerprint() == weights.fingerprint()
    obs = observe(spec, 64)
    for deterministic in (True, False):
        ours, theirs = (make_policy(w, spec).act(obs, np.random.default_rng(5), deterministic) for w in (weights, found))
        assert ours.tobytes() == theirs.tobytes()


def test_tensors_of_every_kind_and_shape_come_back(tmp_path):
    tensors = {
        "scalar": np.array(7, "<i8"),
        "flag": np.array([True, False]),
        "half": np.arange(6, dtype="<f2").reshape(2, 3),
        "transposed": np.arange(6, dtype="<f8").reshape(2, 3).T,
        "picture": np.arange(4, dtype="|u1"),
    }
    write_export(tmp_path / "out", WeightSet(Version("l", 1, 2), {"type": "torch"}, tensors), SPEC, {})
    found = read_export(tmp_path / "out")[0].tensors
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert (found[name] == tensor).all()


def test_what_it_says_to_other_programs(export):
    about = json.loads((export / ABOUT).read_text())
    assert about["version"] == {"learner": "test", "epoch": 1, "step": 17}
    assert about["inputs"] == ["camera", "state"]
    assert [(o["key"], o["shape"], o["dtype"], o["role"]) for o in about["spec"]["obs"]] == [
        ("camera", [2, 4], "|u1", "both"),
        ("hidden", [5], "<f4", "critic"),
        ("state", [3], "<f4", "actor"),
    ]
    assert about["spec"]["stack"] == 2
    assert about["spec"]["action"] == {"shape": [2], "low": [-2.0, 0.1], "high": [2.0, 5.0]}
    assert about["policy"]["hidden"] == [32, 16]
    assert about["normaliser"]["limit"] == 10.0
    assert set(about["normaliser"]["statistics"]) == {"state"}
    assert len(about["normaliser"]["statistics"]["state"]["mean"]) == 3
    assert set(about["files"]) == {TENSORS, "policy.pt"}
    assert sorted(path.name for path in export.iterdir()) == [ABOUT, "policy.pt", TENSORS]


def test_any_flipped_bit_is_found_and_named(export):
    rng = random.Random(0)
    for name in (ABOUT, TENSORS):
        data = (export / name).read_bytes()
        for _ in range(100):
            bit = rng.randrange(8 * len(data))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << (bit % 8)
            (export / name).write_bytes(flipped)
            said = ""
            try:
                read_export(export)
            except CheckpointError as error:
                said = str(error)
            if not said:  # the last digit of a number, beyond its precision, or white space
                assert name == ABOUT
                assert json.loads(flipped) == json.loads(data)
            assert name in said or not said
        (export / name).write_bytes(data)
    read_export(export)


@pytest.mark.parametrize("name", [ABOUT, TENSORS])
@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"\x08" + b"\0" * 20])
def test_what_is_no_export_is_refused_by_name(export, name, data):
    (export / name).unlink()
    if data is not None:
        (export / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        read_export(export)
