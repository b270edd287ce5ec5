"""Every exception that headrace raises on purpose, as one tree.

HeadraceError
├── ConfigError         an option is unknown, mistyped, out of range or impossible with another
├── SpecError           two sides disagree about shapes, dtypes or policies
├── CountedRefusal      something may not be taken, for a short reason that a counter is keyed by
│   ├── WireError       a message may not be accepted
│   ├── BlockRefused    an authenticated peer sent rows that may not enter the pool
│   ├── PriorityRefused priorities that no row may take
│   └── LabelRefused    what was said late about rows cannot be true of them
├── SessionRefused      the buffer turned this process away (held id, wrong spec, fenced)
├── PoolError           the pool cannot do what was asked
│   ├── ArgumentError   an argument of a call is of another kind than it takes, or out of range
│   ├── PoolLocked      another living process owns the pool directory
│   ├── PoolTooSmall    fewer rows than the request needs
│   ├── NoSpace         disk, /dev/shm or cgroup has not enough room
│   ├── DiskFailed      the disk took something not, or gave it not
│   │   └── SyncFailed  what was to be acknowledged
│   └── PoolDamaged     a file failed its check
│       └── PoolTorn    the machine stopped while the pool was in use and not synced
├── CheckpointError     a checkpoint is missing, damaged or of another run
├── MemoryCapped        a process needed more memory than it may have
├── GroupLost           a rank of a learner's group is gone or silent
├── SpoolError          the file that keeps a robot's experience cannot be used or written
├── OutboxFull          no more experience may wait for the buffer, and that is to stop the loop
├── EnvError            an environment could not be made or broke its contract
└── DeadlineExceeded    a wait ended without what it waited for
"""

from __future__ import annotations


def describe_os_error(error: OSError) -> str:
    """What the system says, behind the file that it says it of."""
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}"


class HeadraceError(Exception):
    """Root of every error that headrace raises on purpose."""


class ConfigError(HeadraceError):
    """An option is unknown, mistyped, out of range or impossible; the text names key, values and fix."""


class SpecError(HeadraceError):
    """Two sides disagree about a spec or a policy; the text names the field and both values."""


class CountedRefusal(HeadraceError):
    """Something may not be taken, and nothing of it was.

    Args:
        reason: short word that counters are keyed by, such as ``"malformed"``.
        detail: bounded text for the log.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class WireError(CountedRefusal):
    """A message that may not be accepted."""


class BlockRefused(CountedRefusal):
    """Rows of an authenticated peer that may not enter the pool."""


class PriorityRefused(CountedRefusal):
    """Priorities that no row may take."""


class LabelRefused(CountedRefusal):
    """A late label that its rows cannot take."""


class SessionRefused(HeadraceError):
    """The buffer turned this process away for good; ``reason`` says why in one word."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


class PoolError(HeadraceError):
    """The pool cannot do what was asked."""


class ArgumentError(PoolError):
    """An argument of a call is of another kind than it takes, or out of range; the text says what is expected."""


class PoolLocked(PoolError):
    """Another living process owns the pool directory; the text names its pid."""


class PoolTooSmall(PoolError):
    """Fewer rows are stored than the request needs; the text says both numbers."""


class NoSpace(PoolError):
    """Disk, /dev/shm or cgroup has not enough room; the text says how much is needed and free."""


class DiskFailed(PoolError):
    """The disk failed to take or to give what a pool needs; the text says what the system says."""


class SyncFailed(DiskFailed):
    """The disk did not take what was to be acknowledged; the pool has to be opened again, and goes on from its last sync."""


class PoolDamaged(PoolError):
    """A pool file failed its check; the text names the file."""


class PoolTorn(PoolDamaged):
    """The machine stopped while the pool was in use, and what of it is on disk is not known; the text says what to do."""


class CheckpointError(HeadraceError):
    """A checkpoint is missing, damaged, or of another run or format."""


class CheckpointsClaimed(CheckpointError):
    """Another learner process writes the checkpoints of this run directory; the text names it."""


class MemoryCapped(HeadraceError):
    """A process needed more private memory than its cap; the text names the key that raises it."""


class GroupLost(HeadraceError):
    """A rank of a learner's group is gone or silent; the text says who noticed, and after what wait."""


class SpoolError(HeadraceError):
    """The file that keeps a robot's experience cannot be used or written; the text names it and what to do."""


class OutboxFull(HeadraceError):
    """No more experience may wait for the buffer, and ``actor.when_full`` says that the loop stops then."""


class EnvError(HeadraceError):
    """An environment could not be made, or broke its contract."""


class DeadlineExceeded(HeadraceError):
    """A wait ended without what it waited for; the text says what and for how long."""
