"""ZMTP 3.1 without sockets: one direction of a connection, cut into its greeting, commands and whole messages."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.common.errors import WireError

GREETING_BYTES = 64
MECHANISM = slice(12, 32)  # of the greeting
PLAIN = b"NULL"
MORE, LONG, COMMAND = 1, 2, 4
MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class Unit:
    """Bytes that belong together.

    Attributes:
        data: as they came, framing included.
        bodies: (start, stop) in ``data`` of each frame's body, for a message; empty for a part of the greeting or a command.
        sealed: whether the frames are encrypted, so that nobody can tell where a message ends or what it is.
    """

    data: bytes
    bodies: tuple[tuple[int, int], ...] = ()
    sealed: bool = False


class Splitter:
    """One direction of one connection; gives back every byte that it was fed, in order."""

    def __init__(self) -> None:
        self._greeting = bytearray()
        self._data = bytearray()
        self._at = 0  # behind the last whole frame
        self._bodies: list[tuple[int, int]] = []

    @property
    def sealed(self) -> bool:
        """Whether this connection is encrypted; known once its greeting has passed."""
        return bytes(self._greeting[MECHANISM]).rstrip(b"\0") != PLAIN

    def feed(self, data: bytes) -> list[Unit]:
        """What is whole now; the greeting in whatever pieces it comes, since each side waits for the other's beginning.

        Raises:
            WireError: ``too-large``: a message above :data:`MOST_BYTES`.
        """
        head, rest = data[: GREETING_BYTES - len(self._greeting)], data[max(0, GREETING_BYTES - len(self._greeting)) :]
        self._greeting += head
        units = [Unit(bytes(head))] if head else []
        self._data += rest
        while (unit := self._next()) is not None:
            units.append(unit)
        return units

    def _next(self) -> Unit | None:
        while (frame := self._frame()) is not None:
            flags, start, stop = frame
            self._at = stop
            if flags & COMMAND and not self._bodies:
                return self._cut()
            self._bodies.append((start, stop))
            if not flags & MORE:
                return self._cut()
        return None

    def _frame(self) -> tuple[int, int, int] | None:
        """Flags, and where the body of the next frame begins and ends; none while it is not whole."""
        at, data = self._at, self._data
        if len(data) < at + 2:
            return None
        start = at + (9 if data[at] & LONG else 2)
        if len(data) < start:
            return None
        stop = start + int.from_bytes(data[at + 1 : start], "big")
        if stop > MOST_BYTES:
            raise WireError("too-large", f"a message of {stop} bytes or more, at most {MOST_BYTES}")
        return (data[at], start, stop) if len(data) >= stop else None

    def _cut(self) -> Unit:
        unit = Unit(bytes(self._data[: self._at]), tuple(self._bodies), self.sealed)
        del self._data[: self._at]
        self._at, self._bodies = 0, []
        return unit
