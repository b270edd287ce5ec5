"""One actor of the synchronous mode: its lanes are stepped by hand, and its steps go straight into the pool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.deciding import Decided, Decider, Obs
from headrace.actor.envs import Lanes
from headrace.actor.episodes import Episodes
from headrace.actor.exploring import Explorer
from headrace.actor.policy import Policy, RandomPolicy, sampled
from headrace.actor.rating import Rate
from headrace.actor.recorder import Recorder
from headrace.buffer.pool import SACReplayPool
from headrace.common.block import Block
from headrace.common.errors import BlockRefused, LabelRefused
from headrace.common.label import Kind
from headrace.common.specs import OUTCOME_UNKNOWN
from headrace.common.weights import NO_VERSION, Version

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)
STREAM = 1
Episode = tuple[float, int]  # return, length in env steps


class SyncActor:
    """Lanes, assemblers and noise of one actor.

    Attributes:
        executed: env steps executed since the run began.
        count: lanes, the env steps of one call of :meth:`step`.

    Args:
        name: under which the pool knows its rows.
        lanes: parallel episodes.
        pool: where rows go.
        rng: all noise of this actor's actions.
        min_rows: fewest rows of a block, but for the last one of an episode.
        rate: gives rows the priorities that they begin with, see :mod:`headrace.actor.rating`.
        epsilon: share of its decisions that are uniformly random beside the policy's.
        complete: makes of a block what the pool's rows hold.
    """

    def __init__(
        self,
        name: str,
        lanes: Lanes,
        pool: SACReplayPool,
        rng: np.random.Generator,
        min_rows: int = 1,
        rate: Rate | None = None,
        epsilon: float = 0.0,
        complete: Callable[[Block], Block] = lambda block: block,
    ) -> None:
        self._complete = complete
        self.name, self.count, self.executed = name, lanes.count, 0
        self._lanes, self._pool, self._rng, self._min_rows = lanes, pool, rng, min_rows
        self._decider = Decider(lanes.spec, lanes.count)
        self._random = RandomPolicy(lanes.spec)
        self._explorer = Explorer(lanes.spec, epsilon)
        self._recorder = Recorder(lanes.spec, lanes.count, rate)
        self._episodes = Episodes()
        self._outcomes: dict[int, tuple[int, int]] = {}  # lane -> ended episode and its outcome
        self._obs: Any = None

    @property
    def epsilon(self) -> float:
        """Share of its decisions that are uniformly random beside the policy's."""
        return self._explorer.epsilon

    @property
    def at_start(self) -> bool:
        """Whether no lane is inside an episode; so it is after :meth:`cut`, too."""
        return bool(self._recorder.fresh.all())

    @property
    def first_lane_at_start(self) -> bool:
        """Whether lane 0 is between two episodes."""
        return bool(self._recorder.fresh[0])

    def begin(self) -> None:
        """Begin an episode in every lane: at the start of the run, after :meth:`set_state`, and after :meth:`cut`."""
        self._decider.restart()
        self._obs = self._recorder.begin(self._lanes.reset())

    def step(self, policy: Policy | None, version: Version) -> list[Episode]:
        """One step of every lane, with uniform actions where ``policy`` is none; the episodes that ended."""

        def choose(seen: Obs) -> Array | Decided:
            if policy is None:
                return self._random.act(seen, self._rng, False)
            return self._explorer.mix(sampled(policy, self._lanes.spec, seen, self._rng), self._rng)

        acts = self._decider.act(self._obs, choose)
        step = self._lanes.step(acts.actions)
        ended = self._recorder.record(acts, step, version if policy else NO_VERSION)
        self.executed += int(step.live.sum())
        self._outcomes |= {e.lane: (e.episode, e.outcome) for e in ended if e.outcome != OUTCOME_UNKNOWN}
        self._obs = self._recorder.go_on(step)
        self._decider.restart(self._recorder.anew)
        for lane, assembler in enumerate(self._recorder.assemblers):
            if assembler.ready >= self._min_rows or (assembler.ready and self._recorder.fresh[lane]):
                self._insert(assembler)
        self._label()
        return [(e.total, e.length) for e in ended]

    def cut(self) -> None:
        """End the running episodes as truncated and hand over every row; :meth:`begin` goes on with the next ones."""
        self._recorder.cut()
        for assembler in self._recorder.assemblers:
            self._insert(assembler)
        self._label()
        self._lanes.set_state(self._lanes.get_state())  # a lane that had only just begun an episode begins it again

    def close(self) -> None:
        """Close the environments."""
        self._lanes.close()

    def get_state(self) -> dict[str, Any]:
        """Plain values, complete where :attr:`at_start` holds."""
        return {"executed": self.executed, "lanes": self._lanes.get_state(), "rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`; call :meth:`begin` next."""
        self.executed = int(state["executed"])
        self._lanes.set_state(state["lanes"])
        self._rng.bit_generator.state = state["rng"]

    def check_valid(self) -> tuple[bool, str]:
        """Whether lanes and assemblers are in order."""
        checks = [self._lanes.check_valid(), self._recorder.check_valid()]
        reasons = [f"{self.name}: {reason}" for ok, reason in checks if not ok]
        return not reasons, "; ".join(reasons)

    def _insert(self, assembler: Assembler) -> None:
        block = assembler.take(assembler.ready)
        if block is None:
            return
        seq = self._pool.last_seq(self.name, STREAM) + 1
        try:
            self._pool.insert(self._complete(block), self.name, STREAM, seq)
        except BlockRefused as error:
            self._pool.reject(self.name, STREAM, seq, block.n_rows)  # counted, and blocks nothing behind it
            LOG.warning("%s: %d rows refused: %s", self.name, block.n_rows, error)
        self._episodes.sent(block.rows, seq)

    def _label(self) -> None:
        """Write the outcome of each episode that has ended to its rows, once they are all in the pool."""
        for lane in [lane for lane in self._outcomes if not self._recorder.assemblers[lane].ready]:
            episode, outcome = self._outcomes.pop(lane)
            label = self._episodes.label(episode, Kind.OUTCOME, outcome)
            try:
                if label is not None:
                    self._pool.amend(self.name, replace(label, stream=STREAM))
            except LabelRefused as error:  # not one of its rows could enter
                LOG.warning("%s: the outcome of episode %d was refused: %s", self.name, episode, error)
