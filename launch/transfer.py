"""``headrace pool export`` and ``headrace pool import``: where the rows lie, progress, and what to say at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headrace.actor.config import WindowConfig
from headrace.buffer.partial import Partial
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.shards import ShardReader
from headrace.buffer.transfer import export_pool, import_pool
from headrace.common.config import load
from headrace.common.errors import ConfigError
from headrace.launch.counting import Counting
from headrace.launch.demo_load import Found, is_export, load_demonstrations, open_demonstrations
from headrace.launch.demos import Demonstrations, ReadOptions, spec_for
from headrace.launch.interrupt import Interrupt
from headrace.launch.pools import find_pool, open_pool, own_pool


def export_command(target: Path, out: Path, *, flat: bool) -> int:
    """Write the live rows of a pool, a snapshot or a run to ``out``."""
    try:
        with open_pool(find_pool(target)) as pool, Counting("exporting") as counting:
            done = export_pool(pool, out, flat=flat, progress=counting)
    except KeyboardInterrupt:
        _say(f"stopped: {out} was not made")
        raise
    gone = f"; {done.gone} were discarded, or evicted before they could be read" if done.gone else ""
    print(f"{out}: {done.rows} rows in {done.shards} file{'s' * (done.shards != 1)}{gone}")
    return 0


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
) -> int:
    """Append the rows of ``source`` to the pool at ``target``, or make that pool.

    Args:
        source: an export, or demonstrations in one of the formats of ``demo_load.KNOWN``.
        target: a pool, a run, or where a new pool is to be.
        options: how demonstrations are understood.
        capacity: of a new pool; default: rows of the source.
        n_step: window of a new pool for demonstrations; default 1.
        chunk: env steps of a decision in a new pool for demonstrations; default 1.
        stack: frames an observation of a new pool for demonstrations; default 1.
        actor: whose rows demonstrations become; default: the name of the source.
    """
    window = {"--n-step": n_step, "--chunk": chunk, "--stack": stack}
    sizes = {"--capacity": capacity, **window}
    if is_export(source):
        _refuse("an export says that itself", {**_given(options), **window, "--actor": actor})
        return _import_export(source, target, sizes)
    given = {"n_step": n_step, "chunk": chunk, "stack": stack}
    rows = load(WindowConfig, {name: value for name, value in given.items() if value is not None}, "window")
    demos = open_demonstrations(source, options)

    def new_pool(path: Path) -> SACReplayPool:
        spec = spec_for(demos, options, None, rows)
        return SACReplayPool(_or(capacity, demos.steps), path=path, spec=spec)

    try:
        with _target(target, new_pool, sizes) as (pool, counting):
            spec_for(demos, options, pool.spec, rows)  # refuses what does not fit a pool that was there
            name, found = load_demonstrations(demos, pool, actor or source.stem, counting)
            size = pool.size
    finally:
        demos.close()
    _report_demos(target, demos, name, found, size)
    return 0


def _import_export(source: Path, target: Path, sizes: Mapping[str, int | None]) -> int:
    reader = ShardReader(source)

    def new_pool(path: Path) -> SACReplayPool:
        return SACReplayPool.like(reader.body, path=path, capacity=_or(sizes["--capacity"], reader.rows))

    with _target(target, new_pool, sizes) as (pool, counting):
        result = import_pool(source, pool, progress=counting)
        size = pool.size
    print(f"{target}: {result.rows} rows entered, {size} are live")
    for old, new in result.renamed.items():
        print(f"  actor {old} is {new} here: rows of {old} with the same numbers are in the pool already")
    if result.evicted:
        print(f"  {result.evicted} rows made room, the oldest first")
    return 0


def _or(given: int | None, default: int) -> int:
    """What was given, also where that is 0 and will be refused by name."""
    return default if given is None else given


Target = tuple[SACReplayPool, Counting]


@contextlib.contextmanager
def _target(target: Path, new_pool: Callable[[Path], SACReplayPool], sizes: Mapping[str, int | None]) -> Iterator[Target]:
    """The pool to append to, and who is told how far that is; a new one appears only when the body has ended well."""
    if (target / "config.yaml").is_file() or (target.is_dir() and any(target.iterdir())):
        place = find_pool(target)
        _refuse_run(target, place)
        _refuse(f"{place} exists, and they are for a new pool", sizes)
        with _old(place) as pair:
            yield pair
        return
    partial = Partial(target)
    try:
        with new_pool(partial.path) as pool, Counting("importing", passes=2) as counting:
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
            _say(f"stopped: {pool.head - before:,} rows have entered {place}")
            raise


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _given(options: ReadOptions) -> dict[str, object]:
    names = {"--obs": options.obs, "--low": options.low, "--high": options.high, "--success": options.success}
    return {**names, "--dones": options.dones if options.dones != ReadOptions.dones else None}


def _refuse(why: str, options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(f"{', '.join(given)}: not here; {why}")


def _refuse_run(target: Path, place: Path) -> None:
    """Rows of a run's pool are env steps that it executed, for which updates are owed."""
    if any((directory / "config.yaml").is_file() for directory in (target, place.parent)):
        raise ConfigError(
            f"{target}: the pool of a run holds what that run executed, and updates are owed for it; import into a new pool and"
            " begin a run with it as pool.demos or run.pool_from"
        )


def _report_demos(target: Path, demos: Demonstrations, name: str, found: Found, size: int) -> None:
    known = f", {found.successes} successes, {found.failures} failures" if found.successes or found.failures else ""
    print(f"{target}: {found.rows} rows of {found.episodes} episodes{known} entered as actor {name}, {size} are live")
    lines = [
        (found.dropped, "steps were left out: nothing says what came after the last one of an episode"),
        (found.stand_ins, "terminated steps keep their own observation as the next one, which the file does not have"),
        (found.gaps, "episodes were cut: the next observation of a step is not that of the step after it"),
        (found.outside, "steps have an action outside the bounds"),
    ]
    for line in [*demos.notes, *(f"{count} {what}" for count, what in lines if count)]:
        print(f"  {line}")
