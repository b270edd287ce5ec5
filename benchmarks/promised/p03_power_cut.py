"""P3: at `pool.ack: synced` rows outlive a power cut; at `memory` the loss is what a snapshot is old (powercut.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from campaign import cuts
from campaign.numbered import FAULTS
from campaign.promise import Outcome, Part, Promise, Recorded, Tally, Trial, counted, told
from campaign.records import Record
from campaign.stalling import BLOCK, SPEC, insert, make_block
from campaign.strikes import TRIALS

from headrace.buffer import PoolConfig, SACReplayPool
from promised import p02_buffer_kill as kills

ROUND, RATE_S = 8, 3.0  # blocks to a sync


def tell(known: Sequence[Record], kinds: Sequence[str]) -> Tally:
    """The cuts of some kinds."""
    own, said = cuts.of_kinds(kinds, known), cuts.summarise(kinds, known)
    figures = {name: f"{said[name]:,}" for name in ("acked", *FAULTS)}
    bar = f"{', '.join(FAULTS)} 0"
    if set(kinds) <= set(cuts.MEMORY):
        figures["lost_max_s"] = f"{said['lost_max_s']:.1f}"
        bar += "; lost_s <= age of the newest snapshot"
    return counted(own, sum(cuts.TRIALS[kind] for kind in kinds), figures, bar)


def rates(trial: Trial) -> Outcome:
    """Rows a second that are inserted and acknowledged at each level; one sync for each 8 blocks of 32."""
    return Outcome({f"rows_per_s_{ack}": acknowledged(Path(trial.place), ack) for ack in TRIALS})


def acknowledged(directory: Path, ack: str) -> float:
    """Rows a second that are inserted and acknowledged at one level."""
    block = make_block()
    config = PoolConfig(min_block_rows=BLOCK, ack=ack)
    with SACReplayPool(50_000, path=directory / ack, spec=SPEC, config=config) as pool:
        begun, rows = time.perf_counter(), 0
        while time.perf_counter() < begun + RATE_S:
            for _ in range(ROUND):
                insert(pool, block)
            pool.sync()
            rows += ROUND * BLOCK
        return rows / (time.perf_counter() - begun)


PROMISE = Promise(
    "P3",
    "What was acknowledged at `pool.ack: synced` survives a power cut; at `memory` a run goes on from its newest snapshot.",
    (
        Recorded("synced", "powercut.py", "powercuts.jsonl", partial(tell, kinds=[*cuts.SYNCED])),
        Recorded("memory", "powercut.py --only memory", "powercuts.jsonl", partial(tell, kinds=[*cuts.MEMORY])),
        Recorded("kills", "kills.py --ack synced", "kills.jsonl", partial(kills.tell, ack="synced")),
        Part("rates", 3, rates, told(*(f"rows_per_s_{ack}" for ack in TRIALS))),
    ),
)
