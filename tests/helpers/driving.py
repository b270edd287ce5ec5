"""Drive lanes through assemblers as the actor's loop does, and look at rows with their observations gathered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import Lanes, make_lanes
from headrace.common.block import Block
from headrace.common.weights import Version

Array = np.ndarray[Any, Any]
ActionScript = Callable[[int, int, int], float]
VERSION = Version("driver", 1, 7)


@dataclass(frozen=True)
class Row:
    """One row, its frames gathered; compares by value."""

    fields: tuple[Any, ...]
    obs: dict[str, Any]
    next_obs: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return dict(self.fields)[name]


def unroll(block: Block) -> list[Row]:
    """The rows of a block, each with copies (as lists) of the frames that it refers to."""
    names = [n for n in block.rows.dtype.names or () if n not in ("obs", "next_obs")]
    out = []
    for row in block.rows:
        fields = tuple((n, row[n].tolist()) for n in names)
        gathered = [{k: f[row[side]].tolist() for k, f in block.frames.items()} for side in ("obs", "next_obs")]
        out.append(Row(fields, gathered[0], gathered[1]))
    return out


def scripted_action(lane: int, episode: int, t: int) -> float:
    """A different action for every (lane, episode, t), in [-1, 1)."""
    return ((lane * 31 + episode * 7 + t) % 64) / 32 - 1


def drive(lanes: Lanes, calls: int, script: ActionScript = scripted_action, max_rows: int = 1 << 20) -> list[list[Row]]:
    """Reset, step ``calls`` times, and return each lane's rows; every block is checked and cut at ``max_rows``."""
    assemblers = [Assembler(lanes.spec) for _ in range(lanes.count)]
    rows: list[list[Row]] = [[] for _ in assemblers]
    outcomes: dict[int, int] = {}
    first = lanes.reset()
    t, episode = np.zeros(lanes.count, int), first.episode
    for lane, assembler in enumerate(assemblers):
        assembler.begin(int(episode[lane]), {k: v[lane] for k, v in first.obs.items()})
    for _ in range(calls):
        actions = np.array([[script(i, int(episode[i]), int(t[i]))] for i in range(lanes.count)], np.float32)
        step = lanes.step(np.repeat(actions, lanes.spec.action.dim, axis=1))
        for lane, assembler in enumerate(assemblers):
            if step.crashed[lane]:
                assembler.abort()
            elif step.live[lane]:
                next_obs = {k: v[lane] for k, v in step.next_obs.items()}
                ends = bool(step.terminated[lane]), bool(step.truncated[lane])
                assembler.step(actions[lane], step.rewards[lane], *ends, next_obs, version=VERSION)
                outcomes[int(episode[lane])] = int(step.success[lane])
                t[lane] += 1
            if step.episode[lane] != episode[lane]:
                assembler.begin(int(step.episode[lane]), {k: v[lane] for k, v in step.obs.items()})
                t[lane] = 0
            rows[lane] += drain(assembler, lanes, max_rows)
        episode = step.episode
    return [[labelled(row, outcomes.get(row["episode"], 0)) for row in lane] for lane in rows]


def labelled(row: Row, outcome: int) -> Row:
    """The row with an outcome, as a label about its episode gives it."""
    return replace(row, fields=tuple((name, outcome if name == "outcome" else value) for name, value in row.fields))


def drain(assembler: Assembler, lanes: Lanes, max_rows: int) -> list[Row]:
    """All rows that are ready."""
    out: list[Row] = []
    while (block := assembler.take(max_rows)) is not None:
        block.check(lanes.spec)
        out += unroll(block)
    return out


def drive_config(env: EnvConfig, calls: int, window: WindowConfig | None = None, **kwargs: Any) -> list[list[Row]]:
    """:func:`drive` over lanes that are made and closed here."""
    lanes = make_lanes(env, window or WindowConfig(), run_seed=3, actor="actor-0", epoch=1)
    try:
        return drive(lanes, calls, **kwargs)
    finally:
        lanes.close()


class Growing(gym.ObservationWrapper):
    """Observations that have one number more than their space after so many steps, or from the reset on."""

    def __init__(self, env, after=0):
        super().__init__(env)
        self._left = after

    def observation(self, obs):
        self._left -= 1
        return np.append(obs, 0.0) if self._left < 0 else obs
