"""One named set: the live rows that match its definition, kept exact through commits, evictions, labels and discards."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.buffer.config import SetConfig
from headrace.buffer.joined_rows import JoinedRows
from headrace.buffer.ordered_rows import OrderedRows
from headrace.buffer.priorities import Priorities
from headrace.buffer.recent_versions import RecentVersions
from headrace.buffer.sum_tree import SumTree
from headrace.common.errors import PoolTooSmall
from headrace.common.specs import OUTCOMES, SOURCE_DEMO, SOURCE_HUMAN, SOURCES

Array = np.ndarray[Any, Any]
_MATCHES, _DISCARDED = 1, 2


class SetIndex:
    """An :class:`~headrace.buffer.index.Index` of the rows of one set; draws from them.

    Args:
        name: of the set, for messages.
        config: its definition.
        slots: row slots of the ring.
        human_rows: ``any`` or ``most``: how many of a row's executed steps make it a human's.
        actors: names of the actors by the index that rows hold; it only grows.
        priorities: of the same rows, told of each change before the set is; rows are then drawn by priority.
    """

    reads_rows = True

    def __init__(
        self,
        name: str,
        config: SetConfig,
        slots: int,
        human_rows: str = "any",
        actors: Callable[[], list[str]] = list,
        priorities: Priorities | None = None,
    ) -> None:
        self.name, self.config = name, config
        self._slots, self._human_rows = slots, human_rows
        self._actors = ActorNames(config.actor, actors)
        self._members = OrderedRows(slots, grouped=config.balance == "task")
        self._drawn: OrderedRows | JoinedRows = self._members
        self._versions = RecentVersions(slots, config.newest_versions) if config.newest_versions else None
        self._flags: Array = np.zeros(slots, np.uint8)
        self._priorities, self._tree = priorities, None if priorities is None else SumTree(slots)
        if priorities is not None:
            priorities.listen(self._reweigh)
        self._tail = self._start = self._head = 0

    def __len__(self) -> int:
        return len(self._drawn)

    def join(self, pinned: SetIndex) -> None:
        """Draw from the rows of ``pinned`` too: the same set of the pinned segment, whose rows never change."""
        self._drawn = JoinedRows(self._members, pinned._members)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        parts = (self._drawn, self._flags, self._versions, self._tree)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def by_priority(self) -> bool:
        """Whether rows are drawn by priority."""
        return self._tree is not None

    def contains(self, ids: Array) -> Array:
        """``(n,)`` bool: which of the live rows ``ids`` are in the set."""
        return self._members.contains(ids)

    def ids(self, task: int = 0) -> Array:
        """``(n,)`` int64 ids of the group ``task``; a view that the next change makes void."""
        return self._members.group(task)

    def room(self, taken: Array) -> dict[int, int]:
        """Rows of each group that are not among the distinct ids ``taken``: task -> rows when balanced, else 0 -> rows."""
        return self._drawn.sizes_without(taken)

    def draw(self, count: int, rng: np.random.Generator, taken: Array, task: int = 0) -> Array:
        """``(count,)`` ids of one group in random order, each equally likely.

        Distinct, and none of ``taken``, as long as there are such rows; beyond them the rows of the group are repeated,
        each as often as any other, give or take one.

        Args:
            count: rows wanted.
            rng: draws.
            taken: ids that the batch holds already.
            task: key of the group; 0 when the set is not balanced.

        Raises:
            PoolTooSmall: the group is empty.
        """
        group = self._drawn.group(task)
        if not len(group):
            raise PoolTooSmall(f"set {self.name!r} holds no rows to draw {count} from")
        used = self._drawn.positions(taken, task) if len(taken) else np.empty(0, np.int64)
        room = len(group) - len(used)
        fresh = rng.choice(room, min(count, room), replace=False)
        if len(used):  # the i-th free position lies behind all used ones that are at most i places further
            fresh += np.searchsorted(used - np.arange(len(used)), fresh, side="right")
        parts = [group[fresh]]
        rounds, rest = divmod(count - len(fresh), len(group))
        parts += [group[rng.permutation(len(group))] for _ in range(rounds)]
        if rest:
            parts.append(group[rng.choice(len(group), rest, replace=False)])
        return np.concatenate(parts)

    def draw_by_priority(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """``(count,)`` ids with P(i) = p_i^a / sum p^a over the set, and N P(i) of each, ``(count,)``; N rows are in the set.

        A row may come more than once, as :meth:`Priorities.draw` says.

        Raises:
            PoolTooSmall: the set is empty.
        """
        if self._tree is None or not len(self):
            raise PoolTooSmall(f"set {self.name!r} holds no rows with priorities to draw {count} from")
        slots, leaves = self._tree.draw(count, rng)
        return self._start + (slots - self._start) % self._slots, leaves * (len(self) / self._tree.total)

    def cleared(self) -> None:
        """Nothing is live any more."""
        self._members.clear()
        if self._tree is not None:
            self._tree.clear()
        self._flags[:] = 0
        self._actors.clear()
        self._tail = self._start = self._head = 0
        if self._versions:
            self._versions.clear()

    def committed(self, first: int, rows: Array) -> None:
        """Take in the rows ``first ..``."""
        if self._tail == self._head:
            self._tail = self._start = first
        self._head = first + len(rows)
        ids = np.arange(first, self._head)
        self._flags[ids % self._slots] = self._matches(rows)
        if self._versions:
            self._remove(self._versions.committed(first, rows))
        if self.config.newest_rows:
            self._shrink(self._head - self.config.newest_rows)
        self._members.label(ids, rows["task"])
        self._enter(ids)

    def retired(self, tail: int) -> None:
        """Let the rows below ``tail`` go."""
        if tail <= self._tail:
            return
        ids = np.arange(self._tail, min(tail, self._head))
        self._shrink(tail)
        self._tail = tail
        if self._versions:
            self._enter(self._versions.retired(tail, ids))

    def amended(self, ids: Array, rows: Array) -> None:
        """Look again at the live rows ``ids``."""
        slots = ids % self._slots
        self._flags[slots] = self._flags[slots] & _DISCARDED | self._matches(rows)
        self._remove(ids)
        self._members.label(ids, rows["task"])
        self._enter(ids)

    def discarded(self, ids: Array) -> None:
        """Never draw the live rows ``ids`` again."""
        self._flags[ids % self._slots] |= _DISCARDED
        self._remove(ids)

    def _shrink(self, start: int) -> None:
        """Take out the rows below ``start``."""
        if start > self._start:
            self._remove(np.arange(self._start, min(start, self._head)))
            self._start = start

    def _enter(self, ids: Array) -> None:
        """Put in those of ``ids``, none of which is in, that belong in the set."""
        inside = (self._flags[ids % self._slots] == _MATCHES) & (ids >= self._start)
        if self._versions:
            inside &= self._versions.recent(ids)
        entering = ids[inside]
        if not len(entering):
            return
        self._members.add(entering)
        if self._tree is not None and self._priorities is not None:
            slots = entering % self._slots
            self._tree.set(slots, self._priorities.leaves(slots))

    def _remove(self, ids: Array) -> None:
        """Take out those of ``ids`` that are in."""
        if not len(ids):
            return
        self._members.remove(ids)
        if self._tree is not None:
            self._tree.set(ids % self._slots, 0.0)

    def _reweigh(self, slots: Array, leaves: Array) -> None:
        """The rows in ``slots`` have other leaves now."""
        if self._tree is not None:
            inside = self._tree.get(slots) > 0
            self._tree.set(slots[inside], leaves[inside])

    def _matches(self, rows: Array) -> Array:
        """``(n,)`` uint8 of 0 and ``_MATCHES``: whether what the row itself says fits the definition."""
        config = self.config
        match = np.ones(len(rows), bool)
        if config.source:
            match &= np.isin(source_of(rows, self._human_rows), [SOURCES.index(word) for word in config.source])
        if config.outcome:
            match &= np.isin(rows["outcome"], [OUTCOMES.index(word) for word in config.outcome])
        if config.task:
            match &= np.isin(rows["task"], config.task)
        if config.actor:
            match &= self._actors.match(rows["actor"])
        return match.astype(np.uint8)

    def check_valid(self) -> tuple[bool, str]:
        """Whether members, flags and versions agree."""
        for part in (self._members, self._versions):
            valid, why = part.check_valid() if part else (True, "")
            if not valid:
                return False, f"set {self.name!r}: {why}"
        for key in self._members.keys:
            ids = self._members.group(key)
            if (ids < self._start).any() or (ids >= self._head).any():
                return False, f"set {self.name!r}: ids outside [{self._start}, {self._head})"
        if self._tree is not None:
            held = self._tree.get(np.arange(self._slots)) > 0
            if not np.array_equal(held, self._members.contains(np.arange(self._slots))):
                return False, f"set {self.name!r}: {np.count_nonzero(held)} rows have leaves, {len(self)} are in"
        live = np.arange(self._start, self._head)
        want = self._flags[live % self._slots] == _MATCHES
        if self._versions:
            want &= self._versions.recent(live)
        if not np.array_equal(want, self._members.contains(live)):
            return False, f"set {self.name!r}: {len(self._members)} rows are in, {np.count_nonzero(want)} belong in"
        return True, ""


class ActorNames:
    """Which actor indexes belong to names or shell patterns; an actor that comes later is looked at when it does."""

    def __init__(self, patterns: tuple[str, ...], actors: Callable[[], list[str]]) -> None:
        self._patterns, self._actors = patterns, actors
        self.clear()

    def clear(self) -> None:
        """Indexes may mean other names from now on."""
        self._known: Array = np.zeros(0, bool)

    def match(self, indexes: Array) -> Array:
        """``(n,)`` bool: which of the rows' actor indexes belong."""
        if len(indexes) and indexes.max() >= len(self._known):
            names = self._actors()
            self._known = np.array([any(fnmatch.fnmatchcase(n, p) for p in self._patterns) for n in names], bool)
        out: Array = self._known[indexes]
        return out


def source_of(rows: Array, human_rows: str) -> Array:
    """``(n,)`` uint8: the one source that each row counts as, so that sources divide the rows.

    A row counts as human when ``any`` or ``most`` (more than half) of its executed steps are a human's; else as a
    demonstration when any of them is one; else as the policy's.
    """
    source = rows["source"]
    if source.shape[1] == 1:
        one: Array = source[:, 0]
        return one
    executed = np.arange(source.shape[1]) < rows["steps"][:, None]
    human = ((source == SOURCE_HUMAN) & executed).sum(axis=1)
    is_human = human > 0 if human_rows == "any" else 2 * human > rows["steps"]
    is_demo = ((source == SOURCE_DEMO) & executed).any(axis=1)
    return np.where(is_human, SOURCE_HUMAN, np.where(is_demo, SOURCE_DEMO, 0)).astype(np.uint8)
