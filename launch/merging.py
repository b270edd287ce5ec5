"""``headrace pool merge``: what a shard holds that a run has no more goes into the pool of the home shard.

Nothing is lost or doubled, wherever it is cut: the shard's rows are exported beside its pool; the home shard's account of that
pool gives up the env steps of these rows, so that their sum stays; then the rows enter under their identities (an import that
was cut is finished by the next one); then the shard's pool is noted as moved; and only then it is removed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.buffer.pool import SACReplayPool
from headrace.buffer.satellites import Moved
from headrace.buffer.shards import ShardReader
from headrace.buffer.transfer import Imported, export_pool, import_pool
from headrace.launch.counting import Counting
from headrace.launch.pools import find_pool, own_pool
from headrace.launch.transfer import require_room


def merge_command(source: Path, target: Path, *, evict: bool) -> int:
    """Move the rows of the pool at ``source`` into that of the home shard at ``target``, and remove the former.

    Raises:
        ConfigError: the home shard's pool has no room for them, and ``evict`` does not permit to make it.
        PoolLocked: one of the two belongs to a process now.
        PoolError: ``source`` was never a shard of that run.
    """
    leaving, home = find_pool(source), find_pool(target)
    out = leaving.with_name(f"{leaving.name}.leaving")
    with own_pool(leaving) as old, own_pool(home) as pool:
        moved = Moved(home, str(old.info()["uuid"]))
        done = None if moved.is_done else _move(old, out, pool, moved, evict)
        size = pool.size
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(leaving)
    print(f"{target}: {done.rows if done else 0} rows entered, {size} are live; {source} is removed")
    for before, after in sorted(done.renamed.items()) if done else ():
        print(f"  actor {before} is {after} here: rows of {before} with the same numbers are in the pool already")
    if done and done.evicted:
        print(f"  {done.evicted} rows made room, the oldest first")
    return 0


def _move(old: SACReplayPool, out: Path, pool: SACReplayPool, moved: Moved, evict: bool) -> Imported | None:
    if not old.size:
        moved.end()
        return None
    if not out.exists():
        with Counting("exporting") as counting:
            export_pool(old, out, progress=counting)
    reader = ShardReader(out)
    steps = sum(reader.spec.fresh_steps(reader.block(shard).rows) for shard in reader.shards)

    def begin(rows: int) -> None:
        require_room(pool, rows, evict, "to keep all, raise pool.capacity of the run to {}, and start its home shard once")
        moved.begin(steps)

    with Counting("merging", passes=2) as counting:
        done = import_pool(out, pool, progress=counting, begin=begin, end=False)
    moved.end()
    done.underway.end()
    return done
