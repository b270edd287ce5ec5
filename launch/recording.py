"""Recording demonstrations: whole episodes of an env or a robot, driven by a script or by people, become rows of a pool.

An episode enters the pool when it has ended, so its outcome is known to each of its rows, what was discarded never enters, and
a kill costs the running episode alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.envs import LaneObs, Lanes, LaneStep
from headrace.actor.rewarding import RewardedLanes
from headrace.buffer import about, generations
from headrace.buffer.about import About
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.transfer import free_name
from headrace.buffer.view import PoolView
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import OUTCOME_SUCCESS, OUTCOME_UNKNOWN, OUTCOMES, TransitionSpec
from headrace.launch.demo_load import DemoWriter
from headrace.launch.demos import Steps
from headrace.launch.pools import own_pool

Array = np.ndarray[Any, Any]
Act = Callable[[LaneStep | None], Array]
ACTOR = "demonstrator"
FEWEST_ROWS = 1000
PATIENCE = 10  # episodes played for each that is kept


@dataclass
class Take:
    """The steps of one episode as they come.

    Attributes:
        number: of the episode.
        task: its number.
        obs: what was seen: before the first step, and after each.
        actions: as executed.
        rewards: raw.
        ends: terminated and truncated of the newest step.
        outcome: ``OUTCOME_*``, as the env or the robot says.
        said: what people have said of it: ``success``, ``failure``, ``discard`` or nothing.
    """

    number: int
    task: int
    obs: list[Mapping[str, Array]]
    actions: list[Array] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ends: tuple[bool, bool] = (False, False)
    outcome: int = OUTCOME_UNKNOWN
    said: str = ""

    @property
    def judged(self) -> int:
        """``OUTCOME_*``; people have the last word."""
        return OUTCOMES.index(self.said) if self.said in OUTCOMES else self.outcome

    def add(self, step: LaneStep, action: Array) -> None:
        """One executed step."""
        self.obs.append({key: np.array(value[0]) for key, value in step.next_obs.items()})
        self.actions.append(np.array(action if step.executed is None else step.executed[0], np.float32))
        self.rewards.append(float(step.rewards[0]))
        self.ends = bool(step.terminated[0]), bool(step.truncated[0])
        self.outcome = int(step.success[0])

    def steps(self) -> Steps:
        """All of them."""
        n, keys = len(self.actions), self.obs[0].keys()
        seen = {key: np.stack([obs[key] for obs in self.obs]) for key in keys}
        last = np.arange(n) == n - 1
        return Steps(
            True,
            self.judged,
            self.task,
            {key: values[:-1] for key, values in seen.items()},
            {key: values[1:] for key, values in seen.items()},
            np.stack(self.actions),
            np.array(self.rewards, np.float32),
            last & self.ends[0],
            last & self.ends[1],
        )


class Shelf:
    """The pool that episodes go to: a new one, or one that is there and holds rows of the same spec. It grows as it is filled.

    Args:
        place: its directory.
        spec: of the rows.
        said: of them.

    Raises:
        PoolError: something else lies there.
        SpecError: its rows are of another spec, rate or task.
        PoolLocked: another process owns it.
    """

    def __init__(self, place: Path, spec: TransitionSpec, said: About) -> None:
        self._place = place
        there = place.exists() and any(place.iterdir())
        self._pool = own_pool(place) if there else SACReplayPool(FEWEST_ROWS, path=place, spec=spec)
        try:
            different = self._pool.spec.differences(spec) if self._pool.spec is not None else []
            if different:
                raise ConfigError(f"{place} holds rows of another spec (the pool's first): {'; '.join(different)}")
            about.write(place, about.read(place).joined(said, "this recording"))
            self.actor = free_name(ACTOR, set(self._pool.actors()))
        except BaseException:
            self._pool.close()
            raise
        self._writer = DemoWriter(self._pool, self.actor, {})

    @staticmethod
    def sessions(place: Path) -> int:
        """How many recordings have begun in the pool at ``place``, so that no two play the same episodes."""
        return len(PoolView(place).actors()) if generations.is_pool(place) else 0

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    @property
    def rows(self) -> int:
        """Rows in the pool."""
        return self._pool.size

    def add(self, take: Take) -> None:
        """Keep an episode."""
        held, capacity = self._pool.head - self._pool.tail, self._pool.config.capacity
        if held + len(take.actions) > capacity:
            self._grow(max(2 * capacity, held + len(take.actions)))
        self._writer.add(take.steps())
        self._writer.flush()

    def _grow(self, capacity: int) -> None:
        self._pool.close()
        self._pool = SACReplayPool(capacity, path=self._place)
        self._writer.move(self._pool)


@dataclass
class Recorded:
    """What was recorded: episodes and rows that were kept, and episodes that were not."""

    episodes: int = 0
    rows: int = 0
    dropped: int = 0


class Recording:
    """Plays episodes and keeps those that are wanted.

    An ended episode is kept when the next one takes its first step, so that what people say between the two is about it.

    Args:
        shelf: takes the episodes.
        episodes: how many.
        keep: ``success``, ``known`` (success or failure) or ``all``.
        tell: gets a line for each episode.

    Attributes:
        done: what was recorded.
    """

    def __init__(self, shelf: Shelf, episodes: int, keep: str = "success", tell: Callable[[str], None] = print) -> None:
        self._shelf, self._episodes, self._keep, self._tell = shelf, episodes, keep, tell
        self._take: Take | None = None  # runs
        self._ended: Take | None = None  # and nobody has decided on it yet
        self._worth: Callable[[int, int, int], float | None] | None = None
        self.done = Recorded()

    def run(self, lanes: Lanes, act: Act, hear: Callable[[], list[str]] = list, stopped: Callable[[], bool] = bool) -> None:
        """Play until so many episodes are kept, or it is enough.

        Args:
            lanes: one.
            act: the newest step, none at the beginning -> the next action ``(A,)``.
            hear: what people said since: ``success``, ``failure`` or ``discard``.
            stopped: whether it is enough.

        Raises:
            EnvError: of ten times as many episodes too few could be kept.
        """
        first = lanes.reset()
        self._worth = lanes.worth if isinstance(lanes, RewardedLanes) else None
        self._take = _begin(first)
        step: LaneStep | None = None
        while not self._enough and not stopped():
            action = act(step)
            step = lanes.step(action[None])
            self._note(step, action)
            for word in hear():
                self._hear(word)
        self._settle()

    @property
    def _enough(self) -> bool:
        pending = self._ended is not None and self._is_wanted(self._ended)
        return self.done.episodes + pending >= self._episodes

    def _note(self, step: LaneStep, action: Array) -> None:
        take = self._take
        if take is not None and step.crashed[0]:
            take = None
        elif take is not None and step.live[0]:
            if not take.actions:
                self._settle()
            take.add(step, action)
            if any(take.ends):
                if take.said:  # while it ran
                    self._value(take)
                self._ended, take = take, None
        self._take = _begin(step) if take is None or take.number != int(step.episode[0]) else take

    def _hear(self, word: str) -> None:
        """What is said is about the episode that runs, or else about the one that has ended last."""
        running = self._take is not None and self._take.actions
        take = self._take if running else self._ended
        if take is not None:
            take.said = word
        if take is not None and take is self._ended:
            self._value(take)

    def _value(self, take: Take) -> None:
        """What people say of an ended episode is worth what it would have been at its end, where a function gives rewards."""
        worth = self._worth(0, take.number, take.judged) if self._worth is not None else None
        if worth is not None:
            take.rewards[-1] = worth

    def _settle(self) -> None:
        """Decide on the ended episode."""
        take, self._ended = self._ended, None
        if take is None:
            return
        wanted = self._is_wanted(take)
        if wanted:
            self._shelf.add(take)
            self.done.episodes += 1
            self.done.rows += len(take.actions)
        else:
            self.done.dropped += 1
        self._tell(
            f"episode {take.number}: {OUTCOMES[take.judged]}, {len(take.actions)} steps, return {sum(take.rewards):g},"
            f" {'kept' if wanted else 'discarded' if take.said == 'discard' else 'not kept'}"
            f" ({self.done.episodes} of {self._episodes})"
        )
        if not wanted and self.done.dropped >= PATIENCE * self._episodes:
            raise EnvError(
                f"{self.done.dropped} episodes were not kept, and {self.done.episodes} of {self._episodes} were: --keep"
                f" {self._keep} wants others"
            )

    def _is_wanted(self, take: Take) -> bool:
        wanted = {"all": True, "known": take.judged != OUTCOME_UNKNOWN, "success": take.judged == OUTCOME_SUCCESS}
        return wanted[self._keep] and take.said != "discard"


def _begin(seen: LaneObs | LaneStep) -> Take | None:
    """The episode that begins with what is seen; none where none runs."""
    number = int(seen.episode[0])
    if number < 0:
        return None
    task = 0 if seen.task is None else int(seen.task[0])
    return Take(number, task, [{key: np.array(value[0]) for key, value in seen.obs.items()}])
