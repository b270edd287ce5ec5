"""``headrace pool export`` and ``headrace pool import``: where the rows lie, progress, and what to say at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.actor.config import WindowConfig
from headrace.buffer.partial import Partial
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.shards import ShardReader, is_shards
from headrace.buffer.transfer import Begin, export_pool, import_pool, pool_for
from headrace.buffer.view import PoolView
from headrace.common.config import load
from headrace.common.errors import BlockRefused, ConfigError
from headrace.common.specs import fingerprint
from headrace.launch.counting import Counting
from headrace.launch.demo_load import (
    Found,
    Loaded,
    digests_of,
    is_export,
    load_demonstrations,
    look_through,
    name_of,
    open_demonstrations,
)
from headrace.launch.demos import Demonstrations, ReadOptions, spec_for
from headrace.launch.interrupt import Interrupt
from headrace.launch.lerobot_options import LeRobotOptions
from headrace.launch.pools import find_pool, open_pool, own_pool


def export_command(target: Path, out: Path, given: Mapping[str, Any], *, flat: bool) -> int:
    """Write the live rows of a pool, a snapshot or a run to ``out``; ``given`` are options of LeRobotDatasets."""
    _refuse("with --format lerobot alone", {f"--{name.replace('_', '-')}": value for name, value in given.items()})
    try:
        with open_pool(find_pool(target)) as pool, Counting("exporting") as counting:
            done = export_pool(pool, out, flat=flat, progress=counting)
    except KeyboardInterrupt:
        _say(f"stopped: {out} was not made")
        raise
    gone = f"; {done.gone} were discarded, or evicted before they could be read" if done.gone else ""
    print(f"{out}: {done.rows} rows in {done.shards} file{'s' * (done.shards != 1)}{gone}")
    return 0


def export_lerobot_command(target: Path, out: Path, given: Mapping[str, Any], *, flat: bool) -> int:
    """Write the live steps of a pool, snapshot, run or export to ``out`` as a LeRobotDataset; ``given`` are its options."""
    from headrace.launch.lerobot_export import export_lerobot

    _refuse("a LeRobotDataset has each frame once", {"--flat": flat or None})
    options = LeRobotOptions(**{name: value for name, value in given.items() if value is not None})
    try:
        with rows_of(target, out.with_name(f"{out.name}.rows")) as pool, Counting("exporting", passes=3) as counting:
            done = export_lerobot(pool, out, options, counting)
    except KeyboardInterrupt:
        _say(f"stopped: {out} was not made")
        raise
    print(f"{out}: {done.frames} frames in {done.episodes} episode{'s' * (done.episodes != 1)}")
    lines = [
        (done.late, "episodes begin in the middle: their earlier rows are gone"),
        (done.open, "episodes have no end: they ran still, or their later rows are gone"),
        (done.unknown, "episodes have no outcome"),
    ]
    for name, (mean, worst) in (done.error or {}).items():
        print(f"  {name}: the video is off by {mean:.2f} levels of 255 on the mean, by {worst:.2f} in its worst frame")
    for count, what in lines:
        if count:
            print(f"  {count} {what}")
    return 0


@contextlib.contextmanager
def rows_of(target: Path, place: Path) -> Iterator[PoolView | SACReplayPool]:
    """The pool that ``target`` names; of an export one that is made at ``place``, as long as it is needed."""
    if not is_shards(target):
        with open_pool(find_pool(target)) as pool:
            yield pool
        return
    reader = ShardReader(target)
    partial = Partial(place)
    try:
        with pool_for(reader, partial.path, reader.rows) as pool, Counting("reading", passes=2) as counting:
            import_pool(target, pool, progress=counting)
            yield pool
    finally:
        partial.discard()


def import_command(
    source: Path,
    target: Path,
    options: ReadOptions,
    *,
    capacity: int | None = None,
    n_step: int | None = None,
    chunk: int | None = None,
    stack: int | None = None,
    actor: str | None = None,
    evict: bool = False,
) -> int:
    """Append the rows of ``source`` to the pool at ``target``, or make that pool.

    Args:
        source: an export, or demonstrations in one of the formats of ``demo_load.KNOWN``.
        target: a pool, a run, or where a new pool is to be.
        options: how demonstrations are understood.
        capacity: of a new pool; default: the rows that the source makes.
        n_step: window of a new pool for demonstrations; default 1.
        chunk: env steps of a decision in a new pool for demonstrations; default 1.
        stack: frames an observation of a new pool for demonstrations; default 1.
        actor: whose rows demonstrations become; default: the name of the source.
        evict: whether rows may be evicted for those of the source.
    """
    window = {"--n-step": n_step, "--chunk": chunk, "--stack": stack}
    sizes = {"--capacity": capacity, **window}
    if is_export(source):
        _refuse("an export says that itself", {**_given(options), **window, "--actor": actor})
        return _import_export(source, target, sizes, evict)
    given = {"n_step": n_step, "chunk": chunk, "stack": stack}
    rows = load(WindowConfig, {name: value for name, value in given.items() if value is not None}, "window")
    demos = open_demonstrations(source, options)
    found = Found()

    def new_pool(path: Path, counting: Counting) -> SACReplayPool:
        nonlocal found
        spec = spec_for(demos, options, None, rows)
        found = look_through(demos, spec, counting)
        return SACReplayPool(_or(capacity, found.rows), path=path, spec=spec)

    try:
        with _target(target, new_pool, sizes) as (pool, counting):
            spec = spec_for(demos, options, pool.spec, rows)  # refuses what does not fit a pool that was there
            name, known = actor or name_of(source), ""  # of a new pool a kill leaves nothing
            if not found.rows:
                found = look_through(demos, spec, counting)
                known = fingerprint({"files": digests_of(source), "options": asdict(options), "actor": name})
            begin = _room(pool, evict)
            try:
                done = load_demonstrations(demos, pool, name, found, progress=counting, begin=begin, digest=known)
            except BlockRefused as error:  # of the name; the rows are sound
                raise ConfigError(f"--actor: {error}") from error
            size = pool.size
    finally:
        demos.close()
    _report_demos(target, demos, found, done, size)
    done.underway.end()
    return 0


def _import_export(source: Path, target: Path, sizes: Mapping[str, int | None], evict: bool) -> int:
    reader = ShardReader(source)

    def new_pool(path: Path, counting: Counting) -> SACReplayPool:
        return pool_for(reader, path, _or(sizes["--capacity"], reader.rows))

    there = _is_there(target)  # of a new pool a kill leaves nothing
    with _target(target, new_pool, sizes) as (pool, counting):
        result = import_pool(source, pool, progress=counting, begin=_room(pool, evict), end=not there)
        size = pool.size
    print(f"{target}: {result.rows} rows entered, {size} are live")
    for old, new in result.renamed.items():
        print(f"  actor {old} is {new} here: rows of {old} with the same numbers are in the pool already")
    _report_room(result.before, result.evicted)
    if there:
        result.underway.end()
    return 0


def _is_there(target: Path) -> bool:
    return (target / "config.yaml").is_file() or (target.is_dir() and any(target.iterdir()))


def _room(pool: SACReplayPool, evict: bool) -> Begin:
    fix = "to keep all, import into a new pool with a --capacity of {} or more"
    return lambda rows: require_room(pool, rows, evict, fix)


def require_room(pool: SACReplayPool, rows: int, evict: bool, fix: str) -> None:
    """Refuse that so many rows enter where they would evict others, and say how many these are where ``evict`` permits it.

    Raises:
        ConfigError: it does not; ``fix`` says what to do with a number of rows.
    """
    capacity, held = pool.config.capacity, pool.head - pool.tail
    over = max(0, held + rows - capacity)
    own = max(0, rows - capacity)
    if not over:
        return
    what = f"{over} row{'s' * (over != 1)} will be evicted, the oldest first" + (
        f", {own} of them of the import itself" if own else ""
    )
    if not evict:
        raise ConfigError(
            f"{rows} rows are to enter a pool with a capacity of {capacity} that holds {held}: {what}. --evict permits it;"
            f" {fix.format(held + rows)}"
        )
    _say(what)


def _or(given: int | None, default: int) -> int:
    """What was given, also where that is 0 and will be refused by name."""
    return default if given is None else given


Target = tuple[SACReplayPool, Counting]


@contextlib.contextmanager
def _target(
    target: Path, new_pool: Callable[[Path, Counting], SACReplayPool], sizes: Mapping[str, int | None]
) -> Iterator[Target]:
    """The pool to append to, and who is told how far that is; a new one appears only when the body has ended well."""
    if _is_there(target):
        place = find_pool(target)
        _refuse_run(target, place)
        _refuse(f"{place} exists, and they are for a new pool", sizes)
        with _old(place) as pair:
            yield pair
        return
    partial = Partial(target)
    try:
        with Counting("importing", passes=2) as counting, new_pool(partial.path, counting) as pool:
            yield pool, counting
        partial.publish()
    except BaseException as error:
        partial.discard()
        if isinstance(error, KeyboardInterrupt):
            _say(f"stopped: {target} was not made")
        raise


@contextlib.contextmanager
def _old(place: Path) -> Iterator[Target]:
    """A pool that was there. Ctrl-C is heard before the first row has entered or after the last one: all enter or none."""
    with own_pool(place) as pool, Interrupt() as interrupt:
        before, told = pool.head, False

        def stop() -> bool:
            nonlocal told
            if interrupt.asked and pool.head > before and not told:
                told = True
                _say("\nrows are entering: this ends when all of them are in; once more ends it at once")
            return interrupt.asked and not told

        try:
            with Counting("importing", passes=2, stop=stop) as counting:
                yield pool, counting
        except KeyboardInterrupt:
            _say(f"stopped: {pool.head - before:,} rows have entered {place}; the same import brings in the rest")
            raise


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _given(options: ReadOptions) -> dict[str, object]:
    bounds = {"--obs": options.obs, "--low": options.low, "--high": options.high}
    says = {"--success": options.success, "--outcome": options.outcome, "--reward": options.reward}
    return {**bounds, **says, "--dones": options.dones if options.dones != ReadOptions.dones else None}


def _refuse(why: str, options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value or value == 0]
    if given:
        raise ConfigError(f"{', '.join(given)}: not here; {why}")


def _refuse_run(target: Path, place: Path) -> None:
    """Rows of a run's pool are env steps that it executed, for which updates are owed."""
    if any((directory / "config.yaml").is_file() for directory in (target, place.parent)):
        raise ConfigError(
            f"{target}: the pool of a run holds what that run executed, and updates are owed for it; import into a new pool and"
            " begin a run with it as pool.demos or run.pool_from"
        )


def _report_demos(target: Path, demos: Demonstrations, found: Found, done: Loaded, size: int) -> None:
    known = f", {found.successes} successes, {found.failures} failures" if found.successes or found.failures else ""
    chunks = "" if found.rows == found.steps else f" ({found.steps} env steps)"
    rows = f"{found.rows} rows{chunks} of {found.episodes} episodes{known}"
    print(f"{target}: {rows} entered as actor {done.actor}, {size} are live")
    lines = [
        (found.dropped, "steps were left out: nothing says what came after the last one of an episode"),
        (found.stand_ins, "terminated steps keep their own observation as the next one, which the file does not have"),
        (found.gaps, "episodes were cut: the next observation of a step is not that of the step after it"),
        (found.outside, "steps have an action outside the bounds"),
    ]
    for line in [*demos.notes, *(f"{count} {what}" for count, what in lines if count)]:
        print(f"  {line}")
    _report_room(done.before, done.evicted)


def _report_room(before: int, evicted: int) -> None:
    if before:
        print(f"  {before} of them were in since an earlier import of the same, which did not end")
    if evicted:
        print(f"  {evicted} rows made room, the oldest first")
