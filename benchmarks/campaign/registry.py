"""Which learning gates there are, which of them are compared, and which share a picture.

Bars come from published levels: SAC on Pendulum-v1 reaches -151 to -157 at 20,000 env steps or more; on HalfCheetah-v4 the
worst of ten reference seeds has 3463 at 50,000 and 4986 at 100,000, and their mean there is 6156 (see
:mod:`campaign.published`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from campaign.comparison import EQUAL, NOT_BELOW, Comparison
from campaign.gate import ASYNC, SB3, SUCCESS, SYNC, Bars, Gate

DEMOS = "runs/reach_demos"  # below the root: where demonstrations are made, and a setting, so the same on each machine
ASYNC_SHARE = 0.85  # of the synchronous mean that the asynchronous one must reach
PEER_SHARE = 0.9  # of the mean of stable-baselines3 that ours must reach
POINTS = 25  # of a curve
THREE, FIVE = (0, 1, 2), (0, 1, 2, 3, 4)
NO_WORDS: Mapping[str, Any] = {}
BF16 = {"learner.precision": "bf16"}
REACH, PIXELS = "examples.envs.reach:Reach", "examples.envs.pixel_reach:PixelReach"


def _pendulum(name: str, mode: str, **rest: Any) -> Gate:
    marks = (2_500, 5_000, 10_000)
    bars = Bars(each=-200.0)
    return Gate(name, "Pendulum-v1", "pendulum.yaml", mode, FIVE, 10_000, 20, marks, bars, deadline_s=1800, **rest)


def _mujoco(
    name: str, mode: str, seeds: tuple[int, ...], env_steps: int, bars: Bars, words: Mapping[str, Any] = NO_WORDS, **rest: Any
) -> Gate:
    """All with the settings of the one example, which are those of the published runs as far as these tell."""
    marks = (*(mark for mark in (16_000, 33_000, 50_000) if mark < env_steps), env_steps)
    env = {"halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}[name.partition("-")[0]]
    words = {"eval.every": env_steps // POINTS, **words}
    return Gate(name, env, "halfcheetah_v4.yaml", mode, seeds, env_steps, 10, marks, bars, words=words, **rest)


def _reach(name: str, env: str, example: str, bars: Bars, env_steps: int, **rest: Any) -> Gate:
    marks = tuple(env_steps * part // 3 for part in (1, 2, 3))
    return Gate(name, env, example, ASYNC, THREE, env_steps, 50, marks, bars, SUCCESS, **rest)


# Without shifts critics learn pictures by heart: it takes many of them, and fewer updates of each.
_MANY_PICTURES = {"pacing.ratio": 0.25, "pool.capacity": 60_000, "eval.every": 5_000}
_CHEETAH, _NOTHING = Bars(each=2500.0, mean=3460.0), Bars()
_GATES = (
    _pendulum("pendulum-async", ASYNC),
    _pendulum("pendulum-sync", SYNC),
    _pendulum("pendulum-bf16", ASYNC, words=BF16),
    _mujoco("halfcheetah-async", ASYNC, FIVE, 50_000, _CHEETAH),
    _mujoco("halfcheetah-sync", SYNC, THREE, 50_000, _CHEETAH),
    _mujoco("halfcheetah-bf16", ASYNC, THREE, 50_000, _CHEETAH, words=BF16),
    _mujoco("halfcheetah-sb3", SB3, FIVE, 50_000, _NOTHING),
    _mujoco("halfcheetah-100k", ASYNC, THREE, 100_000, Bars(mean=4980.0, stretch=6150.0)),
    _mujoco("halfcheetah-100k-crossq", ASYNC, THREE, 100_000, _NOTHING, preset="crossq.yaml"),
    _mujoco("hopper-async", ASYNC, THREE, 30_000, _NOTHING),
    _mujoco("hopper-sb3", SB3, THREE, 30_000, _NOTHING),
    _mujoco("walker2d-async", ASYNC, THREE, 30_000, _NOTHING),
    _mujoco("walker2d-sb3", SB3, THREE, 30_000, _NOTHING),
    _reach("reach-rlpd", REACH, "reach_rlpd.yaml", Bars(each=0.9), 6_000, demos=50, words={"pool.demos": [DEMOS]}),
    _reach("reach-sac", REACH, "reach_sac.yaml", Bars(below=0.2), 6_000),
    _reach("pixel-reach-shift", PIXELS, "pixel_reach.yaml", Bars(each=0.8), 100_000, words=_MANY_PICTURES),
    _reach(
        "pixel-reach-still",
        PIXELS,
        "pixel_reach.yaml",
        Bars(each=0.8),
        100_000,
        words={"model.options.shift": 0, **_MANY_PICTURES},
    ),
)
GATES = {gate.name: gate for gate in _GATES}


def _compared(name: str, ours: str, theirs: str, *asked: Any) -> Comparison:
    return Comparison(name, GATES[ours], GATES[theirs], *asked)


_COMPARISONS = (
    _compared("pendulum: async = sync", "pendulum-async", "pendulum-sync", ASYNC_SHARE, EQUAL),
    _compared("halfcheetah: async = sync", "halfcheetah-async", "halfcheetah-sync", ASYNC_SHARE, EQUAL),
    _compared("pendulum: bf16 >= fp32", "pendulum-bf16", "pendulum-async", None, NOT_BELOW),
    _compared("halfcheetah: bf16 >= fp32", "halfcheetah-bf16", "halfcheetah-async", None, NOT_BELOW),
    _compared("halfcheetah: async >= sb3", "halfcheetah-async", "halfcheetah-sb3", PEER_SHARE, NOT_BELOW, True),
    _compared("hopper: async beside sb3", "hopper-async", "hopper-sb3", None, "", True),
    _compared("walker2d: async beside sb3", "walker2d-async", "walker2d-sb3", None, "", True),
    _compared("halfcheetah-100k: crossq >= sac", "halfcheetah-100k-crossq", "halfcheetah-100k", 1.0),
)
COMPARISONS = {comparison.name: comparison for comparison in _COMPARISONS}

PICTURES = {
    "pendulum": ("pendulum-async", "pendulum-sync", "pendulum-bf16"),
    "halfcheetah": ("halfcheetah-async", "halfcheetah-sync", "halfcheetah-sb3", "halfcheetah-bf16"),
    "halfcheetah-100k": ("halfcheetah-100k", "halfcheetah-100k-crossq"),
    "hopper": ("hopper-async", "hopper-sb3"),
    "walker2d": ("walker2d-async", "walker2d-sb3"),
    "reach": ("reach-rlpd", "reach-sac"),
    "pixel-reach": ("pixel-reach-shift", "pixel-reach-still"),
}
