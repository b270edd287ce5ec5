"""robomimic's HDF5 layout: ``data/demo_<i>/{obs,next_obs}/<key>, actions, rewards, dones``.

The file does not say whether a ``done`` ends the task or the recording, so it is asked for and told. The bounds of actions
are not in it either. An attribute ``success`` of a demo is its outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headrace.common.errors import PoolDamaged
from headrace.launch.demos import Demonstrations, Episode, ReadOptions, flags_of, obs_spec, wanted_obs
from headrace.launch.hdf5 import Column, Hdf5

_DEMO = re.compile(r"^demo_(\d{1,9})$")


class Robomimic(Demonstrations):
    """One file.

    Raises:
        PoolDamaged: naming the dataset that is missing or of another size.
    """

    format = "robomimic"

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path, self._file, self._options = path, Hdf5(path), options
        try:
            found = [name for name in self._file.members("data") if _DEMO.match(name)]
            self._demos = sorted(found, key=lambda name: int(name[5:]))
            if not self._demos:
                raise self._file.refusal("data", "no demo_<i> in it")
            first = f"data/{self._demos[0]}"
            self._keys = wanted_obs(self._file.leaves(f"{first}/obs"), options, f"{first}/obs")
            columns = {key: self._file.column(f"{first}/obs/{name}") for key, name in self._keys.items()}
            self.obs = tuple(obs_spec(key, column) for key, column in columns.items())
            self._shapes = {key: column.shape for key, column in columns.items()}
            actions = self._file.column(f"{first}/actions")
            if len(actions.shape) != 1:
                raise self._file.refusal(f"{first}/actions", f"{actions.shape} a row, expected (A,)")
            (self.action_dim,) = actions.shape
            self.steps = sum(len(self._actions(demo)) for demo in self._demos)
        except BaseException:
            self.close()
            raise
        other = "truncated" if options.dones == "terminated" else "terminated"
        self.notes = (f"a done is read as {options.dones}; --dones {other} reads it the other way",)

    def episodes(self) -> Iterator[Episode]:
        """One a demo; a done inside it ends an episode, too."""
        for demo in self._demos:
            actions = self._actions(demo)
            n, base = len(actions), f"data/{demo}"
            dones = flags_of(self._file.column(f"{base}/dones", rows=n))
            none = dones & False
            terminated, truncated = (dones, none) if self._options.dones == "terminated" else (none, dones)
            obs = self._observations(f"{base}/obs", n)
            after = self._observations(f"{base}/next_obs", n) if self._file.has(f"{base}/next_obs") else None
            rewards = self._file.column(f"{base}/rewards", rows=n)
            yield Episode(obs, actions, rewards, 0, n, terminated, truncated, after, self._outcome(base, n))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _actions(self, demo: str) -> Column:
        return self._file.column(f"data/{demo}/actions", shape=(self.action_dim,))

    def _observations(self, base: str, n: int) -> dict[str, Column]:
        return {key: self._file.column(f"{base}/{name}", rows=n, shape=self._shapes[key]) for key, name in self._keys.items()}

    def _outcome(self, base: str, n: int) -> int:
        if self._options.success:
            return self._options.outcome_of(bool(flags_of(self._file.column(f"{base}/{self._options.success}", rows=n))[-1]))
        flag = self._file.attribute(base, "success")
        if flag is not None and flag not in (0, 1):
            raise PoolDamaged(f"{self._file.path}: {base}: attribute success is {flag!r}, expected 0 or 1")
        return self._options.outcome_of(None if flag is None else bool(flag))
