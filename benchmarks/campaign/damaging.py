"""A pool's files that were harmed: what a load of a snapshot and an import of an export make of them.

Of the snapshots there are two, and the newer is harmed: the next pool must hold what the older holds, and the log must name the
file. An export is refused by an error that names the file, and the pool stays empty.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from campaign import harming, numbered
from headrace.buffer import export_pool, import_pool, snapshot, transfer
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.shards import ShardReader
from headrace.common.errors import HeadraceError, PoolDamaged

KINDS = ("snapshot", "export")
HARMS = ("flipped", "truncated", "swapped")
FAULTS = ("silently_loaded", "not_named", "held_otherwise", "crashed")
PART = 128  # rows of each actor, which is a file of an export: two that are swapped need not show in sequence numbers
ACTORS = 4
Judge = Callable[[Path, tuple[str, ...]], list[str]]  # of the harmed folder and the files harmed; its faults


def made(kind: str, place: Path) -> tuple[Path, Judge]:
    """Files of a pool on the new directory ``place``: the folder to harm, and the judge of what comes of it."""
    pool = SACReplayPool(ACTORS * PART, spec=numbered.SPEC)
    _write(pool, range(ACTORS // 2))
    if kind == "export":
        _write(pool, range(ACTORS // 2, ACTORS))
        with mock.patch.object(transfer, "SHARD_BYTES", 1):  # several files of few rows
            export_pool(pool, place)
        body = ShardReader(place).body
        return place, lambda folder, names: _imported(folder, names, SACReplayPool.like(body))
    pool.save(place)
    older = contents(pool)
    _write(pool, range(ACTORS // 2, ACTORS))
    pool.save(place)
    return place / "snapshot-000002", lambda folder, names: _loaded(folder, names, older)


def harmed(kind: str, place: Path, rng: np.random.Generator, flips: int) -> Counter[str]:
    """Bits at random places flipped, each file cut, every two of them swapped; harms and faults, counted."""
    folder, judge = made(kind, place / kind)
    whole = shutil.copytree(folder, place / "whole")
    counts = Counter(dict.fromkeys((*HARMS, *FAULTS), 0))
    for harm, names in _harms(folder, rng, flips):
        counts[harm] += 1
        counts.update(judge(folder, names))
        for name in names:
            shutil.copyfile(whole / name, folder / name)
    if "silently_loaded" not in judge(folder, ("",)):
        raise AssertionError("the files are not taken though they are whole again: the trial proves nothing")
    return counts


def blind(kind: str, place: Path, flips: int) -> Counter[str]:
    """The planted fault: the same harm before a reader that looks at no digest of a file."""
    read = snapshot.read

    def unverified(path: Path, *, verify: bool = True) -> Any:
        return read(path, verify=False)

    with mock.patch.object(snapshot, "read", unverified), mock.patch.object(ShardReader, "verify"):
        return harmed(kind, place, np.random.default_rng(0), flips)


def contents(pool: SACReplayPool) -> tuple[bytes, ...]:
    """Every byte of the live rows and their observations."""
    batch = pool.gather(np.arange(pool.tail, pool.head))
    return (batch.rows.tobytes(), *(side[key].tobytes() for side in (batch.obs, batch.next_obs) for key in side))


def _write(pool: SACReplayPool, writers: range) -> None:
    for writer in writers:
        pool.insert(numbered.block(writer, 1, PART), numbered.actor_id(writer), 1, 1)


def _harms(folder: Path, rng: np.random.Generator, flips: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Harm the folder, which is whole again at each step; what was done, and the names of the files."""
    for _ in range(flips):
        yield "flipped", (harming.flip(folder, rng),)
    for path in harming.files(folder):
        harming.truncate(path, rng)
        yield "truncated", (path.name,)
    for one, other in itertools.combinations(harming.files(folder), 2):
        if one.read_bytes() != other.read_bytes():
            harming.swap(one, other)
            yield "swapped", (one.name, other.name)


def _loaded(folder: Path, names: tuple[str, ...], older: tuple[bytes, ...]) -> list[str]:
    pool = SACReplayPool(ACTORS * PART)
    with harming.heard(snapshot.__name__) as said:
        try:
            found = pool.load(folder.parent)
        except HeadraceError as error:
            return ["held_otherwise", *_unnamed(names, [str(error)])]
        except Exception:  # no reader may; one that looks at no digest does
            return ["crashed"]
    if found and pool.head == ACTORS * PART:
        return ["silently_loaded"]
    same = found and contents(pool) == older
    return [*([] if same else ["held_otherwise"]), *_unnamed(names, said)]


def _imported(folder: Path, names: tuple[str, ...], pool: SACReplayPool) -> list[str]:
    said = ""
    try:
        import_pool(folder, pool)
    except PoolDamaged as error:
        said = str(error)
    except HeadraceError:
        return ["not_named"]
    except Exception:  # as above
        return ["crashed"]
    if not said:
        return ["silently_loaded"]
    return [*(["held_otherwise"] if pool.head else []), *_unnamed(names, [said])]


def _unnamed(names: tuple[str, ...], said: list[str]) -> list[str]:
    return [] if any(name in text for name in names for text in said) else ["not_named"]
