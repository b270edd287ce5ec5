"""A mix: batches made of named sets by their shares.

Rules. A batch holds distinct rows, also where sets overlap: sets draw smallest first, and a row drawn for one is not drawn
for another. (Sets that draw by priority may draw a row twice, as priorities do.) A set with fewer such rows than its part
repeats rows (``replace``), or leaves the rest (``yield``) to the sets that have rows left, by their shares; where none has,
to those that repeat. Rows are spread so that each stretch of the batch holds the sets in the batch's proportion: slices of it
are batches of the same mix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.buffer.apportion import Shares, Turns, largest_remainder
from headrace.buffer.config import MAX_BATCH
from headrace.buffer.row_set import SetIndex
from headrace.common.errors import PoolTooSmall

Array = np.ndarray[Any, Any]


class Mix:
    """Draws batches from sets; counts what came of the shares.

    Args:
        sets: all sets by name; at most 255, numbered in this order in what is drawn.
        shares: set name -> part of each batch; they add up to 1.
    """

    def __init__(self, sets: Mapping[str, SetIndex], shares: Mapping[str, float]) -> None:
        total = sum(shares.values())
        self._sets = [sets[name] for name, share in shares.items() if share > 0]
        self._numbers = [list(sets).index(s.name) for s in self._sets]
        self._shares = Shares([shares[s.name] / total for s in self._sets])
        self._turns = [Turns() for _ in self._sets]
        self._drawn = [0] * len(self._sets)
        self._repeated = [0] * len(self._sets)

    def waiting(self) -> str:
        """Why no batch can be drawn yet; empty when nothing is waited for."""
        for s in self._sets:
            need = max(s.config.min_fill, 1 if s.config.when_small == "replace" else 0)
            if len(s) < need:
                return f"set {s.name!r} holds {len(s)} rows of the {need} that it must hold before the first batch"
        return ""

    @property
    def drawable(self) -> int:
        """Largest batch that there may be rows for now; overlapping sets may have fewer, which :meth:`draw` finds out.

        Sets that repeat rows fill any batch that a learner may ask for.
        """
        if self.waiting():
            return 0
        return MAX_BATCH if any(s.config.when_small == "replace" for s in self._sets) else sum(map(len, self._sets))

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """``(batch_size,)`` int64 ids, uint8 numbers of the sets that they were drawn for, and N P(i) in these sets.

        N P(i) is how much more often a row is drawn than its set's average row: 1 unless sets draw by priority.

        Raises:
            PoolTooSmall: a set is below its minimum, or all sets together have too few rows; names them.
        """
        reason = self.waiting()
        if reason or batch_size < 1:
            raise PoolTooSmall(reason or f"a batch of {batch_size} rows was asked; nearest valid: 1")
        counts = self._shares.peek(batch_size)
        hand = _Hand(self._sets, self._turns, rng)
        for i in sorted(range(len(self._sets)), key=lambda i: len(self._sets[i])):
            hand.draw(i, counts[i], repeat=self._sets[i].config.when_small == "replace")
        while (missing := batch_size - hand.size) > 0:
            self._hand_on(hand, missing, batch_size)
        self._shares.take(counts)
        for i, n in enumerate(hand.counts):
            self._drawn[i] += n
            self._repeated[i] += hand.repeated[i]
        return hand.spread(self._numbers)

    def _hand_on(self, hand: _Hand, missing: int, batch_size: int) -> None:
        """Draw rows that a set could not give from the others."""
        able = [i for i in range(len(self._sets)) if hand.fresh(i)]
        repeat = not able
        if repeat:
            able = [i for i, s in enumerate(self._sets) if s.config.when_small == "replace"]
        if not able:
            held = ", ".join(f"{s.name} ({len(s)} rows)" for s in self._sets)
            raise PoolTooSmall(
                f"a batch of {batch_size} distinct rows was asked of sets with too few: {held}; fill them, ask for less,"
                " or set when_small: replace"
            )
        total = sum(self._shares.shares[i] for i in able)
        wanted = [self._shares.shares[i] / total * missing for i in able]
        for i, n in zip(able, largest_remainder(wanted, missing), strict=True):
            hand.draw(i, n, repeat)

    def realised(self) -> dict[str, dict[str, float]]:
        """Set -> its ``share``, the ``realised`` part of all rows drawn so far, and the part of its rows ``repeated``."""
        total = max(1, sum(self._drawn))
        return {
            s.name: {"share": share, "realised": drawn / total, "repeated": repeated / max(1, drawn)}
            for s, share, drawn, repeated in zip(self._sets, self._shares.shares, self._drawn, self._repeated, strict=True)
        }

    def get_state(self) -> dict[str, Any]:
        """Shares, remainders, turns and counts, as plain values by set."""
        counts = zip(self._shares.shares, self._shares.get_state(), self._turns, self._drawn, self._repeated, strict=True)
        return {
            s.name: {"share": share, "carry": carry, "turn": turn.get_state(), "drawn": drawn, "repeated": repeated}
            for s, (share, carry, turn, drawn, repeated) in zip(self._sets, counts, strict=True)
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`; of other sets or shares than ours there is nothing to go on with."""
        shares = {s.name: share for s, share in zip(self._sets, self._shares.shares, strict=True)}
        if {name: s.get("share") for name, s in state.items()} != shares:
            return
        ours = [state[s.name] for s in self._sets]
        self._shares.set_state([s["carry"] for s in ours])
        for turn, s in zip(self._turns, ours, strict=True):
            turn.set_state(s["turn"])
        self._drawn = [int(s["drawn"]) for s in ours]
        self._repeated = [int(s["repeated"]) for s in ours]

    def check_valid(self) -> tuple[bool, str]:
        """Whether the remainders are those of the shares."""
        return self._shares.check_valid()


class _Hand:
    """The rows of one batch while it is drawn."""

    def __init__(self, sets: list[SetIndex], turns: list[Turns], rng: np.random.Generator) -> None:
        self._sets, self._turns, self._rng = sets, turns, rng
        self._parts: list[tuple[int, Array, Array]] = []
        self._taken: Array = np.empty(0, np.int64)
        self.counts = [0] * len(sets)
        self.repeated = [0] * len(sets)

    @property
    def size(self) -> int:
        """Rows so far."""
        return sum(self.counts)

    def fresh(self, i: int) -> int:
        """Rows of set i that the batch does not hold."""
        return sum(self._sets[i].room(self._taken).values())

    def draw(self, i: int, count: int, repeat: bool) -> None:
        """Draw ``count`` rows of set i; what rows of the batch do not allow is repeated or left out."""
        room = self._sets[i].room(self._taken)
        fresh = sum(room.values())
        count = count if repeat else min(count, fresh)
        if count <= 0:
            return
        if self._sets[i].by_priority:
            ids, odds = self._sets[i].draw_by_priority(count, self._rng)
            self.repeated[i] += count - len(np.unique(ids))
        else:
            ids, odds = self._draw_evenly(i, count, room, repeat), np.ones(count)
        self._parts.append((i, ids, odds))
        self._taken = np.union1d(self._taken, ids)
        self.counts[i] += count

    def _draw_evenly(self, i: int, count: int, room: dict[int, int], repeat: bool) -> Array:
        limits = dict.fromkeys(room, count) if repeat else room
        parts = []
        for task, n in self._turns[i].divide(count, limits).items():
            if n:
                parts.append(self._sets[i].draw(n, self._rng, self._taken, task))
                self.repeated[i] += max(0, n - room[task])
        return parts[0] if len(parts) == 1 else self._rng.permutation(np.concatenate(parts))

    def spread(self, numbers: list[int]) -> tuple[Array, Array, Array]:
        """The batch's ids, set numbers and N P(i), each set's rows at equal distances."""
        parts = sorted(self._parts, key=lambda part: part[0])
        ids, odds = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        drawn = [(numbers[i], n) for i, n in enumerate(self.counts) if n]
        places = np.concatenate([(np.arange(n) + 0.5) / n for _, n in drawn])
        order = np.argsort(places, kind="stable")
        sets = np.repeat(np.array([number for number, _ in drawn], np.uint8), [n for _, n in drawn])
        return ids[order], sets[order], odds[order]
