"""The shelf: the newest weight set, kept in a file of the pool directory and served in byte ranges."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from headrace.common.errors import WireError, describe_os_error
from headrace.common.specs import differences
from headrace.common.weights import NO_VERSION, Version, WeightSet

NAME = "shelf.hrw"
LOG = logging.getLogger(__name__)


class Shelf:
    """Holds one packed weight set; a newer one replaces it whole.

    Args:
        directory: where the file lives.

    Attributes:
        not_written: why the file does not hold what is served; empty when it does.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.version = NO_VERSION
        self.not_written = ""
        self._blob = b""
        self._weights: WeightSet | None = None
        if self._path.exists():
            try:
                self._hold(self._path.read_bytes())
            except WireError as error:  # it is not synced, so a power cut may tear it
                LOG.warning("%s is passed over (%s); the learner publishes again", self._path, error)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weight set; 0 while there is none."""
        return len(self._blob)

    def put(self, blob: bytes, expected: Version) -> None:
        """Replace what is held.

        Raises:
            WireError: ``weights`` for a damaged set, ``stale`` when it is not newer, ``policy`` when it is another
                policy than the one held, ``non-finite`` when a tensor is.
        """
        weights = WeightSet.unpack(blob)
        if weights.version != expected:
            raise WireError("weights", "the version inside is not the version announced")
        if self._weights is not None:
            if weights.version.learner != self.version.learner:
                raise WireError("learner", f"this shelf follows learner {self.version.learner!r}")
            if weights.version.order <= self.version.order:
                raise WireError("stale", f"{weights.version.order} is not newer than {self.version.order}")
            if weights.fingerprint() != self._weights.fingerprint():
                raise WireError("policy", "; ".join(_policy_differences(self._weights, weights))[:200])
        bad = weights.first_non_finite()
        if bad is not None:
            raise WireError("non-finite", f"tensor {bad[:100]}")
        self._write(blob)
        self._hold(blob)

    def write_again(self) -> None:
        """Try again what a disk did not take."""
        if self.not_written:
            self._write(self._blob)

    def _write(self, blob: bytes) -> None:
        """Actors need the newest weights now; the file is for the next buffer, so it may come later."""
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_bytes(blob)
            os.replace(temporary, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            self.not_written = describe_os_error(error)
        else:
            self.not_written = ""

    def read(self, version: tuple[int, int], offset: int, length: int) -> bytes | None:
        """Bytes of the held set; none when another version is held or the range is outside."""
        if version != self.version.order or offset >= len(self._blob):
            return None
        return self._blob[offset : offset + length]

    def _hold(self, blob: bytes) -> None:
        self._weights = WeightSet.unpack(blob)
        self._blob, self.version = blob, self._weights.version

    def get_state(self) -> dict[str, bytes]:
        """The packed weight set."""
        return {"blob": self._blob}

    def set_state(self, state: dict[str, bytes]) -> None:
        """Hold a packed weight set without writing it."""
        if state["blob"]:
            self._hold(state["blob"])

    def check_valid(self) -> tuple[bool, str]:
        """Whether what is held unpacks to the version it is known by."""
        if not self._blob:
            return True, ""
        same = WeightSet.unpack(self._blob).version == self.version
        return same, "" if same else "the held bytes are of another version"


def _policy_differences(ours: WeightSet, theirs: WeightSet) -> list[str]:
    def shapes(w: WeightSet) -> dict[str, list[int]]:
        return {name: list(t.shape) for name, t in w.tensors.items()}

    return differences(dict(ours.policy), dict(theirs.policy), "policy") + differences(shapes(ours), shapes(theirs), "tensor")
