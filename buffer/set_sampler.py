"""Draws batches from named sets by mixes: one for the critic's batch, and one for the actor's where that is separate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace.buffer.config import SamplingConfig
from headrace.buffer.mix import Mix
from headrace.buffer.pinned import Pinned
from headrace.buffer.priorities import Priorities
from headrace.buffer.random_source import RandomSource
from headrace.buffer.row_set import SetIndex
from headrace.buffer.sampler import Drawn
from headrace.common.errors import PoolError

Array = np.ndarray[Any, Any]


class SetSampler:
    """The sets of one pool and the mixes over them; a sampler.

    With priorities each set draws by its own, and the weights are (N P)^-b over the largest of the batch, with N and P of the
    set that a row was drawn for: they take out what priorities do inside a set, and leave the shares as they were declared.

    Args:
        config: sets and shares.
        slots: row slots of the ring.
        actors: names of the actors by the index that rows hold.
        random: draws when a caller brings no generator.
        priorities: of the same rows, attached to the store before the sets are; None draws rows of a set equally likely.
        pinned: demonstrations, which are in each set whose definition they match, unless it is of the newest rows or versions.
    """

    def __init__(
        self,
        config: SamplingConfig,
        slots: int,
        actors: Callable[[], list[str]],
        random: RandomSource,
        priorities: Priorities | None,
        pinned: Pinned | None = None,
    ) -> None:
        self._random, self._priorities = random, priorities
        self.sets = {
            name: SetIndex(name, definition, slots, config.human_rows, actors, priorities)
            for name, definition in config.sets.items()
        }
        if pinned is not None:
            self._join(config, pinned)
        self._mixes = {mix: Mix(self.sets, shares) for mix, shares in config.mixes.items()}

    def _join(self, config: SamplingConfig, pinned: Pinned) -> None:
        """Let each set hold the demonstrations too that match its definition."""
        for name, index in self.sets.items():
            definition = config.sets[name]
            part = SetIndex(name, definition, len(pinned), config.human_rows, lambda: pinned.actors)
            if not (definition.newest_rows or definition.newest_versions):  # they are about the ring
                pinned.attach(part)
            index.join(part)

    def draw(self, batch_size: int, rng: np.random.Generator | None = None, mix: str = "critic") -> Drawn:
        """Rows by the shares of ``mix``, spread so that slices of the batch hold the mix too.

        Raises:
            PoolTooSmall: names the set that is waited for, or all of them.
            PoolError: no such mix.
        """
        if mix not in self._mixes:
            raise PoolError(f"mix {mix!r}: the sets have shares for {', '.join(self._mixes)}; give some an actor_share")
        ids, sets, odds = self._mixes[mix].draw(batch_size, self._random.pick(rng))
        if self._priorities is None:
            return Drawn(ids, sets=sets)
        weights = (odds.min() / odds) ** self._priorities.importance_exponent
        return Drawn(ids, weights.astype(np.float32), sets)

    @property
    def mixes(self) -> list[str]:
        """Names of the mixes, ``critic`` first."""
        return list(self._mixes)

    @property
    def drawable(self) -> int:
        """Largest batch that each mix may have rows for now."""
        return min(mix.drawable for mix in self._mixes.values())

    @property
    def waiting(self) -> str:
        """Which set is waited for before a batch can be drawn, and why; empty when none is."""
        return next((why for mix in self._mixes.values() if (why := mix.waiting())), "")

    def sizes(self) -> dict[str, int]:
        """Rows of each set."""
        return {name: len(s) for name, s in self.sets.items()}

    def info(self) -> dict[str, Any]:
        """Sizes, what is waited for, bytes, and per mix what came of the shares."""
        return {
            "sets": self.sizes(),
            "waiting": self.waiting,
            "nbytes": sum(s.nbytes for s in self.sets.values()),
            "mixes": {name: mix.realised() for name, mix in self._mixes.items()},
        }

    def get_state(self) -> dict[str, Any]:
        """Remainders and turns of each mix, as plain values."""
        return {name: mix.get_state() for name, mix in self._mixes.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`; what it says of mixes or sets that are not ours is left out."""
        for name, mix in self._mixes.items():
            if name in state:
                mix.set_state(state[name])

    def check_valid(self) -> tuple[bool, str]:
        """Whether the mixes are sound; the sets are checked as indexes of the store."""
        for name, mix in self._mixes.items():
            valid, why = mix.check_valid()
            if not valid:
                return valid, f"mix {name}: {why}"
        return True, ""
