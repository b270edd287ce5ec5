"""A small JSON file that is complete or invisible, and that proves itself by a digest of its own text."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.common.errors import PoolDamaged
from headrace.common.specs import fingerprint

NAME = "manifest.json"


def write(directory: Path, body: Mapping[str, Any], name: str = NAME) -> None:
    """Put ``body`` in place of the manifest of ``directory``, durably: readers see the old one or the new one."""
    text = json.dumps({"sha256": fingerprint(body), **body}, indent=1)
    temporary = directory / f"{name}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, directory / name)
    sync_directory(directory)


def read(directory: Path, name: str = NAME) -> dict[str, Any] | None:
    """The manifest of ``directory``, or None when there is none.

    Raises:
        PoolDamaged: it cannot be read, is not what was written, or another program wrote it.
    """
    path = directory / name
    try:
        body = json.loads(path.read_bytes())
        digest = body.pop("sha256")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PoolDamaged(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise PoolDamaged(f"{path}: not a manifest ({type(error).__name__})") from error
    if digest != fingerprint(body):
        raise PoolDamaged(f"{path}: its digest does not match")
    return dict(body)


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
