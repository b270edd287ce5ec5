"""D4RL's flat HDF5 layout: ``observations, actions, rewards, terminals, timeouts`` and, in some files, ``next_observations``.

Episodes end where a terminal or a timeout says so, and at the end of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headrace.launch.demos import Demonstrations, Episode, ReadOptions, flags_of, obs_spec, wanted_obs
from headrace.launch.hdf5 import Column, Hdf5


class D4rl(Demonstrations):
    """One file.

    Raises:
        PoolDamaged: naming the dataset that is missing or of another size.
    """

    format = "D4RL"

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path, self._file, self._options = path, Hdf5(path), options
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        file, options = self._file, self._options
        self._actions = file.column("actions")
        self.steps = n = len(self._actions)
        if len(self._actions.shape) != 1 or not n:
            raise file.refusal("actions", f"{(n, *self._actions.shape)}, expected (n, A)")
        (self.action_dim,) = self._actions.shape
        keys = wanted_obs(file.leaves("observations"), options, "observations")
        self._obs = {key: file.column(_join("observations", name), rows=n) for key, name in keys.items()}
        self.obs = tuple(obs_spec(key, column) for key, column in self._obs.items())
        self._next: dict[str, Column] | None = None
        if file.has("next_observations"):
            shapes = {key: column.shape for key, column in self._obs.items()}
            self._next = {
                key: file.column(_join("next_observations", name), rows=n, shape=shapes[key]) for key, name in keys.items()
            }
        self._rewards = file.column("rewards", rows=n)
        self._terminals, self._timeouts = (flags_of(file.column(name, rows=n)) for name in ("terminals", "timeouts"))
        self._success = flags_of(file.column(options.success, rows=n)) if options.success else None

    def episodes(self) -> Iterator[Episode]:
        """In the order of the file."""
        ends = (np.flatnonzero(self._terminals | self._timeouts) + 1).tolist()
        if not ends or ends[-1] < self.steps:
            ends.append(self.steps)
        start = 0
        for stop in ends:
            outcome = self._options.outcome_of(None if self._success is None else bool(self._success[stop - 1]))
            flags = self._terminals[start:stop], self._timeouts[start:stop]
            yield Episode(self._obs, self._actions, self._rewards, start, stop, *flags, self._next, outcome)
            start = stop

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if name else root
