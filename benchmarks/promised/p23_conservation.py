"""P23: every executed step is somewhere, and the counters say where; recorded by chaos.py, by the envs' own histories."""

from __future__ import annotations

from campaign.chaotic import TRIALS, tell
from campaign.promise import Promise

PROCESSES = 100  # and the counters of the pool: as many equations

PROMISE = Promise(
    "P23",
    "Produced = acknowledged + rejected + abandoned by killed processes; accepted = live + evicted + retired + discarded.",
    (tell(("unbalanced",), PROCESSES, {"acked": TRIALS}),),
)
