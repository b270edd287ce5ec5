"""Minari data sets in their HDF5 form: ``metadata.json`` with the spaces, ``main_data.hdf5`` with ``episode_<i>`` groups.

Read without Minari's own loader, which may import the environment that the metadata names. An episode holds one observation
more than actions, so the true last one is there. ``infos/success`` or ``infos/is_success`` at its end is its outcome.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.errors import PoolDamaged, SpecError
from headrace.launch.demos import (
    Bounds,
    Column,
    Demonstrations,
    Episode,
    ReadOptions,
    flags_of,
    obs_spec,
    wanted_obs,
)
from headrace.launch.hdf5 import Hdf5
from headrace.launch.pictures import Pictures

Array = np.ndarray[Any, Any]
METADATA, DATA = "metadata.json", "main_data.hdf5"
MAX_METADATA_BYTES = 64 << 20
_EPISODE = re.compile(r"^episode_(\d{1,9})$")
_SUCCESS = ("infos/success", "infos/is_success")


def data_directory(source: Path) -> Path | None:
    """Where the two files of a data set lie, in ``source`` or in its ``data``; None when it is none."""
    return next((place for place in (source, source / "data") if (place / METADATA).is_file()), None)


class Minari(Demonstrations):
    """One file.

    Raises:
        PoolDamaged: naming the file, the space or the dataset that is missing or of another size.
        SpecError: actions or observations that are no arrays of numbers.
    """

    format = "Minari"

    def __init__(self, directory: Path, options: ReadOptions) -> None:
        meta = _metadata(directory / METADATA)
        if meta.get("data_format", "hdf5") != "hdf5":
            raise SpecError(f"{directory / METADATA}: data_format {meta['data_format']!r}; only Minari's hdf5 form is read")
        self.path, self._options, self._file = directory, options, Hdf5(directory / DATA)
        try:
            self._open(directory / METADATA, meta)
        except BaseException:
            self.close()
            raise

    def _open(self, where: Path, meta: Mapping[str, Any]) -> None:
        file = self._file
        names = [name for name in file.members("") if _EPISODE.match(name)]
        self._episodes = sorted(names, key=lambda name: int(name[8:]))
        if not self._episodes:
            raise file.refusal("", "no episode_<i> in it")
        first = self._episodes[0]
        spaces = _space(where, meta, "observation_space")
        leaves = dict(_leaves(spaces, "")) if spaces else {name: {} for name in file.leaves(f"{first}/observations")}
        self._keys = wanted_obs(sorted(leaves), self._options, f"{first}/observations")
        jpeg = meta.get("jpeg_encoding", True)
        self._images = {key: _shape(leaves[name]) for key, name in self._keys.items() if jpeg and _is_image(leaves[name])}
        columns = self._observations(first, None)
        self.obs = tuple(obs_spec(key, column) for key, column in columns.items())
        for key, name in self._keys.items():
            declared = _shape(leaves[name]) if leaves[name] else columns[key].shape
            if declared != columns[key].shape:
                raise PoolDamaged(f"{columns[key].name}: {columns[key].shape} a row, but the observation_space says {declared}")
        actions = file.column(f"{first}/actions")
        if len(actions.shape) != 1:
            raise SpecError(f"{actions.name}: {actions.shape} a row, expected (A,)")
        (self.action_dim,) = self._action_shape = actions.shape
        self.bounds = _bounds(where, _space(where, meta, "action_space"), self.action_dim)
        self.steps = sum(len(file.column(f"{name}/actions")) for name in self._episodes)

    def episodes(self) -> Iterator[Episode]:
        """In the order of their numbers."""
        for name in self._episodes:
            actions = self._file.column(f"{name}/actions", shape=self._action_shape)
            n = len(actions)
            rewards = self._file.column(f"{name}/rewards", rows=n)
            ends = [flags_of(self._file.column(f"{name}/{flag}", rows=n)) for flag in ("terminations", "truncations")]
            obs = self._observations(name, n + 1)
            yield Episode(obs, actions, rewards, 0, n, ends[0], ends[1], None, self._outcome(name, n), closed=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _observations(self, episode: str, rows: int | None) -> dict[str, Column]:
        out: dict[str, Column] = {}
        for key, name in self._keys.items():
            path = f"{episode}/observations/{name}" if name else f"{episode}/observations"
            shape = self._images.get(key)
            if shape is not None and self._file.is_coded(path):
                coded = self._file.column(path, rows=rows, coded=True)
                out[key] = Pictures(coded.name, len(coded), partial(_files, coded), shape, ("JPEG",))
            else:
                out[key] = self._file.column(path, rows=rows, shape=self._shape_of(key))
        return out

    def _shape_of(self, key: str) -> tuple[int, ...] | None:
        return next((o.shape for o in getattr(self, "obs", ()) if o.key == key), None)

    def _outcome(self, episode: str, n: int) -> int:
        chosen = self._options.success
        names = (chosen,) if chosen else tuple(name for name in _SUCCESS if self._file.has(f"{episode}/{name}"))
        if not names:
            return self._options.outcome_of(None)
        column = self._file.column(f"{episode}/{names[0]}")
        if len(column) not in (n, n + 1):
            raise PoolDamaged(f"{column.name}: {len(column)} rows, expected {n} or {n + 1}")
        return self._options.outcome_of(bool(flags_of(column)[-1]))


def _files(coded: Column, start: int, stop: int) -> list[bytes]:
    return [np.asarray(data, np.uint8).tobytes() for data in coded.read(start, stop)]


def _metadata(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_METADATA_BYTES:
            raise PoolDamaged(f"{path}: {path.stat().st_size} bytes, at most {MAX_METADATA_BYTES} are read")
        meta = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PoolDamaged(f"{path}: {type(error).__name__} {str(error)[:200]}") from error
    if not isinstance(meta, dict):
        raise PoolDamaged(f"{path}: a {type(meta).__name__}, expected an object")
    return meta


def _space(where: Path, meta: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """A space as Minari writes it, JSON inside JSON; None when only the environment would say it."""
    if name not in meta:
        return None
    try:
        space = json.loads(meta[name])
        _check_space(space)
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise PoolDamaged(f"{where}: {name}: not a space ({type(error).__name__} {str(error)[:100]})") from error
    return dict(space)


def _check_space(space: Mapping[str, Any]) -> None:
    if space["type"] == "Dict":
        for child in space["subspaces"].values():
            _check_space(child)
    elif space["type"] == "Box":
        _shape(space)


def _leaves(space: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if space["type"] == "Dict":
        for name, child in space["subspaces"].items():
            yield from _leaves(child, f"{path}/{name}" if path else str(name))
    elif space["type"] in ("Box", "Discrete", "MultiBinary", "MultiDiscrete"):
        yield path, space if space["type"] == "Box" else {}
    else:
        raise SpecError(f"observation_space: {path or 'it'} is a {space['type']}, which has no fixed array")


def _shape(box: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(n) for n in box["shape"])


def _is_image(box: Mapping[str, Any]) -> bool:
    """Whether Minari may have kept this space as JPEG files."""
    return bool(box) and box["dtype"] == "uint8" and len(box["shape"]) in (2, 3) and min(box["shape"][:2]) >= 32


def _bounds(where: Path, space: Mapping[str, Any] | None, dim: int) -> Bounds | None:
    """Bounds of the action space where they are finite."""
    if space is None:
        return None
    if space["type"] != "Box":
        raise SpecError(f"{where}: action_space is a {space['type']}; soft actor-critic needs a Box of floats")
    sides = [np.ravel(np.asarray(space[side], np.float64)) for side in ("low", "high")]
    if any(len(side) != dim for side in sides):
        raise PoolDamaged(f"{where}: action_space has {len(sides[0])} low and {len(sides[1])} high bounds for {dim} dimensions")
    if not np.isfinite(sides).all():
        return None
    return tuple(sides[0].tolist()), tuple(sides[1].tolist())
