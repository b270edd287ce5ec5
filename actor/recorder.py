"""The recorder: what the lanes did becomes rows and ended episodes, by the rule that envs.py states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.deciding import Acts
from headrace.actor.envs import LaneObs, LaneStep
from headrace.actor.rating import Rate
from headrace.actor.stacking import FrameStack
from headrace.common.specs import SOURCE_HUMAN, SOURCE_POLICY, TransitionSpec
from headrace.common.weights import Version

Array = np.ndarray[Any, Any]
Obs = Mapping[str, Array]


@dataclass(frozen=True)
class Ended:
    """An episode that the env has ended.

    Attributes:
        lane: where.
        episode: its number.
        total: sum of its raw rewards.
        length: its env steps.
        outcome: ``OUTCOME_*``.
    """

    lane: int
    episode: int
    total: float
    length: int
    outcome: int


class Recorder:
    """Assemblers, frame stacks and running sums of L lanes.

    Attributes:
        assemblers: one a lane, from which the rows are taken.
        fresh: ``(L,)`` bool, lanes between two episodes: no step since the first observation, or cut.
        anew: ``(L,)`` bool, lanes in which what is left of a decision is void: the fresh ones, and where a human acted last.
        human_steps: env steps in which a human acted.
        newest: ``(L,)`` int64, the episode of each lane's newest step; -1 before the first.

    Args:
        spec: of the rows.
        count: L.
        rate: gives rows the priorities that they begin with, see :mod:`headrace.actor.rating`.
    """

    def __init__(self, spec: TransitionSpec, count: int, rate: Rate | None = None) -> None:
        self.assemblers = [Assembler(spec, rate=rate) for _ in range(count)]
        self.fresh: Array = np.zeros(count, np.bool_)
        self.anew: Array = np.zeros(count, np.bool_)
        self.human_steps = 0
        self.newest: Array = np.full(count, -1, np.int64)
        self._stack = FrameStack(spec, count)
        self._totals, self._lengths = np.zeros(count), np.zeros(count, np.int64)
        self._episode = np.full(count, -1, np.int64)

    def begin(self, first: LaneObs) -> Obs:
        """Begin an episode in every lane: at the start, and after :meth:`cut`; what the policy acts on."""
        return self._go_on(first)

    def record(self, acts: Acts, step: LaneStep, version: Version) -> list[Ended]:
        """Take what the lanes were asked for, and by which weights; the episodes that ended with it.

        A human's step goes on with the decision that runs: a row of a chunk is as long with people as without. The first step
        of the policy behind it is a decision of its own, made after the human's last step.
        """
        ended = []
        self.anew = np.zeros(len(self.assemblers), np.bool_)
        actions = acts.actions if step.executed is None else step.executed
        for lane, assembler in enumerate(self.assemblers):
            if step.crashed[lane]:
                assembler.abort()
            elif step.live[lane]:
                self._totals[lane] += step.rewards[lane]
                self._lengths[lane] += 1
                self.newest[lane] = self._episode[lane]
                ends = bool(step.terminated[lane]), bool(step.truncated[lane])
                next_obs = {key: value[lane] for key, value in step.next_obs.items()}
                health = 0 if step.health is None else int(step.health[lane])
                age = 0.0 if step.action_age is None else float(step.action_age[lane])
                what = actions[lane], float(step.rewards[lane]), *ends, next_obs
                source = SOURCE_POLICY if step.source is None else int(step.source[lane])
                self.anew[lane] = source == SOURCE_HUMAN
                self.human_steps += source == SOURCE_HUMAN
                begins = acts.begins[lane] and not (source == SOURCE_HUMAN and assembler.may_go_on)
                decided = acts.decided[lane] if begins else None
                latent = None if acts.latents is None else acts.latents[lane]
                assembler.step(
                    *what, version=version, decided=decided, source=source, health=health, action_age=age, latent=latent
                )
                if any(ends):
                    ended.append(self._ended(lane, int(step.success[lane])))
        return ended

    def go_on(self, step: LaneStep) -> Obs:
        """Begin the episodes that follow those which ended; what the policy acts on."""
        return self._go_on(step)

    def running(self, lane: int) -> int:
        """The episode that goes on in a lane, of which steps were taken; -1 between two."""
        return int(self.newest[lane]) if self.assemblers[lane].running and not self.fresh[lane] else -1

    def cut(self) -> None:
        """End the running episodes at their last complete step, as truncated."""
        for assembler in self.assemblers:
            assembler.abort()
        self._episode[:] = -1
        self.fresh[:] = self.anew[:] = True

    def check_valid(self) -> tuple[bool, str]:
        """Whether every assembler is in order."""
        for assembler in self.assemblers:
            valid, why = assembler.check_valid()
            if not valid:
                return valid, why
        return True, ""

    def _ended(self, lane: int, outcome: int) -> Ended:
        return Ended(lane, int(self._episode[lane]), float(self._totals[lane]), int(self._lengths[lane]), outcome)

    def _go_on(self, seen: LaneObs | LaneStep) -> Obs:
        obs, episode = seen.obs, seen.episode
        self.fresh = episode != self._episode
        self.anew = self.anew | self.fresh
        for lane in np.flatnonzero(self.fresh):
            task = 0 if seen.task is None else int(seen.task[lane])
            self.assemblers[lane].begin(int(episode[lane]), {key: value[lane] for key, value in obs.items()}, task)
            self._totals[lane], self._lengths[lane] = 0.0, 0
        self._episode = np.array(episode)
        return self._stack.push(obs, episode)
