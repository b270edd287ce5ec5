"""The spec beside a policy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from helpers.weights import small_spec

from headrace.common.errors import SpecError
from headrace.common.policy_files import parse_spec, policy_files
from headrace.common.specs import TransitionSpec
from headrace.common.weights import NO_VERSION, WeightSet

SPEC = small_spec()
FILES = policy_files(WeightSet(NO_VERSION, {"type": "none"}, {}), SPEC)


def test_policy_and_spec_come_back():
    assert set(FILES) == {"policy.hrw", "spec.json"}
    assert WeightSet.unpack(FILES["policy.hrw"]).policy == {"type": "none"}
    assert parse_spec(FILES["spec.json"]) == SPEC


@pytest.mark.parametrize(("field", "value", "size"), [("next_action", True, 8), ("latent", 3, 13), ("planned", True, 9)])
def test_a_spec_without_a_column_is_what_it_was_before_there_was_one(field, value, size):
    longer = replace(SPEC, **{field: value})
    assert field not in SPEC.to_dict()
    assert TransitionSpec.from_dict(longer.to_dict()) == longer != SPEC
    assert longer.differences(SPEC) == [f"spec.{field}: {value} != None (window.{field})"]
    assert longer.row_dtype.itemsize == SPEC.row_dtype.itemsize + size


def test_a_changed_spec_is_refused():
    told = json.loads(FILES["spec.json"])
    told["spec"]["action"]["high"][0] += 1.0
    with pytest.raises(SpecError, match="does not match its digest"):
        parse_spec(json.dumps(told).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"null", b'{"spec": {}}', b"[" * 100_000])
def test_what_is_no_spec_is_refused(data):
    with pytest.raises(SpecError, match="not a"):
        parse_spec(data)
