"""The run directory: which file of a run lies where, and how it is written (whole or not at all)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from headrace.common.errors import ConfigError, DeadlineExceeded, HeadraceError


class RunDir:
    """Paths of one run.

    Args:
        path: the directory; nothing is read or made until a method says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.identity = path / "run_id"
        self.endpoint = path / "endpoint"
        self.meeting = path / ".ranks"
        self.logs = path / "logs"
        self.pool = path / "pool"
        self.snapshots = path / "snapshots"
        self.keys = path / "keys"
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.targets = path / "metrics"
        self.curve = path / "curve.png"
        self.environment = path / "environment.txt"
        self.result = path / "result.json"
        self._made: list[Path] = []  # the directory and those above it, where this object made them

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> RunDir:
        """Make a new run directory and write the resolved ``config`` into it.

        A run that failed before it had anything to lose is replaced.

        Raises:
            ConfigError: a run lives there already, or the place cannot be written.
        """
        run = cls(path)
        if run.config.exists() and run.has_data:
            raise ConfigError(f"run.name: {path} holds a run already; continue it with --resume {path} or choose another name")
        missing = [p for p in (path, *path.parents) if not p.exists()]
        try:
            run.logs.mkdir(parents=True, exist_ok=True)
            write_whole(run.identity, uuid.uuid4().hex[:12] + "\n")
            run.write_config(config)
        except OSError as error:
            raise ConfigError(f"run.dir: cannot write {path}: {error.strerror or error}") from error
        run._made = missing
        return run

    @property
    def has_data(self) -> bool:
        """Whether a role has written anything that somebody could want back."""
        return any(p.exists() for p in (self.checkpoints, self.metrics, self.pool / "manifest.json"))

    @contextlib.contextmanager
    def undone_if_refused(self) -> Iterator[None]:
        """Remove the directory that :meth:`create` made when the start within is refused before there is data."""
        try:
            yield
        except HeadraceError:
            if self._made and not self.has_data and not self.endpoint.exists():  # else a buffer lives here
                shutil.rmtree(self.path, ignore_errors=True)
                for parent in self._made[1:]:
                    with contextlib.suppress(OSError):
                        parent.rmdir()
            raise

    def keep(self) -> None:
        """Leave the directory in place whatever happens: its logs are needed."""
        self._made = []

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """An existing run directory.

        Raises:
            ConfigError: ``path`` is not one.
        """
        run = cls(path)
        if not run.config.is_file():
            raise ConfigError(f"{path}: not a run directory (it has no config.yaml)")
        run.logs.mkdir(exist_ok=True)
        return run

    @property
    def run_id(self) -> str:
        """Identity of the run, the same for its whole life."""
        if not self.identity.exists():
            write_whole(self.identity, uuid.uuid4().hex[:12] + "\n")
        return self.identity.read_text().strip()

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Hold the run for one ``train`` at a time; death releases it.

        Raises:
            ConfigError: another one has it; the text names its pid.
        """
        with (self.path / "train.lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise ConfigError(f"{self.path}: already running, supervised by pid {file.read(32).strip()}") from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    @property
    def holder(self) -> str:
        """Pid of the process that has the run claimed now, empty when there is none."""
        try:
            with (self.path / "train.lock").open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read(32).strip()
        except FileNotFoundError:
            pass
        return ""

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the resolved config."""
        write_whole(self.config, yaml.safe_dump(dict(config), sort_keys=False))

    def log(self, role: str) -> Path:
        """The log file of one role."""
        return self.logs / f"{role}.log"

    def pool_dir(self, place: str) -> Path:
        """Where the pool lives for config key ``run.pool_dir``: here, or in a directory of this run below ``place``."""
        return Path(place).expanduser() / f"headrace-{self.run_id}" if place else self.pool

    def shard(self, number: int) -> RunDir:
        """Where a buffer of this run keeps its files: the home shard, number 0, here, each further one in a directory below."""
        if number == 0:
            return self
        place = RunDir(self.path / f"shard-{number}")
        place.path.mkdir(exist_ok=True)
        return place

    def write_endpoint(self, endpoint: str) -> None:
        """Tell the other roles where the buffer listens."""
        write_whole(self.endpoint, endpoint + "\n")

    def write_target(self, about: Mapping[str, str], address: str) -> None:
        """Tell Prometheus (``file_sd_configs``) where a process serves its figures; ``about`` has its role and id."""
        self.targets.mkdir(exist_ok=True)
        name = quote("-".join(dict.fromkeys((about["role"], about["id"]))), safe="")
        write_whole(self.targets / f"{name}.json", json.dumps([{"targets": [address], "labels": dict(about)}]) + "\n")

    def forget_endpoints(self) -> None:
        """Nobody listens any more."""
        for path in (self.endpoint, *self.path.glob("shard-*/endpoint")):
            path.unlink(missing_ok=True)

    def wait_endpoint(self, deadline_s: float) -> str:
        """Where the buffer listens, waiting until it says so.

        Raises:
            DeadlineExceeded: naming the file that never came.
        """
        end = time.monotonic() + deadline_s
        while True:
            try:
                return self.endpoint.read_text().strip()
            except FileNotFoundError:
                if time.monotonic() > end:
                    raise DeadlineExceeded(
                        f"no buffer has written {self.endpoint} within {deadline_s:g} s; start one with"
                        f" `headrace buffer {self.path}` or say --connect ENDPOINT"
                    ) from None
                time.sleep(0.05)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``content`` so that a reader sees what was there before or what is new, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        HeadraceError: naming the file that is missing or is not one.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HeadraceError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise HeadraceError(f"{path}: not a JSON object")
    return value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All of :func:`each_line`."""
    return list(each_line(path))


def each_line(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, one at a time; a missing file is empty, and lines that are none are left out.

    Such are a last line that is still being written, and what a failing disk leaves.

    Raises:
        HeadraceError: the file cannot be read, or it has whole lines and none of them is an object.
    """
    found = lost = False
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    value = json.loads(line.decode("utf-8"))
                except (ValueError, RecursionError):
                    lost |= line.endswith(b"\n") and bool(line.strip())
                    continue
                if isinstance(value, dict):
                    found = True
                    yield value
                else:
                    lost |= line.endswith(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise HeadraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if lost and not found:
        raise HeadraceError(f"{path}: not one line of it can be read")
