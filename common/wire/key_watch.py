"""The key watch: a buffer that runs knows of new keys, and of revoked ones, within half a second."""

from __future__ import annotations

import logging
from typing import Any

from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keyring import Keyring

LOG = logging.getLogger(__name__)
LOOK_S = 0.5


class KeyWatch:
    """Keeps a keyring as a directory says.

    Args:
        files: the directory.
        keyring: to keep.

    Raises:
        ConfigError: the directory cannot be read.
    """

    def __init__(self, files: KeyFiles, keyring: Keyring) -> None:
        self._files, self._keyring = files, keyring
        self._stamp: tuple[Any, ...] | None = None
        self._look_at = 0.0
        self._read(files.stamp())

    def look(self, now: float) -> bool:
        """Read the keys again if it is time and they have changed; true when the keyring has.

        A directory that cannot be read says nothing about the keys in it: who is in stays, nobody comes in, and the status
        says why.
        """
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_S
        try:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return False
            self._read(stamp)
        except ConfigError as error:
            if self._stamp is not None:
                LOG.warning("nobody new is let in: %s", error)
            self._stamp = None
            self._keyring.close(str(error))
            return False
        return True

    def _read(self, stamp: tuple[Any, ...]) -> None:
        keys, problems = self._files.public()
        for problem in problems:
            LOG.warning("%s", problem)
        self._keyring.replace(keys.values(), problems)
        self._stamp = stamp  # taken before: what changed meanwhile is read again
