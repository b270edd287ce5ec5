"""The best policy of a run: the one whose evaluation had the highest mean return, kept with that evaluation.

``best`` is a link to one of two directories, each with ``policy.hrw``, ``spec.json`` and ``evaluation.json``. A better policy
is written whole into the other one, then the link is replaced in one rename, then the one before is deleted.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.common.directories import sync, write_directory
from headrace.common.policy_files import policy_files
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet

LOG = logging.getLogger(__name__)
BEST, EVALUATION = "best", "evaluation.json"
PLACES = ("best.0", "best.1")
SCORE = "return_mean"


class BestPolicy:
    """The best policy in one directory, for the one process that evaluates the run's policies.

    Args:
        directory: holds the checkpoints of the run; made when there is something to keep.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def offer(self, weights: WeightSet, spec: TransitionSpec, evaluation: Mapping[str, Any]) -> bool:
        """Keep ``weights`` if their evaluation is better than the one that is kept.

        Args:
            weights: as they were evaluated.
            spec: goes beside the policy.
            evaluation: plain values with ``return_mean``; see :meth:`headrace.actor.evaluate.EvalResult.verdict`.

        Returns:
            Whether they are kept now. A disk that does not take them is named in the log; what was kept before still is.
        """
        known = read_evaluation(self._directory)
        finite = all(math.isfinite(value) for value in evaluation.values() if isinstance(value, float))
        if not finite or (known is not None and evaluation[SCORE] <= known[SCORE]):
            return False
        files = {**policy_files(weights, spec), EVALUATION: json.dumps(dict(evaluation), indent=1).encode()}
        try:
            self._replace(files)
        except OSError as error:
            LOG.warning("the best policy so far, of update %d, is not kept: %s", weights.version.step, error)
            return False
        return True

    def _replace(self, files: Mapping[str, bytes]) -> None:
        link = self._directory / BEST
        old, new = PLACES if link.is_symlink() and os.readlink(link) == PLACES[0] else PLACES[::-1]
        self._sweep()
        shutil.rmtree(self._directory / new, ignore_errors=True)
        write_directory(self._directory / new, files)
        fresh = self._directory / f".{BEST}.link"
        fresh.symlink_to(new)
        fresh.replace(link)
        sync(self._directory)
        shutil.rmtree(self._directory / old, ignore_errors=True)

    def _sweep(self) -> None:
        """Delete what a process that was killed left half done."""
        for path in self._directory.glob(f".{BEST}.*"):
            if path.is_symlink():
                path.unlink(missing_ok=True)
            else:
                shutil.rmtree(path, ignore_errors=True)


def read_evaluation(directory: Path) -> dict[str, Any] | None:
    """The evaluation of the best policy of ``directory``; None where none is kept, or what is there cannot be read."""
    try:
        found = json.loads((directory / BEST / EVALUATION).read_bytes())
        return {**found, SCORE: float(found[SCORE])}
    except (OSError, ValueError, KeyError, TypeError):
        return None
