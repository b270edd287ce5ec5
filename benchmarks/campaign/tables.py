"""The results page: every number in it comes from a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speed.curve_table import TABLE as CURVE
from speed.learning_table import TABLE as LEARNER
from speed.table import TABLE as POOL

from campaign import cuts as power
from campaign.arm_tables import arm_lines, arm_sections
from campaign.chaotic import chaos_line, chaos_section
from campaign.faults import MUTANTS
from campaign.fuzz_table import fuzz_line, fuzz_section
from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.gate_tables import gate_lines, picture_parts
from campaign.hosts_table import FILE as HOSTS
from campaign.hosts_table import hosts_lines, hosts_section
from campaign.intervals import failure_bound
from campaign.killing import ROLES
from campaign.markdown import DASH, Line, Records, commit, commits, number, table
from campaign.measures import MEASURES, OURS, Measure, pairs_of, summarise
from campaign.numbered import FAULTS
from campaign.pool_tables import pool_lines, pool_sections
from campaign.records import Record, latest
from campaign.registry import PICTURES
from campaign.robot_table import PICTURE, robot_line, robot_section
from campaign.speeds import speed_line, speed_section
from campaign.strikes import BARS, KINDS, of_kind
from campaign.strikes import TRIALS as KILLS
from campaign.strikes import summarise as summarise_kills

TRIALS = 10
COUNTS = ("acknowledged rows", "labels", "failures", *FAULTS)  # of a campaign over rows that prove themselves


def page(
    gates: Records,
    peers: Records,
    survival: Records,
    others: Mapping[str, Records],
    drawn: Sequence[str],
    pool: Records = (),
    kills: Records = (),
    mutants: Records = (),
    powercuts: Records = (),
    learner: Records = (),
    promised: Sequence[str] = (),
    fuzz: Records = (),
    curve: Records = (),
    chaos: Records = (),
    robot: Records = (),
    trials: Mapping[str, Records] | None = None,
) -> str:
    """The whole page in Markdown; ``trials``: of all other files, by name."""
    parts = [
        "# Results",
        "Made by `benchmarks/report.py` from the `.jsonl` files beside it; do not edit. How each number is measured stands at"
        " the top of the script that measures it: `gates.py`, `peers.py`, `robot_learning.py`, `many_hosts.py`, `chaos.py`,"
        " `survival.py`, `promises.py`, `kills.py`, `powercut.py`, `torn.py`, `snapshots.py`, `damage.py`, `fuzz.py`,"
        " `pool.py`, `learner.py`, `curve.py` and `mutants.py` in `benchmarks/`.",
        _summary_table(
            summary(gates, peers, survival, pool, kills, mutants, powercuts, learner, fuzz, curve, chaos, robot, trials)
        ),
        "## Promises",
        "What is promised, and the trials that try to break it; the commands are scripts of `benchmarks/`. A bound says how"
        " often a trial may fail at most, with 95 % confidence, after what was seen: 1 - 0.05^(1/N) after 0 of N.",
        *(promised or [NOT_RUN]),
        "## Learning gates",
        *(part for name in PICTURES for part in picture_parts(name, gates, name in drawn)),
        "## Beside other libraries",
        "Interleaved pairs on one machine at equal settings, from process start, evaluations excluded.",
        *_threads(peers),
        *(part for m in MEASURES.values() for part in _measure(m, peers)),
        "## A robot that learns on two hosts",
        *robot_section(robot, drawn=PICTURE in drawn),
        *arm_sections(trials or {}),
        "## Many hosts, and their reboots",
        *hosts_section((trials or {}).get(HOSTS, ())),
        "## A whole job under all faults at once",
        *chaos_section(chaos),
        "## Survival of SIGKILL",
        _survival(survival),
        "## A pool whose buffer is killed under load",
        _kills(kills),
        "## A pool whose machine loses its power",
        _powercuts(powercuts),
        *pool_sections(trials or {}),
        "## Mutated messages",
        fuzz_section(fuzz),
        "## Speed of the pool",
        *speed_section(POOL, pool),
        "## Speed of the learner",
        *speed_section(LEARNER, learner),
        "## What keys cost",
        *speed_section(CURVE, curve),
        "## Planted faults",
        _mutants(mutants),
        *_others(others),
    ]
    return "\n\n".join(parts) + "\n"


def summary(
    gates: Records,
    peers: Records,
    survival: Records,
    pool: Records = (),
    kills: Records = (),
    mutants: Records = (),
    powercuts: Records = (),
    learner: Records = (),
    fuzz: Records = (),
    curve: Records = (),
    chaos: Records = (),
    robot: Records = (),
    trials: Mapping[str, Records] | None = None,
) -> list[Line]:
    """Every verdict."""
    lines = gate_lines(gates)
    lines += [_measure_line(m, peers) for m in MEASURES.values()]
    lines += [robot_line(robot), *arm_lines(trials or {}), *hosts_lines((trials or {}).get(HOSTS, ())), chaos_line(chaos)]
    lines += [*(_survival_line(role, survival) for role in ROLES)]
    lines += [*(_kills_line(ack, kills) for ack in KILLS), *_powercuts_lines(powercuts), *pool_lines(trials or {})]
    lines += [speed_line("pool", name, pool) for name in POOL]
    lines += [speed_line("learner", name, learner) for name in LEARNER]
    lines += [speed_line("keys", name, curve) for name in CURVE]
    return [*lines, fuzz_line(fuzz), _mutants_line(mutants)]


def _summary_table(lines: Sequence[Line]) -> str:
    rows = [(line.name, f"**{line.state}**", line.text or DASH, *_origin(line.records)) for line in lines]
    return table(("what", "verdict", "measured", "commits", "dates", "machine"), rows)


def _measure_line(m: Measure, lines: Records) -> Line:
    own = pairs_of(m, lines)
    if not own:
        return Line(m.name, NOT_RUN, "", ())
    said = summarise(m, lines)
    texts = [_compared(m, key, said[key]) for key in m.values]
    if m.target is not None:
        texts.append(f"bar: ratio {'<=' if m.at_most else '>='} {m.target}")
    states = {True: PASSED, False: FAILED, None: UNFINISHED if m.target is not None else "measured"}
    return Line(m.name, states[said.get("passed")], f"medians of {len(own)} pairs: {'; '.join(texts)}", tuple(own))


def _compared(m: Measure, key: str, said: Mapping[str, Any]) -> str:
    text = f"{key} " + ", ".join(f"{side} {number(said[side])}" for side in m.sides)
    if "ratio" in said:
        low, high = said["interval"]
        text += f", ratio {said['ratio']} [{low}, {high}]"
    return text


def _measure(m: Measure, lines: Records) -> list[str]:
    own = pairs_of(m, lines)
    if not own:
        return [f"### {m.name}", NOT_RUN]
    head = ("pair", *(f"{side} {key}" for key in m.values for side in m.sides), "order", "commit", "date")
    rows = []
    for r in own:
        values = [number(r[side].get(key)) for key in m.values for side in m.sides]
        rows.append((r["pair"], *values, ", ".join(r["order"]), commit(r), r["date"][:10]))
    plain = {key: value for key, value in own[-1]["settings"].items() if key != "threads"}
    shared = ", ".join(f"{key} {value}" for key, value in plain.items() if value not in ([], 0))
    threads = ", ".join(f"{side} {count}" for side, count in own[-1]["settings"]["threads"].items())
    return [f"### {m.name}", table(head, rows), f"Settings: {shared}. Torch threads: {threads}. {_versions(own[-1], m)}"]


def _threads(lines: Records) -> list[str]:
    found = latest([r for r in lines if r.get("measure") == "threads"], "env", "side", "threads")
    rows = [(*key, number(r["env_steps_s"]), commit(r), r["date"][:10]) for key, r in sorted(found.items())]
    if not rows:
        return []
    why = "Each side ran shortly with 1 and with 2 torch threads on the whole machine, and took the faster."
    return ["### threads", why, table(("env", "side", "threads", "env_steps_s", "commit", "date"), rows)]


def _versions(record: Record, m: Measure) -> str:
    texts = [
        f"{side}: {' '.join(f'{k} {v}' for k, v in record[side].get('versions', {}).items())}"
        for side in m.sides
        if side != OURS
    ]
    return "Versions: " + "; ".join(texts) + "."


def _trials(role: str, lines: Records) -> list[Record]:
    return [r for (kind, _), r in sorted(latest(list(lines), "role", "trial").items()) if kind == role]


def _survival_line(role: str, lines: Records) -> Line:
    own = _trials(role, lines)
    if not own:
        return Line(f"SIGKILL of the {role}", NOT_RUN, "", ())
    failures = sum(not r["passed"] for r in own)
    text = f"{failures} failures of {len(own)} trials, 95 % upper bound {failure_bound(failures, len(own)):.0%}"
    state = FAILED if failures else PASSED if len(own) >= TRIALS else UNFINISHED
    return Line(f"SIGKILL of the {role}", state, text, tuple(own))


def _survival(lines: Records) -> str:
    if not lines:
        return NOT_RUN
    rows = []
    for role in ROLES:
        for r in _trials(role, lines):
            counts = r["counters"]
            steps = [counts.get(k, DASH) for k in ("produced", "live", "rows_evicted", "abandoned", "rows_duplicate")]
            found = "all accounted for" if r["passed"] else "; ".join(r["problems"]).replace("\n", " ").replace("|", "/")[:300]
            when = (number(r["killed_at_s"]), r["killed_at_env_steps"], number(r["recovered_s"]))
            rows.append((role, r["trial"], *when, *steps, found, commit(r), r["date"][:10]))
    head = (
        "role",
        "trial",
        "killed at s",
        "at env steps",
        "back after s",
        "produced",
        "live",
        "evicted",
        "abandoned",
        "sent twice",
    )
    return table((*head, "checker", "commit", "date"), rows)


def _kills_line(ack: str, lines: Records) -> Line:
    name = "rows after SIGKILL of the buffer under load" + ("" if ack == "memory" else f", {ack}")
    own = tuple(r for kind in KINDS for r in of_kind(ack, kind, lines))
    if not own:
        return Line(name, NOT_RUN, "", ())
    said = summarise_kills(ack, lines)
    text = f"{said['kills']} kills, {_counted(said)}; back after at most {said['restart_max_s']:.1f} s"
    enough = all(len(of_kind(ack, kind, lines)) >= count for kind, count in KILLS[ack].items())
    whole = enough and said["acked"] >= BARS["acked"][ack]
    failed = said["failures"] or said["restart_max_s"] > BARS["restart_s"]
    return Line(name, FAILED if failed else PASSED if whole else UNFINISHED, text, own)


def _counted(said: Mapping[str, Any]) -> str:
    faults = ", ".join(f"{said[fault]} {fault}" for fault in FAULTS)
    return f"{said['acked']:,} acknowledged rows, {said['labels']:,} labels: {faults}"


def _kills(lines: Records) -> str:
    rows = []
    for ack in KILLS:
        for kind in KINDS:
            if own := of_kind(ack, kind, lines):
                said = summarise_kills(ack, own)
                back = (f"{said['restart_median_s']:.2f}", f"{said['restart_max_s']:.2f}")
                rows.append((ack, kind, len(own), *_counts(said), *back, commits(own)))
    head = ("pool.ack", "killed during", "kills", *COUNTS, "back after s, median", "longest", "commit")
    return table(head, rows) if rows else NOT_RUN


def _counts(said: Mapping[str, Any]) -> tuple[Any, ...]:
    return f"{said['acked']:,}", f"{said['labels']:,}", said["failures"], *(said[fault] for fault in FAULTS)


def _powercuts_lines(lines: Records) -> list[Line]:
    out = []
    for ack, trials in (("synced", power.SYNCED), ("memory", power.MEMORY)):
        own, said, text = tuple(power.of_kinds([*trials], lines)), power.summarise([*trials], lines), ""
        if own:
            bound = failure_bound(said["failures"], said["cuts"])
            text = f"{said['cuts']} cuts, {_counted(said)}; 95 % upper bound of failures {bound:.0%}"
            text += f"; goes on from its newest snapshot, at most {said['lost_max_s']:.1f} s back" if ack == "memory" else ""
        whole = all(len(power.of_kind(kind, lines)) >= count for kind, count in trials.items())
        state = (FAILED if said["failures"] else PASSED if whole else UNFINISHED) if own else NOT_RUN
        out.append(Line(f"rows after a power cut, {ack}", state, text, own))
    return out


def _powercuts(lines: Records) -> str:
    rows = []
    for kind in power.KINDS:
        if own := power.of_kind(kind, lines):
            said = power.summarise([kind], own)
            back = (f"{said['restart_median_s']:.2f}", f"{said['restart_max_s']:.2f}", f"{said['lost_max_s']:.1f}")
            rows.append((kind, len(own), *_counts(said), f"{said['cached']:,}", *back, commits(own)))
    times = ("back after s, median", "longest", "longest way back to a snapshot, s")
    head = ("cut during", "cuts", *COUNTS, "writes in the disk's cache", *times, "commit")
    return table(head, rows) if rows else NOT_RUN


def _mutants_line(lines: Records) -> Line:
    newest = latest(list(lines), "mutant")
    own = tuple(newest[name,] for name in MUTANTS if (name,) in newest)
    survivors = [r["mutant"] for r in own if not r["killed"]]
    if not own:
        return Line("planted faults", NOT_RUN, "", ())
    text = f"{len(own) - len(survivors)} of {len(MUTANTS)} found by the tests"
    text += f"; not found: {', '.join(survivors)}" if survivors else ""
    return Line("planted faults", FAILED if survivors else PASSED if len(own) == len(MUTANTS) else UNFINISHED, text, own)


def _mutants(lines: Records) -> str:
    own = _mutants_line(lines).records
    if not own:
        return NOT_RUN
    rows = [(r["mutant"], r["file"], r["by"] or "**survived**", r["seconds"], commit(r), r["date"][:10]) for r in own]
    return table(("fault", "in", "found by", "s", "commit", "date"), rows)


def _others(others: Mapping[str, Records]) -> list[str]:
    parts = []
    for name, lines in others.items():
        if lines:
            flat = {k: v for k, v in lines[-1].items() if isinstance(v, (str, int, float, bool))}
            parts += [f"## {name}", f"{len(lines)} records; the newest:", table(tuple(flat), [tuple(flat.values())])]
    return parts


def _origin(own: Records) -> tuple[str, str, str]:
    if not own:
        return DASH, DASH, DASH
    days = sorted({r["date"][:10] for r in own})
    machines = sorted({f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in own})
    return commits(own), " to ".join(dict.fromkeys([days[0], days[-1]])), "; ".join(machines)
