"""The saver: writes one checkpoint at a time in a thread of its own, while training goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.common.errors import CheckpointError, CheckpointsClaimed, DeadlineExceeded
from headrace.common.policy_files import policy_files
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet
from headrace.learner import checkpoint
from headrace.learner.claim import Claim

LOG = logging.getLogger(__name__)


class Saver:
    """Writes the checkpoints of one learner.

    Training pays for the copies that it hands over and for nothing else. None are taken while a checkpoint is being written:
    who is due meanwhile asks again, and then hands over what is newest. So there is one copy of the state at most.

    Args:
        directory: holds the checkpoints of the run.
        keep: how many of the newest stay.
        spec: goes beside the policy.
        claim: without which nothing may be written; none where nobody else can.

    Attributes:
        not_saved: why the last checkpoint could not be written; empty when it was.
    """

    def __init__(self, directory: Path, keep: int, spec: TransitionSpec, claim: Claim | None = None) -> None:
        self._directory, self._keep, self._spec = directory, keep, spec
        self._permit = None if claim is None else claim.require
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.not_saved = ""

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, step: int, state: Mapping[str, Any], weights: WeightSet) -> None:
        """Begin to write a checkpoint.

        Args:
            step: updates so far.
            state: ``tensors`` and ``scalars``, which nobody changes any more.
            weights: the policy at that step.

        Raises:
            ValueError: one is being written.
        """
        if self.busy:
            raise ValueError(f"checkpoint {step}: another one is being written; see Saver.busy")
        # A daemon: a disk that never answers must not keep a learner that gives up from leaving.
        self._thread = threading.Thread(
            target=self._write, args=(step, state, weights), name="headrace-checkpoint", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise what the thread met and could not say by ``not_saved``, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def wait(self, timeout_s: float) -> None:
        """Wait until nothing is being written; then as :meth:`check`.

        Raises:
            DeadlineExceeded: something still is after ``timeout_s``.
        """
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self.busy:
            raise DeadlineExceeded(f"{self._directory}: a checkpoint was still being written after {timeout_s:g} s")
        self.check()

    def close(self, timeout_s: float) -> None:
        """Let what is being written come to its end, at most ``timeout_s``; nothing is raised, but all is said."""
        try:
            self.wait(timeout_s)
        except Exception:
            LOG.exception("the last checkpoint may be missing")

    def _write(self, step: int, state: Mapping[str, Any], weights: WeightSet) -> None:
        try:
            files = policy_files(weights, self._spec)
            checkpoint.write(self._directory, step, state, files=files, permit=self._permit, keep=self._keep)
            self.not_saved = ""
        except CheckpointsClaimed as error:  # there will be no other one
            self._failure = error
        except CheckpointError as error:
            self.not_saved = str(error)
            LOG.warning("training goes on without this checkpoint: %s", error)
        except BaseException as error:  # raised where training looks for it
            self._failure = error
