"""Epochs: a durable counter per client id, raised each time a process takes the id over, and which process did so last."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from headrace.buffer.manifest import sync_directory
from headrace.common.errors import PoolDamaged

NAME = "epochs.json"
_ALL = ""  # no id is empty
Entry = tuple[int, str]  # newest epoch, and the incarnation that has it as hexadecimal digits


class Epochs:
    """Counts the processes that ever held each id.

    What is raised is written down and synced by :meth:`write`, all of it at once, before any of it is handed out: a disk takes
    its time, and a thousand actors come together.

    Args:
        directory: where the file lives; none keeps the counts in memory.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / NAME if directory is not None else None
        self._written: dict[str, Entry] | None = None  # what the file holds, where that is older
        self._epochs: dict[str, Entry] = {}
        if self._path is not None and self._path.exists():
            self._epochs = _read(self._path)

    def raise_epoch(self, who: str, process: bytes) -> int:
        """The next epoch of ``who``, starting at 1, for ``process``; not to be handed out before :meth:`write`."""
        epoch = 1 + max(self._newest(who), self._newest(_ALL))
        self._put(who, epoch, process)
        return epoch

    def write(self) -> None:
        """Write down what was raised.

        Raises:
            OSError: the disk did not take it, and nothing of it was raised.
        """
        before, self._written = self._written, None
        if before is None or self._path is None:
            return
        try:
            _write(self._path, self._epochs)
        except OSError:
            self._epochs = before
            raise

    def held(self, who: str, process: bytes) -> int:
        """The epoch of ``who`` that ``process`` has; 0 where it has none, or one of before a loss."""
        newest = self._newest(who)
        return newest if self.holder(who) == process and newest > self._newest(_ALL) else 0

    def holder(self, who: str) -> bytes:
        """The process that took ``who`` over last; empty where nobody has."""
        return bytes.fromhex(self._epochs.get(who, (0, ""))[1])

    def raise_all(self, floor: int) -> None:
        """Let every epoch from now on be above ``floor``: for a directory whose counts were lost. It is on disk then."""
        self._put(_ALL, max(floor, self._newest(_ALL), 1), b"")
        self.write()

    def _newest(self, who: str) -> int:
        return self._epochs.get(who, (0, ""))[0]

    def _put(self, who: str, epoch: int, process: bytes) -> None:
        if self._written is None:
            self._written = dict(self._epochs)
        self._epochs[who] = epoch, process.hex()

    def get_state(self) -> dict[str, Entry]:
        """Newest epoch per id, and who has it."""
        return dict(self._epochs)

    def set_state(self, state: dict[str, Entry]) -> None:
        """Restore :meth:`get_state`, in memory."""
        self._epochs = dict(state)

    def check_valid(self) -> tuple[bool, str]:
        """Whether every epoch is positive."""
        bad = [who for who, (epoch, _) in self._epochs.items() if epoch < 1]
        return not bad, f"epochs below 1: {bad}" if bad else ""


def _digest(epochs: dict[str, Entry]) -> str:
    return hashlib.sha256(json.dumps(epochs, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Entry]:
    try:
        data = json.loads(path.read_text())
        epochs = {str(who): (int(epoch), bytes.fromhex(process).hex()) for who, (epoch, process) in data["epochs"].items()}
        if data["sha256"] == _digest(epochs):
            return epochs
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise PoolDamaged(f"{path} does not match its checksum; restore it from a snapshot of the pool")


def _write(path: Path, epochs: dict[str, Entry]) -> None:
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
