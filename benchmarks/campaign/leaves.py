"""Nested states leaf by leaf: a SHA-256 of each tensor, array and number, so that a difference has a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.launch.digests import state_digest


def leaves(state: Any) -> dict[str, str]:
    """Name of each leaf, its keys joined by slashes -> its digest."""
    return dict(_walk(state, ""))


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Names of leaves that only one of both has, or that differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _walk(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _walk(inner, f"{name}/{key}" if name else str(key))
    else:
        yield name, state_digest(value)
