"""LeRobotDataset, layouts 2.1 and 3.0, read without the ``lerobot`` package: a directory with ``meta/info.json``.

A frame holds what was observed, the action that followed, and in ``next.*`` what came of it. ``next.done`` ends an episode, as
truncated where ``next.truncated`` says so, else as ``--dones`` says. Without it an episode that succeeded is terminated and any
other truncated at its end. Rewards are ``next.reward``; without it 1 where a success ends, else 0. Where the task changes in
the middle of an episode, it is cut there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError, PoolDamaged, SpecError
from headrace.common.specs import OUTCOME_SUCCESS, STORED_AS
from headrace.launch.demos import Column, Demonstrations, Episode, ReadOptions, flags_of, obs_spec, wanted_obs
from headrace.launch.lerobot_layout import CAMERAS, Feature, Place, read_layout
from headrace.launch.parquet import Parquet
from headrace.launch.pictures import Pictures
from headrace.launch.videos import Part, Video

Array = np.ndarray[Any, Any]
OBSERVATION = "observation."
REWARD, DONE, TRUNCATED, SUCCESS = "next.reward", "next.done", "next.truncated", "next.success"


class LeRobot(Demonstrations):
    """One data set.

    Attributes:
        keys: pool key -> feature of each observation that is read.

    Raises:
        PoolDamaged: naming the file and the column, feature or frame.
        SpecError: a layout or a feature that is not read.
        ConfigError: ``--obs`` or ``--success`` name what is not there.
    """

    format = "LeRobotDataset"

    def __init__(self, root: Path, options: ReadOptions) -> None:
        self.path, self._options = root, options
        self._layout = layout = read_layout(root)
        self._data: Parquet | None = None
        self._videos: dict[str, Video] = {}
        read = {name: f for name, f in layout.features.items() if name.startswith(OBSERVATION) and _is_read(f)}
        keys = wanted_obs(sorted(name[len(OBSERVATION) :] for name in read), options, str(root))
        self.keys = {key: read[OBSERVATION + name] for key, name in keys.items()}
        for name, f in layout.features.items():
            if name.startswith(OBSERVATION) and name not in read:
                self.notes += (f"{name} is left out: {f.dtype} is not stored",)
        action = layout.features.get("action")
        if action is None or action.dtype not in ("float32", "float64") or len(action.shape) != 1:
            raise SpecError(f"{root}: features.action: {action and (action.dtype, action.shape)}, expected floats of (A,)")
        self._action, (self.action_dim,) = action, action.shape
        self._success = options.success or SUCCESS
        if options.success and options.success not in layout.features:
            raise ConfigError(f"--success {options.success}: no feature of {root}; there are: {', '.join(layout.features)}")
        self.steps = sum(place.length for place in layout.episodes)
        self.fps, self.tasks = layout.fps, layout.tasks
        try:
            self.obs = tuple(obs_spec(key, column) for key, column in self._observations(layout.episodes[0]).items())
        except BaseException:
            self.close()
            raise
        if DONE in layout.features and TRUNCATED not in layout.features:
            other = "truncated" if options.dones == "terminated" else "terminated"
            self.notes += (f"{DONE} is read as {options.dones}; --dones {other} reads it the other way",)
        if REWARD not in layout.features:
            self.notes += (f"there is no {REWARD}: rewards are 1 where a success ends, else 0",)

    def episodes(self) -> Iterator[Episode]:
        """In the order of their numbers; one whose task changes is several."""
        for place in self._layout.episodes:
            yield from self._episode(place)

    def whole_episodes(self) -> Iterator[dict[str, Column]]:
        """The observations of each episode, key -> all of its frames."""
        for place in self._layout.episodes:
            yield self._observations(place)

    def close(self) -> None:
        """Close all files."""
        if self._data is not None:
            self._data.close()
        for video in self._videos.values():
            video.close()
        self._data, self._videos = None, {}

    def _episode(self, place: Place) -> Iterator[Episode]:
        n = place.length
        self._check(place)
        outcome = self._outcome(place)
        terminated, truncated = self._ends(place, outcome)
        obs, actions = self._observations(place), self._numbers(place, self._action)
        rewards: Column = SuccessReward(n, n - 1 if outcome == OUTCOME_SUCCESS else -1)
        if REWARD in self._layout.features:
            rewards = self._numbers(place, self._layout.features[REWARD])
        tasks = self._whole(place, "task_index")
        for number in np.unique(tasks).tolist():
            if number not in self._layout.tasks:
                raise PoolDamaged(f"{place.data}: task_index {number} of episode {place.index} is none of meta's tasks")
        cuts = [0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist(), n]
        for start, stop in itertools.pairwise(cuts):
            flags, task = slice(start, stop), int(tasks[start])
            ends = terminated[flags], truncated[flags]
            yield Episode(obs, actions, rewards, start, stop, *ends, None, outcome, closed=stop < n, task=task)

    def _check(self, place: Place) -> None:
        """Refuse rows that are not those of the episode, or are not a period apart."""
        episode, frame = self._whole(place, "episode_index"), self._whole(place, "frame_index")
        time = self._numbers(place, Feature("timestamp", "float32", ())).read(0, place.length)
        if (episode != place.index).any() or (frame != np.arange(place.length)).any():
            raise PoolDamaged(
                f"{place.data}: rows from {place.row} on are not the {place.length} frames of episode {place.index} that meta"
                " says"
            )
        off = np.abs(time - frame / self._layout.fps) * self._layout.fps
        if not (off < 0.5).all():
            bad = int(np.argmin(off < 0.5))
            raise PoolDamaged(
                f"{place.data}: timestamp {time[bad]} of frame {bad} of episode {place.index}, at {self._layout.fps:g} a second"
            )

    def _outcome(self, place: Place) -> int:
        if self._success not in self._layout.features:
            return self._options.outcome_of(None)
        flags = flags_of(self._numbers(place, self._layout.features[self._success]))
        return self._options.outcome_of(bool(flags[-1]))

    def _ends(self, place: Place, outcome: int) -> tuple[Array, Array]:
        none = np.zeros(place.length, bool)
        if DONE not in self._layout.features:
            last = none.copy()
            last[-1] = True
            return (last, none) if outcome == OUTCOME_SUCCESS else (none, last)
        done = flags_of(self._numbers(place, self._layout.features[DONE]))
        if TRUNCATED in self._layout.features:
            truncated = flags_of(self._numbers(place, self._layout.features[TRUNCATED]))
            return done & ~truncated, truncated
        return (done, none) if self._options.dones == "terminated" else (none, done)

    def _observations(self, place: Place) -> dict[str, Column]:
        return {key: self._observation(place, f) for key, f in self.keys.items()}

    def _observation(self, place: Place, f: Feature) -> Column:
        if f.dtype == "video":
            path, seconds = place.videos[f.name]
            return Part(self._video(f, path), round(seconds * self._layout.fps), place.length)
        if f.dtype == "image":
            file, row = self._file(place), place.row
            read = partial(_files, file, f.name, row)
            return Pictures(f"{file.path}: {f.name}", place.length, read, f.shape, ("PNG", "JPEG"))
        return self._numbers(place, f)

    def _numbers(self, place: Place, f: Feature) -> Column:
        return Rows(self._file(place), f, place.row, place.length)

    def _whole(self, place: Place, name: str) -> Array:
        return self._numbers(place, Feature(name, "int64", ())).read(0, place.length)

    def _file(self, place: Place) -> Parquet:
        """The file of an episode; one is open at a time."""
        if self._data is None or self._data.path != place.data:
            if self._data is not None:
                self._data.close()
            self._data = Parquet(place.data)
        return self._data

    def _video(self, f: Feature, path: Path) -> Video:
        """The video of an episode; one a camera is open at a time."""
        open_now = self._videos.get(f.name)
        if open_now is None or open_now.path != path:
            if open_now is not None:
                self._videos.pop(f.name).close()
            self._videos[f.name] = Video(path, f.shape, self._layout.fps)
        return self._videos[f.name]


class Rows:
    """Rows ``[first, first + count)`` of a Parquet column as a column."""

    def __init__(self, file: Parquet, f: Feature, first: int, count: int) -> None:
        self._column = file.numbers(f.name, np.dtype(f.dtype), f.shape)
        self.name, self.dtype, self.shape = self._column.name, self._column.dtype, self._column.shape
        self._first, self._count = first, count

    def __len__(self) -> int:
        return self._count

    def read(self, start: int, stop: int) -> Array:
        """Rows ``[start, stop)`` of the part."""
        return self._column.read(self._first + start, self._first + stop)


class SuccessReward:
    """Rewards where nobody says any: 1 in row ``at``, where a success ends, and 0 elsewhere."""

    dtype = np.dtype(np.float32)

    def __init__(self, rows: int, at: int) -> None:
        self.name, self.shape = "reward", tuple[int, ...]()
        self._rows, self._at = rows, at

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> Array:
        """Rows ``[start, stop)``."""
        out: Array = (np.arange(start, stop) == self._at).astype(self.dtype)
        return out


def _is_read(f: Feature) -> bool:
    return f.dtype in CAMERAS or f.dtype in STORED_AS


def _files(file: Parquet, name: str, row: int, start: int, stop: int) -> list[bytes]:
    return file.files(name, row + start, row + stop)
