"""The blend: batches whose rows come from all shards in proportion to their live rows, as if these were one pool.

How many rows of a batch each shard gives is drawn anew for each batch: the multivariate hypergeometric distribution of a draw
without replacement from all live rows. With named sets a shard counts by the rows of its sets and draws its part by its own
shares; where these are fewer than a batch, since sets may repeat rows, it is the multinomial distribution.

A shard that is lost gives nothing until it is back. One that has fewer rows than a chunk has gives nothing yet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from headrace.common.batch import SHARD_BITS, Batch
from headrace.common.specs import TransitionSpec
from headrace.common.staging import Staging
from headrace.common.statistics import ObsStatistics, pooled
from headrace.common.weights import WeightSet
from headrace.common.wire import messages as m
from headrace.learner.feed import Feed
from headrace.learner.stock import Stock
from headrace.learner.updates import Updates

Array = np.ndarray[Any, Any]
LOOK_S = 0.05
KEPT_EPOCHS = 64  # of batches whose ratings may still come


class Blend:
    """What a rank learns from, in place of the feed of a single buffer.

    Args:
        feeds: of all shards, the home shard's first, each asking for chunks of ``chunk`` rows under one lock.
        alive: whether the shard of a number has a session now.
        updates: where updates are granted; none for a rank whose updates rank 0 makes.
        batch_size: B.
        chunk: rows of a chunk.
        rng: draws how many rows come from where.

    Attributes:
        rows: how many rows of each shard batches have had.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        alive: Callable[[int], bool],
        updates: Updates | None,
        batch_size: int,
        chunk: int,
        rng: np.random.Generator,
    ) -> None:
        self._feeds, self._alive, self._updates = feeds, alive, updates
        self._batch_size, self._chunk, self._rng = batch_size, chunk, rng
        self._changed: threading.Condition = feeds[0].changed
        self._stocks: list[list[Stock]] = [[] for _ in feeds]  # of each shard one for each batch of an update
        self._plan: list[int] | None = None  # rows of each shard in the next batch
        self._next: list[Batch] | None = None
        self._staging: Staging | None = None
        self._epochs: dict[int, tuple[int, ...]] = {}  # number -> the pools' epochs
        self._pooled: tuple[list[int], list[ObsStatistics], ObsStatistics] | None = None  # of which, and what they make
        self.rows = [0] * len(feeds)
        if updates is not None:
            updates.about = self._about

    # --- training loop ----------------------------------------------------------------------------------------------

    def start_drawing(self) -> None:
        """Begin to ask for updates and rows."""
        for feed in self._all:
            feed.start_drawing()

    def stop_drawing(self) -> None:
        """Ask for no more updates: what was granted before may still come, and its rows are drawn."""
        if self._updates is not None:
            self._updates.stop_drawing()

    def get(self, timeout_s: float) -> list[Batch] | None:
        """What the next update takes, or none within ``timeout_s``, as :meth:`Feed.get`."""
        end = time.monotonic() + timeout_s
        with self._changed:
            # A shard that is lost tells nobody, so it is looked for from time to time.
            while not self._ready() and (left := end - time.monotonic()) > 0:
                self._changed.wait(min(left, LOOK_S))
            for feed in self._all:
                feed.check()
            if self._next is None or not self._may_update:
                return None
            if self._updates is not None:
                self._updates.use()
            batches, self._next = self._next, None
        return batches

    def peek(self) -> list[Batch]:
        """What the next :meth:`get` will give, the very objects; nothing where that is not here yet."""
        with self._changed:
            self._ready()
            return self._next or []

    @property
    def must_draw(self) -> bool:
        """Whether links should be woken to ask for more."""
        return any(feed.must_draw for feed in self._all)

    def rate(self, epoch: int, ids: Array, errors: Array) -> None:
        """Tell each shard |td| of its rows, see :meth:`Feed.rate`."""
        epochs, shards = self._epochs.get(epoch), ids >> SHARD_BITS
        for number, feed in enumerate(self._feeds):
            of = shards == number
            if epochs is not None and of.any():
                feed.rate(epochs[number], ids[of] & ((1 << SHARD_BITS) - 1), errors[of])

    @property
    def statistics(self) -> ObsStatistics | None:
        """Of the rows of all shards that have said theirs."""
        known = [feed.statistics for feed in self._feeds if feed.statistics is not None]
        if not known:
            return None
        which = [id(statistics) for statistics in known]
        if self._pooled is None or self._pooled[0] != which:
            self._pooled = which, known, pooled(known)
        return self._pooled[2]

    def report(self, values: dict[str, Any]) -> None:
        """What the next heartbeats tell about this learner."""
        for feed in self._all:
            feed.report(values)

    def _about(self) -> dict[str, Any]:
        gone = [number for number in range(len(self._feeds)) if not self._alive(number)]
        return {"rows_by_shard": list(self.rows), "shards_lost": gone}

    # --- the run, as the home shard says it; of rank 0 alone ---------------------------------------------------------

    @property
    def home(self) -> Updates:
        """The session in which updates are granted."""
        if self._updates is None:
            raise RuntimeError("rank 0 alone has it")
        return self._updates

    @property
    def stop(self) -> m.Stop | None:
        """The home shard's request to end."""
        return (self._updates or self._feeds[0]).stop

    @property
    def summary(self) -> dict[str, Any]:
        """What the home shard tells of the run."""
        return self.home.summary

    @property
    def heard(self) -> int:
        """States of the home shard."""
        return self.home.heard

    @property
    def epoch(self) -> int:
        """Of this learner."""
        return self.home.epoch

    def publish(self, weights: WeightSet, halved: Collection[str] = ()) -> None:
        """Send weights to the home shard, which the others follow."""
        self.home.publish(weights, halved)

    def wait_published(self, timeout_s: float) -> bool:
        """Whether they are on its shelf within ``timeout_s``."""
        return self.home.wait_published(timeout_s)

    # --- a batch ----------------------------------------------------------------------------------------------------

    @property
    def _all(self) -> list[Feed]:
        return [*self._feeds, *([] if self._updates is None else [self._updates])]

    @property
    def _may_update(self) -> bool:
        return self._updates is None or self._updates.granted > 0

    def _ready(self) -> bool:
        """Put the next batch together as far as rows are here; whether an update can be made, or never will."""
        if any(feed.failed for feed in self._all):
            return True
        if self._next is None:
            self._next = self._assemble()
        return self._next is not None and self._may_update

    def _assemble(self) -> list[Batch] | None:
        if self._plan is not None and any(n > self._live(s) and not self._fill(s, n) for s, n in enumerate(self._plan)):
            self._plan = None  # what was lost with a shard is drawn from the others
        if self._plan is None:
            self._plan = self._split()
        if self._plan is None or not all(self._fill(s, n) for s, n in enumerate(self._plan) if n):
            return None
        plan, self._plan = self._plan, None
        for number, n in enumerate(plan):
            self.rows[number] += n
        return [self._joined(plan, part) for part in range(max(map(len, self._stocks)))]

    def _split(self) -> list[int] | None:
        """How many rows of the next batch each shard gives; none while too few are live."""
        live = [self._live(shard) for shard in range(len(self._feeds))]
        rows = np.array([n if n >= self._chunk else 0 for n in live], np.int64)
        total = int(rows.sum())
        if total == 0:
            return None
        if total < self._batch_size:  # sets that repeat rows
            return [int(n) for n in self._rng.multinomial(self._batch_size, rows / total)]
        return [int(n) for n in self._rng.multivariate_hypergeometric(rows, self._batch_size, method="marginals")]

    def _live(self, shard: int) -> int:
        """Rows that a shard could give."""
        return self._feeds[shard].live_rows if self._alive(shard) else 0

    def _fill(self, shard: int, rows: int) -> bool:
        """Have so many rows of a shard in hand, for each batch of an update; whether they are."""
        while not (stocks := self._stocks[shard]) or not all(stock.fill(rows) for stock in stocks):
            chunk = self._feeds[shard].get(0.0)
            if chunk is None:
                return False
            if not stocks:
                stocks.extend(Stock() for _ in chunk)
            for stock, part in zip(stocks, chunk, strict=True):
                stock.put(part)
        return True

    def _joined(self, plan: Sequence[int], part: int) -> Batch:
        """One batch of an update, in memory that is used again."""
        parts = [(s, piece) for s, n in enumerate(plan) if n for piece in self._stocks[s][part].take(n)]
        out = self._arrays()
        weights = None if parts[0][1].weights is None else np.empty(len(out), np.float32)
        sets = None if parts[0][1].sets is None else np.empty(len(out), np.uint8)
        low = 0
        for shard, piece in parts:
            at = slice(low, low + len(piece))
            low += len(piece)
            out.ids[at], out.rows[at] = piece.ids | (shard << SHARD_BITS), piece.rows
            for key in out.obs:
                out.obs[key][at], out.next_obs[key][at] = piece.obs[key], piece.next_obs[key]
            if weights is not None and piece.weights is not None:
                weights[at] = piece.weights
            if sets is not None and piece.sets is not None:
                sets[at] = piece.sets
        return Batch(out.ids, out.rows, out.obs, out.next_obs, weights, sets, self._epoch(part))

    def _arrays(self) -> Batch:
        spec: TransitionSpec | None = next((feed.spec for feed in self._feeds if feed.spec is not None), None)
        assert spec is not None  # rows have come
        if self._staging is None or self._staging.spec != spec:
            self._staging = Staging(spec, self._batch_size)
        return self._staging.take()

    def _epoch(self, part: int) -> int:
        """The number of the pools' epochs now, by which :meth:`rate` finds them again."""
        now = tuple(stocks[part].epoch if stocks else 0 for stocks in self._stocks)
        newest = max(self._epochs, default=0)
        if self._epochs.get(newest) != now:
            newest += 1
            self._epochs[newest] = now
            self._epochs.pop(newest - KEPT_EPOCHS, None)
        return newest
