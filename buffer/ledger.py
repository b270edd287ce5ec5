"""The ledger: up to where each (actor, stream) is committed, and the counters that belong to these commits.

Rules: a stream's last seq only grows, so a row at or below it is a duplicate for ever. An actor holds a few open streams;
one more closes the lowest-numbered one, so an actor numbers its streams upwards. Once the places are full, everything below
the lowest open stream is closed, and rows of a closed stream are refused. The table
of actors and streams changes only by :meth:`Ledger.open`, before a commit; commits move last seqs, which can be replayed
from the rows themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace.common.errors import BlockRefused, ConfigError, PoolDamaged
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
STREAMS_PER_ACTOR = 8
MAX_NAME_BYTES = 128
MAX_STREAM = 1 << 62
ENTRY = np.dtype(
    [
        ("actor", f"S{MAX_NAME_BYTES}"),
        ("open", "<u8"),
        ("stream", "<u8", (STREAMS_PER_ACTOR,)),
        ("last", "<u8", (STREAMS_PER_ACTOR,)),
    ]
)
_COUNTERS = np.dtype([("actors", "<i8"), ("env_steps", "<i8"), ("lost_before", "<i8"), ("rejected", "<i8")])


class Ledger:
    """Last committed seq of every (actor, stream) of at most ``max_actors`` actors.

    Attributes:
        env_steps: executed env steps that the committed rows account for.
        lost_before: rows that gaps in the sequence numbers say were never sent.
        rejected: rows that were refused for what they hold, and passed over.
    """

    def __init__(self, max_actors: int) -> None:
        self.max_actors = max_actors
        self._clear()

    def _clear(self) -> None:
        self.env_steps = 0
        self.lost_before = 0
        self.rejected = 0
        self._index: dict[str, int] = {}
        self._streams: list[dict[int, int]] = []
        self._table = np.zeros(self.max_actors, ENTRY)
        self._changed: set[int] = set()  # places that the table has to follow; making all of it anew takes long with many

    @property
    def actors(self) -> list[str]:
        """Actor names by index, as rows hold them."""
        return list(self._index)

    def streams(self, actor: str) -> dict[int, int]:
        """Open streams of an actor -> last committed seq."""
        index = self._index.get(actor)
        return {} if index is None else dict(self._streams[index])

    def last(self, actor: str, stream: int) -> int:
        """Last committed seq; 0 when nothing of the stream is known.

        Raises:
            BlockRefused: reason ``stream-closed``.
        """
        index = self._index.get(actor)
        if index is None:
            return 0
        last = self._streams[index].get(stream)
        if last is None:
            self._check_open(index, actor, stream)
            return 0
        return last

    def find(self, actor: str, stream: int) -> int | None:
        """The actor's index, if the table holds this stream of it."""
        index = self._index.get(actor)
        return index if index is not None and stream in self._streams[index] else None

    def open(self, actor: str, stream: int) -> int:
        """The actor's index, with ``stream`` among its open streams.

        Raises:
            BlockRefused: reason ``actor-name``, ``actor-limit``, ``stream`` or ``stream-closed``.
        """
        self.admit(actor)
        if not 0 <= stream < MAX_STREAM:
            raise BlockRefused("stream", f"{stream} is not in [0, 2**62)")
        index = self._index.get(actor)
        if index is None:
            index = self._index[actor] = len(self._index)
            self._streams.append({})
            self._table[index]["actor"] = actor.encode("utf-8")
        streams = self._streams[index]
        if stream not in streams:
            self._changed.add(index)
            self._check_open(index, actor, stream)
            if len(streams) == STREAMS_PER_ACTOR:
                del streams[min(streams)]
            streams[stream] = 0
        return index

    def admit(self, actor: str) -> None:
        """Refuse a name that the table cannot hold.

        Raises:
            BlockRefused: reason ``actor-name`` or ``actor-limit``.
        """
        if actor in self._index:
            return
        size = len(actor.encode("utf-8", errors="replace"))
        if not actor.isprintable() or not 1 <= size <= MAX_NAME_BYTES:
            raise BlockRefused("actor-name", f"{actor[:32]!r}: {size} bytes, expected 1 to {MAX_NAME_BYTES} of printable text")
        if len(self._index) == self.max_actors:
            raise BlockRefused("actor-limit", f"{actor!r} is one actor more than max_actors {self.max_actors}; raise that")

    def advance(self, index: int, stream: int, seq: int, rows: int, env_steps: int) -> None:
        """Note that ``rows`` rows up to ``seq`` are committed; what ``seq`` skipped beyond them was lost before."""
        streams = self._streams[index]
        self._changed.add(index)
        self.lost_before += seq - streams[stream] - rows
        self.env_steps += env_steps
        streams[stream] = seq

    def reject(self, index: int, stream: int, seq: int, rows: int) -> None:
        """Pass over refused rows up to ``seq``, so that they block nothing behind them and are not counted as lost."""
        self.rejected += rows
        self.advance(index, stream, seq, rows, 0)

    def replay(self, rows: Array, spec: TransitionSpec) -> None:
        """Advance over committed ``rows``, ``(n,)`` of the row dtype, whose streams are in the table.

        Raises:
            PoolDamaged: the rows name an actor or a stream that the table lacks.
        """
        for index, stream, seq, count in _newest(rows):
            if index >= len(self._streams) or seq < self._streams[index].get(stream, seq) + count:
                raise PoolDamaged(f"ledger.bin: misses actor {index} stream {stream} of the rows")
            self.advance(index, stream, seq, count, 0)
        self.env_steps += spec.fresh_steps(rows)

    def covers(self, rows: Array) -> tuple[bool, str]:
        """Whether every one of ``rows`` is known: its actor is named, and its seq is not beyond its stream's last."""
        for index, stream, seq, _ in _newest(rows):
            if index >= len(self._streams) or seq > self._streams[index].get(stream, seq):
                return False, f"row {seq} of actor {index} stream {stream} is beyond the ledger"
        return True, ""

    def encode(self) -> bytes:
        """The whole ledger in ``nbytes(max_actors)`` bytes."""
        self._follow()
        counters = np.array([(len(self._index), *self.counters().values())], _COUNTERS)
        return counters.tobytes() + self._table.tobytes()

    def decode(self, data: bytes) -> None:
        """Take the state that :meth:`encode` gave."""
        counters = np.frombuffer(data, _COUNTERS, 1)[0]
        entries = np.frombuffer(data, ENTRY, self.max_actors, _COUNTERS.itemsize)[: counters["actors"]]
        self.set_state({"entries": entries, **{name: counters[name] for name in self.counters()}})

    @staticmethod
    def nbytes(max_actors: int) -> int:
        """Bytes of an encoded ledger."""
        return _COUNTERS.itemsize + max_actors * ENTRY.itemsize

    def get_state(self) -> dict[str, Any]:
        """``entries`` ``(actors,)`` of ``ENTRY``, and the counters."""
        self._follow()
        return {"entries": self._table[: len(self._index)].copy(), **self.counters()}

    def counters(self) -> dict[str, int]:
        """The counters that belong to what is committed."""
        return {"env_steps": self.env_steps, "lost_before": self.lost_before, "rejected": self.rejected}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`, also of a ledger with another ``max_actors``.

        Raises:
            ConfigError: it knows more actors than this ledger can hold.
        """
        entries = state["entries"]
        self.require(len(entries))
        self._clear()
        self.env_steps, self.lost_before = int(state["env_steps"]), int(state["lost_before"])
        self.rejected = int(state["rejected"])
        self._table[: len(entries)] = entries
        for index, entry in enumerate(entries):
            self._index[entry["actor"].decode("utf-8")] = index
            count = int(entry["open"])
            self._streams.append(dict(zip(entry["stream"][:count].tolist(), entry["last"][:count].tolist(), strict=True)))

    def require(self, actors: int) -> None:
        """Refuse a state of more actors than fit; :class:`ConfigError` names both numbers."""
        if actors > self.max_actors:
            raise ConfigError(f"max_actors: {self.max_actors}, but {actors} actors are stored; raise it to {actors}")

    def check_valid(self) -> tuple[bool, str]:
        """Whether no actor or stream is beyond its limit."""
        for actor, streams in zip(self._index, self._streams, strict=True):
            if len(streams) > STREAMS_PER_ACTOR or any(not 0 <= s < MAX_STREAM for s in streams):
                return False, f"actor {actor}: streams {sorted(streams)}"
        return True, ""

    def _check_open(self, index: int, actor: str, stream: int) -> None:
        streams = self._streams[index]
        if len(streams) == STREAMS_PER_ACTOR and stream < min(streams):
            raise BlockRefused("stream-closed", f"stream {stream} of {actor!r}: the open ones are {sorted(streams)}")

    def _follow(self) -> None:
        """Bring the table up to date."""
        for index in self._changed:
            entry, streams = self._table[index], self._streams[index]
            entry["open"] = len(streams)
            entry["stream"][: len(streams)] = list(streams)
            entry["last"][: len(streams)] = list(streams.values())
        self._changed.clear()


def _newest(rows: Array) -> Iterator[tuple[int, int, int, int]]:
    """Of each (actor, stream) in ``rows``: actor, stream, largest seq, number of rows."""
    if not len(rows):
        return
    identity = np.stack([rows["actor"].astype("<u8"), rows["stream"]], axis=1)
    streams, which, counts = np.unique(identity, axis=0, return_inverse=True, return_counts=True)
    last = np.zeros(len(streams), "<u8")
    np.maximum.at(last, which.reshape(-1), rows["seq"])
    for (index, stream), seq, count in zip(streams.tolist(), last.tolist(), counts.tolist(), strict=True):
        yield index, stream, seq, count
