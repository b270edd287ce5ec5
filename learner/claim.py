"""The claim: which learner process may write the checkpoints of a run directory, one at a time.

A newcomer meets ...                                           and ...
nobody, or one that is dead                                    has it
one of the same pool, which its buffer has let in before       takes it over; the other finds out before its next checkpoint
a living one of another pool, or a later one of the same pool  is refused, and told which process it is

So a learner that hangs can be replaced on its own host, and two runs cannot mix their checkpoints. A claim is a lock on the
file that ``learner.lock`` names: death releases it, and to take it over is to give the name to another file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

from headrace.common.errors import CheckpointsClaimed

NAME = "learner.lock"


class Claim:
    """Held until :meth:`release`, the end of the process, or a successor.

    Args:
        run_dir: an existing directory.
        pool: identity of the pool whose buffer has let this learner in.
        epoch: of its session, higher than those before it.

    Raises:
        CheckpointsClaimed: another one has it, and keeps it.
    """

    def __init__(self, run_dir: Path, pool: str, epoch: int) -> None:
        self._path = run_dir / NAME
        other = _living(self._path)
        if other is not None and (other.get("pool") != pool or other.get("epoch", 0) > epoch):
            raise self._taken(other)
        part = self._path.with_name(f".{NAME}.{os.getpid()}.part")
        self._fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        own = {"pid": os.getpid(), "host": socket.gethostname(), "pool": pool, "epoch": epoch}
        with contextlib.suppress(OSError):  # a full disk takes no note of who has it, and the lock holds all the same
            os.write(self._fd, json.dumps(own).encode())
        part.rename(self._path)

    def require(self) -> None:
        """Refuse to go on once a successor has it.

        Raises:
            CheckpointsClaimed: names the successor.
        """
        try:
            if os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                return
        except FileNotFoundError:
            return  # somebody tidied up; nobody has it but us
        raise self._taken(_read(self._path))

    def release(self) -> None:
        """Let the next one have it; harmless when called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _taken(self, other: dict[str, Any]) -> CheckpointsClaimed:
        who = f"learner pid {other.get('pid', 'unknown')} on {other.get('host', 'unknown')}"
        return CheckpointsClaimed(
            f"{self._path.with_name('checkpoints')}: {who} writes here; stop it, or choose another run.dir or run.name"
        )


def _living(path: Path) -> dict[str, Any] | None:
    """What the one that has the claim has said of itself; none where nobody living has it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(fd)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = {}
    return found if isinstance(found, dict) else {}
