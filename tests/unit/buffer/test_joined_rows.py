import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.buffer.handles import PINNED
from headrace.buffer.joined_rows import JoinedRows
from headrace.buffer.ordered_rows import OrderedRows

SUBSET = st.lists(st.integers(0, 29), unique=True).map(sorted)


def rows_of(ids, grouped):
    rows = OrderedRows(30, grouped)
    ids = np.array(ids, np.int64)
    rows.label(ids, (ids % 3).astype(np.uint32))
    rows.add(ids)
    return rows


@pytest.mark.parametrize("grouped", [True, False])
@settings(deadline=None)
@given(online=SUBSET, demos=SUBSET, taken=SUBSET, others=SUBSET)
def test_two_segments_answer_as_one(grouped, online, demos, taken, others):
    online, handles = [i + 1000 for i in online], [i + PINNED for i in demos]
    joined = JoinedRows(rows_of(online, grouped), rows_of(handles, grouped))
    taken = np.array([i + 1000 for i in taken] + [i + PINNED for i in others], np.int64)
    members = np.array(online + handles, np.int64)
    keys = members % 3 if grouped else np.zeros(len(members), int)
    left = {}
    for member, key in zip(members.tolist(), keys.tolist(), strict=True):
        left[key] = left.get(key, 0) + (member not in taken)
    assert len(joined) == len(members)
    assert joined.sizes_without(taken) == left
    for key in range(3 if grouped else 1):
        wanted = members[keys == key]
        group = joined.group(key)
        assert len(group) == len(wanted)
        order = np.arange(len(wanted))[::-1]
        np.testing.assert_array_equal(group[order], wanted[::-1])
        np.testing.assert_array_equal(joined.positions(taken, key), np.flatnonzero(np.isin(wanted, taken)))
