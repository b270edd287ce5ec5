import pytest
from helpers.lane_rows import lane_spec

from headrace.buffer.config import PoolConfig
from headrace.buffer.ring import geometry, spans


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
