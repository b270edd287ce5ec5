"""P10: each action is by one version of the weights, and none is older than what its actor had; recorded by chaos.py."""

from __future__ import annotations

from campaign.chaotic import KILLS, TRIALS, tell
from campaign.promise import Promise

PROMISE = Promise(
    "P10",
    "Weights are swapped whole: no action is by a mixture of versions, or by an older version than its actor had before.",
    (tell(("torn", "stale"), TRIALS, {"swaps": 10_000, "kills of learner": KILLS}),),
)
