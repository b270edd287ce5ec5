"""The ring file against a model: cuts at every byte, flipped bits, kills, a full disk, and two owners."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.actor import ring_file
from headrace.actor.ring_file import RingFile
from headrace.common.errors import SpoolError

SIZE = 1000
TEXT = b"what it is"
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make(path, size=SIZE):
    path.unlink(missing_ok=True)
    RingFile.make(path, size, TEXT)
    return RingFile(path)


def reopen(path):
    """The file as the next owner finds it, and the bodies in it."""
    file = RingFile(path)
    return file, [body for _, body in file.recover()]


def forsake(file):
    """What SIGKILL does to an owner: nothing more is written, and its lock is gone."""
    file._disown()


def body(number, length):
    return bytes([number % 251]) * length


@SLOW
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 300)), st.tuples(st.sampled_from(["free", "kill", "close", "save"]))
        ),
        max_size=60,
    )
)
def test_it_holds_what_was_put_and_not_freed_whatever_happens_to_its_owner(tmp_path, ops):
    path = tmp_path / "ring"
    file, held, freed, n = make(path), [], [], 0
    for op in ops:
        if op[0] == "put":
            data = body(n, op[1])
            if len(data) <= file.free_bytes:
                held.append((file.append([data[:7], memoryview(data[7:])]), data))
                n += 1
            else:
                assert held
        elif op[0] == "free" and held:
            freed.append(held.pop(0)[1])
            file.free(held[0][0].position if held else file._head)
        elif op[0] == "save":
            file.note = str(n).encode()
            file.save()
        elif op[0] in ("kill", "close"):
            note = file.note if op[0] == "close" else None
            forsake(file) if op[0] == "kill" else file.close()
            file = RingFile(path)
            found = list(file.recover())
            expected = [data for _, data in held]
            old = [] if op[0] == "close" else freed  # what was freed may still be there after a kill
            assert [data for _, data in found][len(found) - len(expected) :] == expected
            assert [data for _, data in found] == (old + expected)[len(old) + len(expected) - len(found) :]
            assert note is None or file.note == note
            held, freed = found, []
        assert file.check_valid() == (True, "")
        assert [file.read(place) for place, _ in held] == [data for _, data in held]
    file.close()


@pytest.mark.parametrize("laps", [0, 1, 3])
def test_a_record_that_is_cut_at_any_byte_is_the_only_one_that_is_lost(tmp_path, laps):
    path, copy = tmp_path / "ring", tmp_path / "copy"
    file, kept = make(path), []
    for n in range(6 + laps * 10):
        while file.free_bytes < 120:
            kept.pop(0)
            file.free(kept[0][0].position)
        kept.append((file.append([body(n, 90 + n)]), body(n, 90 + n)))
    file.save()
    before = path.read_bytes()
    place = file.append([body(77, 60)]) if file.free_bytes >= 60 else None
    if place is None:
        file.free((kept.pop(0) and kept[0][0]).position)
        file.save()
        before = path.read_bytes()
        place = file.append([body(77, 60)])
    after = path.read_bytes()
    forsake(file)
    start = file._data
    expected = [data for _, data in kept]
    offsets = [start + (place.position + i) % SIZE for i in range(place.end - place.position)]
    for written in range(len(offsets) + 1):
        image = bytearray(before)
        for at in offsets[:written]:
            image[at] = after[at]
        copy.write_bytes(image)
        again, found = reopen(copy)
        assert found == expected + ([body(77, 60)] if written == len(offsets) else [])
        assert again.append([b"next"]).position in (place.position, place.end)
        forsake(again)
        again, found = reopen(copy)
        assert found[-1] == b"next"
        forsake(again)


def test_a_file_that_is_cut_at_any_byte_gives_the_records_before_the_cut(tmp_path):
    path, copy = tmp_path / "ring", tmp_path / "copy"
    file = make(path)
    places = [file.append([body(n + 1, 40)]) for n in range(5)]
    file.close()
    whole = path.read_bytes()
    for length in [*range(0, file._data, 97), *range(file._data, len(whole))]:
        copy.write_bytes(whole[:length])
        try:
            again, found = reopen(copy)
        except SpoolError:
            assert length < file._data - 4096  # nobody knows what the file is, or where its oldest record lies
            continue
        assert found == [body(n + 1, 40) for n, place in enumerate(places) if file._data + place.end <= length]
        forsake(again)


@SLOW
@given(st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=30), st.integers(0, 1 << 30))
def test_a_flipped_bit_loses_one_record_at_most_and_gives_no_wrong_one(tmp_path, steps, bit):
    # Nothing is drawn while the file is held: hypothesis may end an example in the middle of a draw.
    path, copy = tmp_path / "ring", tmp_path / "copy"
    file, kept = make(path), []
    for n, (length, saved) in enumerate(steps):
        while file.free_bytes < length:
            kept.pop(0)
            file.free(kept[0][0].position if kept else file._head)
        kept.append((file.append([body(n, length)]), body(n, length)))
        if saved:
            file.save()
    forsake(file)
    image = bytearray(path.read_bytes())
    bit %= 8 * len(image)
    image[bit // 8] ^= 1 << bit % 8
    copy.write_bytes(image)
    try:
        again, found = reopen(copy)
    except SpoolError:
        assert bit // 8 < 4096  # the file itself is not known any more, and says so
        return
    expected = [data for _, data in kept]
    live = [b for b in found if b in expected]
    assert live == [b for b in expected if b in live]
    assert len(live) >= len(expected) - 1
    assert all(b == body(b[0], len(b)) for b in found)
    forsake(again)


def test_a_damaged_record_is_passed_over_and_not_read(tmp_path):
    path = tmp_path / "ring"
    file = make(path)
    places = [file.append([body(n, 40)]) for n in range(5)]
    with path.open("r+b") as raw:
        raw.seek(file._data + places[2].position + 30)
        raw.write(b"\xff")
    assert [file.read(place) is None for place in places] == [False, False, True, False, False]
    forsake(file)
    _, found = reopen(path)
    assert found == [body(n, 40) for n in (0, 1, 3, 4)]


def test_space_is_not_used_again_before_the_cursor_that_frees_it_is_on_disk(tmp_path):
    path = tmp_path / "ring"
    file, held = make(path), []
    for n in range(100):
        if file.free_bytes < 100:
            held = held[-2:]
            file.free(held[0][0].position)
        held.append((file.append([body(n, 100)]), body(n, 100)))
        forsake(file)
        file, found = reopen(path)
        assert found[-len(held) :] == [data for _, data in held]
        file.free(held[0][0].position)
    file.close()


WRITER = """
import sys
from pathlib import Path
from headrace.actor.ring_file import RingFile
file = RingFile(Path(sys.argv[1]))
held = [place for place, _ in file.recover()]
n = int(sys.argv[2])
print("ready", flush=True)
while True:
    data = n.to_bytes(8, "little") * 64
    while file.free_bytes < len(data):
        held.pop(0)
        file.free(held[0].position)
    held.append(file.append([data]))
    print(n, flush=True)
    n += 1
"""


def test_a_killed_writer_leaves_all_that_it_told_of(tmp_path):
    path = tmp_path / "ring"
    RingFile.make(path, 20_000, TEXT)
    first = 0
    for kill in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(first)], stdout=subprocess.PIPE, text=True
        ) as writer:
            lines = iter(writer.stdout.readline, "")
            assert next(lines) == "ready\n"
            for _ in range(3 + 20 * kill):
                next(lines)
            os.kill(writer.pid, signal.SIGKILL)
            told = [int(line) for line in lines if line.endswith("\n")]
        file, found = reopen(path)
        numbers = [int.from_bytes(data[:8], "little") for data in found]
        assert all(data == n.to_bytes(8, "little") * 64 for data, n in zip(found, numbers, strict=True))
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert not told or numbers[-1] in (told[-1], told[-1] + 1)
        first = numbers[-1] + 1
        file.close()


def test_one_owner_at_a_time(tmp_path):
    path = tmp_path / "ring"
    RingFile.make(path, 20_000, TEXT)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "0"], stdout=subprocess.PIPE, text=True) as writer:
        writer.stdout.readline()
        with pytest.raises(SpoolError, match="held by another living process"):
            RingFile(path)
        writer.kill()
    file = RingFile(path)
    with pytest.raises(SpoolError, match="in use by this very process"):
        RingFile(path)
    file.close()
    RingFile(path).close()


def test_a_full_disk_is_told_at_the_start_with_what_is_missing(tmp_path):
    path = tmp_path / "ring"
    code = (
        "import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pathlib import Path\nfrom headrace.actor.ring_file import RingFile\n"
        f"RingFile.make(Path({str(path)!r}), 1 << 21, b'')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "bytes cannot be reserved (File too large); make room or ask for less" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_nothing_more_is_told_and_nothing_counts_as_kept(tmp_path, monkeypatch):
    path = tmp_path / "ring"
    file = make(path)
    file.append([b"kept"])

    def refuse(fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(ring_file.os, "fdatasync", refuse)
        with pytest.raises(SpoolError, match=r"the disk does not take what is to be kept \(Input/output error\)"):
            file.append([b"lost"])
    file.append([b"next"])
    forsake(file)
    assert reopen(path)[1] == [b"kept", b"next"]


def test_other_files_are_refused_by_what_they_are(tmp_path):
    path = tmp_path / "ring"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(SpoolError, match="no spool of headrace"):
        RingFile(path)
    path.write_bytes(b"")
    with pytest.raises(SpoolError, match="cut short"):
        RingFile(path)
    with pytest.raises(SpoolError, match="No such file"):
        RingFile(tmp_path / "none")
