"""Demonstrations of a run: the rows of what ``pool.demos`` names become the pinned segment of the run's pool, once.

At each later start the files are only looked at, to see whether they are still the same ones. Where they are gone, what was
pinned stays in use.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from headrace.actor.config import WindowConfig
from headrace.buffer.config import PoolConfig
from headrace.buffer.pinned import DEMOS, Origin, Pinned, require_same
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.shards import ShardReader
from headrace.buffer.snapshot import is_snapshot
from headrace.buffer.transfer import import_pool
from headrace.common.errors import ConfigError, NoSpace, PoolDamaged, PoolError, SpecError
from headrace.common.specs import TransitionSpec, fingerprint
from headrace.launch.config import RunConfig
from headrace.launch.demo_load import (
    digests_of,
    is_export,
    load_demonstrations,
    look_through,
    name_of,
    open_demonstrations,
    spec_of,
)
from headrace.launch.demos import Demonstrations, ReadOptions, spec_for

LOG = logging.getLogger(__name__)


def find_demos(config: RunConfig) -> list[Path]:
    """The files and directories that ``pool.demos`` names.

    Raises:
        ConfigError: one is not there.
    """
    sources = [Path(place).expanduser() for place in config.pool.demos]
    for source in sources:
        if not source.exists():
            raise ConfigError(f"pool.demos: {source} does not exist")
    return sources


def pin_demos(config: RunConfig, pool_dir: Path, like: TransitionSpec | None = None) -> Pinned:
    """The demonstrations of the pool in ``pool_dir``, put there if they are not there yet.

    Args:
        config: of the run, with ``pool.demos``; its window is that of the rows.
        pool_dir: owned by the caller.
        like: spec of the run's rows where it is known; it says bounds of actions that a file does not say.

    Raises:
        ConfigError: a file is missing, is none of what is read, or does not say the bounds; they are other files than those
            that are pinned (names both); or too few rows for the offline phase.
        SpecError: the rows are of different specs.
        PoolDamaged: names the file.
        NoSpace: they do not fit.
    """
    folder = pool_dir / DEMOS
    kept = Pinned.read(folder) if is_snapshot(folder) else None
    try:
        sources = find_demos(config)
    except ConfigError as error:
        if kept is None:
            raise
        LOG.warning("%s; the rows that were pinned from it stay in use", error)
        return kept
    origin = Origin(_digest(sources), tuple(map(str, sources)))
    if kept is None:
        kept = _pin(config, sources, folder, origin, like)
    require_same(str(pool_dir), kept.origin, origin)
    batch, rows = config.learner.batch_size, len(kept)
    alone = config.pacing.offline_updates and not config.run.pool_from and not config.sampling.sets
    if alone and rows < batch:
        raise ConfigError(
            f"pool.demos: {rows} rows, too few for the offline batches of learner.batch_size {batch}; nearest valid:"
            f" learner.batch_size {rows}"
        )
    return kept


class _Source(Protocol):
    """One export or data set."""

    rows: int  # at most
    actors: int

    def spec(self, like: TransitionSpec | None) -> TransitionSpec:
        """Spec of its rows, the same as ``like`` where that is given.

        Raises:
            SpecError: it is another; names the fields.
        """

    def load(self, pool: SACReplayPool) -> None:
        """Append its rows to ``pool``."""


class _Export:
    def __init__(self, path: Path) -> None:
        self._path, self._reader = path, ShardReader(path)
        self.rows, self.actors = self._reader.rows, len(self._reader.actors)

    def spec(self, like: TransitionSpec | None) -> TransitionSpec:
        different = [] if like is None else like.differences(self._reader.spec)
        if different:
            raise SpecError(f"the export does not fit the pool (the pool's first): {'; '.join(different)}")
        return self._reader.spec

    def load(self, pool: SACReplayPool) -> None:
        import_pool(self._path, pool)


class _Recorded:
    def __init__(self, path: Path, demos: Demonstrations, window: WindowConfig) -> None:
        self._path, self._demos, self._window = path, demos, window
        self.rows, self.actors = demos.steps, 1

    def spec(self, like: TransitionSpec | None) -> TransitionSpec:
        try:
            return spec_for(self._demos, ReadOptions(), like, self._window)
        except ConfigError as error:
            raise ConfigError(
                f"pool.demos: {self._path}: {error}. Or name an export: headrace pool import {self._path} POOL --low ..."
                " --high ..., then headrace pool export POOL DIRECTORY"
            ) from error

    def load(self, pool: SACReplayPool) -> None:
        load_demonstrations(self._demos, pool, name_of(self._path), look_through(self._demos, spec_of(pool)))


@contextlib.contextmanager
def _open(path: Path, config: RunConfig) -> Iterator[_Source]:
    if is_export(path):
        yield _Export(path)
        return
    try:
        demos = open_demonstrations(path, ReadOptions(reward=config.env.reward))
    except (PoolDamaged, NoSpace):
        raise
    except PoolError as error:
        raise ConfigError(f"pool.demos: {error}") from error
    with contextlib.closing(demos):
        yield _Recorded(path, demos, config.window)


def _pin(config: RunConfig, paths: list[Path], folder: Path, origin: Origin, like: TransitionSpec | None) -> Pinned:
    """Load all of ``paths`` into a pool of their own, and take its rows; a kill leaves nothing that counts."""
    hidden = folder.with_name(f".{DEMOS}.partial")
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        with contextlib.ExitStack() as stack:
            sources = [stack.enter_context(_open(path, config)) for path in paths]
            spec = _common_spec(paths, sources, like)
            sizes = PoolConfig(max_actors=sum(source.actors for source in sources))
            pool = stack.enter_context(
                SACReplayPool(sum(source.rows for source in sources), path=hidden, spec=spec, config=sizes)
            )
            for source in sources:
                source.load(pool)
            return pool.pinned(folder, origin)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _common_spec(paths: list[Path], sources: list[_Source], like: TransitionSpec | None) -> TransitionSpec | None:
    """The one spec of all rows: that of the run where it is known, else that of the first source."""
    spec, whose = like, "" if like is None else "; the pool's is that of the run's env"
    for path, source in zip(paths, sources, strict=True):
        try:
            spec = source.spec(spec)
        except SpecError as error:
            raise SpecError(f"pool.demos: {path}: {error}{whose}") from error
        whose = whose or f"; the pool's is that of {paths[0]}"
    return spec


def _digest(paths: list[Path]) -> str:
    """Of the contents of all, in their order; an export's manifest has the digests of its files."""
    return fingerprint({str(i): digests_of(path.resolve()) for i, path in enumerate(paths)})
