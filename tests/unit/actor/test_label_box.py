"""The label box: order, bounds, and what of it is found again after its process was killed."""

import numpy as np

from headrace.actor.label_box import LabelBox
from headrace.actor.label_file import LabelFile
from headrace.common.label import Kind, Label
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, TransitionSpec

SPEC = TransitionSpec.like({"obs": np.zeros(2, np.float32)}, [-1], [1])
SIZE = 2000


def label(last, rewards=0):
    values = np.zeros((rewards, 1), "<f4") if rewards else None
    return Label(Kind.REWARDS if rewards else Kind.DISCARD, 0, 1, last, rewards=values)


def take(box, one):
    """Keep and add, as the uplink does; False where there is no room."""
    if not box.has_room(one):
        return False
    box.add(one, box.keep(one))
    return True


def filed(directory, **bounds):
    file = LabelFile(directory / "arm.labels", SIZE, SPEC)
    return file, LabelBox(file, **bounds)


def left(box):
    """The labels of a box in the order in which they would be sent."""
    out = []
    while (found := box.next_unsent(1 << 40)) is not None:
        out.append(found[1])
    return out


def test_labels_leave_in_order_when_their_rows_have_left():
    box = LabelBox()
    for last in (5, 3, 9):
        assert take(box, label(last))
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
    assert [take(box, label(20, 20)), take(box, label(20, 20)), take(box, label(5, 5)), take(box, label(1))] == [
        True,
        False,
        True,
        True,
    ]
    assert not take(box, label(1))
    box.next_unsent(99)
    assert box.answered(1)
    assert (len(box), box.nbytes) == (2, 20)
    assert box.check_valid() == (True, "")


def test_what_is_not_answered_is_found_by_the_next_process_in_order_with_what_it_says(tmp_path):
    file, box = filed(tmp_path)
    said = [
        Label(Kind.OUTCOME, 0, 1, 4, OUTCOME_SUCCESS, episode=0),
        Label(Kind.OUTCOME, 0, 1, 4, OUTCOME_FAILURE, episode=0),  # the last word counts
        Label(Kind.DISCARD, 0, 5, 9, episode=1),
        Label(Kind.REWARDS, 0, 10, 12, rewards=np.array([[1], [2], [3]], "<f4")),
    ]
    assert all(take(box, one) for one in said)
    assert left(box) == said
    assert box.answered(1)
    assert box.answered(2)
    assert take(box, label(20))  # which puts on disk what was answered
    file._ring._disown()  # what SIGKILL does
    file, box = filed(tmp_path)
    found = left(box)
    assert [(one.kind, one.first, one.last, one.outcome, one.episode) for one in found] == [
        (one.kind, one.first, one.last, one.outcome, one.episode) for one in (*said[2:], label(20))
    ]
    assert found[1].rewards.tolist() == [[1], [2], [3]]
    assert box.check_valid() == (True, "")
    assert [box.answered(n) for n in (1, 2, 3)] == [True] * 3
    file.close()
    assert filed(tmp_path)[0].left == []


def test_a_label_that_is_kept_while_the_last_answer_comes_is_not_forgotten(tmp_path):
    file, box = filed(tmp_path)
    assert take(box, label(1))
    assert box.next_unsent(1)
    place = box.keep(label(2))
    assert box.answered(1)
    box.add(label(2), place)
    file.close()
    assert [one.last for one, _ in filed(tmp_path)[0].left] == [2]


def test_damaged_labels_are_counted_and_those_around_them_found(tmp_path):
    file, box = filed(tmp_path)
    assert all(take(box, label(last)) for last in (1, 2, 3))
    place = box._items[1].place
    file.close()
    with (tmp_path / "arm.labels").open("r+b") as raw:
        raw.seek(file._ring._data + place.end - 2)
        raw.write(b"\0\0")
    file, box = filed(tmp_path)
    assert [one.last for one in left(box)] == [1, 3]
    assert box.damaged == 1
    assert take(box, Label(Kind.OUTCOME, 0, 1, 1, OUTCOME_SUCCESS))
    file._ring.append([b"\x02\x00\x00\x00{}"])  # whole, and no label
    file.close()
    assert filed(tmp_path)[1].damaged == 2


def test_a_file_without_room_takes_no_more(tmp_path):
    _, box = filed(tmp_path, most=100)
    count = 0
    while take(box, label(30, 30)):
        count += 1
    assert 1 < count < 100
    left(box)
    assert box.answered(1)
    assert take(box, label(1))
    assert box.check_valid() == (True, "")
