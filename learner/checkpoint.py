"""Checkpoints: a directory each, complete or invisible, digested, without pickle.

``step_000000001000/`` holds ``state.safetensors`` (tensors), ``state.json`` (scalars), the files that the caller adds,
and ``manifest.json``, written last: size and SHA-256 of every other file, and of itself. It is written under a hidden
name, synced, and renamed; older ones are deleted only after that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from headrace.common.directories import sync
from headrace.common.errors import CheckpointError

LOG = logging.getLogger(__name__)
FORMAT = 1
TENSORS, SCALARS, MANIFEST = "state.safetensors", "state.json", "manifest.json"
# A checkpoint of a step that is written again stays as .old until its successor is in place.
_NAME = re.compile(r"^step_(\d{12})(\.old)?$")
_HIDDEN = re.compile(r"^\.(?:writing|dead)-(\d+)-")
_CHUNK = 1 << 20
MAX_NAME = 255


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every digest was right.

    Attributes:
        path: its directory; further files lie there.
        step: updates at which it was written.
        state: ``tensors`` and ``scalars``, as given to :func:`write`.
    """

    path: Path
    step: int
    state: dict[str, Any]


def write(
    directory: Path,
    step: int,
    state: Mapping[str, Any],
    *,
    files: Mapping[str, bytes] | None = None,
    add: Callable[[Path], object] | None = None,
    permit: Callable[[], object] | None = None,
    keep: int,
) -> Path:
    """Write a checkpoint, then delete all but the newest ``keep`` up to this step.

    Args:
        directory: holds all checkpoints of a run; created if missing.
        step: updates so far, part of the name.
        state: ``tensors`` (name -> torch tensor) and ``scalars`` (JSON values).
        files: further files, name -> content, such as ``policy.hrw``.
        add: called with the directory under construction to write more into it, such as a pool snapshot.
        permit: called just before the checkpoint appears; raises a :class:`CheckpointError` when it must not.
        keep: at least 1.

    Returns:
        The checkpoint's directory.

    Raises:
        CheckpointError: it could not be written; those before it are as they were.
    """
    pid, name = os.getpid(), f"step_{step:012d}"
    hidden = directory / f".writing-{pid}-{name}"
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            sync(directory.parent)
        _sweep(directory)
        hidden.mkdir()
        tensors = {name: tensor.contiguous() for name, tensor in state["tensors"].items()}
        # save() would hold the state twice more, and the interpreter for 0.4 s where the state is 256 MB: training would wait.
        safetensors.torch.save_file(tensors, hidden / TENSORS)
        for file, data in {SCALARS: _render(state["scalars"]), **(files or {})}.items():
            (hidden / file).write_bytes(data)
        shutil.copymode(hidden / SCALARS, hidden / TENSORS)  # which only its owner could read
        if add is not None:
            add(hidden)
        manifest = _render_manifest(step, _sync_and_digest(hidden))
        (hidden / MANIFEST).write_bytes(manifest)
        sync(hidden / MANIFEST)
        sync(hidden)
        if permit is not None:
            permit()
        _publish(hidden, directory / name)
    except CheckpointError:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    except (OSError, SafetensorError) as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise CheckpointError(f"{directory / name}: not written: {error}; earlier checkpoints are as they were") from error
    try:
        _prune(directory, step, keep)
    except OSError as error:  # the new checkpoint is safe; the next write tries again
        LOG.warning("%s: old checkpoints not deleted: %s", directory, error)
    return directory / name


def newest(directory: Path) -> Path | None:
    """The newest checkpoint whose every digest is right; None when there is none at all.

    One that is damaged is named in the log and passed over.

    Raises:
        CheckpointError: there are checkpoints, and all are damaged; or ``directory`` is a file.
    """
    damaged: list[str] = []
    for path in _found(directory):
        try:
            _verify(path)
        except CheckpointError as error:
            LOG.warning("damaged checkpoint passed over: %s", error)
            damaged.append(str(error))
        else:
            return path
    if damaged:
        raise CheckpointError(f"{directory}: no checkpoint is whole; {'; '.join(damaged)}")
    return None


def resume(directory: Path) -> Checkpoint | None:
    """Read the newest whole checkpoint to go on from it; None when there is none at all.

    Damaged ones that are newer are renamed ``damaged-step_...``: what is trained from here on has lower numbers, and must
    not be hidden behind them.

    Raises:
        CheckpointError: there are checkpoints, and all are damaged (they stay as they are).
    """
    path = newest(directory)
    if path is None:
        return None
    found = read(path)
    for damaged in _found(directory):
        if damaged == path:
            break
        LOG.warning("%s is damaged and set aside as damaged-%s", damaged, damaged.name)
        damaged.rename(damaged.with_name(f"damaged-{damaged.name}"))
    return found


def read(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: naming the file that is damaged or missing.
    """
    step = _verify(path)
    try:
        tensors = safetensors.torch.load((path / TENSORS).read_bytes())
        scalars = json.loads((path / SCALARS).read_bytes())
    except (SafetensorError, ValueError, RecursionError) as error:  # its digest is right: so it was written
        raise CheckpointError(f"{path}: not the state of a learner: {type(error).__name__} {str(error)[:200]}") from error
    return Checkpoint(path, step, {"tensors": tensors, "scalars": scalars})


def _found(directory: Path) -> list[Path]:
    """Checkpoints by name, newest first, a rewritten one before what it replaces."""
    if not directory.exists():
        return []
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: a file lies where the directory of checkpoints should be; move it away")
    named = [(match, path) for path in directory.iterdir() if (match := _NAME.match(path.name)) and path.is_dir()]
    return [path for _, path in sorted(named, key=lambda item: (item[0][1], item[0][2] is None), reverse=True)]


def _verify(path: Path) -> int:
    """The step of a whole checkpoint."""
    try:
        raw = (path / MANIFEST).read_bytes()
        manifest = json.loads(raw)
        step, files = int(manifest["step"]), dict(manifest["files"])
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"{path / MANIFEST}: format {manifest['format']!r}, this build reads {FORMAT}")
        whole = raw == _render_manifest(step, files) and path.name.startswith(f"step_{step:012d}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path / MANIFEST}: damaged or missing ({type(error).__name__})") from error
    if not whole:
        raise CheckpointError(f"{path / MANIFEST}: does not match its digest or the directory's name")
    if missing := {TENSORS, SCALARS} - files.keys():
        raise CheckpointError(f"{path / MANIFEST}: has no digest of {', '.join(sorted(missing))}")
    inside = {name: _inside(path, name) for name in files}
    for name, entry in files.items():
        try:
            size = {"bytes": inside[name].stat().st_size}
            found = _digest(inside[name]) if size.items() <= dict(entry).items() else size
        except OSError as error:
            raise CheckpointError(f"{path / name}: cannot be read: {error.strerror}") from error
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path / MANIFEST}: says {str(entry)[:100]!r} of {name}") from error
        if found != entry:
            raise CheckpointError(f"{path / name}: does not match its digest")
    return step


def _inside(path: Path, name: str) -> Path:
    """A file of a checkpoint; a name that leads elsewhere, by itself or by a link, is refused before anything is read."""
    parts = PurePosixPath(name).parts
    places = [path.joinpath(*parts[: n + 1]) for n in range(len(parts))]
    plain = name == "/".join(parts) and len(name) <= MAX_NAME and name != MANIFEST and not {"/", ".."}.intersection(parts)
    if not parts or not plain or any(place.is_symlink() for place in places):
        raise CheckpointError(f"{path / MANIFEST}: {name[:MAX_NAME]!r} is no file of this checkpoint")
    return places[-1]


def _publish(hidden: Path, final: Path) -> None:
    """Rename into place; a checkpoint of the same step is readable under one of two names at every instant."""
    old = final.with_name(final.name + ".old")
    if final.exists():
        if old.exists():
            _remove(old)
        final.rename(old)
    hidden.rename(final)
    sync(final.parent)


def _prune(directory: Path, step: int, keep: int) -> None:
    """Delete all but the newest ``keep`` up to ``step``; a later one is damaged, or we would have continued from it."""
    upto = [path for path in _found(directory) if path.name[: len("step_") + 12] <= f"step_{step:012d}"]
    replaced = [path for path in upto if path.suffix == ".old" and path.with_suffix("") in upto]
    kept = [path for path in upto if path not in replaced][: max(1, keep)]
    for path in (path for path in upto if path not in kept):
        try:
            _remove(path)
        except OSError as error:  # nor does it keep the others
            LOG.warning("old checkpoint %s not deleted: %s", path, error)


def _remove(path: Path) -> None:
    """Delete a checkpoint; under a hidden name, so that half of one is never seen."""
    dead = path.with_name(f".dead-{os.getpid()}-{path.name}")
    path.rename(dead)
    shutil.rmtree(dead)


def _sweep(directory: Path) -> None:
    """Delete what killed processes, or this one, left half done."""
    for path in directory.iterdir():
        match = _HIDDEN.match(path.name)
        if match and (int(match[1]) == os.getpid() or not _alive(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_and_digest(directory: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file below, by relative path, once it is on disk."""
    out: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.rglob("*")):
        sync(path)
        if path.is_file():
            out[path.relative_to(directory).as_posix()] = _digest(path)
    return out


def _digest(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _render(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()


def _render_manifest(step: int, files: Mapping[str, Any]) -> bytes:
    """The only text that a manifest of these contents may have."""
    body = {"format": FORMAT, "step": step, "files": dict(files)}
    return _render({**body, "sha256": hashlib.sha256(_render(body)).hexdigest()})
