"""Rewards by one function of what was seen, done and came of it: the same for live data and for demonstrations.

``env.reward`` names it for the actors and the evaluator of a run and for its ``pool.demos``; ``headrace pool import --reward``
for data sets that are imported by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from headrace.actor.config import EnvConfig
from headrace.actor.envs import HoldingLanes, LaneObs, Lanes, LaneStep
from headrace.common.errors import EnvError
from headrace.common.naming import resolve
from headrace.common.specs import OUTCOME_SUCCESS, OUTCOME_UNKNOWN

Array = np.ndarray[Any, Any]
LARGEST = float(np.finfo(np.float32).max)


class Reward(Protocol):
    """What one executed env step is worth."""

    def __call__(self, obs: Mapping[str, Array], action: Array, next_obs: Mapping[str, Array], outcome: int) -> float:
        """The raw reward.

        Args:
            obs: key -> ``(*shape)``, what was seen before the step, one frame.
            action: ``(A,)`` as executed, env units.
            next_obs: what was seen after it.
            outcome: ``OUTCOME_*`` at the last step of an episode, as far as it is known then; unknown before.
        """
        ...


def on_success(obs: Mapping[str, Array], action: Array, next_obs: Mapping[str, Array], outcome: int) -> float:
    """1 where an episode ends in success, else 0."""
    return float(outcome == OUTCOME_SUCCESS)


def find_reward(name: str, key: str = "env.reward") -> Reward | None:
    """The function that option ``key`` names; none for an empty name.

    Raises:
        ConfigError: it cannot be imported, or is no function.
    """
    return resolve(name, key) if name else None


def reward_of(
    reward: Reward, obs: Mapping[str, Array], action: Array, next_obs: Mapping[str, Array], outcome: int = OUTCOME_UNKNOWN
) -> float:
    """What ``reward`` gives.

    Raises:
        EnvError: it raised, or gave no finite number.
    """
    try:
        given = float(reward(obs, action, next_obs, outcome))
    except Exception as error:  # whatever a foreign function raises becomes our one line
        raise EnvError(f"env.reward: {type(error).__name__}: {error}") from error
    if not abs(given) <= LARGEST:  # also what is no number
        raise EnvError(f"env.reward: {given}, expected a finite number")
    return given


@dataclass(frozen=True)
class _Last:
    """The last step of an ended episode."""

    episode: int
    obs: Mapping[str, Array]
    action: Array
    next_obs: Mapping[str, Array]


class RewardedLanes:
    """Lanes whose rewards are those of a function, whatever the environment or the robot says.

    Args:
        lanes: what is played.
        reward: of each executed step.
    """

    def __init__(self, lanes: Lanes, reward: Reward) -> None:
        self._lanes, self._reward = lanes, reward
        self.spec, self.count, self.restarts = lanes.spec, lanes.count, lanes.restarts
        self._obs: Mapping[str, Array] = {}
        self._episode: Array = np.full(lanes.count, -1, np.int64)
        self._ended: dict[int, _Last] = {}  # by lane

    def reset(self) -> LaneObs:
        """Begin the next episode in every lane."""
        first = self._lanes.reset()
        self._obs, self._episode = first.obs, first.episode
        return first

    def step(self, actions: Array) -> LaneStep:
        """Execute ``actions``; the rewards of the lanes that did are the function's.

        Raises:
            EnvError: as the lanes, or the function is at fault.
        """
        return self._worth_of(self._lanes.step(actions), actions)

    def worth(self, lane: int, episode: int, outcome: int) -> float | None:
        """What the last step of an episode is worth, had it ended in ``outcome``; none but for the lane's last one.

        Raises:
            EnvError: the function is at fault.
        """
        last = self._ended.get(lane)
        if last is None or last.episode != episode:
            return None
        return reward_of(self._reward, last.obs, last.action, last.next_obs, outcome)

    def _worth_of(self, step: LaneStep, actions: Array) -> LaneStep:
        before, episode = self._obs, self._episode
        self._obs, self._episode, self.restarts = step.obs, step.episode, self._lanes.restarts
        executed, rewards = actions if step.executed is None else step.executed, np.zeros(self.count, np.float32)
        for lane in np.flatnonzero(step.live & ~step.crashed):
            seen, after = ({key: value[lane] for key, value in obs.items()} for obs in (before, step.next_obs))
            rewards[lane] = reward_of(self._reward, seen, executed[lane], after, int(step.success[lane]))
            if step.terminated[lane] or step.truncated[lane]:
                kept = ({key: np.array(value) for key, value in obs.items()} for obs in (seen, after))
                self._ended[int(lane)] = _Last(int(episode[lane]), next(kept), np.array(executed[lane]), next(kept))
        return replace(step, rewards=rewards)

    def close(self) -> None:
        """Close the lanes."""
        self._lanes.close()

    def get_state(self) -> dict[str, Any]:
        """That of the lanes."""
        return self._lanes.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`; call :meth:`reset` next."""
        self._lanes.set_state(state)

    def check_valid(self) -> tuple[bool, str]:
        """Whether the lanes are in order."""
        return self._lanes.check_valid()


class RewardedRobot(RewardedLanes):
    """The same over lanes in real time.

    Args:
        lanes: what is played.
        reward: of each executed step.
    """

    def __init__(self, lanes: HoldingLanes, reward: Reward) -> None:
        super().__init__(lanes, reward)
        self._holding = lanes

    @property
    def running(self) -> bool:
        """As the lanes."""
        return self._holding.running

    def hold(self) -> LaneStep:
        """As the lanes."""
        return self._worth_of(self._holding.hold(), np.zeros((self.count, self.spec.action.dim), np.float32))


def rewarded(lanes: Lanes, env: EnvConfig) -> Lanes:
    """The lanes of ``env`` with the rewards that it names; as they are where it names none.

    Raises:
        ConfigError: the function cannot be imported.
    """
    reward = find_reward(env.reward)
    if reward is None:
        return lanes
    return RewardedRobot(lanes, reward) if isinstance(lanes, HoldingLanes) else RewardedLanes(lanes, reward)
