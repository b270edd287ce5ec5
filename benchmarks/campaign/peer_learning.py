"""One learning run of stable-baselines3 at the settings of one of our configs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from campaign import peer, runs
from campaign.process import run
from headrace.common.cores import usable_cores
from headrace.launch.config import RunConfig
from headrace.learner.config import MLPOptions

SIDE = "sb3"
_TAKEN = {
    "env": ("id",),
    "pacing": ("env_steps", "min_fill", "random_steps", "ratio"),
    "pool": ("capacity",),
    "learner": (
        *(
            "batch_size",
            "gamma",
            "tau",
            "actor_lr",
            "critic_lr",
            "alpha_lr",
            "adam_beta1",
            "adam_beta2",
            "alpha",
            "temperature",
        ),
        *("entropy_backup", "actor_update_interval", "target_update_interval"),
    ),
    "eval": ("every", "episodes", "final_episodes"),
}
# What its SAC does as it comes, or cannot be told: our config has to say the same.
_FIXED = {
    **{"pacing.ratio": 1.0, "learner.temperature": "auto_exp", "learner.alpha": 1.0, "learner.entropy_backup": True},
    **{"learner.adam_beta1": 0.9, "learner.adam_beta2": 0.999, "learner.actor_update_interval": 1},
    **{"learner.target_update_interval": 1},
}


def settings(config: RunConfig) -> dict[str, Any]:
    """What stable-baselines3 takes over of our settings, nested as ours are, so that both can be compared.

    Raises:
        ValueError: it cannot do what a setting says; names it.
    """
    ours = runs.settings(config)
    taken: dict[str, Any] = {section: {key: ours[section][key] for key in keys} for section, keys in _TAKEN.items()}
    for name, value in _FIXED.items():
        section, _, key = name.partition(".")
        if taken[section][key] != value:
            raise ValueError(f"{name}: {taken[section][key]}, but stable-baselines3 has {value}; a pair needs the same")
    learner, pacing = taken["learner"], taken["pacing"]
    if len({learner[f"{part}_lr"] for part in ("actor", "critic", "alpha")}) > 1:
        raise ValueError("learner.actor_lr, critic_lr and alpha_lr: stable-baselines3 has one for all three")
    if pacing["min_fill"] != pacing["random_steps"]:
        text = f"pacing.min_fill {pacing['min_fill']} and random_steps {pacing['random_steps']}"
        raise ValueError(f"{text}: stable-baselines3 has one for both")
    model, options = ours["model"]["type"], dict(ours["model"]["options"])
    hidden = list(options.pop("hidden", MLPOptions().hidden))
    if model != "mlp" or options:
        raise ValueError(f"model: {model} with {options}, but stable-baselines3 takes an mlp with hidden alone")
    return {**taken, "model": {"type": model, "options": {"hidden": hidden}}}


def learn(config: RunConfig, log: Path, deadline_s: float, watch: Callable[[int], None]) -> dict[str, Any]:
    """Train and evaluate.

    Args:
        config: ours; see :func:`settings` for what is taken of it.
        log: file that the run's output is written to.
        deadline_s: longest time that the run may take.
        watch: called again and again while the run goes on.

    Returns:
        See :func:`told`.

    Raises:
        ProcessFailed: the run did not end well.
    """
    options = options_of(settings(config), config.seed)
    line = [str(peer.python_of(SIDE)), str(peer.SCRIPT), json.dumps(options)]
    ended = run(line, log, deadline_s=deadline_s, watch=watch)
    return told(json.loads(ended.output()[-1]), options, ended.started)


def options_of(taken: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Those settings as the script takes them."""
    learner, pacing, judged = taken["learner"], taken["pacing"], taken["eval"]
    return {
        **{
            "library": SIDE,
            "threads": usable_cores(),
            "env": taken["env"]["id"],
            "env_steps": pacing["env_steps"],
            "seed": seed,
        },
        **{"warmup": pacing["min_fill"], "lr": learner["critic_lr"], "batch": learner["batch_size"]},
        **{"gamma": learner["gamma"], "tau": learner["tau"], "hidden": taken["model"]["options"]["hidden"]},
        **{"buffer": taken["pool"]["capacity"], "evaluate_every": judged["every"], "episodes": judged["episodes"]},
        **{"final_episodes": judged["final_episodes"], "until": None, "marks": []},
    }


def told(answer: Mapping[str, Any], options: Mapping[str, Any], began: float) -> dict[str, Any]:
    """What a record says of a run, from the script's answer.

    Returns:
        ``return_mean``, ``return_std``, ``success_rate`` (none), ``episodes``, ``env_steps``, ``updates``, ``achieved_ratio``,
        ``wall_s`` (process start to last update, evaluations excluded), ``evaluations``, ``training`` (nothing), ``versions``,
        and ``began``, seconds since the epoch.
    """
    mean, std = answer["final"]
    curve = [runs.point(steps, value, spread) for steps, value, spread, _ in answer["evaluations"]]
    last = runs.point(answer["env_steps"], mean, std)
    return {
        **{"return_mean": mean, "return_std": std, "success_rate": None, "episodes": options["final_episodes"]},
        **{"env_steps": answer["env_steps"], "updates": answer["updates"]},
        "achieved_ratio": round(answer["updates"] / (answer["env_steps"] - options["warmup"]), 5),
        "wall_s": round(answer["end"] - began, 1),
        "evaluations": [p for p in curve if p[0] < last[0]] + [last],
        **{"training": [], "versions": answer["versions"], "began": began},
    }
