import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool
from headrace.buffer.config import PoolConfig
from headrace.buffer.files import frame_file
from headrace.buffer.ring import geometry, spans
from headrace.common.errors import ConfigError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec


@pytest.mark.parametrize("slots", [1, 2, 5, 8])
def test_spans_cover_each_id_once_at_its_slot(slots):
    for start in range(3 * slots):
        for count in range(slots + 1):
            placed = {}
            for slot, offset, length in spans(start, count, slots):
                for i in range(length):
                    placed[start + offset + i] = slot + i
            assert placed == {i: i % slots for i in range(start, start + count)}


def test_the_slack_holds_the_largest_block():
    sizes = geometry(lane_spec(), PoolConfig(capacity=100, max_block_rows=30))
    assert (sizes.capacity, sizes.max_rows, sizes.row_slots) == (100, 30, 130)


def test_a_block_is_never_larger_than_the_pool():
    assert geometry(lane_spec(), PoolConfig(capacity=4)).max_rows == 4


def test_a_regular_block_is_no_longer_than_a_commit():
    said = r"pool\.min_block_rows: 64 is above pool\.max_block_rows 32; nearest valid: 32"
    with pytest.raises(ConfigError, match=said):
        SACReplayPool(10, config=PoolConfig(min_block_rows=64, max_block_rows=32))


def test_large_blocks_need_far_fewer_frames_than_rows_of_their_own():
    single = geometry(lane_spec(), PoolConfig(capacity=10_000, max_block_rows=64))
    blocks = geometry(lane_spec(), PoolConfig(capacity=10_000, max_block_rows=64, min_block_rows=32))
    assert single.frame_slots >= 2 * 10_000
    assert 10_000 * 33 / 32 < blocks.frame_slots < 1.2 * 10_000


def test_a_chunk_brings_as_many_frames_as_its_next_stack_sees():
    sizes = geometry(
        lane_spec(stack=3, window=10, kind="chunk"), PoolConfig(capacity=1000, max_block_rows=10, min_block_rows=10)
    )
    assert sizes.frame_slots >= 3 * 1000


@pytest.mark.parametrize("rows", [32, 64, 512])
def test_an_observation_is_stored_once(rows):
    """Bytes a row of one lane's blocks: at most 1.1 observations and the other columns, written and reserved."""
    spec = TransitionSpec((ObsSpec("camera", (8, 8), "|u1"), ObsSpec("pose", (7,), "<f4")), ActionSpec((2,), (-1, -1), (1, 1)))
    sizes = geometry(spec, PoolConfig(capacity=1_000_000, min_block_rows=rows))
    assert sizes.frame_slots * spec.frame_nbytes <= 1.1 * spec.frame_nbytes * sizes.capacity
    lanes = lane_spec()
    pool, lane = SACReplayPool(4096, spec=lanes, config=PoolConfig(min_block_rows=rows)), Lane(lanes, 0, lengths=(1000,))
    for first in range(1, 4097, rows):
        pool.insert(lane.block(rows), "arm", 1, first)
    frames = pool.get_state()["arrays"][frame_file("obs")]
    assert len(frames) <= 1.1 * pool.size == 1.1 * 4096
