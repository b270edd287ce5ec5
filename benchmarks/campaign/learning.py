"""One run of a learning gate, from its command to the record that it leaves."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from campaign import peer_learning, provenance, runs
from campaign.gate import SB3, Gate
from campaign.process import ProcessFailed, run
from campaign.records import ROOT, Record
from campaign.registry import DEMOS
from headrace.launch.config import RunConfig

SAY_EVERY_S = 10.0
DEMOS_S = 120.0


def resolve(gate: Gate, seed: int) -> RunConfig:
    """The whole config of one run."""
    return runs.resolve(gate.config, gate.overrides(seed), gate.preset_file)


def settings(gate: Gate, seed: int) -> dict[str, Any]:
    """What decides the run's result; of a peer's run, what it takes of our config."""
    config = resolve(gate, seed)
    return peer_learning.settings(config) if gate.mode == SB3 else runs.settings(config)


def command(gate: Gate, seed: int) -> str:
    """The run in words."""
    if gate.mode == SB3:
        return f"stable-baselines3 with {peer_learning.options_of(settings(gate, seed), seed)}"
    return " ".join(runs.command(gate.config, gate.overrides(seed), runs.new_place(_name(gate, seed)), gate.preset_file))


def run_one(gate: Gate, seed: int, title: str) -> Record:
    """Run it, and say from time to time how far it is.

    Raises:
        ProcessFailed: it did not end well, or its final evaluation does not say what is judged.
    """
    config, path = resolve(gate, seed), runs.new_place(_name(gate, seed))
    origin = {**provenance.commit(), "machine": provenance.machine()}
    if gate.demos:
        make_demos(gate.demos)
    told = (_theirs if gate.mode == SB3 else _ours)(gate, seed, config, path, title)
    if told[gate.value] is None:
        raise ProcessFailed(f"the final evaluation says no {gate.measured}; see {path.with_suffix('.log').name}")
    began, curve = told.pop("began"), told["evaluations"]
    return {
        **{"gate": gate.name, "env": gate.env, "mode": gate.mode, "seed": seed},
        **told,
        "started": provenance.stamp(began),
        "date": provenance.stamp(),
        **origin,
        **{"example": gate.example, "preset": gate.preset, "overrides": gate.overrides(seed), "settings": settings(gate, seed)},
        "marks": {str(steps): runs.at(curve, steps) for steps in gate.marks},
    }


def make_demos(episodes: int) -> None:
    """Demonstrations of the reach task in :data:`DEMOS`, anew, so that they are those of this very code."""
    place = ROOT / DEMOS
    shutil.rmtree(place, ignore_errors=True)
    words = [sys.executable, "-m", "examples.envs.reach_demos", DEMOS, "--episodes", str(episodes)]
    run(words, place.with_suffix(".log"), deadline_s=DEMOS_S)


def told_of(result: Mapping[str, Any], metrics: list[dict[str, Any]], value: str) -> dict[str, Any]:
    """What a record says of a run of ours, from its ``result.json`` and its metrics; ``value`` is what its curve shows."""
    mean = {"return_mean": result["eval_return_mean"], "success_rate": result["eval_success_rate"]}
    curve = runs.evaluations(metrics, value)
    if mean[value] is not None:  # the evaluation at the end belongs to the curve
        last = runs.point(result["env_steps"], mean[value], result["eval_return_std"], value)
        curve = [p for p in curve if p[0] < last[0]] + [last]
    return {
        **mean,
        "return_std": result["eval_return_std"],
        **{key: result[key] for key in ("episodes", "env_steps", "updates", "achieved_ratio")},
        "wall_s": round(result["wall_s"], 1),
        **{"evaluations": curve, "training": runs.training_returns(metrics)},
    }


def _ours(gate: Gate, seed: int, config: RunConfig, path: Path, title: str) -> dict[str, Any]:
    watch = _telling(title, lambda: _progress(path, gate.env_steps))
    finished = runs.train(
        gate.config, gate.overrides(seed), path, preset=gate.preset_file, deadline_s=gate.deadline_s, watch=watch
    )
    runs.drop_pool(path)
    return {**told_of(finished.result, runs.read_metrics(path), gate.value), "began": finished.ended.started}


def _theirs(gate: Gate, seed: int, config: RunConfig, path: Path, title: str) -> dict[str, Any]:
    log = path.with_suffix(".log")

    def last_line() -> str:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "starting"

    return peer_learning.learn(config, log, gate.deadline_s, _telling(title, last_line))


def _name(gate: Gate, seed: int) -> str:
    return f"{gate.name}-seed{seed}"


def _telling(title: str, say: Callable[[], str]) -> Callable[[int], None]:
    said = time.monotonic()

    def watch(pid: int) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            print(f"{title}: {say()}", flush=True)

    return watch


def _progress(path: Path, goal: int) -> str:
    """How far a run is, from its metrics."""
    last = next((m for m in reversed(runs.read_metrics(path)) if "run/env_steps" in m), None)
    if last is None:
        return "starting"
    value = last.get("run/return_mean")
    shown = "-" if value is None else f"{value:.1f}"
    return f"env steps {last['run/env_steps']:,} of {goal:,}, training return {shown}"
