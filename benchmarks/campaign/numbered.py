"""Rows and late labels of which each follows from its writer and sequence number, and the judgement over those a pool holds.

Label n of a writer is about its rows ``(n - 1) * PART + 1 .. n * PART``, and is given once they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.label import Kind, Label
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, ActionSpec, ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
SPEC = TransitionSpec((ObsSpec("obs", (6,), "<f4"),), ActionSpec((2,), (0.0, 0.0), (1.0, 1.0)))
PREFIX = "writer-"
EXACT = 1 << 24  # integers below are exact in float32
PART = 500  # rows that one label is about
REWARDS, DISCARD = 3, 4
SAYS = np.array([DISCARD, OUTCOME_SUCCESS, OUTCOME_FAILURE, REWARDS, OUTCOME_SUCCESS, REWARDS, OUTCOME_FAILURE, REWARDS])
FIRST_PRIORITY, PRIORITY_EPS = 1.0, 1e-6  # of a row that nobody has rated; what the pool adds to a rating
SABOTAGES = ("removed", "doubled", "changed", "invented", "unlabelled", "revived")
FAULTS = ("lost", "duplicated", "corrupted", "phantom", "unlabelled")
Key = tuple[int, int]  # writer, stream


@dataclass(frozen=True)
class Written:
    """What a writer knows of its stream: the last seq that was acknowledged to it, and the last that it may have sent.

    Attributes:
        acked: seq.
        offered: seq.
        labelled: number of the last label that was acknowledged.
        labels: number of the last label that it may have given.
    """

    acked: int
    offered: int
    labelled: int = 0
    labels: int = 0


@dataclass(frozen=True)
class Rows:
    """Rows of a pool, discarded ones included.

    Attributes:
        batch: n rows.
        discarded: ``(n,)`` bool.
        priorities: ``(n,)`` float32; None where rows have none.
    """

    batch: Batch
    discarded: Array
    priorities: Array | None = None


@dataclass(frozen=True)
class Found:
    """Identities of the rows that a pool holds, ``(n,)`` each, and how many of them do not prove themselves.

    ``labelled`` and ``discarded`` are ``(n,)`` bool: whether the row shows its label, and whether that is a discard.
    """

    writer: Array
    stream: Array
    seq: Array
    labelled: Array
    discarded: Array
    corrupted: int


@dataclass(frozen=True)
class Verdict:
    """Counts of rows by fault (``unlabelled``: an acknowledged label is not there), and in words what else does not add up."""

    lost: int = 0
    duplicated: int = 0
    corrupted: int = 0
    phantom: int = 0
    unlabelled: int = 0
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether there is nothing to say."""
        return not (any(getattr(self, fault) for fault in FAULTS) or self.problems)

    def __add__(self, other: Verdict) -> Verdict:
        """Two verdicts as one."""
        return Verdict(*(getattr(self, f) + getattr(other, f) for f in FAULTS), (*self.problems, *other.problems))


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


def label(number: int, stream: int = 0) -> Label:
    """What is said late about the rows of part ``number``."""
    first, last, says = (number - 1) * PART + 1, number * PART, int(SAYS[number % len(SAYS)])
    if says == DISCARD:
        return Label(Kind.DISCARD, stream, first, last)
    if says == REWARDS:
        return Label(Kind.REWARDS, stream, first, last, rewards=_amended(np.arange(first, last + 1))[:, None])
    return Label(Kind.OUTCOME, stream, first, last, says)


def rating(writer: Array, seq: Array) -> Array:
    """``(n,)`` float32 below 0.9: what a rater says of rows."""
    return (0.9 * _noise(writer, seq)[:, 2] / EXACT).astype("<f4")


def seqs(batch: Batch) -> Array:
    """``(B,)`` int64."""
    numbers: Array = batch.rows["seq"].astype(np.int64)
    return numbers


def whole(rows: Rows, writers: Array) -> Array:
    """``(n,)`` bool: rows that hold what their writer gave them, before or after their label.

    ``writers`` says who each actor's index is.
    """
    batch = rows.batch
    row, seq, says = batch.rows, seqs(batch), _says(seqs(batch))
    writer = writers[np.minimum(row["actor"], len(writers) - 1)]
    noise = _noise(writer, seq)
    good = (batch.obs["obs"] == _frames(writer, seq, noise)).all(axis=1)
    good &= (batch.next_obs["obs"] == _frames(writer, seq + 1, _noise(writer, seq + 1))).all(axis=1)
    good &= (row["action"] == (noise[:, :2] / EXACT).astype("<f4")).all(axis=1)
    good &= (row["episode"] == row["seq"]) & (row["t"] == row["seq"]) & (row["steps"] == 1)
    good &= row["actor"] < len(writers)
    for name in ("terminated", "truncated", "learner", "learner_step", "learner_epoch", "task", "action_age"):
        good &= row[name] == 0
    reward = row["rewards"][:, 0]
    good &= (reward == seq % EXACT) | ((says == REWARDS) & (reward == _amended(seq)))
    good &= (row["outcome"] == 0) | ((says < REWARDS) & (row["outcome"] == says))
    good &= ~rows.discarded | (says == DISCARD)
    if rows.priorities is not None:
        rated = rating(writer, seq) + np.float32(PRIORITY_EPS)
        good &= (rows.priorities == 0) | (rows.priorities == FIRST_PRIORITY) | (rows.priorities == rated)
    return np.asarray(good)


def collect(parts: Iterable[Rows], actors: Sequence[str]) -> Found:
    """Look at every row; ``actors`` are the pool's, by the index that rows hold."""
    writers = np.array([int(name.removeprefix(PREFIX)) for name in actors], np.int64)
    corrupted, seen = 0, [np.zeros((5, 0), np.int64)]
    for rows in parts:
        row = rows.batch.rows
        corrupted += int((~whole(rows, writers)).sum())
        who = writers[np.minimum(row["actor"], len(writers) - 1)]
        shows = (row["outcome"] != 0) | (row["rewards"][:, 0] < 0) | rows.discarded
        columns = (who, row["stream"].astype(np.int64), seqs(rows.batch), shows, rows.discarded)
        seen.append(np.stack([np.asarray(column, np.int64) for column in columns]))
    writer, stream, seq, labelled, discarded = np.concatenate(seen, axis=1)
    return Found(writer, stream, seq, labelled != 0, discarded != 0, corrupted)


def judge(found: Found, written: Mapping[Key, Written], counters: Mapping[str, int]) -> Verdict:
    """Account for every row from the first seq of each stream to the last that was acknowledged, and for every label.

    Rows go oldest first, so those of a stream that are gone are a beginning of it; together they must be those that the
    pool counts as evicted, retired or discarded.
    """
    lost = duplicated = phantom = gone = committed = 0
    ours = np.zeros(len(found.seq), bool)
    labels = Verdict()
    for (writer, stream), known in written.items():
        mine = (found.writer == writer) & (found.stream == stream)
        ours |= mine
        labels += _judge_labels(found.seq[mine], found.labelled[mine], known)
        seq = np.sort(found.seq[mine])
        present = np.unique(seq)
        duplicated += len(seq) - len(present)
        phantom += int(((present > known.offered) | (present < 1)).sum())
        present = present[(present >= 1) & (present <= known.offered)]
        low = int(present[0]) if len(present) else known.acked + 1
        top = max(known.acked, int(present[-1]) if len(present) else 0)
        lost += top + 1 - low - len(present)
        gone += low - 1
        committed += top
    phantom += int((~ours).sum())
    lost += max(0, gone - _left(found, counters))
    problems = (*_imbalances(found, gone, committed, counters), *_discards(written, counters))
    return labels + Verdict(lost, duplicated, found.corrupted, phantom, 0, problems)


def _judge_labels(seq: Array, shows: Array, known: Written) -> Verdict:
    """Acknowledged labels are on every row; of those after them a beginning is there, each of these on all of its rows."""
    number = _number(seq)
    unlabelled = int((~shows & (number <= known.labelled)).sum())
    invented = int((shows & (number > known.labels)).sum())
    open_ = (number > known.labelled) & (number <= known.labels)
    places = number[open_] - known.labelled - 1
    rows, labelled = np.bincount(places), np.bincount(places, weights=shows[open_]).astype(int)
    torn = np.flatnonzero((labelled > 0) & (labelled < rows)) + known.labelled + 1
    given = np.flatnonzero(labelled > 0)
    skipped = np.flatnonzero((rows > 0) & (labelled == 0))
    problems = [f"label {n} is on some of its rows only" for n in torn[:3]]
    if len(given) and len(skipped) and given[-1] > skipped[0]:
        problems.append(f"label {given[-1] + known.labelled + 1} is there, and label {skipped[0] + known.labelled + 1} is not")
    return Verdict(corrupted=invented, unlabelled=unlabelled, problems=tuple(problems))


def _left(found: Found, counters: Mapping[str, int]) -> int:
    """Rows that the pool says are gone: a discarded row counts as discarded for ever, and is there until it is evicted."""
    dead = counters["rows_discarded"] - int(found.discarded.sum())
    return counters["rows_evicted"] + counters["rows_retired"] + dead


def _imbalances(found: Found, gone: int, committed: int, counters: Mapping[str, int]) -> Iterator[str]:
    left, rows = _left(found, counters), len(found.seq) - int(found.discarded.sum())
    if rows != counters["rows_live"]:
        yield f"{rows} rows were read, {counters['rows_live']} are counted as live"
    if gone != left:
        yield f"{gone} rows are gone, {left} are counted as evicted, retired or discarded"
    if committed != counters["rows_accepted"]:
        yield f"streams reach {committed} rows in all, {counters['rows_accepted']} are counted as accepted"
    kept = sum(counters[f"rows_{name}"] for name in ("live", "evicted", "retired", "discarded"))
    if counters["rows_accepted"] != kept:
        yield f"the counters do not add up: {dict(counters)}"
    for name in ("rows_rejected", "lost_before"):
        if counters[name]:
            yield f"{name} {counters[name]}, should be 0"


def _discards(written: Mapping[Key, Written], counters: Mapping[str, int]) -> Iterator[str]:
    """How many rows the labels must have discarded, as far as they found them."""
    fewest = PART * sum(known.labelled // len(SAYS) for known in written.values()) - counters["labels_gone"]
    most = PART * sum(known.labels // len(SAYS) for known in written.values())
    if not fewest <= counters["rows_discarded"] <= most:
        yield f"rows_discarded {counters['rows_discarded']}, labels have discarded {fewest} to {most}"


def sabotage(rows: Rows, kind: str, rng: np.random.Generator) -> Rows:
    """The same rows with one fault of ``SABOTAGES``; ``changed`` flips one bit of one row's contents."""
    batch, n = rows.batch, len(rows.batch)
    row, every = int(rng.integers(1, n - 1)), np.arange(n)
    if kind == "removed":
        return Rows(batch[every != row], rows.discarded[every != row])
    if kind == "doubled":
        return Rows(batch[np.append(every, row)], np.append(rows.discarded, rows.discarded[row]))
    made = Rows(batch[every], rows.discarded.copy())  # a copy
    if kind == "changed":
        made.batch.obs["obs"].view(np.uint8).reshape(n, -1)[row, int(rng.integers(0, SPEC.frame_nbytes))] ^= 1
    elif kind == "invented":
        made.batch.rows["seq"][row] += 1 << 40
    elif kind == "unlabelled":
        made.batch.rows["outcome"][rng.choice(np.flatnonzero(batch.rows["outcome"]))] = 0
    else:
        made.discarded[rng.choice(np.flatnonzero(rows.discarded))] = False
    return made


def _number(seq: Array) -> Array:
    return (seq - 1) // PART + 1


def _says(seq: Array) -> Array:
    says: Array = SAYS[_number(seq) % len(SAYS)]
    return says


def _amended(seq: Array) -> Array:
    """``(n,)`` float32: the reward that a label puts in place of a row's own, which is not negative."""
    return (-1 - seq % EXACT).astype("<f4")


def _frames(writer: Array, number: Array, noise: Array) -> Array:
    return np.concatenate([writer[:, None], number[:, None] % EXACT, noise], axis=1).astype("<f4")


def _noise(writer: Array, number: Array) -> Array:
    """``(n, 4)`` integers below ``EXACT`` that look random, by two rounds of multiply and shift."""
    mixed = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + writer.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    shifts = np.array([0, 13, 27, 40], np.uint64)
    return ((mixed[:, None] >> shifts) % np.uint64(EXACT)).astype(np.int64)
