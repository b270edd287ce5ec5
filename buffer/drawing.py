"""Batches for learners: what they asked for is drawn, granted, and made into messages; by ids alone or gathered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.buffer.pool import SACReplayPool
from headrace.buffer.sampler import Drawn, joined
from headrace.common.batch import Batch
from headrace.common.errors import PoolTooSmall
from headrace.common.specs import TransitionSpec
from headrace.common.staging import Staging
from headrace.common.wire.batches import batch_messages, batches_a_message, drawn_message
from headrace.common.wire.codec import Parts, encode, statistics_frames
from headrace.common.wire.messages import BatchHead, DrawnHead, Granted, StatisticsHead


@dataclass(frozen=True)
class Draw:
    """Grant and sample ``batches`` batches, each one update of the named phase; who has ``mapped`` gathers itself.

    What it brings is to travel ``compressed``. A further rank of the learner's group draws what is not ``granted``: the update
    that it is for is one over all ranks, and granted to the learner.
    """

    peer: bytes
    batches: int
    batch_size: int
    statistics: bool
    mapped: bool = False
    offline: bool = False
    compressed: bool = False
    granted: bool = True


@dataclass(frozen=True)
class Again:
    """Sample ``rows`` rows in place of some that the learner came too late for; nothing is granted."""

    peer: bytes
    ticket: int
    rows: int
    gather: bool
    compressed: bool = False


@dataclass(frozen=True)
class Grant:
    """Grant ``updates`` updates of the named phase, whose rows come from several shards."""

    peer: bytes
    updates: int
    offline: bool = False


class Drawing:
    """Draws from one pool, for the thread that owns it."""

    def __init__(self, pool: SACReplayPool, spec: TransitionSpec) -> None:
        self._pool, self._spec = pool, spec
        self._staging: Staging | None = None

    def draw(self, work: Draw) -> tuple[int, list[Parts], str]:
        """Batches granted, the messages that bring them, and why there are not more of them."""
        pool, spec, done = self._pool, self._spec, 0
        out: list[Parts] = []
        if work.statistics:
            statistics = pool.statistics()
            out.append([encode(StatisticsHead(statistics.count)), *statistics_frames(statistics, spec)])
        rows = work.batch_size * len(pool.mixes)
        most = batches_a_message(spec, rows, mapped=work.mapped)
        while done < work.batches:
            n = min(most, work.batches - done)
            try:
                drawn = self._updates(work.batch_size, n)
            except PoolTooSmall as error:
                return done, out, str(error)[:256]
            number = pool.grant_updates(n, offline=work.offline) if work.granted else pool.updates
            if work.mapped:
                out.append(self._by_ids(DrawnHead(number, rows, n), drawn))
            else:
                batch = self._gather(drawn, most * rows)
                out.extend(batch_messages(BatchHead(number, rows, n, pool_epoch=pool.epoch), batch, spec))
            done += n
        return done, out, ""

    def grant(self, work: Grant) -> Parts:
        """The message that grants the updates, once that is durable."""
        return [encode(Granted(self._pool.grant_updates(work.updates, offline=work.offline), work.updates))]

    def again(self, work: Again) -> tuple[list[Parts], str]:
        """The messages that bring the rows, or why there are none."""
        try:
            drawn = self._updates(max(1, work.rows // len(self._pool.mixes)), 1)
        except PoolTooSmall as error:
            return [], str(error)[:256]
        rows = len(drawn.ids)
        if not work.gather:
            return [self._by_ids(DrawnHead(0, rows, ticket=work.ticket), drawn)], ""
        head = BatchHead(0, rows, ticket=work.ticket, pool_epoch=self._pool.epoch)
        return batch_messages(head, self._gather(drawn, rows), self._spec), ""

    def _updates(self, batch_size: int, n: int) -> Drawn:
        """The rows of n updates: of each the critic's batch, then the actor's where that is separate."""
        return joined([self._pool.draw(batch_size, mix=mix, batches=n) for mix in self._pool.mixes], n)

    def _by_ids(self, head: DrawnHead, drawn: Drawn) -> Parts:
        head = replace(head, nonce=self._pool.nonce, pool_epoch=self._pool.epoch)
        return drawn_message(head, drawn.ids, drawn.weights, drawn.sets)

    def _gather(self, drawn: Drawn, most: int) -> Batch:
        """The rows, in memory of up to ``most`` rows that is used again once they are sent."""
        n = len(drawn.ids)
        if self._staging is None or self._staging.rows < n:
            self._staging = Staging(self._spec, most)
        batch = self._pool.gather(drawn.ids, self._staging.take()[:n])
        return replace(batch, weights=drawn.weights, sets=drawn.sets)
