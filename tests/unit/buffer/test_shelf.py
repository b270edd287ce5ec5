"""The shelf keeps the newest weights whole, whatever is offered."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.buffer.shelf import NAMES, Shelf
from headrace.common.errors import WireError
from headrace.common.weights import Version, WeightSet


def weights(epoch, step, learner="l", shape=(3,), value=None):
    tensor = np.full(shape, step if value is None else value, np.float32)
    return WeightSet(Version(learner, epoch, step), {"type": "mlp", "hidden": [shape[0]]}, {"w": tensor})


def put(shelf, w):
    shelf.put(w.pack(), w.version)


def test_the_newest_set_survives_a_restart(tmp_path):
    shelf = Shelf(tmp_path)
    put(shelf, weights(1, 5))
    put(shelf, weights(2, 0))  # a restarted learner begins again, in a newer epoch
    again = Shelf(tmp_path)
    assert again.version == Version("l", 2, 0)
    assert WeightSet.unpack(again.read((2, 0), 0, 1 << 20)[0]).tensors["w"].tolist() == [0, 0, 0]
    assert again.check_valid() == (True, "")


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        (weights(1, 5), "stale"),
        (weights(1, 4), "stale"),
        (weights(1, 9, learner="other"), "learner"),
        (weights(1, 9, shape=(4,)), "policy"),
        (weights(1, 9, value=np.inf), "non-finite"),
    ],
)
def test_what_may_not_replace_it_is_refused_and_nothing_changes(tmp_path, offer, reason):
    shelf = Shelf(tmp_path)
    put(shelf, weights(1, 5))
    with pytest.raises(WireError) as error:
        put(shelf, offer)
    assert error.value.reason == reason
    assert shelf.version.order == (1, 5)
    assert Shelf(tmp_path).version.order == (1, 5)


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_flipped_bit_anywhere_is_refused(tmp_path, at):
    blob = bytearray(weights(1, 5).pack())
    blob[at % len(blob)] ^= 4
    with pytest.raises(WireError):
        Shelf(tmp_path).put(bytes(blob), Version("l", 1, 5))


def test_the_version_announced_must_be_the_version_inside(tmp_path):
    with pytest.raises(WireError):
        Shelf(tmp_path).put(weights(1, 5).pack(), Version("l", 1, 6))


def test_ranges_of_another_version_or_beyond_the_end_give_nothing(tmp_path):
    shelf = Shelf(tmp_path)
    put(shelf, weights(1, 5))
    assert shelf.read((1, 4), 0, 10) is None
    assert shelf.read((1, 5), 10**6, 10) is None
    assert b"".join(shelf.read((1, 5), i, 10)[0] for i in range(0, shelf.nbytes, 10)) == weights(1, 5).pack()


def test_a_damaged_shelf_is_passed_over_and_filled_again(tmp_path, caplog):
    put(Shelf(tmp_path), weights(1, 5))
    path = tmp_path / "shelf-0.hrw"
    whole = bytearray(path.read_bytes())
    whole[60] ^= 4
    path.write_bytes(whole)
    again = Shelf(tmp_path)
    assert (again.nbytes, again.check_valid()) == (0, (True, ""))
    assert "shelf-0.hrw is passed over" in caplog.text
    put(again, weights(1, 5))
    assert Shelf(tmp_path).version == Version("l", 1, 5)


@pytest.mark.parametrize("cut", [0, 3, 8, 40, -1])
def test_a_kill_in_a_write_leaves_the_set_before_it(tmp_path, cut):
    shelf = Shelf(tmp_path)
    for step in (5, 6, 7):
        put(shelf, weights(1, step))
    following = weights(1, 8).pack()
    older = tmp_path / "shelf-1.hrw"  # holds step 6
    unfinished = (len(following).to_bytes(8, "little") + following)[:cut]
    older.write_bytes(unfinished + older.read_bytes()[len(unfinished) :])
    again = Shelf(tmp_path)
    assert again.version.step == 7
    put(again, weights(1, 8))
    assert Shelf(tmp_path).version.step == 8


def test_a_set_is_never_written_over_the_newest(tmp_path):
    def held():
        files = [(tmp_path / name).read_bytes() for name in NAMES]
        return sorted(WeightSet.unpack(f[8 : 8 + int.from_bytes(f[:8], "little")]).version.step for f in files)

    put(Shelf(tmp_path), weights(1, 1))
    for step in (2, 4, 6):
        shelf = Shelf(tmp_path)
        put(shelf, weights(1, step))
        assert held() == [step - 1, step]
        put(shelf, weights(1, step + 1))
        assert held() == [step, step + 1]


def test_weights_have_their_room_from_the_first_set_on(tmp_path, monkeypatch):
    put(Shelf(tmp_path), weights(1, 9))

    def full(fd, start, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    shelf = Shelf(tmp_path)
    for step in (10, 100_000, 10**15):
        put(shelf, weights(1, step))
        assert (shelf.not_written, Shelf(tmp_path).version.step) == ("", step)
