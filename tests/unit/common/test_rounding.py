"""Whole numbers that float32 cannot hold are found wherever they are, and no others are."""

import numpy as np
import pytest

from headrace.common.rounding import first_changed


@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<u4", "<u8"])
def test_exactly_what_float32_changes_is_found(dtype):
    info = np.iinfo(dtype)
    near = {sign * ((1 << bit) + k) for bit in range(65) for k in (-3, -2, -1, 0, 1, 2, 3, 1 << 20) for sign in (1, -1)}
    for value in sorted(v for v in near if info.min <= v <= info.max):
        values = np.array([[0, 1 << 24], [1 << 24, value]], dtype)
        changed = int(np.float32(value)) != value
        wanted = f"row 8 holds {value}, a whole number that float32 would make {int(np.float32(value))}" if changed else ""
        assert first_changed(values, 7) == wanted


def test_only_whole_numbers_of_four_bytes_and_more_are_looked_at():
    for values in (
        np.array([2.0**24 + 1]),
        np.array([255], "u1"),
        np.array([True]),
        np.array([[-32768]], "<i2"),
        np.array([], int),
    ):
        assert first_changed(values) == ""
    assert "16777217" in first_changed(np.array(16777217))
