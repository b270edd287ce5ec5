"""Generations: the folder of a pool's directory that holds its files, one for each set of sizes the pool ever had.

The pool's manifest names the folder. A change of sizes writes a new folder and then replaces the manifest in one rename, so
that a kill at any instant leaves the old pool or the new one; what no manifest names is removed by the next owner.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.buffer import header, manifest
from headrace.buffer.header import FORMAT, Field
from headrace.common.errors import PoolDamaged

_UUID = re.compile(r"^[0-9a-f]{32}$")
_NAME = re.compile(r"^generation-(\d{6,})$")
_HEAD = 8 * Field.HEAD  # where the header says how many rows were ever committed
_NO_ROWS = header.sealed(Field.HEAD, 0).to_bytes(8, "little")


def is_pool(directory: Path) -> bool:
    """Whether ``directory`` holds a pool, whole or not: files without manifest and rows are of one that was never finished."""
    return (directory / manifest.NAME).is_file() or _with_rows(directory) is not None


def read(directory: Path) -> tuple[dict[str, Any], Path] | None:
    """The manifest of the pool in ``directory`` and the folder of its files; None when there is no pool.

    Raises:
        PoolDamaged: the manifest is not what was written, not one of a pool of this format, or missing where rows are.
    """
    body = manifest.read(directory)
    if body is None:
        lost = _with_rows(directory)
        if lost is not None:
            raise PoolDamaged(
                f"{directory / manifest.NAME}: missing, but {lost} holds rows; put the manifest back, or load the newest"
                " snapshot into another directory, or delete this one to begin anew"
            )
        return None
    path, folder = directory / manifest.NAME, str(body.get("generation"))
    if not _UUID.match(str(body.get("uuid"))) or not _NAME.match(folder):
        raise PoolDamaged(f"{path}: not the manifest of a pool{_instead(directory, body)}")
    if body.get("format") != FORMAT:
        raise PoolDamaged(f"{path}: format {body.get('format')!r}, this build reads {FORMAT}")
    return body, directory / folder


def begin(directory: Path) -> Path:
    """A new, empty folder for files that :func:`publish` makes the pool's; leftovers of killed owners are removed first."""
    found = read(directory)
    sweep(directory)
    number = 0 if found is None else int(found[1].name.rpartition("-")[2])
    folder = directory / f"generation-{number + 1:06d}"
    folder.mkdir()
    return folder


def publish(folder: Path, pool_id: uuid.UUID, body: Mapping[str, Any]) -> None:
    """Make the files in ``folder`` the pool of the directory around it, in one rename."""
    manifest.sync_directory(folder)
    manifest.write(folder.parent, {"format": FORMAT, "uuid": pool_id.hex, "generation": folder.name, **body})


def remove(directory: Path) -> None:
    """There is no pool in ``directory`` from here on; its files are removed with the next generation."""
    found = read(directory)
    if found is None:
        return
    with open(found[1] / header.NAME, "r+b") as file:  # first, so that no kill leaves rows without a manifest
        file.seek(_HEAD)
        file.write(_NO_ROWS)
        file.flush()
        os.fsync(file.fileno())
    (directory / manifest.NAME).unlink()
    manifest.sync_directory(directory)


def sweep(directory: Path) -> None:
    """Remove every generation but the one that the manifest names."""
    found = read(directory)
    for entry in directory.iterdir():
        if _NAME.match(entry.name) and (found is None or entry != found[1]):
            shutil.rmtree(entry)


def _instead(directory: Path, body: Mapping[str, Any]) -> str:
    """What else of ours lies in ``directory``, and what to do with it."""
    if "shards" in body:
        return f" but of an export; make a pool of it (headrace pool import {directory} POOL), or name it in pool.demos"
    if "number" in body and "files" in body:
        around = directory.absolute().parent
        return f" but of one snapshot; name the directory that they are in, {around}: the newest whole one is taken"
    return ""


def _with_rows(directory: Path) -> Path | None:
    """A generation in ``directory`` that rows were committed to; one that no manifest ever named has none."""
    for path in directory.glob(f"generation-*/{header.NAME}"):
        with open(path, "rb") as file:
            file.seek(_HEAD)
            if file.read(8) not in (_NO_ROWS, bytes(8), b""):  # zeros: reserved, and its header not yet begun
                return path.parent
    return None
