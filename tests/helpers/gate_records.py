"""Records of learning gates made by hand; the folder of the benchmark scripts must be on the path."""

from __future__ import annotations

from campaign.registry import GATES

SETTINGS = {"learner": {"lr": 0.001}, "pacing": {"ratio": 1.0}}


def record(name, seed, value, **changes):
    """What a good run of this gate with this result leaves, except for ``changes``."""
    gate = GATES[name]
    run = {"env": gate.env, "env_steps": gate.env_steps, "episodes": gate.episodes, "achieved_ratio": 1.0, "wall_s": 100.0}
    return {"gate": name, "seed": seed, gate.value: value, **run, "settings": SETTINGS, **changes}


def of(name, values, **changes):
    """Records of the gate's first seeds."""
    return [record(name, seed, value, **changes) for seed, value in zip(GATES[name].seeds, values, strict=False)]


def missed(verdict):
    """What did not hold."""
    return [c.what for c in verdict.checks if not c.holds]
