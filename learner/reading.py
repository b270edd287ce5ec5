"""How a learner comes by its rows: through the socket, or by ids that it gathers from the buffer's mapped files.

A row can be gone between the draw and the gather. Then other rows are asked for: up to three times by id, then the buffer
gathers the batch. Only the rows that are gone are drawn anew, but all of a batch with weights or sets, whose weights and shares
hold for it as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from headrace.common.batch import Batch
from headrace.common.boot import kernel
from headrace.common.errors import ConfigError, PoolError, WireError
from headrace.common.specs import TransitionSpec
from headrace.common.staging import Staging
from headrace.common.wire.batches import batches_a_message
from headrace.common.wire.messages import DrawnHead, Redraw, Welcome

LOG = logging.getLogger(__name__)
Array = np.ndarray[Any, Any]
REDRAWS = 3


class View(Protocol):
    """The buffer's pool as this process has mapped it; see ``headrace.buffer.view.PoolView``."""

    nonce: int

    @property
    def is_current(self) -> bool:
        """Whether it still is the pool that was mapped."""
        ...

    def gather(self, ids: Array, out: Batch | None = None) -> tuple[Batch, Array]:
        """The rows, and ``(B,)`` bool: which of them mean nothing."""
        ...


OpenView = Callable[[Path, int], View]


@dataclass
class Torn:
    """A batch some of whose rows were gone.

    Attributes:
        batch: the rows that were there.
        holes: ``(n,)`` positions of the others.
        redraws: how often they were asked for.
    """

    batch: Batch
    holes: Array
    redraws: int = 0

    def request(self, ticket: int, *, mapped: bool) -> Redraw:
        """What to ask for under ``ticket``."""
        gather = self.redraws > REDRAWS or not mapped
        return Redraw(ticket, len(self.batch) if gather else len(self.holes), gather)


@dataclass(frozen=True)
class Job:
    """Ids that the buffer drew: for new batches, or for the holes of one."""

    head: DrawnHead
    ids: Array
    weights: Array | None
    sets: Array | None
    torn: Torn | None = None


class Reading:
    """Where rows are read, decided anew at each welcome; and the gather.

    Args:
        wanted: ``mapped``, ``socket``, or ``auto`` for mapped wherever it is possible.
        open_view: maps the pool of a directory whose header holds a nonce, or raises :class:`PoolError`.
        batch_size: B.
    """

    def __init__(self, wanted: str, open_view: OpenView | None, batch_size: int) -> None:
        self._wanted, self._open_view, self._batch_size = wanted, open_view, batch_size
        self._view: View | None = None
        self._staging: Staging | None = None

    @property
    def mapped(self) -> bool:
        """Whether this process gathers."""
        return self._view is not None

    @property
    def name(self) -> str:
        """``mapped`` or ``socket``."""
        return "mapped" if self.mapped else "socket"

    def welcomed(self, welcome: Welcome, spec: TransitionSpec) -> None:
        """Find out how to read the pool of a new session.

        Raises:
            ConfigError: it must be mapped and cannot be.
        """
        rows = self._batch_size * max(1, welcome.mixes)
        most = batches_a_message(spec, rows, mapped=True) * rows
        if self._staging is None or self._staging.spec != spec or self._staging.rows < most:
            self._staging = Staging(spec, most)
        self._view, why = self._map(welcome)
        if self._view is None and self._wanted == "mapped":
            raise ConfigError(f"learner.reading: mapped, but {why}; nearest valid: auto")
        LOG.info("rows are read %s", f"from {welcome.directory}, mapped" if self.mapped else f"through the socket: {why}")

    def check(self, rows: int) -> Staging:
        """Refuse what is more than a message may bring, with :class:`WireError`."""
        if self._staging is None or not 1 <= rows <= self._staging.rows:
            raise WireError("size", f"a message of {rows} rows, at most {0 if self._staging is None else self._staging.rows}")
        return self._staging

    def arrays(self, rows: int) -> Batch:
        """Reused arrays for ``rows`` rows."""
        return self.check(rows).take()[:rows]

    def drop_outdated(self) -> None:
        """Read through the socket when the mapped pool has been left, until the next welcome says where its successor is."""
        if self._view is not None and not self._view.is_current:
            self._view = None

    def _map(self, welcome: Welcome) -> tuple[View | None, str]:
        if self._wanted == "socket" or self._open_view is None:
            return None, "learner.reading is socket"
        if not welcome.directory or welcome.kernel != kernel():
            return None, "the buffer runs on another host, or names no directory"
        try:
            return self._open_view(Path(welcome.directory), welcome.nonce), ""
        except PoolError as error:
            return None, str(error)

    def gather(self, job: Job) -> tuple[list[Batch], list[Torn]]:
        """Whole batches, and those with holes; called by one thread, beside the other methods."""
        view = self._view
        if view is not None and job.head.nonce != view.nonce:
            view = None  # drawn from a pool that is gone
        if job.torn is not None:
            mended = self._mend(view, job, job.torn)
            return ([mended.batch], []) if not len(mended.holes) else ([], [mended])
        batch, bad = self._read(view, job, self.arrays(len(job.ids)))
        size = job.head.rows
        parts = batch.split(size)
        if not bad.any():
            return parts, []
        torn = [Torn(part, _holes(part, bad[i * size : (i + 1) * size])) for i, part in enumerate(parts)]
        return [t.batch for t in torn if not len(t.holes)], [t for t in torn if len(t.holes)]

    def _read(self, view: View | None, job: Job, out: Batch) -> tuple[Batch, Array]:
        out.ids[:] = job.ids
        batch = replace(out, weights=_own(job.weights), sets=_own(job.sets), epoch=job.head.pool_epoch)
        if view is None:
            return batch, np.ones(len(batch), bool)
        return batch, view.gather(out.ids, out)[1]

    def _mend(self, view: View | None, job: Job, torn: Torn) -> Torn:
        if len(job.ids) == len(torn.batch):
            batch, bad = self._read(view, job, torn.batch)
            return Torn(batch, _holes(batch, bad), torn.redraws)
        if view is None:
            return torn
        batch, (found, bad) = torn.batch, view.gather(job.ids)
        bad |= np.isin(job.ids, np.delete(batch.ids, torn.holes))  # a batch holds no row twice
        places = torn.holes[~bad]
        sides = ((batch.obs, found.obs), (batch.next_obs, found.next_obs))
        pairs = [(batch.ids, job.ids), (batch.rows, found.rows)]
        for ours, theirs in [*pairs, *((a[key], b[key]) for a, b in sides for key in a)]:
            ours[places] = theirs[~bad]
        return Torn(batch, torn.holes[bad], torn.redraws)


def _holes(batch: Batch, bad: Array) -> Array:
    """Which rows must be drawn anew."""
    if batch.weights is None and batch.sets is None:
        return np.flatnonzero(bad)
    return np.arange(len(batch) if bad.any() else 0)


def _own(column: Array | None) -> Array | None:
    return None if column is None else column.copy()
