import numpy as np

from headrace.actor.label_box import LabelBox
from headrace.common.label import Kind, Label


def label(last, rewards=0):
    values = np.zeros((rewards, 1), "<f4") if rewards else None
    return Label(Kind.REWARDS if rewards else Kind.DISCARD, 0, 1, last, rewards=values)


def test_labels_leave_in_order_when_their_rows_have_left():
    box = LabelBox()
    for last in (5, 3, 9):
        assert box.add(label(last))
    assert box.next_unsent(4) is None
    assert [box.next_unsent(8)[0], box.next_unsent(8)[0]] == [1, 2]
    assert box.next_unsent(8) is None
    assert not box.answered(3)  # it was not sent
    assert box.answered(2)
    assert not box.answered(2)
    box.rewind()
    assert [box.next_unsent(9)[0], box.next_unsent(9)[0], box.next_unsent(9)] == [1, 3, None]
    assert box.check_valid() == (True, "")


def test_number_and_bytes_are_bounded():
    box = LabelBox(most=3, limit_bytes=100)
    assert [box.add(label(20, 20)), box.add(label(20, 20)), box.add(label(5, 5)), box.add(label(1))] == [
        True,
        False,
        True,
        True,
    ]
    assert not box.add(label(1))
    box.next_unsent(99)
    assert box.answered(1)
    assert (len(box), box.nbytes) == (2, 20)
    assert box.check_valid() == (True, "")
