import random

import numpy as np

from headrace.buffer.tombstones import Tombstones


def test_every_draw_becomes_a_row_that_is_there_in_order():
    draw = random.Random(0)
    stones, dead, tail, head = Tombstones(), set(), 0, 50
    for _ in range(200):
        new = sorted({draw.randrange(tail, head) for _ in range(draw.randrange(6))} - dead)
        stones.discarded(np.array(new, np.int64))
        dead |= set(new)
        alive = [i for i in range(tail, head) if i not in dead]
        np.testing.assert_array_equal(stones.step_over(np.arange(tail, tail + len(alive))), alive)
        assert len(stones) == len(dead)
        assert stones.within(tail + 5, head - 5).tolist() == sorted(i for i in dead if tail + 5 <= i < head - 5)
        assert stones.check_valid()[0]
        tail, head = tail + draw.randrange(5), head + draw.randrange(5)
        dead = {i for i in dead if i >= tail}
        stones.retired(tail)
    stones.cleared()
    assert len(stones) == 0
