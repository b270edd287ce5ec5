import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, prove

from headrace.buffer import handles
from headrace.buffer.handles import PINNED, HandleReader

RING, DEMOS = 30, 20


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


@pytest.fixture
def reader(spec):
    ring = make(RING, spec)
    put(ring, Lane(spec, 1), 3 * RING)
    demos = make(DEMOS, spec)
    put(demos, Lane(spec, 9), DEMOS)
    return HandleReader(ring._store.segment.reader, demos.pinned().reader)


def ids_of(pattern):
    """Ring ids for ``r``, handles for ``d``, no two alike."""
    ring, demos = iter(range(2 * RING, 3 * RING)), iter(range(PINNED, PINNED + DEMOS))
    return np.array([next(ring) if letter == "r" else next(demos) for letter in pattern], np.int64)


@pytest.mark.parametrize("pattern", ["rdrdrdd", "r" * 9, "d" * 9, "d" + "r" * 20, "rd" * 20, ""])
@pytest.mark.parametrize("piece", [1, 1 << 10, 1 << 20])
@pytest.mark.parametrize("given", [True, False])
def test_each_row_comes_from_the_segment_of_its_handle(spec, reader, pattern, piece, given, monkeypatch):
    monkeypatch.setattr(handles, "_PIECE_BYTES", piece)
    reader = HandleReader(reader._online, reader._pinned)
    ids = ids_of(pattern)
    out = reader._online.staging(len(ids)) if given else None
    batch = reader.gather(ids, out)
    prove(batch, spec)
    np.testing.assert_array_equal(batch.ids, ids)
    np.testing.assert_array_equal(batch.rows["action"][:, 0], np.where(ids >= PINNED, 9, 1))
    np.testing.assert_array_equal(batch.rows["seq"], np.where(ids >= PINNED, ids - PINNED, ids) + 1)
    if given:
        assert batch.rows is out.rows or np.shares_memory(batch.rows, out.rows) or not len(ids)
        assert all(np.shares_memory(batch.next_obs[key], out.next_obs[key]) for key in out.obs if len(ids))


def test_a_handle_of_nowhere_reads_inside_the_arrays(reader):
    wild = np.array([-5, 3, PINNED - 1, PINNED + DEMOS, 2**62, -(2**62)])
    assert len(reader.gather(wild)) == 6
