"""Rows written over while another process samples them: none is a mixture, and a reader that does not look is caught."""

from __future__ import annotations

import numpy as np
import pytest
import torn
from campaign import tearing

from headrace.buffer import SACReplayPool
from headrace.buffer.view import PoolView


def test_whole_rows_prove_themselves_and_mixed_ones_do_not():
    pool = SACReplayPool(8, spec=tearing.SPEC)
    pool.insert(tearing.block(100, 4), "a", 1, 1)
    batch = pool.gather(np.arange(4))
    assert tearing.mixed(batch) == 0
    batch.next_obs["frame"][2, -1] += 1
    batch.obs["frame"][1] = batch.obs["frame"][0]
    batch.rows["episode"][3] += 1
    assert tearing.mixed(batch) == 3


@pytest.mark.parametrize("kind", [PoolView, tearing.BlindView])
def test_no_row_is_mixed_unless_the_look_at_the_tail_is_left_out(kind, monkeypatch):
    monkeypatch.setattr(tearing, "MOST", 1)
    # The blind reader is stopped by what it finds, which on a busy machine may take it a while.
    rows, deadline_s = (6000, 20.0) if kind is PoolView else (20_000_000, 120.0)
    found = torn.measure(rows, deadline_s, kind)
    assert found["bad"] > 0 or kind is tearing.BlindView
    assert (found["mixed"] > 0) == (kind is tearing.BlindView)
    assert found["written"] > 10 * tearing.CAPACITY or kind is tearing.BlindView  # it may be stopped long before
