"""One side of a pair: headrace or a peer, run from process start, and what was measured of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaign import runs
from campaign.measures import BATCH, BUFFER, GAMMA, HIDDEN, LR, OURS, TAU, WARMUP, Measure, Side
from campaign.process import run
from campaign.records import ROOT
from campaign.timeline import Timeline

SCRIPT = ROOT / "benchmarks" / "peer_sb3.py"
GOAL = -200.0
PROBE_STEPS, PROBE_MARKS = 2_000, (800, 2_000)
_PYTHONS: dict[Side, Path] = {}


def find_pythons(place: str, sides: Sequence[Side]) -> None:
    """Note the interpreter of each peer below ``place``.

    Raises:
        SystemExit: one is missing, saying which.
    """
    for side in sides:
        python = Path(place) / side / "bin" / "python"
        if not place or not python.exists():
            raise SystemExit(f"PEERS_VENVS: {place or '(unset)'} has no {side}/bin/python; see --help for what it must hold")
        _PYTHONS[side] = python


def python_of(side: Side) -> Path:
    """The interpreter that :func:`find_pythons` noted."""
    return _PYTHONS[side]


def run_side(m: Measure, side: Side, *, seed: int, threads: int) -> dict[str, Any]:
    """One run of one side.

    Returns:
        ``wall_s`` (process start to last env step and update), ``to_goal_s`` and ``to_goal_env_steps`` (none when not
        reached or not evaluated), ``env_steps_s`` and ``updates_s`` between the marks (none without marks),
        ``threads``, ``updates``.

    Raises:
        ProcessFailed: the run did not end well.
    """
    return (_run_ours if side == OURS else _run_peer)(m, side, seed, threads)


def probe(m: Measure, side: Side, threads: int) -> float:
    """Env steps a second of a short run."""
    short = replace(m, env_steps=PROBE_STEPS, evaluate_every=0, marks=PROBE_MARKS)
    return float(run_side(short, side, seed=0, threads=threads)["env_steps_s"])


def _run_ours(m: Measure, side: Side, seed: int, threads: int) -> dict[str, Any]:
    path = runs.new_place(f"peers-{m.name}-{side}")
    timeline = Timeline(path)
    try:
        config = ROOT / "examples" / m.example
        finished = runs.train(config, overrides(m, seed, threads), path, deadline_s=m.deadline_s, watch=timeline.watch)
    finally:
        timeline.close()
    runs.drop_pool(path)
    started = finished.ended.started
    out: dict[str, Any] = {"wall_s": round((timeline.done or started + finished.ended.seconds) - started, 2)}
    reached = first_reaching(sorted(timeline.evaluations.items()), GOAL)
    moment = timeline.when(reached) if reached is not None else None
    out |= {"to_goal_s": None if moment is None else round(moment - started, 2), "to_goal_env_steps": reached}
    if m.marks:
        low, high = (timeline.when(mark) for mark in m.marks)
        if low is not None and high is not None:
            updates = timeline.updates_at(high) - timeline.updates_at(low)
            out |= _rates(m.marks[1] - m.marks[0], updates, high - low)
    return {**out, "threads": threads, "updates": finished.result["updates"]}


def overrides(m: Measure, seed: int, threads: int) -> dict[str, Any]:
    """Our config keys for the settings that both sides share."""
    judged = {"eval.every": m.evaluate_every, "eval.episodes": m.episodes, "eval.final_episodes": 0}
    length = {"pacing.env_steps": m.env_steps, "pacing.ratio": 1.0, "pacing.min_fill": WARMUP, "pacing.random_steps": WARMUP}
    rates = {"learner.actor_lr": LR, "learner.critic_lr": LR, "learner.alpha_lr": LR}
    model = {"learner.batch_size": BATCH, "model.options.hidden": [HIDDEN, HIDDEN], "pool.capacity": BUFFER}
    return {
        "env.id": m.env,
        "seed": seed,
        "run.mode": "async",
        **judged,
        **length,
        **rates,
        **model,
        "learner.threads": threads,
    }


def _run_peer(m: Measure, side: Side, seed: int, threads: int) -> dict[str, Any]:
    options = {
        **{"library": side, "threads": threads, "env": m.env, "env_steps": m.env_steps, "seed": seed, "marks": list(m.marks)},
        **{"lr": LR, "batch": BATCH, "hidden": [HIDDEN, HIDDEN], "warmup": WARMUP, "buffer": BUFFER},
        **{"gamma": GAMMA, "tau": TAU, "evaluate_every": m.evaluate_every, "episodes": m.episodes, "final_episodes": 0},
        "until": GOAL if m.evaluate_every else None,
    }
    log = runs.new_place(f"peers-{m.name}-{side}").with_suffix(".log")
    ended = run([str(python_of(side)), str(SCRIPT), json.dumps(options)], log, deadline_s=m.deadline_s)
    answer = json.loads(ended.output()[-1])
    out: dict[str, Any] = {"wall_s": round(answer["end"] - ended.started, 2)}
    judged = [(int(steps), float(value)) for steps, value, *_ in answer["evaluations"]]
    reached = first_reaching(judged, GOAL)
    moment = next((at for steps, *_, at in answer["evaluations"] if steps == reached), None)
    out |= {"to_goal_s": None if moment is None else round(moment - ended.started, 2), "to_goal_env_steps": reached}
    if m.marks:
        low, high = (answer["marks"][str(mark)] for mark in m.marks)
        out |= _rates(m.marks[1] - m.marks[0], m.marks[1] - m.marks[0], high - low)  # one update a step, after each step
    return {**out, "threads": threads, "updates": answer["updates"], "versions": answer["versions"]}


def first_reaching(judged: Sequence[tuple[int, float]], goal: float) -> int | None:
    """Env steps of the first evaluation with at least ``goal``; none if there is none."""
    return next((steps for steps, value in judged if value >= goal), None)


def _rates(env_steps: float, updates: float, seconds: float) -> dict[str, float]:
    return {"env_steps_s": round(env_steps / seconds, 2), "updates_s": round(updates / seconds, 2)}
