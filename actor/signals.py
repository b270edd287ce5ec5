"""Signals: what an actor and the process of its robot tell each other through their pipe, and how it is packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgpack
import numpy as np

from headrace.actor.guard import Vitals

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Signal:
    """One of those below."""


# --- from the actor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start(Signal):
    """An episode is wanted, reset with ``seed``."""

    episode: int
    seed: int
    vitals: Vitals


@dataclass(frozen=True)
class Offer(Signal):
    """Actions ``(n, A)`` for the periods from ``tick`` of ``episode`` on, by what period ``seen`` showed; -1: ``tick``."""

    episode: int
    tick: int
    actions: Array
    vitals: Vitals
    seen: int = -1


@dataclass(frozen=True)
class Say(Signal):
    """What somebody says to the robot, one of :data:`headrace.actor.words.WORDS`."""

    word: str


@dataclass(frozen=True)
class Pause(Signal):
    """The run is ``paused``, or goes on."""

    paused: bool


@dataclass(frozen=True)
class Close(Signal):
    """Stop the robot and end the process."""


# --- from the process of the robot --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begun(Signal):
    """The first observation of an episode; its period 0 waits for an action."""

    episode: int
    values: dict[str, Array]


@dataclass(frozen=True)
class Stepped(Signal):
    """The step that ended with period ``tick`` beginning: what was executed, and what was seen then."""

    episode: int
    tick: int
    action: Array
    reward: float
    terminated: bool
    truncated: bool
    outcome: int
    health: int
    age: float
    source: int
    values: dict[str, Array]


@dataclass(frozen=True)
class Broken(Signal):
    """The episode ended with its last complete step, by a stop."""

    episode: int
    why: str


@dataclass(frozen=True)
class Said(Signal):
    """What a human said to the robot that is the actor's to obey; what is about an episode means that of the newest step."""

    word: str


@dataclass(frozen=True)
class Report(Signal):
    """How the robot stands, for people."""

    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed(Signal):
    """The robot could not be made or reached; the process ends."""

    why: str


_KINDS: dict[str, type[Signal]] = {
    kind.__name__: kind for kind in (Start, Offer, Say, Pause, Close, Begun, Stepped, Broken, Said, Report, Failed)
}


def pack(signal: Signal) -> bytes:
    """One signal as bytes."""
    values = [getattr(signal, f.name) for f in fields(signal)]
    return bytes(msgpack.packb([type(signal).__name__, *values], default=_plain))


def unpack(data: bytes) -> Signal:
    """The signal in ``data``, which our own process packed."""
    name, *values = msgpack.unpackb(data, object_hook=_rich)
    return _KINDS[name](*values)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"": [value.dtype.str, list(value.shape), value.tobytes()]}
    if isinstance(value, Vitals):
        return {"vitals": [value.heard, value.acted_s]}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no part of a signal")


def _rich(value: dict[str, Any]) -> Any:
    if "" in value:
        dtype, shape, data = value[""]
        return np.frombuffer(data, dtype).reshape(shape)
    return Vitals(*value["vitals"]) if "vitals" in value else value
