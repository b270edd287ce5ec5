"""The read side of the pool: row ids in, whole transitions out. Needs only the arrays, not the pool that writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace.buffer.files import Rings
from headrace.common.batch import Batch
from headrace.common.specs import SOURCES, TransitionSpec

Array = np.ndarray[Any, Any]
_DUMP_ROWS, _DUMP_BYTES = 256, 16 << 20


class Reader:
    """Gathers rows and their frames out of the rings.

    It looks at no header: whoever calls it holds the pool's lock, or checks epoch and tail after the gather.
    """

    def __init__(self, spec: TransitionSpec, files: Rings) -> None:
        self.spec = spec
        # One move per row instead of one per field: the structured type is put back on the small copy.
        self._rows = files.rows.view(f"V{files.rows.itemsize}")
        self._outcome, self._discarded = files.columns["outcome"], files.columns["discarded"]
        self._frames = files.frames
        self._row_slots = len(files.rows)
        self._frame_slots = len(next(iter(files.frames.values())))

    def gather(self, ids: Array, out: Batch | None = None) -> Batch:
        """The rows ``ids``, ``(B,)`` int64, with their observations.

        Args:
            ids: absolute row ids, all of them live.
            out: arrays of an earlier batch of B rows to write into; fresh ones without it.
        """
        rows = self.rows(ids, None if out is None else out.rows)
        obs = self._gather_frames(rows["obs"], None if out is None else out.obs)
        next_obs = self._gather_frames(rows["next_obs"], None if out is None else out.next_obs)
        return Batch(ids, rows, obs, next_obs)

    def rows(self, ids: Array, out: Array | None = None) -> Array:
        """The rows ``ids``, ``(n,)``, of the spec's row dtype with the outcome column filled in, into ``out`` when given."""
        slots = ids % self._row_slots
        rows = self._rows.take(slots, mode="clip", out=None if out is None else out.view(self._rows.dtype))
        rows = rows.view(self.spec.row_dtype)
        rows["outcome"] = self._outcome.take(slots)
        return rows

    def discarded(self, ids: Array) -> Array:
        """``(n,)`` bool: which of the rows ``ids`` are discarded."""
        dead: Array = self._discarded.take(ids % self._row_slots) != 0
        return dead

    def staging(self, n: int) -> Batch:
        """Arrays of ``n`` rows to gather into, zeroed so that their pages are there."""
        shape = (n, self.spec.stack) if self.spec.stack > 1 else (n,)
        obs, following = (
            {key: np.zeros((*shape, *ring.shape[1:]), ring.dtype) for key, ring in self._frames.items()} for _ in range(2)
        )
        return Batch(np.zeros(n, np.int64), np.zeros(n, self.spec.row_dtype), obs, following)

    def _gather_frames(self, ids: Array, out: dict[str, Array] | None) -> dict[str, Array]:
        slots = ids % self._frame_slots
        if self.spec.stack == 1:
            slots = slots[:, 0]
        if out is None:
            return {key: ring.take(slots, axis=0, mode="clip") for key, ring in self._frames.items()}
        for key, ring in self._frames.items():
            ring.take(slots, axis=0, mode="clip", out=out[key])
        return out


def dump_chunk(spec: TransitionSpec) -> int:
    """Rows that a dump gathers at once."""
    return max(1, min(_DUMP_ROWS, _DUMP_BYTES // (2 * spec.stack * spec.frame_nbytes)))


def described(batch: Batch, discarded: Array, actors: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Identity, place, weights, labels and digest of each row, as plain values.

    Args:
        batch: B rows.
        discarded: ``(B,)`` bool, whether each was discarded.
        actors: names by the index that rows hold.
    """
    names = ("stream", "seq", "episode", "t", "learner_epoch", "learner_step", "outcome")
    heads = zip(batch.ids.tolist(), (actors[i] for i in batch.rows["actor"].tolist()), strict=True)
    # whole columns: element by element would take ten times as long
    columns = zip(*(batch.rows[name].tolist() for name in names), strict=True)
    acted = zip(batch.rows["source"].tolist(), batch.rows["steps"].tolist(), strict=True)
    sources = ([SOURCES[number] for number in numbers[:steps]] for numbers, steps in acted)
    told = zip(sources, discarded.tolist(), row_digests(batch), strict=True)
    for (row, actor), values, (source, dead, digest) in zip(heads, columns, told, strict=True):
        said = {"source": source, "discarded": dead, "digest": digest}
        yield {"id": row, "actor": actor, **dict(zip(names, values, strict=True)), **said}


def row_digests(batch: Batch) -> list[str]:
    """8-byte hex digest of each row's own content.

    BLAKE2b over action, rewards, steps, both flags, and the bytes of obs and next_obs, key by key in sorted order. Ids,
    slots, identity and labels stay out, so the same transition has the same digest in any pool.
    """
    parts = [batch.rows[name] for name in ("action", "rewards", "steps", "terminated", "truncated")]
    for key in sorted(batch.obs):
        parts += [batch.obs[key], batch.next_obs[key]]
    n = len(batch)
    if not n:
        return []
    raw = np.concatenate([np.ascontiguousarray(part).reshape(n, -1).view("|u1") for part in parts], axis=1)
    return [hashlib.blake2b(row, digest_size=8).hexdigest() for row in raw]
