"""The model of a fleet: what one shard of it has to do, times what each of these was measured to cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from speed import data

from campaign import records
from campaign.markdown import commits, filled, table
from campaign.records import Record
from headrace.buffer.bound import bound
from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.common.staging import batch_nbytes
from headrace.common.wire.network import NetworkConfig

KINDS = {"state": data.FLAT, "camera": data.IMAGES}
WEIGHTS_KNOBS = "learner.publish_period_s, learner.published, shards"
SAMPLED = {"state": "sample-tcp", "camera": "images-tcp"}
GIB, MB = 1 << 30, 1e6
STORM_S, FANOUT_S = 15.0, 40.0  # the bar; and the window in which one version is handed on
PAGE = "scale.md"
MEASURED, MODEL = "measured", "model"  # parts of the page
TRIALS = ("idle", "acks", "paced", "fanout", "storm")


class Fleet(NamedTuple):
    """What is asked for, and what each shard's host has."""

    actors: int = 10_000
    shards: int = 8
    ranks: int = 64  # of the learner, a GPU each
    rate: float = 10.0  # env steps a second of one actor
    block_rows: int = 32  # actor.block_rows
    flush_s: float = 1.0  # actor.flush_s
    batch: int = 256  # rows of each rank's batch
    updates: float = 20.0  # a second, of all ranks together
    weights_mb: float = 10.0  # of one version
    versions: float = 0.2  # published a second
    credit_mb: float = 8.0  # network.credit_bytes
    memory_gib: float = 64.0
    link_gbit: float = 25.0


FLEET = Fleet()


@dataclass(frozen=True)
class Costs:
    """What was measured of one buffer; a core is one second of one processor core.

    Attributes:
        beat: core of one session for a second, that only beats.
        block: core of one block of a few rows, from the socket to the acknowledgement, beside the beats.
        row: core of one row in a long block.
        batch: core of one batch of 256 rows of a kind, by socket.
        weights: core of a byte of weights on its way to one session, beside the beats.
        session: bytes of private memory.
        storm: seconds for each session to be back and acknowledged.
        stands_on: the records.
    """

    beat: float
    block: float
    row: float
    batch: Mapping[str, float]
    weights: float
    session: float
    storm: float
    stands_on: tuple[Record, ...]

    @classmethod
    def read(cls, results: Path) -> Costs:
        """From the newest records; raises :class:`KeyError` where one is missing."""
        trials = {name: r for (name,), r in records.latest(records.read(results / "sessions.jsonl"), "trial").items()}
        rows = {name: r for (name,), r in records.latest(records.read(results / "pool.jsonl"), "row").items()}

        def rate(row: str) -> float:
            return float(rows[row]["figures"]["headrace"]["median"])

        idle, acks, fanout, storm = (trials[name]["figures"] for name in ("idle", "acks", "fanout", "storm"))
        sessions = trials["idle"]["sessions"]
        used = ("insert-64", *SAMPLED.values())
        return cls(
            beat=idle["core_share"] / sessions,
            block=(acks["core_share"] - idle["core_share"]) / acks["acks_s"],
            row=1 / rate("insert-64"),
            batch={kind: 1 / rate(row) for kind, row in SAMPLED.items()},
            weights=(fanout["core_share"] - idle["core_share"]) * FANOUT_S / (trials["fanout"]["sessions"] * fanout["nbytes"]),
            session=idle["session_kb"] * 1024,
            storm=storm["all_acked_s"] / trials["storm"]["sessions"],
            stands_on=(*(trials[n] for n in ("idle", "acks", "fanout", "storm")), *(rows[name] for name in used)),
        )


class Limit(NamedTuple):
    """One thing that a shard has a certain amount of."""

    what: str
    part: float  # of what there is
    has: str
    there_is: str
    knob: str


def limits_of(fleet: Fleet, costs: Costs, kind: str) -> list[Limit]:
    """What one shard would need of everything, the next limit first."""
    spec, sessions = KINDS[kind], fleet.actors / fleet.shards
    blocks = sessions * max(fleet.rate / fleet.block_rows, min(fleet.rate, 1 / fleet.flush_s))
    rows = sessions * fleet.rate
    batches = fleet.updates * fleet.ranks * fleet.batch / 256 / fleet.shards
    served = sessions * fleet.weights_mb * MB * fleet.versions
    row_bytes = spec.row_dtype.itemsize + spec.frame_nbytes
    drawn = batches * batch_nbytes(spec, 256)
    network = NetworkConfig(credit_bytes=int(fleet.credit_mb * (1 << 20)))
    declared = bound(
        PoolConfig(max_actors=int(sessions)), SamplingConfig(), network, spec, readers=fleet.ranks, rows=fleet.batch
    ).total
    link = fleet.link_gbit * 1e9 / 8
    cores = {
        "beats of sessions": (sessions * costs.beat, f"{sessions:,.0f} sessions", "network.heartbeat_s, shards"),
        "blocks": (blocks * costs.block, f"{blocks:,.0f}/s", "actor.flush_s and actor.block_rows, shards"),
        "rows": (rows * costs.row, f"{rows:,.0f}/s", "shards"),
        "handing weights on": (served * costs.weights, f"{served / MB:,.0f} MB/s", WEIGHTS_KNOBS),
        "batches by socket": (batches * costs.batch[kind], f"{batches:,.0f}/s", "shards, ranks on the buffers' hosts"),
    }
    found = [Limit(f"core for {what}", part, has, "1 core", knob) for what, (part, has, knob) in cores.items()]
    total = sum(limit.part for limit in found)
    found.append(Limit("core, all of it", total, f"{total:.2f}", "1 core", "the largest part below"))
    memory, kept = fleet.memory_gib * GIB, sessions * costs.session
    there, more = f"{fleet.memory_gib:g} GiB", "shards"
    rates = {
        "link, in": (rows * row_bytes / link, rows * row_bytes, link, "network.compression, shards"),
        "link, out": ((drawn + served) / link, drawn + served, link, "ranks on the buffers' hosts, learner.batch_size, shards"),
    }
    for what, (part, needs, has, knob) in rates.items():
        found.append(Limit(what, part, f"{needs / MB:,.0f} MB/s", f"{has / MB:,.0f} MB/s", knob))
    found += [
        Limit("memory, declared", declared / memory, f"{declared / GIB:.1f} GiB", there, f"network.credit_bytes, {more}"),
        Limit("memory of sessions", kept / memory, f"{kept / GIB:.2f} GiB", there, more),
        Limit("time of a storm", sessions * costs.storm / STORM_S, f"{sessions * costs.storm:.1f} s", f"{STORM_S:g} s", more),
    ]
    return sorted(found, key=lambda limit: -limit.part)


def measured(results: Path) -> str:
    """What was measured of one buffer, trial by trial."""
    newest = records.latest(records.read(results / "sessions.jsonl"), "trial")
    lines = []
    for name in TRIALS:
        if (record := newest.get((name,))) is None:
            continue
        figures = ", ".join(f"{key} {value:,g}" for key, value in record["figures"].items())
        bars = ", ".join(
            f"{c['what']} {c['value']:g} of {c['at_most']:g}{'' if c['met'] else ' **MISSED**'}" for c in record["checks"]
        )
        lines.append((name, record["sessions"], figures, bars, commits([record]), record["date"][:10]))
    return table(("trial", "sessions", "figures", "bars", "commit", "date"), lines)


def modelled(results: Path) -> str:
    """What a fleet would need."""
    costs = Costs.read(results)
    parts = []
    for kind in KINDS:
        for title, fleet in (("", FLEET), (", `actor.flush_s` at its default", FLEET._replace(flush_s=0.05))):
            head = f"**{kind} rows{title}**"
            lines = [(lim.what, lim.has, lim.there_is, f"{lim.part:.2f}", lim.knob) for lim in limits_of(fleet, costs, kind)]
            parts += [head, table(("what one shard needs", "needs", "there is", "part", "moved by"), lines)]
    parts.append(f"Commits of the records: {commits(costs.stands_on)}.")
    return "\n\n".join(parts)


def page(text: str, results: Path) -> str:
    """The page ``text`` with its tables made anew."""
    for part, made in ((MEASURED, measured(results)), (MODEL, modelled(results))):
        text = filled(text, part, made)
    return text
