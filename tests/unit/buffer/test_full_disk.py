"""A disk that does not take what is copied out of a pool: an error with its reason, nothing is left, and the pool goes on."""

import contextlib
import errno
import resource

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool, export_pool, space
from headrace.common.errors import DiskFailed, NoSpace

SPEC = lane_spec(image=8)
COPIES = {
    "the export": lambda pool, place: export_pool(pool, place / "shards"),
    "the snapshot": lambda pool, place: pool.save(place / "snapshots"),
    "the copy of the demonstrations": lambda pool, place: pool.pinned(place / "demos"),
}


@contextlib.contextmanager
def most_bytes_a_file(most):
    """The system refuses to let files of this process grow beyond ``most`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("what", COPIES)
def test_a_copy_that_the_disk_does_not_take_leaves_nothing_and_the_pool_as_it_was(what, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    with SACReplayPool(64, spec=SPEC, config=PoolConfig(max_actors=8)) as pool:
        lane = Lane(SPEC, 0)
        pool.insert(lane.block(40), "arm-0", 1, 1)
        for most in (0, 1000):  # not the first byte, and cut in the middle
            with most_bytes_a_file(most), pytest.raises(NoSpace, match=f"^{what} does not fit into {place}.*; make room"):
                COPIES[what](pool, place)
            assert [path for path in place.rglob("*") if path.is_file()] == []
        pool.insert(lane.block(3), "arm-0", 1, 41)
        prove_pool(pool)
        COPIES[what](pool, place)
    assert [path for path in place.rglob("*") if path.is_file()]


def test_what_else_the_system_says_is_a_failing_disk(tmp_path):
    refused = pytest.raises(DiskFailed, match=f"^the export in {tmp_path}: Input/output error$")
    with refused, space.writing("the export", tmp_path):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, int])
def test_places_of_labels_in_small_numbers_do_not_overflow(kind):
    with SACReplayPool(256, spec=SPEC, config=PoolConfig(max_actors=8)) as pool:
        pool.insert(Lane(SPEC, 0).block(150), "arm-0", 1, 1)
        assert pool.amend_rewards("arm-0", kind(1), kind(120), np.full(20, -7.5)).rows == 20
        assert pool.discard("arm-0", kind(1), kind(100), kind(127)).rows == 28
        assert len(pool.live(0, 150)) == 150 - 28
