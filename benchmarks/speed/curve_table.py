"""The table of what keys cost: rows to a buffer and batches from it, with keys and without, in rates and in processor time."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headrace.common.wire.batches import MOST_AHEAD
from headrace.common.wire.key_files import KeyFiles
from speed.children import Child
from speed.rows import Bar, Row, Setup, Subject

CAPACITY = {"flat": 100_000, "images": 2_000}
PREFETCH = {"flat": MOST_AHEAD, "images": 4}
KEYS = {"0-0": "actor", "learner": "learner"}
WAYS = ("keys", "plain")
CPU = "{}, a CPU second"


class Load:
    """One client of one buffer.

    Attributes:
        per_cpu: what it got done in a second of processor time of both processes, in the last window.
    """

    def __init__(self, buffer: Child, client: Child) -> None:
        self._buffer, self._client = buffer, client
        self.per_cpu = 0.0

    def window(self, seconds: float) -> float:
        """What it gets done a second."""
        self._buffer.ask(seconds)
        self._client.ask(seconds)
        done, buffer = self._client.answer(), self._buffer.answer()
        self.per_cpu = float(done["rate"]) / max(1e-9, float(done["cpu"]) + float(buffer["rate"]))
        return float(done["rate"])


class PerCpu:
    """The same load by processor time."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def window(self, seconds: float) -> float:
        """What was done in a second of processor time of buffer and client together."""
        self._load.window(seconds)
        return self._load.per_cpu


def _start(kind: str, role: str, setup: Setup, stack: ExitStack) -> dict[str, Subject]:
    place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for name, key_role in KEYS.items():
        KeyFiles(place / "keys").new(name, key_role)
    loads = {}
    for way in WAYS:
        shared = {"keys": str(place / "keys")} if way == "keys" else {}
        options = {"role": "buffer", "place": str(setup.place), "capacity": CAPACITY[kind], "block": 32}
        buffer = stack.enter_context(Child("ours.py", {**options, **shared}))
        endpoint = buffer.ready["endpoint"]
        actor: dict[str, Any] = {"role": "actor", "endpoint": endpoint, "kind": kind, "block": 32, "seed": 0, **shared}
        if role == "actor":
            loads[way] = Load(buffer, stack.enter_context(Child("ours.py", actor)))
            continue
        with Child("ours.py", {**actor, "fill": CAPACITY[kind] // 2}):
            pass
        learner = {"role": "learner", "endpoint": endpoint, "reading": "socket", "prefetch": PREFETCH[kind], **shared}
        loads[way] = Load(buffer, stack.enter_context(Child("ours.py", learner)))
    return {**loads, **{CPU.format(way): PerCpu(load) for way, load in loads.items()}}


def _row(name: str, title: str, unit: str, kind: str, role: str) -> Row:
    bars = (Bar("keys", ("plain",)), Bar(CPU.format("keys"), (CPU.format("plain"),)))
    bound = "Each byte is enciphered on one side and deciphered on the other, in ZeroMQ's own thread of each process."
    return Row(name, title, unit, bound, bars, lambda setup, stack: _start(kind, role, setup, stack))


_TABLE = (
    _row("rows", "rows of 17 floats in blocks of 32, one actor process", "rows/s", "flat", "actor"),
    _row("rows-images", "rows with 2 x 128x128x3 bytes in blocks of 32, one actor process", "rows/s", "images", "actor"),
    _row("batches", "batches of 256 rows of 17 floats, through the socket", "batches/s", "flat", "learner"),
    _row(
        "batches-images", "batches of 256 rows with 2 x 128x128x3 bytes, through the socket", "batches/s", "images", "learner"
    ),
)
TABLE = {row.name: row for row in _TABLE}
