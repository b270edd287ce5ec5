"""Ratings: each batch's |td| goes back to the pool after the update that follows, so that no device is waited for."""

from __future__ import annotations

from torch import Tensor

from headrace.common.batch import Batch
from headrace.learner.blend import Blend
from headrace.learner.feed import Feed


class Rater:
    """Keeps one batch and its errors until the next.

    Args:
        feed: what tells the pool.
    """

    def __init__(self, feed: Feed | Blend) -> None:
        self._feed = feed
        self._kept: tuple[Batch, Tensor] | None = None

    def note(self, batch: Batch, errors: Tensor | None) -> None:
        """An update was made.

        Args:
            batch: its rows.
            errors: ``(B,)`` |td| of them; None when nobody asks for it.
        """
        if self._kept is not None:
            rated, known = self._kept
            self._feed.rate(rated.epoch, rated.ids, known.cpu().numpy())
        self._kept = None if errors is None else (batch, errors)
