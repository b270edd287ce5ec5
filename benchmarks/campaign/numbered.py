"""Rows whose every column follows from their writer and sequence number, and the judgement over those that a pool holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
SPEC = TransitionSpec((ObsSpec("obs", (6,), "<f4"),), ActionSpec((2,), (0.0, 0.0), (1.0, 1.0)))
PREFIX = "writer-"
EXACT = 1 << 24  # integers below are exact in float32
SABOTAGES = ("removed", "doubled", "changed", "invented")
Key = tuple[int, int]  # writer, stream


@dataclass(frozen=True)
class Written:
    """What a writer knows of its stream: the last seq that was acknowledged to it, and the last that it may have sent."""

    acked: int
    offered: int


@dataclass(frozen=True)
class Found:
    """Identities of the rows that a pool holds, ``(n,)`` each, and how many of them do not prove themselves."""

    writer: Array
    stream: Array
    seq: Array
    corrupted: int


@dataclass(frozen=True)
class Verdict:
    """Counts of rows, and in words what else does not add up."""

    lost: int
    duplicated: int
    corrupted: int
    phantom: int
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether there is nothing to say."""
        return not (self.lost or self.duplicated or self.corrupted or self.phantom or self.problems)


def actor_id(writer: int) -> str:
    """The name that a writer goes by on the wire."""
    return f"{PREFIX}{writer}"


def block(writer: int, first: int, n: int) -> Block:
    """The rows with seqs ``first .. first + n - 1`` of a writer."""
    numbers = np.arange(first, first + n + 1)
    noise = _noise(np.full(n + 1, writer), numbers)
    rows = np.zeros(n, SPEC.row_dtype)
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(n), np.arange(1, n + 1)
    rows["episode"], rows["t"], rows["steps"] = numbers[:-1], numbers[:-1], 1
    rows["action"], rows["rewards"][:, 0] = noise[:-1, :2] / EXACT, numbers[:-1] % EXACT
    return Block(rows, {"obs": _frames(np.full(n + 1, writer), numbers, noise)})


def whole(batch: Batch, writers: Array) -> Array:
    """``(B,)`` bool: rows that hold what their writer gave them; ``writers`` says who each actor's index is."""
    rows = batch.rows
    seq = rows["seq"].astype(np.int64)
    writer = writers[np.minimum(rows["actor"], len(writers) - 1)]
    noise = _noise(writer, seq)
    good = (batch.obs["obs"] == _frames(writer, seq, noise)).all(axis=1)
    good &= (batch.next_obs["obs"] == _frames(writer, seq + 1, _noise(writer, seq + 1))).all(axis=1)
    good &= (rows["action"] == (noise[:, :2] / EXACT).astype("<f4")).all(axis=1) & (rows["rewards"][:, 0] == seq % EXACT)
    good &= (rows["episode"] == rows["seq"]) & (rows["t"] == rows["seq"]) & (rows["steps"] == 1)
    good &= rows["actor"] < len(writers)
    for name in ("terminated", "truncated", "outcome", "learner", "learner_step", "learner_epoch", "task", "action_age"):
        good &= rows[name] == 0
    return np.asarray(good)


def collect(batches: Iterable[Batch], actors: Sequence[str]) -> Found:
    """Look at every row; ``actors`` are the pool's, by the index that rows hold."""
    writers = np.array([int(name.removeprefix(PREFIX)) for name in actors], np.int64)
    corrupted, parts = 0, [np.zeros((3, 0), np.int64)]
    for batch in batches:
        corrupted += int((~whole(batch, writers)).sum())
        who = writers[np.minimum(batch.rows["actor"], len(writers) - 1)]
        parts.append(np.stack([who, batch.rows["stream"].astype(np.int64), batch.rows["seq"].astype(np.int64)]))
    writer, stream, seq = np.concatenate(parts, axis=1)
    return Found(writer, stream, seq, corrupted)


def judge(found: Found, written: Mapping[Key, Written], counters: Mapping[str, int]) -> Verdict:
    """Account for every row from the first seq of each stream to the last that was acknowledged.

    Rows go oldest first, so those of a stream that are gone are a beginning of it; together they must be those that the
    pool counts as evicted or retired.
    """
    lost = duplicated = phantom = gone = committed = 0
    ours = np.zeros(len(found.seq), bool)
    for (writer, stream), known in written.items():
        mine = (found.writer == writer) & (found.stream == stream)
        ours |= mine
        seqs = np.sort(found.seq[mine])
        present = np.unique(seqs)
        duplicated += len(seqs) - len(present)
        phantom += int(((present > known.offered) | (present < 1)).sum())
        present = present[(present >= 1) & (present <= known.offered)]
        low = int(present[0]) if len(present) else known.acked + 1
        top = max(known.acked, int(present[-1]) if len(present) else 0)
        lost += top + 1 - low - len(present)
        gone += low - 1
        committed += top
    phantom += int((~ours).sum())
    left = counters["rows_evicted"] + counters["rows_retired"]
    lost += max(0, gone - left)
    return Verdict(lost, duplicated, found.corrupted, phantom, tuple(_imbalances(len(found.seq), gone, committed, counters)))


def _imbalances(rows: int, gone: int, committed: int, counters: Mapping[str, int]) -> Iterator[str]:
    left = counters["rows_evicted"] + counters["rows_retired"]
    if rows != counters["rows_live"]:
        yield f"{rows} rows were read, {counters['rows_live']} are counted as live"
    if gone != left:
        yield f"{gone} rows are gone, {left} are counted as evicted or retired"
    if committed != counters["rows_accepted"]:
        yield f"streams reach {committed} rows in all, {counters['rows_accepted']} are counted as accepted"
    if counters["rows_accepted"] != counters["rows_live"] + left + counters["rows_discarded"]:
        yield f"the counters do not add up: {dict(counters)}"
    for name in ("rows_rejected", "lost_before", "rows_discarded"):
        if counters[name]:
            yield f"{name} {counters[name]}, should be 0"


def sabotage(batch: Batch, kind: str, rng: np.random.Generator) -> Batch:
    """The same rows with one fault of ``SABOTAGES``; ``changed`` flips one bit of one row's contents."""
    row = int(rng.integers(1, len(batch) - 1))
    every = np.arange(len(batch))
    if kind == "removed":
        return batch[every != row]
    if kind == "doubled":
        return batch[np.append(every, row)]
    made = batch[every]  # a copy
    if kind == "changed":
        made.obs["obs"].view(np.uint8).reshape(len(batch), -1)[row, int(rng.integers(0, SPEC.frame_nbytes))] ^= 1
    else:
        made.rows["seq"][row] += 1 << 40
    return made


def _frames(writer: Array, number: Array, noise: Array) -> Array:
    return np.concatenate([writer[:, None], number[:, None] % EXACT, noise], axis=1).astype("<f4")


def _noise(writer: Array, number: Array) -> Array:
    """``(n, 4)`` integers below ``EXACT`` that look random, by two rounds of multiply and shift."""
    mixed = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + writer.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    shifts = np.array([0, 13, 27, 40], np.uint64)
    return ((mixed[:, None] >> shifts) % np.uint64(EXACT)).astype(np.int64)
