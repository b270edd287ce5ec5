"""What a command's TARGET means: a config file or a run directory, with the command line's overrides on top."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.common.config import dump, replace
from headrace.common.errors import ConfigError
from headrace.launch.config import RunConfig, digest, make_config, read_config
from headrace.launch.credentials import keyed
from headrace.launch.rundir import RunDir


def load_target(target: Path, overrides: Sequence[str] = ()) -> tuple[RunConfig, RunDir | None]:
    """The config of a file, or a run directory with its own config.

    Raises:
        ConfigError: neither can be read, or overrides are given for a run whose config is fixed.
    """
    if not target.is_dir():
        return make_config(read_config(target), overrides), None
    run = RunDir.open(target)
    if overrides:
        raise ConfigError(f"{target}: the options of a run are in its config.yaml; {overrides[0]} cannot change them here")
    config = make_config(read_config(run.config))
    return replace(config, network=keyed(config.network, run)), run


def new_run(config: RunConfig) -> RunDir:
    """A new run directory for ``config``, named as it says or by env and time."""
    parent = Path(config.run.dir).expanduser()
    if config.run.name:
        return RunDir.create(parent / config.run.name, dump(config))
    stem = f"{slug(config.env.id)}-{time.strftime('%Y%m%d-%H%M%S')}"
    taken = sum(1 for _ in parent.glob(f"{stem}*"))  # two runs begun within one second
    return RunDir.create(parent / (f"{stem}-{taken + 1}" if taken else stem), dump(config))


def shared_run(config: RunConfig, stem: str) -> RunDir:
    """The run directory that single roles started by hand from one config file share: made by the first of them.

    Raises:
        ConfigError: a run of another config has the name.
    """
    path = Path(config.run.dir).expanduser() / (config.run.name or slug(stem))
    if not (path / "config.yaml").exists():
        return RunDir.create(path, dump(config))
    run = RunDir.open(path)
    if digest(make_config(read_config(run.config))) != digest(config):
        raise ConfigError(f"run.name: {path} holds a run of another config; choose another run.name")
    return run


def slug(text: str) -> str:
    """``text`` as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "run"
