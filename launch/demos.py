"""Demonstrations from a file: what every format is read into, before rows are made of it.

A step holds its observation and the true one after it. Where a file does not say what came after the last step of an episode:
a terminated step keeps its own observation in that place, since nothing is bootstrapped from it; any other step is left out
and the one before it becomes truncated. Where the next observation of a step is not the observation of the step after it, the
episode is cut there as truncated. All of this is counted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from headrace.actor.config import WindowConfig
from headrace.actor.rewarding import Reward, reward_of
from headrace.buffer.about import Last
from headrace.common.errors import ConfigError, PoolDamaged, SpecError
from headrace.common.rounding import first_changed
from headrace.common.specs import (
    OUTCOME_FAILURE,
    OUTCOME_SUCCESS,
    OUTCOME_UNKNOWN,
    OUTCOMES,
    STORED_AS,
    ActionSpec,
    ObsSpec,
    TransitionSpec,
)

Array = np.ndarray[Any, Any]
Bounds = tuple[tuple[float, ...], tuple[float, ...]]
SLICE_BYTES = 8 << 20
SLICE_ROWS = 4096


class Column(Protocol):
    """An array of a file, read slice by slice along its first axis."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one row

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> Array:
        """Rows ``[start, stop)``."""


@dataclass(frozen=True)
class ReadOptions:
    """How a file is to be understood.

    Attributes:
        obs: path below the file's observations -> key in the pool; empty takes all of them.
        low: lower bounds of the actions, one number for all dimensions or one each; empty when not given.
        high: upper bounds.
        success: dataset of success flags, beside the actions of an episode; empty takes the format's own.
        dones: what a ``done`` means that does not say it itself, ``terminated`` or ``truncated``.
        outcome: ``success`` or ``failure`` of episodes of which the file says none; empty leaves it open.
        reward: ``module:function`` as of ``env.reward``, in place of the file's rewards; empty takes these.
    """

    obs: Mapping[str, str] = field(default_factory=dict)
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    success: str = ""
    dones: str = "terminated"
    outcome: str = ""
    reward: str = ""

    def key(self, path: str) -> str | None:
        """Pool key of an observation at ``path``; None when it is not wanted."""
        plain = path.replace("/", ".") or "obs"
        return self.obs.get(path) if self.obs else plain

    def outcome_of(self, flag: bool | None) -> int:
        """``OUTCOME_*`` of an episode's success flag, which may be missing."""
        if flag is None:
            return OUTCOMES.index(self.outcome) if self.outcome else OUTCOME_UNKNOWN
        return OUTCOME_SUCCESS if flag else OUTCOME_FAILURE

    def bounds(self, dim: int) -> Bounds | None:
        """Bounds that were given, one a dimension.

        Raises:
            ConfigError: only one side, another number of dimensions, or bounds with nothing between them.
        """
        if not self.low and not self.high:
            return None
        for name, values in (("--low", self.low), ("--high", self.high)):
            if len(values) not in (1, dim):
                raise ConfigError(f"{name}: {len(values)} numbers, expected 1 or {dim}, one for each action dimension")
        low, high = (v * dim if len(v) == 1 else v for v in (self.low, self.high))
        for i, (lower, upper) in enumerate(zip(low, high, strict=True)):
            if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
                raise ConfigError(
                    f"--low, --high: {lower:g} and {upper:g} in dimension {i}; they must be finite, and --low below --high"
                )
        return low, high


@dataclass(frozen=True)
class Steps:
    """Consecutive steps of one episode.

    Attributes:
        first: whether these are the episode's first ones.
        outcome: ``OUTCOME_*`` of the episode.
        task: its task.
        obs: key -> ``(n, *shape)``, as stored.
        next_obs: the true observation after each step.
        action: ``(n, A)`` float32, env units.
        reward: ``(n,)`` float32.
        terminated: ``(n,)`` bool.
        truncated: ``(n,)`` bool.
    """

    first: bool
    outcome: int
    task: int
    obs: dict[str, Array]
    next_obs: dict[str, Array]
    action: Array
    reward: Array
    terminated: Array
    truncated: Array

    def __len__(self) -> int:
        return len(self.reward)


@dataclass
class Episode:
    """Rows ``[start, stop)`` of parallel columns.

    Attributes:
        obs: key -> observations; with ``closed`` there is one more after the last step.
        next_obs: key -> observations after each step, where the file has them.
        terminated: ``(stop - start,)`` bool.
        truncated: ``(stop - start,)`` bool; the last step ends the episode in any case.
        outcome: ``OUTCOME_*``.
        closed: row ``stop`` of ``obs`` is the observation after the last step.
        task: number of its task.
        dropped: steps that were left out, since nothing says what came after them.
        stand_ins: terminated steps that keep their own observation as the next one.
    """

    obs: Mapping[str, Column]
    actions: Column
    rewards: Column
    start: int
    stop: int
    terminated: Array
    truncated: Array
    next_obs: Mapping[str, Column] | None = None
    outcome: int = OUTCOME_UNKNOWN
    closed: bool = False
    task: int = 0
    dropped: int = 0
    stand_ins: int = 0

    def __post_init__(self) -> None:
        open_end = self.next_obs is None and not self.closed and self.stop > self.start
        if open_end and self.terminated[-1]:
            self.stand_ins = 1
        elif open_end:
            self.dropped, self.stop = 1, self.stop - 1
            self.terminated, self.truncated = self.terminated[:-1], self.truncated[:-1]
        self.truncated = self.truncated.copy()
        if self.stop > self.start and not self.terminated[-1]:
            self.truncated[-1] = True

    def last(self) -> Last | None:
        """The last step where it was left out."""
        if not self.dropped:
            return None
        action, reward = (stored(column, self.stop, self.stop + 1).ravel() for column in (self.actions, self.rewards))
        return Last(tuple(action.astype("<f4").tolist()), float(reward[0]))

    def pieces(self) -> Iterator[Steps]:
        """The steps, a bounded number at a time.

        Raises:
            PoolDamaged: naming a column that holds something that is not finite, or that float32 changes.
        """
        nbytes = sum(int(np.prod(c.shape, dtype=np.int64)) * c.dtype.itemsize for c in self.obs.values())
        size = min(SLICE_ROWS, max(1, SLICE_BYTES // max(1, nbytes)))
        for low in range(self.start, self.stop, size):
            high = min(low + size, self.stop)
            flags = slice(low - self.start, high - self.start)
            yield Steps(
                low == self.start,
                self.outcome,
                self.task,
                {key: stored(c, low, high) for key, c in self.obs.items()},
                {key: self._next(key, low, high) for key in self.obs},
                numbers(self.actions, low, high).reshape(high - low, -1),
                numbers(self.rewards, low, high).reshape(high - low),
                self.terminated[flags],
                self.truncated[flags],
            )

    def _next(self, key: str, low: int, high: int) -> Array:
        if self.next_obs is not None:
            return stored(self.next_obs[key], low, high)
        column = self.obs[key]
        if high < self.stop or self.dropped or self.closed:
            return stored(column, low + 1, high + 1)
        return np.concatenate([stored(column, low + 1, high), stored(column, high - 1, high)])


class Demonstrations(ABC):
    """One file of demonstrations, whose structure has been checked.

    Attributes:
        path: where it is.
        format: name of the format.
        obs: observation keys as the pool stores them.
        action_dim: A.
        bounds: (low, high) of the actions, where the file says them.
        steps: steps in the file.
        fps: steps a second; 0 where the file does not say.
        tasks: number of a task -> what it is, in words, where the file says it.
        notes: what was decided about the file, for people.
        reward: in place of the file's own.
    """

    path: Path
    format: str
    obs: tuple[ObsSpec, ...]
    action_dim: int
    bounds: Bounds | None = None
    steps: int
    fps: float = 0.0
    tasks: Mapping[int, str] = MappingProxyType({})
    notes: tuple[str, ...] = ()
    reward: Reward | None = None

    def pieces(self, episode: Episode) -> Iterator[Steps]:
        """The steps of one of its episodes, a bounded number at a time, with the rewards that they are to have.

        Raises:
            PoolDamaged: naming a column that holds something that is not finite.
            EnvError: the function that gives the rewards is at fault.
        """
        for steps in episode.pieces():
            yield steps if self.reward is None else _rewarded(steps, self.reward)

    @abstractmethod
    def episodes(self) -> Iterator[Episode]:
        """The episodes in the order of the file; may be called again."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def numbers(column: Column, start: int, stop: int) -> Array:
    """Rows of actions or rewards, float32.

    Raises:
        PoolDamaged: as :func:`stored`, or a whole number that float32 cannot hold.
    """
    values = stored(column, start, stop)
    changed = first_changed(values, start)
    if changed:
        raise PoolDamaged(f"{column.name}: {changed}; scale the column, or write it as floating point")
    return values.astype("<f4", copy=False)


def _rewarded(steps: Steps, reward: Reward) -> Steps:
    out = np.empty(len(steps), np.float32)
    for i, ends in enumerate(steps.terminated | steps.truncated):
        seen, after = ({key: values[i] for key, values in obs.items()} for obs in (steps.obs, steps.next_obs))
        out[i] = reward_of(reward, seen, steps.action[i], after, steps.outcome if ends else OUTCOME_UNKNOWN)
    return replace(steps, reward=out)


def stored(column: Column, start: int, stop: int) -> Array:
    """Rows of a column in the dtype that a pool stores.

    Raises:
        PoolDamaged: a value that is not finite, or a dtype that is not stored; names column and row.
    """
    values = column.read(start, stop)
    if len(values) != stop - start:
        raise PoolDamaged(f"{column.name}: {len(values)} rows at {start}, expected {stop - start}")
    if column.dtype.name not in STORED_AS:
        raise PoolDamaged(f"{column.name}: dtype {column.dtype}; stored are {', '.join(STORED_AS)}")
    with np.errstate(over="ignore"):  # what does not fit into float32 is infinite then, and refused
        values = values.astype(STORED_AS[column.dtype.name], copy=False)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0]
        raise PoolDamaged(f"{column.name}: row {start + bad} holds NaN, infinity, or what float32 cannot hold")
    return values


def obs_spec(key: str, column: Column) -> ObsSpec:
    """The observation key that stores a column.

    Raises:
        SpecError: a dtype that is not stored.
    """
    if column.dtype.name not in STORED_AS:
        raise SpecError(f"{column.name}: dtype {column.dtype}; stored are {', '.join(STORED_AS)}")
    return ObsSpec(key, column.shape, STORED_AS[column.dtype.name])


def wanted_obs(paths: list[str], options: ReadOptions, where: str) -> dict[str, str]:
    """Pool key -> path of the observations to read.

    Raises:
        ConfigError: a path of ``--obs`` that is not in the file or has no key, or two for one key.
    """
    for path in options.obs:
        if not options.obs[path]:
            raise ConfigError(f"--obs {path}=: no key; expected PATH=KEY, or PATH for a key of that name")
        if path not in paths:
            raise ConfigError(
                f"--obs {path}={options.obs[path]}: not in {where}; there are: {', '.join(map(_shown, paths[:64])) or 'none'}"
            )
    out: dict[str, str] = {}
    for path in paths:
        key = options.key(path)
        if key is None:
            continue
        if key in out:
            raise ConfigError(f"--obs: {out[key]} and {path} of {where} would both be {key!r}")
        out[key] = path
    return dict(sorted(out.items()))


def _shown(path: str) -> str:
    return path or "one array without a path, which --obs =KEY names"


def flags_of(column: Column) -> Array:
    """A column of zeros and ones, ``(n,)`` bool.

    Raises:
        PoolDamaged: another value, or more than one a row.
    """
    values = column.read(0, len(column))
    if values.size != len(column) or not ((values == 0) | (values == 1)).all():
        raise PoolDamaged(f"{column.name}: {values.shape} of {values.dtype}, expected one 0 or 1 a row")
    return values.reshape(-1).astype(bool)


def spec_for(demos: Demonstrations, options: ReadOptions, like: TransitionSpec | None, window: WindowConfig) -> TransitionSpec:
    """The spec of the rows that the file gives.

    Args:
        demos: the file.
        options: with bounds, where they were given.
        like: spec of the pool that the rows are for; it says window, stack, roles, and bounds that nothing else says.
        window: of a new pool.

    Raises:
        SpecError: it is not that of the pool; names each field with both values.
        ConfigError: nobody says the bounds.
    """
    bounds = options.bounds(demos.action_dim) or demos.bounds
    if bounds is None and like is not None and like.action.dim == demos.action_dim:
        bounds = like.action.low, like.action.high
    if bounds is None:
        raise ConfigError(
            f"--low, --high: {demos.format} files do not say the bounds of the actions, as this one; give them, one number or "
            f"one for each of the {demos.action_dim} dimensions"
        )
    action = ActionSpec((demos.action_dim,), *bounds)
    if like is None:
        return window.spec(demos.obs, action)
    roles = {o.key: o.role for o in like.obs}
    obs = tuple(ObsSpec(o.key, o.shape, o.dtype, roles.get(o.key, "both")) for o in demos.obs)
    spec = WindowConfig.of(like).spec(obs, action)
    different = _differences(like, spec)
    if different:
        raise SpecError(f"the file does not fit the pool (the pool's first): {'; '.join(different)}")
    return spec


def _differences(pool: TransitionSpec, file: TransitionSpec) -> list[str]:
    """Differences by key, so that one that is missing does not shift the others."""
    ours, theirs = ({o.key: o for o in spec.obs} for spec in (pool, file))
    out = [f"obs.{key}: {ours[key].shape} {ours[key].dtype} != missing" for key in ours if key not in theirs]
    out += [f"obs.{key}: missing != {theirs[key].shape} {theirs[key].dtype}" for key in theirs if key not in ours]
    for key in ours.keys() & theirs.keys():
        a, b = ours[key], theirs[key]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            out.append(f"obs.{key}: {a.shape} {a.dtype} != {b.shape} {b.dtype}")
    return out or pool.differences(file)
