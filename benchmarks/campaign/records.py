"""Results as JSON lines: one finished measurement a line, appended whole, so that a campaign goes on where it ended."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
RUNS = ROOT / "runs"
Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """The records of a file, oldest first; a missing file has none.

    Raises:
        ValueError: a line is not a JSON object, naming the file and the line.
    """
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path.name}, line {number}: not JSON ({error}); mend or delete the line") from error
        if not isinstance(record, dict):
            raise ValueError(f"{path.name}, line {number}: not a JSON object; mend or delete the line")
        records.append(record)
    return records


@contextlib.contextmanager
def place(given: Path | None, prefix: str) -> Iterator[Path]:
    """A new directory for what a run leaves: ``given``, which stays, or one that goes with the block."""
    if given is not None:
        given.mkdir(parents=True)
        yield given.absolute()
        return
    RUNS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RUNS, prefix=prefix) as made:
        yield Path(made)


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one record, on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (json.dumps(record, allow_nan=False) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, data)  # one call: a reader or a kill never sees half a line of it in practice
        os.fsync(handle)
    finally:
        os.close(handle)


def latest(records: list[Record], *keys: str) -> dict[tuple[Any, ...], Record]:
    """The newest record for each value of ``keys``; records that lack one of them are left out."""
    return {tuple(r[k] for k in keys): r for r in records if all(k in r for k in keys)}


def unpassed(plan: Iterable[tuple[Any, ...]], known: list[Record], commit: str, *keys: str) -> list[tuple[Any, ...]]:
    """What of ``plan``, values of ``keys``, has not passed; what failed on this very commit stays failed."""
    newest = latest(known, *keys)
    return [p for p in plan if p not in newest or not (newest[p]["passed"] or newest[p]["commit"] == commit)]


def same_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two nested mappings of settings agree in every key that both have.

    A key that only the newer has came with a later version, whose default is what the older ran with.
    """
    a, b = _leaves(one), _leaves(other)
    return all(a[key] == b[key] for key in a.keys() & b.keys())


def _leaves(nested: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        inner = _leaves(value) if isinstance(value, Mapping) else {"": value}
        flat.update({f"{key}.{k}" if k else key: v for k, v in inner.items()})
    return flat
