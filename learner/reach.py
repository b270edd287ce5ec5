"""How a rank reaches its buffer, or all shards of the run: sessions, their links, and the threads that gather rows."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.common.clock import Clock
from headrace.common.seeds import derive_seed
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import Phase
from headrace.learner.blend import Blend
from headrace.learner.feed import Feed
from headrace.learner.gatherer import Gatherer
from headrace.learner.place import rank_name
from headrace.learner.reading import OpenView
from headrace.learner.updates import Updates


@dataclass(frozen=True)
class Asks:
    """What one rank asks of its buffers.

    Attributes:
        shards: where they listen, the home shard first; one where there is one.
        learner_id: of the learner.
        rank: 0 leads.
        batch_size: rows of a batch.
        prefetch: batches kept ahead.
        network: limits and times.
        seed: of the run.
        statistics: whether observation statistics are wanted.
        reading: ``mapped``, ``socket`` or ``auto``.
        open_view: maps a pool on this host.
    """

    shards: tuple[str, ...]
    learner_id: str
    rank: int
    batch_size: int
    prefetch: int
    network: NetworkConfig
    seed: int = 0
    statistics: bool = False
    reading: str = "auto"
    open_view: OpenView | None = None


class Reach:
    """The connections of one rank.

    Args:
        asks: what it wants of whom.
        clock: of its links.
        make: makes the feed of whole batches of a single buffer; a witness may take its place.

    Attributes:
        feed: what it learns from.
        link: whose welcome begins the work: that of the home shard, or of the one buffer.
    """

    def __init__(self, asks: Asks, clock: Clock, make: Callable[..., Feed] = Feed) -> None:
        self._asks, self._clock, self._make = asks, clock, make
        self._links: list[Link] = []
        self._gatherers: list[Gatherer] = []
        self.feed: Feed | Blend = self._whole() if len(asks.shards) == 1 else self._blend()
        self.link = self._links[-1]

    def start(self) -> None:
        """Dial."""
        for gatherer in self._gatherers:
            gatherer.start()
        for link in self._links:
            link.start()

    def wake(self) -> None:
        """Tell the links that there is something to say."""
        for link in self._links:
            link.wake()

    def check(self) -> None:
        """Raise what ended a session for good, if anything did."""
        for link in self._links:
            link.check()

    def close(self, goodbye: Goodbye) -> None:
        """Leave."""
        for gatherer in self._gatherers:
            gatherer.close()
        for link in reversed(self._links):  # who grants is told first
            link.close(goodbye)

    def _whole(self) -> Feed:
        """A feed of whole batches, each of which is an update where rank 0 draws it."""
        feed = self._rows(self._make, self._asks.batch_size, self._asks.prefetch)
        link = self._dial(feed, "rank" if self._asks.rank else "learner", self._asks.shards[0])
        self._gatherers.append(Gatherer(feed, link.wake))
        return feed

    def _blend(self) -> Blend:
        """Chunks from every shard, and rank 0's grants from the home shard."""
        asks, home = self._asks, self._asks.shards[0]
        chunk = -(-asks.batch_size // len(asks.shards))
        changed = threading.Condition()
        feeds = [self._rows(Feed, chunk, asks.prefetch, changed) for _ in asks.shards]
        links = [self._dial(feed, "rank", at, waits=at != home) for feed, at in zip(feeds, asks.shards, strict=True)]
        self._gatherers += [Gatherer(feed, link.wake) for feed, link in zip(feeds, links, strict=True)]
        updates = None
        if asks.rank:
            self._links.append(self._links.pop(0))  # its welcome begins the work
        else:
            updates = Updates(asks.batch_size, asks.prefetch, changed)
            self._dial(updates, "learner", home)
        rng = np.random.default_rng(derive_seed(asks.seed, "shards", asks.rank))
        return Blend(feeds, lambda n: links[n].session.phase is Phase.LIVE, updates, asks.batch_size, chunk, rng)

    def _rows(self, make: Callable[..., Feed], rows: int, ahead: int, changed: threading.Condition | None = None) -> Feed:
        asks = self._asks
        how = {"statistics": asks.statistics, "reading": asks.reading, "open_view": asks.open_view, "changed": changed}
        return make(rows, ahead, **how)

    def _dial(self, feed: Feed, role: str, endpoint: str, *, waits: bool = False) -> Link:
        """A link of this rank; one that ``waits`` never gives its buffer up, since the others go on without it."""
        asks = self._asks
        name = asks.learner_id if role == "learner" else rank_name(asks.learner_id, asks.rank)
        network = dataclasses.replace(asks.network, connect_s=math.inf) if waits else asks.network
        self._links.append(Link(new_hello(role, name), feed, endpoint, network, self._clock))
        return self._links[-1]
