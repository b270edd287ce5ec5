"""The shelf: the newest weight set, kept in files of the pool directory and served in byte ranges.

Two files are written in turn, each over what it held, so that a kill leaves one whole set at least: the newest that anybody
was served, since a set is served once it is written. Their room is taken with the first set, so a full disk does not stop
them: actors that come after the next start of the buffer have no older weights than those before.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headrace.common.errors import WireError, describe_os_error
from headrace.common.specs import differences
from headrace.common.weights import NO_VERSION, Raw, Version, WeightSet

NAMES = ("shelf-0.hrw", "shelf-1.hrw")
_LENGTH = 8  # bytes in front of a set, which say how long it is; the rest of the file is room
_SPARE = 1 << 12  # bytes by which a set may grow: its version has digits
LOG = logging.getLogger(__name__)


class Shelf:
    """Holds one packed weight set; a newer one replaces it whole.

    Args:
        directory: where the files live.

    Attributes:
        not_written: why the files do not hold what is served; empty when they do.
    """

    def __init__(self, directory: Path) -> None:
        self._paths = [directory / name for name in NAMES]
        self._turn = 0  # which file is written next
        self.not_written = ""
        self._held: tuple[Version, Raw] = NO_VERSION, b""  # replaced in one move: whoever reads has another thread
        self._weights: WeightSet | None = None
        for turn, path in enumerate(self._paths):
            try:
                blob = _read(path)
                weights = None if blob is None else WeightSet.unpack(blob)
                if blob is not None and weights is not None and weights.version.order > self.version.order:
                    self._hold(blob, weights)
                    self._turn = 1 - turn
            except WireError as error:  # a kill may cut the older one, and, as they are not synced, a power cut both
                LOG.warning("%s is passed over (%s); the learner publishes again", path, error)

    @property
    def version(self) -> Version:
        """Of what is held."""
        return self._held[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weight set; 0 while there is none."""
        return len(self._held[1])

    def put(self, blob: Raw, expected: Version) -> None:
        """Replace what is held, by ``blob`` itself, which nobody may change.

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
        self._hold(blob, weights)

    def write_again(self) -> None:
        """Try again what a disk did not take."""
        if self.not_written:
            self._write(self._held[1])

    def _write(self, blob: Raw) -> None:
        """Where the disk refuses all the same, actors have the newest weights now, and the next buffer may have older ones."""
        try:
            for path in self._paths:
                _reserve(path, _LENGTH + len(blob))
            with open(self._paths[self._turn], "r+b") as file:
                file.write(len(blob).to_bytes(_LENGTH, "little"))
                file.write(blob)
        except OSError as error:
            self.not_written = describe_os_error(error)
        else:
            self._turn, self.not_written = 1 - self._turn, ""

    def read(self, version: tuple[int, int], offset: int, length: int) -> tuple[memoryview, int] | None:
        """Bytes of the held set, and how many it has; none when another version is held or the range is outside."""
        held, blob = self._held
        if version != held.order or offset >= len(blob):
            return None
        return memoryview(blob)[offset : offset + length], len(blob)

    def _hold(self, blob: Raw, weights: WeightSet) -> None:
        self._weights, self._held = weights, (weights.version, blob)

    def get_state(self) -> dict[str, bytes]:
        """The packed weight set."""
        return {"blob": bytes(self._held[1])}

    def set_state(self, state: dict[str, bytes]) -> None:
        """Hold a packed weight set without writing it."""
        if state["blob"]:
            self._hold(state["blob"], WeightSet.unpack(state["blob"]))

    def check_valid(self) -> tuple[bool, str]:
        """Whether what is held unpacks to the version it is known by."""
        version, blob = self._held
        if not blob:
            return True, ""
        same = WeightSet.unpack(blob).version == version
        return same, "" if same else "the held bytes are of another version"


def _reserve(path: Path, size: int) -> None:
    with open(path, "ab") as file:
        if os.fstat(file.fileno()).st_size < size:
            os.posix_fallocate(file.fileno(), 0, size + _SPARE)


def _read(path: Path) -> bytes | None:
    """The set in a file; none where none was ever written."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            return file.read(length) if length else None
    except FileNotFoundError:
        return None


def _policy_differences(ours: WeightSet, theirs: WeightSet) -> list[str]:
    def shapes(w: WeightSet) -> dict[str, list[int]]:
        return {name: list(t.shape) for name, t in w.tensors.items()}

    return differences(dict(ours.policy), dict(theirs.policy), "policy") + differences(shapes(ours), shapes(theirs), "tensor")
