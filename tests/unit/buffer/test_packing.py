import numpy as np
import pytest

from headrace.buffer.packing import pack, taken

DTYPE = np.dtype([("obs", "<i8", (2,)), ("next_obs", "<i8", (2,)), ("seq", "<u8")])


def rows_of(*ids):
    rows = np.zeros(len(ids), DTYPE)
    for row, (obs, after) in zip(rows, ids, strict=True):
        row["obs"], row["next_obs"] = obs, after
    rows["seq"] = np.arange(len(ids))
    return rows


ROWS = rows_of(((10, 10), (14, 10)), ((11, 10), (15, 11)), ((12, 11), (16, 12)), ((13, 12), (17, 13)))


@pytest.mark.parametrize(("slots", "kept"), [(8, 4), (7, 3), (6, 2), (5, 2), (4, 1), (3, 1), (2, 0)])
def test_the_newest_rows_that_fit_are_kept_with_each_frame_once_in_their_order(slots, kept):
    before = ROWS.copy()
    rows, used = pack(ROWS, 18, slots)
    assert rows["seq"].tolist() == list(range(4 - kept, 4))
    assert len(used) == len(set(used)) <= slots
    for name in ("obs", "next_obs"):
        np.testing.assert_array_equal(used[rows[name] - (18 - len(used))], ROWS[name][4 - kept :])
    newest = [max(row["obs"].max(), row["next_obs"].max()) for row in rows]
    assert newest == sorted(newest)
    assert not kept or newest[-1] == 17
    np.testing.assert_array_equal(ROWS, before)


def test_entries_are_taken_from_pieces_laid_end_to_end():
    pieces = [np.arange(6).reshape(3, 2), np.empty((0, 2), int), np.arange(6, 10).reshape(2, 2)]
    np.testing.assert_array_equal(taken(pieces, np.array([4, 0, 2, 3])), [[8, 9], [0, 1], [4, 5], [6, 7]])
