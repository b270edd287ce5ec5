"""A model whose further ranks go hungry now and then, as behind a link that stalls: their feed has nothing for them."""

from __future__ import annotations

from typing import Any

from headrace.common.batch import Batch
from headrace.common.specs import TransitionSpec
from headrace.learner.feed import Feed
from headrace.learner.mlp import MLP
from headrace.learner.place import Place

HUNGRY = (0, 20, 21, 22)  # which asks of a rank are in vain; before the first batch it asks again


class Starved(MLP):
    """The MLP."""

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        if Place.here().rank:
            _starve()


def _starve() -> None:
    get, asked = Feed.get, 0

    def stalled(feed: Feed, timeout_s: float) -> list[Batch] | None:
        nonlocal asked
        asked += 1
        return None if asked - 1 in HUNGRY else get(feed, timeout_s)

    Feed.get = stalled  # type: ignore[method-assign]  # what a test does to a process of its own
