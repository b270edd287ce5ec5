"""``headrace pool``: sizes of a pool, or its rows one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.buffer import generations, manifest, snapshot
from headrace.buffer.backups import wait_for
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.query import Observer
from headrace.buffer.underway import unfinished
from headrace.buffer.view import PoolView
from headrace.common.errors import ConfigError, PoolError
from headrace.launch.config import RunConfig, read_config
from headrace.launch.counting import Counting
from headrace.launch.credentials import network_of
from headrace.launch.rundir import RunDir

DEADLINE_S = 5.0
STALLED_S = 60.0
COLUMNS = ("id", "actor", "stream", "seq", "episode", "t", "discarded", "digest")


def find_pool(target: Path) -> Path:
    """The pool directory that TARGET names: itself, or the pool of a run.

    Raises:
        PoolError: there is none.
    """
    places = [target]
    if (target / "config.yaml").is_file():
        run = RunDir(target)
        # Read without checking: a pool outlives options that a later version no longer knows.
        section = read_config(run.config).get("run") or {}
        elsewhere = section.get("pool_dir", "") if isinstance(section, dict) else section
        if not isinstance(elsewhere, str):
            raise PoolError(f"{run.config}: run.pool_dir: expected a path, got {elsewhere!r}")
        places = [run.pool_dir(elsewhere), run.pool]
    for place in places:
        if generations.is_pool(place) or snapshot.is_snapshot(place):
            return place
    looked = f"looked for {manifest.NAME} in {', '.join(map(str, places))}" if target.exists() else "it does not exist"
    raise PoolError(f"{target}: no pool here ({looked})")


def open_pool(place: Path) -> PoolView | SACReplayPool:
    """A pool, whoever owns it and without disturbing it, or a snapshot of one.

    Raises:
        PoolDamaged: a file is not what was written.
    """
    return PoolView(place) if generations.is_pool(place) else _ring_of(place)


def _ring_of(place: Path) -> SACReplayPool:
    """The rows of the newest snapshot in ``place``, without the demonstrations that were beside them: it only names these."""
    found = snapshot.read(place)
    if found is None:
        raise PoolError(f"{place}: there is no snapshot")
    pool = SACReplayPool.like(found[0])
    pool.set_state({**found[0], "demos": None, "arrays": found[1]})
    return pool


def own_pool(place: Path) -> SACReplayPool:
    """The pool in the directory ``place``, with its own sizes, as its owner.

    Raises:
        PoolError: only snapshots lie there, which nobody can own.
        PoolLocked: another process owns it now.
        PoolDamaged: a file is not what was written.
    """
    found = generations.read(place)
    if found is None:
        raise PoolError(
            f"{place}: holds snapshots and no pool; to make one: headrace pool export {place} SHARDS, then headrace pool import"
            " SHARDS POOL"
        )
    return SACReplayPool(int(found[0]["config"]["capacity"]), path=place)


def find_past(config: RunConfig) -> Path | None:
    """The pool directory that ``run.pool_from`` names; none when it is empty.

    Raises:
        ConfigError: there is no pool, or something else.
    """
    if not config.run.pool_from:
        return None
    try:
        place = find_pool(Path(config.run.pool_from).expanduser())
        if generations.is_pool(place):
            generations.read(place)  # an export looks like a pool until it is read
        return place
    except PoolError as error:
        raise ConfigError(f"run.pool_from: {error}") from error


def open_past(config: RunConfig, place: Path) -> SACReplayPool:
    """The pool at ``place``, which :func:`find_past` found.

    Raises:
        ConfigError: it holds fewer rows than the batches of the offline phase need.
        PoolLocked: another process owns it now.
        PoolDamaged: a file is not what was written.
    """
    past = own_pool(place) if generations.is_pool(place) else _ring_of(place)
    alone = config.pacing.offline_updates and not config.pool.demos
    if alone and past.size < config.learner.batch_size:
        rows = past.size
        past.close()
        raise ConfigError(
            f"run.pool_from: {config.run.pool_from} holds {rows} rows, too few for the offline batches of"
            f" learner.batch_size {config.learner.batch_size}; nearest valid: learner.batch_size {rows}"
        )
    return past


def dump_pool(target: Path, *, as_json: bool) -> int:
    """Print every live row, also discarded ones, oldest first."""
    with open_pool(find_pool(target)) as pool:
        if not as_json:
            print("\t".join(COLUMNS))
        for row in pool.dump():
            print(json.dumps(row) if as_json else "\t".join(str(row[name]) for name in COLUMNS))
    return 0


def show_info(target: Path, *, as_json: bool) -> int:
    """Print sizes and counters."""
    place = find_pool(target)
    with open_pool(place) as pool:
        facts: dict[str, Any] = {**pool.info(), **pool.counters()}
    waiting = unfinished(place)
    if waiting:  # the same import once more finishes each
        facts["unfinished_imports"] = waiting
    print(json.dumps(facts) if as_json else "\n".join(f"{name:<18}{value}" for name, value in facts.items()))
    return 0


def take_snapshot(target: Path, *, as_json: bool) -> int:
    """Have the buffer of a run write a snapshot, and wait for it; a pool that nobody owns is opened for it.

    Raises:
        PoolError: it was not written; says why.
    """
    run = RunDir(target)

    with Counting("writing", unit="MiB", size=1 << 20) as counting:
        where = _ask_for_snapshot(run, counting) if run.endpoint.exists() else _save_snapshot(run, target, counting)
    print(json.dumps({"directory": where}) if as_json else where)
    return 0


def _ask_for_snapshot(run: RunDir, counting: Counting) -> str:
    observer = Observer(run.endpoint.read_text().strip(), network_of(str(run.path)))
    try:
        number = int(observer.ask("snapshot", DEADLINE_S)["number"])
        return str(wait_for(lambda: dict(observer.status(DEADLINE_S)["snapshots"]), number, STALLED_S, counting)["directory"])
    finally:
        observer.close()


def _save_snapshot(run: RunDir, target: Path, counting: Counting) -> str:
    with own_pool(find_pool(target)) as pool:
        pool.save(run.snapshots, counting, keep=pool.config.snapshot_keep)
    return str(run.snapshots)
