"""A robot's config as it is run dry: a fake arm in place of the robot, everything small and on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.actor.robots import robot_spec
from headrace.common.config import dump, load, merge
from headrace.common.errors import ConfigError
from headrace.launch.config import RunConfig

FAKE, STAND_IN = "headrace.actor.fake_arm:FakeArm", "headrace.actor.fake_arm:stand_in"
HUMAN = {"device": "headrace.actor.fake_human:FakeHuman", "kwargs": {"chance": 0.005}}
STUTTER = 0.05
MOST_ROWS, MOST_STEPS, FILL = 20_000, 100, 200


def dry_config(config: RunConfig, record: Path, endpoint: str, freeze: tuple[float, float]) -> RunConfig:
    """The config of a dry run.

    Args:
        config: of the robot; its driver is made to see what it observes, and connects to nothing.
        record: where the arm writes down what it is told.
        endpoint: of the buffer.
        freeze: from and to when all cameras hang, in seconds after the arm is connected.

    Raises:
        ConfigError: it is not that of a robot, or its limits do not fit.
        EnvError: its driver cannot be made.
    """
    if not config.actor.robot:
        raise ConfigError("actor.robot: false, and a dry run is for robots; nearest valid: true")
    spec = robot_spec(config.env, config.window)
    config.robot.guard.require(spec.action.dim)
    kwargs: dict[str, Any] = {"record": str(record), "stutter": STUTTER, "freeze": [list(freeze)]}
    if config.env.id == FAKE:
        env: dict[str, Any] = {"kwargs": {**config.env.kwargs, **kwargs}}
    else:
        one = {**spec.to_dict(), "action": {**spec.to_dict()["action"], "shape": [spec.action.dim]}, "kind": "steps"}
        env = {"id": STAND_IN, "kwargs": {"spec": one, **kwargs}, "wrappers": []}
    least = max(config.learner.batch_size, min(FILL, config.pacing.min_fill))
    changes = {
        "env": {**env, "max_episode_steps": config.env.max_episode_steps or MOST_STEPS},
        "robot": {"operator": "headrace.actor.operator:Willing"},
        "network": {"endpoint": endpoint, "heartbeat_s": min(0.2, config.network.heartbeat_s)},
        "pool": {"capacity": max(least, min(MOST_ROWS, config.pool.capacity))},
        "pacing": {"env_steps": 0, "min_fill": least, "random_steps": min(least, config.pacing.random_steps)},
        "run": {"pool_dir": "", "pool_from": ""},
        "eval": {"every": 0, "final_episodes": 0},
    }
    plain = dump(config)
    plain["env"].pop("kwargs")  # a stand-in has none of the driver's
    if config.robot.teleop.device != "none":
        plain["robot"]["teleop"] |= HUMAN  # who needs neither terminal nor gamepad
    return load(RunConfig, merge(plain, changes))
