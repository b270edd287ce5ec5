"""Directories that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.common.directories import write_directory

FILES = {"a.txt": b"one", "b.txt": b"two"}


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_all_files_are_there_and_nothing_else(tmp_path):
    write_directory(tmp_path / "new" / "place", FILES)
    assert contents(tmp_path / "new" / "place") == FILES
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["place"]


def test_what_lies_there_already_stays(tmp_path):
    write_directory(tmp_path / "place", FILES)
    with pytest.raises(OSError, match="not empty"):
        write_directory(tmp_path / "place", {"a.txt": b"other"})
    assert contents(tmp_path / "place") == FILES
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("call", ["fsync", "mkdir", "write_bytes", "rename"])
def test_a_failure_of_any_call_leaves_nothing(tmp_path, monkeypatch, call):
    owner = os if call == "fsync" else Path
    real, calls = getattr(owner, call), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == k:
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    for k in range(1, 20):
        place = tmp_path / str(k)
        calls.clear()
        with monkeypatch.context() as broken:
            broken.setattr(owner, call, failing)
            try:
                write_directory(place, FILES)
            except OSError:
                assert not place.exists() or contents(place) == FILES  # its name may not be on the disk yet
            else:
                break
        assert not list(tmp_path.glob(".*"))
    assert contents(place) == FILES
    assert k > 1
