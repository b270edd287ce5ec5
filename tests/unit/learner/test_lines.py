"""Whole lines, whatever a disk takes of them."""

import os

import pytest

from headrace.learner.lines import Lines


def test_a_line_of_which_a_part_is_there_spoils_no_other(tmp_path, monkeypatch):
    path, write = tmp_path / "lines", os.write
    lines = Lines(path)
    lines.add("first")
    for room in (0, 3, 0, 1):
        monkeypatch.setattr(os, "write", lambda fd, data, room=room: write(fd, data[:room]))
        with pytest.raises(OSError, match="No space left"):
            lines.add("lost")
    monkeypatch.setattr(os, "write", write)
    lines.add("second")
    lines.add("third")
    lines.close()
    assert path.read_text().splitlines() == ["first", "los", "second", "third"]


def test_a_full_device_takes_none_and_the_next_file_begins_in_a_line_of_its_own(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        Lines.add(Full(), "x")
    (tmp_path / "torn").write_text("whole\ntor")
    lines = Lines(tmp_path / "torn")
    lines.add("next")
    lines.close()
    assert (tmp_path / "torn").read_text() == "whole\ntor\nnext\n"


class Full(Lines):
    """On the device that is always full."""

    def __init__(self):
        self._fd, self._torn = os.open("/dev/full", os.O_WRONLY), False

    def __del__(self):
        os.close(self._fd)
