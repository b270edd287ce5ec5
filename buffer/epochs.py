"""Epochs: a durable counter per client id, raised each time a new process takes the id over."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from headrace.buffer.manifest import sync_directory
from headrace.common.errors import PoolDamaged

NAME = "epochs.json"
_ALL = ""  # no id is empty


class Epochs:
    """Counts the processes that ever held each id; written and synced before a new epoch is handed out.

    Args:
        directory: where the file lives; none keeps the counts in memory.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / NAME if directory is not None else None
        self._epochs: dict[str, int] = {}
        if self._path is not None and self._path.exists():
            self._epochs = _read(self._path)

    def raise_epoch(self, who: str) -> int:
        """The next epoch of ``who``, starting at 1, durable before this returns; raises :class:`OSError` when it is not."""
        self._put(who, max(self._epochs.get(who, 0), self._epochs.get(_ALL, 0)) + 1)
        return self._epochs[who]

    def raise_all(self, floor: int) -> None:
        """Let every epoch from now on be above ``floor``: for a directory whose counts were lost."""
        self._put(_ALL, max(floor, self._epochs.get(_ALL, 1)))

    def _put(self, who: str, epoch: int) -> None:
        self._epochs[who] = epoch
        if self._path is not None:
            _write(self._path, self._epochs)

    def get_state(self) -> dict[str, int]:
        """Newest epoch per id."""
        return dict(self._epochs)

    def set_state(self, state: dict[str, int]) -> None:
        """Restore :meth:`get_state`, in memory."""
        self._epochs = dict(state)

    def check_valid(self) -> tuple[bool, str]:
        """Whether every epoch is positive."""
        bad = [who for who, epoch in self._epochs.items() if epoch < 1]
        return not bad, f"epochs below 1: {bad}" if bad else ""


def _digest(epochs: dict[str, int]) -> str:
    return hashlib.sha256(json.dumps(epochs, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, int]:
    try:
        data = json.loads(path.read_text())
        epochs = {str(k): int(v) for k, v in data["epochs"].items()}
        if data["sha256"] == _digest(epochs):
            return epochs
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise PoolDamaged(f"{path} does not match its checksum; restore it from a snapshot of the pool")


def _write(path: Path, epochs: dict[str, int]) -> None:
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("w") as file:
            json.dump({"epochs": epochs, "sha256": _digest(epochs)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # the room that it took is wanted
        raise
    sync_directory(path.parent)  # an epoch that was given out must never be given out again
