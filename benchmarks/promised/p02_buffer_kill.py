"""P2: at `pool.ack: memory` rows outlive a SIGKILL of the buffer at any instruction; recorded by kills.py.

The sweep that kills after each line of a commit, a label, a snapshot and a change of capacity is a test:
tests/unit/buffer/test_pool_kill.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from campaign.numbered import FAULTS
from campaign.promise import Promise, Recorded, Tally, counted
from campaign.records import Record
from campaign.strikes import BARS, KINDS, TRIALS, of_kind, summarise


def tell(known: Sequence[Record], ack: str = "memory") -> Tally:
    """All kills at one level."""
    own, said = [r for kind in KINDS for r in of_kind(ack, kind, known)], summarise(ack, known)
    figures = {name: f"{said[name]:,}" for name in ("acked", *FAULTS)}
    figures |= {"restart_median_s": f"{said['restart_median_s']:.2f}", "restart_max_s": f"{said['restart_max_s']:.2f}"}
    bar = f"acked >= {BARS['acked'][ack]:,}; {', '.join(FAULTS)} 0; restart_max_s <= {BARS['restart_s']:g}"
    missed = said["acked"] < BARS["acked"][ack] or said["restart_max_s"] > BARS["restart_s"]
    return counted(own, sum(TRIALS[ack].values()), figures, bar, missed=missed)


PROMISE = Promise(
    "P2",
    "What was acknowledged at `pool.ack: memory` survives SIGKILL of the buffer at any instruction.",
    (Recorded("kills", "kills.py", "kills.jsonl", tell),),
)
