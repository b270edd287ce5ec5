"""What people change of a run while it goes on: whether it is paused, and a few options. Durable, so that no restart undoes it.

A run is paused by somebody: the operator, or the people at a robot. It goes on when all of them have it go on, so that nobody
moves a robot at which somebody else stands.

An option that was changed holds as long as the config says of it what it said then: whoever changes the config has the last
word.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from headrace.buffer import manifest
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.common.config import dump, load
from headrace.common.errors import ConfigError, describe_os_error

LOG = logging.getLogger(__name__)
NAME = "live.json"
SECTION = "pacing"
LIVE = tuple(f"{SECTION}.{f.name}" for f in fields(PacingConfig) if f.metadata["live"])


class Live:
    """Changes the pacing of one buffer.

    Attributes:
        paused_by: who has paused the run and not had it go on.
        not_written: why the last change is not on disk; empty when it is.

    Args:
        pacing: what changes.
        directory: where the changes are kept; none keeps them in memory.

    Raises:
        PoolDamaged: the file there is not what was written.
    """

    def __init__(self, pacing: Pacing, directory: Path | None = None) -> None:
        self._pacing, self._directory, self._config = pacing, directory, pacing.config
        self._set: dict[str, list[Any]] = {}  # key -> its value, and what the config said
        self.paused_by: list[str] = []
        self.not_written = ""
        known = manifest.read(directory, NAME) if directory is not None else None
        if known is not None:
            self.paused_by = [str(who) for who in known["paused"]]
            pacing.paused = bool(self.paused_by)
            own = dump(self._config)
            for key, (value, before) in dict(known["set"]).items():
                if own.get(key.partition(".")[2]) == before:
                    self._take(key, value)
                    self._set[key] = [value, before]

    @property
    def changed(self) -> dict[str, Any]:
        """Options that are not as the config says: key -> value."""
        return {key: value for key, (value, _) in self._set.items()}

    def pause(self, who: str) -> None:
        """Pause the run."""
        if who not in self.paused_by:
            self._now_paused_by([*self.paused_by, who])

    def resume(self, who: str = "") -> None:
        """Have the run go on, as far as ``who`` has paused it, or whoever has where that is nobody."""
        self._now_paused_by([other for other in self.paused_by if who and other != who])

    def set(self, key: str, value: Any) -> None:
        """Change an option.

        Raises:
            ConfigError: it cannot be changed while a run goes on, or not to this; nothing was changed.
        """
        if key not in LIVE:
            raise ConfigError(f"{key}: cannot be set while a run goes on; these can: {', '.join(LIVE)}")
        self._take(key, value)
        name = key.partition(".")[2]
        self._set[key] = [dump(self._pacing.config)[name], dump(self._config)[name]]
        LOG.info("%s is %r from now on", key, self._set[key][0])
        self._write()

    def _take(self, key: str, value: Any) -> None:
        changed = {**dump(self._pacing.config), key.partition(".")[2]: value}
        self._pacing.reconfigure(load(PacingConfig, changed, SECTION))

    def _now_paused_by(self, who: list[str]) -> None:
        if who == self.paused_by:
            return
        self.paused_by = who
        self._pacing.paused = bool(who)
        LOG.info("the run %s", f"is paused by {', '.join(who)}" if who else "goes on")
        self._write()

    def _write(self) -> None:
        if self._directory is None:
            return
        self.not_written = ""
        try:
            manifest.write(self._directory, {"paused": self.paused_by, "set": self._set}, NAME)
        except OSError as error:  # it holds all the same, until this process ends
            self.not_written = describe_os_error(error)
            LOG.warning("%s: not written: %s", self._directory / NAME, self.not_written)
