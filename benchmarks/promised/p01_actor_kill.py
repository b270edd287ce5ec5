"""P1: what was acknowledged outlives its actor; recorded by chaos.py, which kills actors among all other faults."""

from __future__ import annotations

from campaign.chaotic import KILLS, TRIALS, tell
from campaign.promise import Promise

PROMISE = Promise(
    "P1",
    "An acknowledged transition survives any crash of its actor, and is in the pool once, as it was executed.",
    (tell(("lost", "duplicated", "corrupted", "phantom", "reordered"), TRIALS, {"kills of actor": KILLS}),),
)
