"""A ring file: checksummed records in one preallocated file, oldest first, which a kill or a power cut shortens by one at most.

Layout: a block that says what the file is; two alternating, checksummed cursors; the ring. A position is a count of bytes since
the file was made, so it never repeats, and lies at ``position % size`` in the ring. A record is a head (checksummed by itself),
and a body. Its head tells its position, so that what is left of an earlier lap is no record any more.

Rules: a record is on disk before anybody hears of it. The cursor on disk says where the oldest record lies; only what is older
is ever written over. The end is found by reading: the first place that holds no next record.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.common.directories import sync
from headrace.common.errors import SpoolError, describe_os_error

MAX_RECORD_BYTES = 64 << 20
_held: set[str] = set()  # a record lock does not exclude its own process, so that is done here
_MAGIC, _RECORD_MAGIC, _FORMAT = b"HRRING\r\n", b"\xa5HRc", 1
_SUPER = struct.Struct("<8sIIQI")  # magic, format, bytes of the text behind it, bytes of the ring, checksum of text and sizes
_CURSOR = struct.Struct("<QQHI")  # its number, position of the oldest record, bytes of the note, checksum
_HEAD = struct.Struct("<4sIIQI")  # magic, checksum of the rest of the head, checksum of the body, position, bytes of the body
_PAGE, _CHUNK = 4096, 1 << 20


@dataclass(frozen=True)
class Place:
    """Where a record lies."""

    position: int
    size: int  # of its body

    @property
    def end(self) -> int:
        """Position behind it."""
        return self.position + _HEAD.size + self.size


class RingFile:
    """The ring in the file at ``path``, owned by one process.

    One thread appends; another may read, free and save meanwhile.

    Attributes:
        text: what the file is, as its maker said.
        note: a few bytes that its owner keeps with it; they are on disk after the next :meth:`save`.
        size: bytes of the ring.

    Raises:
        SpoolError: it cannot be made, is held by another process, or is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()  # of the cursors
        self._fd = self._own()
        try:
            self.text, self.size = self._read_super()
            self._data = _data_start(self.text)
            self._cursor_number, self._tail, self.note, self._search_bytes = self._read_cursor()
        except BaseException:
            self._disown()
            raise
        self._head = self._tail_on_disk = self._tail

    @staticmethod
    def make(path: Path, size: int, text: bytes, note: bytes = b"") -> None:
        """Make an empty ring of ``size`` bytes; the file appears whole or not at all.

        Raises:
            SpoolError: there is no room for it, or the directory cannot be written.
        """
        hidden = path.with_name(f".{path.name}.{os.getpid()}.part")
        total = _data_start(text) + size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, total)
                os.pwrite(fd, _super(text, size), 0)
                for number in (0, 1):
                    os.pwrite(fd, _cursor(number, 0, note), _data_start(text) - (2 - number) * _PAGE)
                os.fsync(fd)
            finally:
                os.close(fd)
            hidden.rename(path)
            sync(path.parent)
        except OSError as error:
            hidden.unlink(missing_ok=True)
            raise SpoolError(
                f"{path}: {total} bytes cannot be reserved ({error.strerror}); make room or ask for less"
            ) from error

    @property
    def free_bytes(self) -> int:
        """Bytes of a record's body for which there is room now."""
        return self.size - (self._head - self._tail) - _HEAD.size

    def is_empty(self) -> bool:
        """Whether no whole record is in the file; for files that are not recovered yet."""
        return self._find(self._head, self._head + self.size) is None

    def recover(self) -> Iterator[tuple[Place, bytes]]:
        """Every whole record, oldest first, passing over damaged ones; to be read to its end before anything else is done."""
        limit = self._head + self.size
        while (found := self._find(self._head, limit)) is not None:
            self._head = found[0].end
            yield found

    def append(self, parts: Sequence[bytes | memoryview]) -> Place:
        """Write a record, for which there is room, and wait until it is on disk.

        Raises:
            SpoolError: the disk does not take it; nothing was appended.
        """
        size, body_sum = 0, 0
        for part in parts:
            size, body_sum = size + len(part), zlib.crc32(part, body_sum)
        place = Place(self._head, size)
        try:
            if place.end > self._tail_on_disk + self.size:
                self._write_cursor()
            position = place.position
            for part in (_head(body_sum, place), *parts):
                self._write(position, part)
                position += len(part)
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._refused(error) from error
        self._head = place.end
        return place

    def read(self, place: Place) -> bytes | None:
        """The body of a record; none when it is damaged."""
        found = self._record(place.position, place.end)
        return None if found is None or found[0] != place else found[1]

    def free(self, position: int) -> None:
        """Give up what lies before ``position``, a record's own or the end of one. What lies behind it stays, whoever appends
        meanwhile."""
        self._tail = position

    def save(self) -> None:
        """Put ``note``, and where the oldest record lies, on disk. It happens by itself before space is used again.

        Raises:
            SpoolError: the disk does not take it.
        """
        try:
            self._write_cursor()
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Save, and let the next owner in; harmless when called twice."""
        if self._fd >= 0:
            try:
                self.save()
            finally:
                self._disown()

    def check_valid(self) -> tuple[bool, str]:
        """Whether the ends are in order."""
        valid = self._tail_on_disk <= self._tail <= self._head <= self._tail_on_disk + self.size
        return valid, "" if valid else f"{self._tail_on_disk} <= {self._tail} <= {self._head} within {self.size} does not hold"

    def _own(self) -> int:
        name = os.path.realpath(self.path)
        if name in _held:
            raise SpoolError(f"{self.path}: in use by this very process; close that session first")
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise SpoolError(f"{describe_os_error(error)}; it cannot be opened") from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise SpoolError(f"{self.path}: held by another living process; stop that one, or choose another place") from error
        _held.add(name)
        return fd

    def _disown(self) -> None:
        os.close(self._fd)
        self._fd = -1
        _held.discard(os.path.realpath(self.path))

    def _refused(self, error: OSError) -> SpoolError:
        return SpoolError(f"{self.path}: the disk does not take what is to be kept ({error.strerror or error})")

    # --- records ----------------------------------------------------------------------------------------------------

    def _find(self, position: int, limit: int) -> tuple[Place, bytes] | None:
        """The whole record at ``position``, or the next one behind what is damaged there; none where no more follow."""
        found = self._record(position, limit)
        if found is not None:
            return found
        stop = min(limit, position + self._search_bytes + _HEAD.size)
        while position < stop:
            ahead = self._read(position, min(_CHUNK, stop - position))
            at = ahead.find(_RECORD_MAGIC)
            while at >= 0:
                found = self._record(position + at, limit)
                if found is not None:
                    return found
                at = ahead.find(_RECORD_MAGIC, at + 1)
            position += max(1, len(ahead) - len(_RECORD_MAGIC) + 1)  # a magic may lie across two chunks
        return None

    def _record(self, position: int, limit: int) -> tuple[Place, bytes] | None:
        """The whole record whose head lies at ``position``, if one does and ends before ``limit``."""
        if position + _HEAD.size > limit:
            return None
        data = self._read(position, _HEAD.size)
        magic, head_sum, body_sum, where, size = _HEAD.unpack(data)
        place = Place(where, size)
        if magic != _RECORD_MAGIC or zlib.crc32(data[8:]) != head_sum or where != position or place.end > limit:
            return None
        body = self._read(position + _HEAD.size, size)
        return (place, body) if zlib.crc32(body) == body_sum else None

    def _read(self, position: int, count: int) -> bytes:
        at = position % self.size
        first = os.pread(self._fd, min(count, self.size - at), self._data + at)
        rest = os.pread(self._fd, count - len(first), self._data) if len(first) < count else b""
        return first + rest

    def _write(self, position: int, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            at = position % self.size
            done = os.pwrite(self._fd, view[: self.size - at], self._data + at)
            view, position = view[done:], position + done

    # --- cursors ----------------------------------------------------------------------------------------------------

    def _write_cursor(self) -> None:
        with self._guard:
            tail, self._cursor_number = self._tail, self._cursor_number + 1
            data = _cursor(self._cursor_number, tail, self.note)
            os.pwrite(self._fd, data, self._data - (2 - self._cursor_number % 2) * _PAGE)
            os.fdatasync(self._fd)
            self._tail_on_disk = tail

    def _read_cursor(self) -> tuple[int, int, bytes, int]:
        found: list[tuple[int, int, bytes]] = []
        for copy in (2, 1):
            data = os.pread(self._fd, _PAGE, self._data - copy * _PAGE)
            number, position, size, checksum = _CURSOR.unpack_from(data)
            note = data[_CURSOR.size : _CURSOR.size + size]
            if zlib.crc32(data[: _CURSOR.size - 4] + note) == checksum:
                found.append((number, position, note))
        if not found:
            raise SpoolError(f"{self.path}: both cursors are damaged; move the file away to begin with an empty one")
        # An older cursor than the newest may point to what was written over since: what follows may be anywhere.
        return *max(found), MAX_RECORD_BYTES if len(found) == 2 else self.size

    def _read_super(self) -> tuple[bytes, int]:
        data = os.pread(self._fd, _SUPER.size, 0)
        if len(data) < _SUPER.size:
            raise SpoolError(f"{self.path}: cut short; move it away to begin with an empty one")
        magic, form, length, size, checksum = _SUPER.unpack(data)
        if magic != _MAGIC:
            raise SpoolError(f"{self.path}: no spool of headrace; choose another file")
        if form != _FORMAT:
            raise SpoolError(f"{self.path}: format {form}, this build reads {_FORMAT}; send it with the build that wrote it")
        text = os.pread(self._fd, min(length, MAX_RECORD_BYTES), _SUPER.size)
        if zlib.crc32(data[:-4] + text) != checksum:
            raise SpoolError(f"{self.path}: its beginning is damaged; move it away to begin with an empty one")
        if os.fstat(self._fd).st_size < _data_start(text) + size:
            os.posix_fallocate(self._fd, 0, _data_start(text) + size)  # it was cut: what is whole is found all the same
        return text, size


def _super(text: bytes, size: int) -> bytes:
    start = _SUPER.pack(_MAGIC, _FORMAT, len(text), size, 0)[:-4]
    return start + struct.pack("<I", zlib.crc32(start + text)) + text


def _cursor(number: int, position: int, note: bytes) -> bytes:
    start = _CURSOR.pack(number, position, len(note), 0)[:-4]
    return (start + struct.pack("<I", zlib.crc32(start + note)) + note).ljust(_PAGE, b"\0")


def _head(body_sum: int, place: Place) -> bytes:
    rest = _HEAD.pack(b"", 0, body_sum, place.position, place.size)[8:]
    return _RECORD_MAGIC + struct.pack("<I", zlib.crc32(rest)) + rest


def _data_start(text: bytes) -> int:
    return -(-(_SUPER.size + len(text)) // _PAGE) * _PAGE + 2 * _PAGE
