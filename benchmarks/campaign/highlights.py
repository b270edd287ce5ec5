"""What README says was measured: a few lines, misses beside hits, each from the newest records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from campaign.markdown import DASH, Line, Records, filled, table
from campaign.measures import MEASURES, summarise
from campaign.records import latest

PAGE, PART = "README.md", "measured"
KEPT = ("rows after SIGKILL of the buffer under load", "rows after a power cut, synced", "all faults at once")  # verdicts
WHOLE_RUN = ("stable-baselines3", "halfcheetah-rate", "env_steps_s")  # peer, measure, value


class Ratio(NamedTuple):
    """The rate of headrace over that of ``peer`` at ``work``: the check ``what`` of the row ``row`` in ``file``."""

    peer: str
    work: str
    file: str
    row: str
    what: str


RATIOS = (
    Ratio("Reverb", "rows inserted in blocks of 32", "pool.jsonl", "insert-32", "headrace / reverb keep-alive 32"),
    Ratio("Reverb", "batches of 256 of 200,000 rows", "pool.jsonl", "sample", "headrace / reverb"),
    Ratio("Ray", "batches of camera images", "pool.jsonl", "images", "headrace / ray"),
    Ratio("cpprb", "single rows, in one process", "pool.jsonl", "class", "headrace add 1 / cpprb add 1"),
    Ratio("cpprb", "blocks of 256 rows", "pool.jsonl", "class", "headrace add 256 / cpprb add 256"),
    Ratio("cpprb", "uniform batches", "pool.jsonl", "class", "headrace sample / cpprb sample"),
    Ratio("stable-baselines3", "updates, one thread", "learner.jsonl", "update-1", "headrace fp32 / stable-baselines3"),
    Ratio("SBX", "updates, one thread, bfloat16", "learner.jsonl", "update-1", "headrace bf16 / SBX"),
)


def page(text: str, found: Mapping[str, Records], verdicts: Sequence[Line]) -> str:
    """The page ``text`` with its table made anew; ``found``: records by the name of their file."""
    by_peer: dict[str, list[str]] = {}
    for ratio in RATIOS:
        by_peer.setdefault(ratio.peer, []).append(f"{ratio.work} **{_times(_measured(found, ratio))}**")
    peer, name, value = WHOLE_RUN
    whole = summarise(MEASURES[name], found.get("peers.jsonl", ()))[value].get("ratio")
    by_peer[peer].append(f"env steps/s of a whole run of HalfCheetah **{_times(whole)}**")
    rows = [(f"rates, over those of {peer}", ", ".join(said)) for peer, said in by_peer.items()]
    texts = {line.name: line.text or DASH for line in verdicts}
    return filled(text, PART, table(("what", "measured"), [*rows, *((name, texts[name]) for name in KEPT)]))


def _measured(found: Mapping[str, Records], ratio: Ratio) -> float | None:
    own = latest(list(found.get(ratio.file, ())), "row").get((ratio.row,), {"checks": ()})
    return next((check["value"] for check in own["checks"] if check["what"] == ratio.what), None)


def _times(ratio: float | None) -> str:
    return DASH if ratio is None else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"
