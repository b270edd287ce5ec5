"""What one pool says of itself: sizes, counters, actors and their streams, and how batches are drawn now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.buffer.arguments import text, whole
from headrace.buffer.forks import fork_safe_lock
from headrace.buffer.handles import HandleReader
from headrace.buffer.header import Field
from headrace.buffer.pinned import Pinned
from headrace.buffer.returns import Returns
from headrace.buffer.sampling import Sampling
from headrace.buffer.store import Store
from headrace.buffer.tally import COUNTERS
from headrace.common.errors import PoolError
from headrace.common.specs import TransitionSpec
from headrace.common.statistics import ObsStatistics


class PoolFacts:
    """One lock around one store and its sampler, and what both tell; changes nothing.

    Args:
        sampling: how batches are drawn, from the moment on when there is a store.
        returns: follows discounted returns likewise; None where nobody scales rewards.
    """

    def __init__(self, sampling: Sampling, returns: Returns | None = None) -> None:
        self._lock = fork_safe_lock()
        self._sampling, self._returns = sampling, returns
        self._committed: Store | None = None  # what it holds may not be all that was added, see _store
        self._pinned: Pinned | None = None
        self._handles: HandleReader | None = None
        self._closed, self._why = False, "the pool is closed"

    @property
    def _store(self) -> Store | None:
        """The store, with everything in it that was added; None until a spec is known."""
        self._check_not_closed()
        return self._committed

    def _hold(self, store: Store) -> Store:
        self._sampling.follow(store, self._pinned)
        if self._returns is not None:
            self._returns.follow(store, self._pinned)
        self._committed = store
        return store

    @property
    def spec(self) -> TransitionSpec | None:
        """Columns of the rows; None until something fixes them."""
        return None if self._store is None else self._store.spec

    @property
    def size(self) -> int:
        """Rows of the ring that may be sampled: the live ones that are not discarded."""
        with self._lock:
            return 0 if self._store is None else self._store.size

    @property
    def demo_rows(self) -> int:
        """Pinned demonstrations, which are beside the ring and in no other count."""
        self._check_not_closed()
        return 0 if self._pinned is None else len(self._pinned)

    @property
    def head(self) -> int:
        """Id after the newest row, which is also the number of rows ever committed."""
        return 0 if self._store is None else self._store.segment.head

    @property
    def tail(self) -> int:
        """Id of the oldest live row."""
        return 0 if self._store is None else self._store.segment.tail

    @property
    def env_steps(self) -> int:
        """Executed env steps that all rows ever committed account for."""
        return 0 if self._store is None else self._store.ledger.env_steps

    @property
    def updates(self) -> int:
        """Optimiser updates granted, in both phases."""
        return 0 if self._store is None else self._store.header.updates

    @property
    def offline_updates(self) -> int:
        """Those of :attr:`updates` that were granted in the offline phase."""
        return 0 if self._store is None else self._store.header[Field.OFFLINE]

    @property
    def epoch(self) -> int:
        """Raised durably at every open and load: ids of an earlier epoch are void."""
        return 0 if self._store is None else self._store.header[Field.EPOCH]

    @property
    def nonce(self) -> int:
        """New at every open and load: a :class:`PoolView` whose header shows it has mapped this pool's files."""
        return 0 if self._store is None else self._store.header[Field.NONCE]

    def __len__(self) -> int:
        return self.size

    def counters(self) -> dict[str, int]:
        """Counts since the pool was made; accepted = live + evicted + retired + discarded."""
        with self._lock:
            return dict.fromkeys(COUNTERS, 0) if self._store is None else self._store.counters()

    def actors(self) -> list[str]:
        """Every actor that the ledger knows, by the index that rows hold."""
        with self._lock:
            return [] if self._store is None else self._store.ledger.actors

    def last_seq(self, actor: str, stream: int) -> int:
        """Last committed seq of a stream; 0 when there is none.

        Raises:
            BlockRefused: reason ``stream-closed``.
        """
        text("actor", actor)
        stream = whole("stream", stream)
        with self._lock:
            return 0 if self._store is None else self._store.ledger.last(actor, stream)

    def streams(self, actor: str) -> dict[int, int]:
        """Open streams of an actor -> last committed seq."""
        text("actor", actor)
        with self._lock:
            return {} if self._store is None else self._store.ledger.streams(actor)

    @property
    def drawable(self) -> int:
        """Largest batch that there may be rows for now: live rows, or with named sets what their mixes can make of theirs.

        With ``when_small: replace`` that is 1,048,576, the largest that a learner may ask for.
        """
        with self._lock:
            return 0 if self._store is None else self._sampling.drawable

    @property
    def waiting(self) -> str:
        """The named set that is waited for before any batch can be drawn, in words; empty when none is."""
        with self._lock:
            return "" if self._store is None else self._sampling.waiting

    @property
    def mixes(self) -> list[str]:
        """What :meth:`sample` can draw: ``critic``, and ``actor`` where the actor's batch is a separate one."""
        self._check_not_closed()
        return self._sampling.mixes

    def sampling_info(self) -> dict[str, Any]:
        """How batches are drawn now, in numbers."""
        with self._lock:
            self._check_not_closed()
            return self._sampling.info()

    def statistics(self) -> ObsStatistics:
        """Moments of the float observations, over the newest frame of each demonstration and of each row ever committed.

        Discarded and evicted rows stay in them. With ``return_gamma``, of discounted returns too.
        """
        with self._lock:
            if self._store is None:
                return ObsStatistics()
            own = self._store.statistics
            returns = None if self._returns is None else self._returns.result()
            return replace((own if self._pinned is None else own.merged(self._pinned.statistics)).result(), returns=returns)

    @property
    def updates_settled(self) -> bool:
        """Whether that was noted, and nothing was granted since."""
        return self._store is not None and self._store.header.settled

    def _check_not_closed(self) -> None:
        if self._closed:
            raise PoolError(self._why)

    def _open(self) -> Store:
        store = self._store
        if store is None:
            raise PoolError("the pool has no spec yet; give one, add a plain batch, or load a snapshot")
        return store
