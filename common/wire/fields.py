"""Typed fields of wire messages: each knows its bound and refuses what does not fit.

A field is declared with one of the functions below; the codec calls ``metadata["take"]`` on the decoded
msgpack value, and ``metadata["kind"]`` says the same in words. Nothing here coerces: a bool is not an int, a float is not an
int, bytes are not text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

from headrace.common.errors import WireError

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
COUNT = 1 << 53  # more of anything is a lie, and sums of a few such counts still fit 64 bits
_POWERS = {U64: "2^64 - 1", U32: "2^32 - 1", COUNT: "2^53"}
MAX_DEPTH = 8
MAX_ELEMENTS = 8192


def _declare(take: Callable[[Any], Any], kind: str, default: Any) -> Any:
    metadata = {"take": take, "kind": kind}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def uint(high: int = U64, *, default: Any = ...) -> Any:
    """Integer from 0 to ``high``."""

    def take(value: Any) -> int:
        if type(value) is not int or not 0 <= value <= high:
            raise WireError("malformed", f"expected an integer from 0 to {high}")
        return value

    return _declare(take, f"integer, 0 to {_POWERS.get(high, high)}", default)


def real(*, default: Any = ...) -> Any:
    """Finite float (integers are accepted)."""

    def take(value: Any) -> float:
        if type(value) not in (float, int) or not math.isfinite(value):
            raise WireError("malformed", "expected a finite number")
        return float(value)

    return _declare(take, "float64, finite", default)


def flag(*, default: Any = ...) -> Any:
    """True or false."""

    def take(value: Any) -> bool:
        if type(value) is not bool:
            raise WireError("malformed", "expected true or false")
        return value

    return _declare(take, "bool", default)


def text(most: int, *, default: Any = ...) -> Any:
    """Printable text of at most ``most`` characters (so it can go to a log as it is)."""

    def take(value: Any) -> str:
        if type(value) is not str or len(value) > most or not value.isprintable():
            raise WireError("malformed", f"expected printable text of at most {most} characters")
        return value

    return _declare(take, f"text, at most {most} characters", default)


def blob(most: int, *, default: Any = ...) -> Any:
    """Bytes of at most ``most``."""

    def take(value: Any) -> bytes:
        if type(value) is not bytes or len(value) > most:
            raise WireError("malformed", f"expected at most {most} bytes")
        return value

    return _declare(take, f"bytes, at most {most}", default)


def pairs(most: int, *, default: Any = ...) -> Any:
    """List of at most ``most`` pairs of unsigned 64-bit integers."""

    def take(value: Any) -> tuple[tuple[int, int], ...]:
        if type(value) is not list or len(value) > most:
            raise WireError("malformed", f"expected a list of at most {most} pairs")
        for pair in value:
            if type(pair) is not list or len(pair) != 2 or any(type(n) is not int or not 0 <= n <= U64 for n in pair):
                raise WireError("malformed", "expected pairs of unsigned integers")
        return tuple((pair[0], pair[1]) for pair in value)

    return _declare(take, f"list of at most {most} pairs of integers, 0 to 2^64 - 1", default)


def plain(*, default: Any = ...) -> Any:
    """Nested plain values (none, bool, int, float, text, list, text-keyed map) of bounded depth and count."""

    def take(value: Any) -> Any:
        check_plain(value)
        return value

    return _declare(take, f"nested value, at most {MAX_DEPTH} deep, {MAX_ELEMENTS} elements", default)


def printable(value: str) -> str:
    """``value`` as a text field and a log may have it."""
    return "".join(c if c.isprintable() else "?" for c in value)


def check_plain(value: Any, most: int = MAX_ELEMENTS) -> None:
    """Refuse anything but plain values, of at most ``most`` elements."""
    count = 0
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for item in level:
            if item is None or type(item) in (bool, int, float, str):
                continue
            if type(item) is list:
                deeper.extend(item)
            elif type(item) is dict and all(type(k) is str for k in item):
                deeper.extend(item.values())
            else:
                raise WireError("malformed", f"a {type(item).__name__} is not a plain value")
        count += len(deeper)
        if count > most:
            raise WireError("malformed", f"more than {most} elements")
        if not deeper:
            return
        level = deeper
    raise WireError("malformed", f"nested deeper than {MAX_DEPTH}")
