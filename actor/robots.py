"""Robots by name: what ``env.id`` stands for where ``actor.robot`` is true, a driver or an environment."""

from __future__ import annotations

from typing import Any, cast

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.judged_robot import JudgedRobot
from headrace.actor.robot import Robot
from headrace.actor.success import Judge, find_classifier
from headrace.common.errors import ConfigError, EnvError, SpecError
from headrace.common.naming import is_factory, resolve
from headrace.common.specs import ROLES, ObsSpec, TransitionSpec

METHODS = ("connect", "reset", "observe", "act", "stop", "state", "close")


def check_robot(config: EnvConfig) -> None:
    """Refuse what the name alone tells, without making anything.

    Raises:
        EnvError: an environment that is unknown.
        ConfigError: the driver cannot be imported.
    """
    if is_factory(config.id):
        resolve(config.id, "env.id")
    else:
        from headrace.actor.gym_make import check_env

        check_env(config)
    if config.success.file:
        find_classifier(config.success)


def make_robot(config: EnvConfig) -> Robot:
    """The driver that ``config.id`` names, not connected; an environment gets one around it.

    Raises:
        EnvError: one line that names the id and the reason.
        ConfigError: the id cannot be imported, or options for environments are given with a driver.
    """
    found: Any = None
    if is_factory(config.id):
        try:
            found = resolve(config.id, "env.id")(**config.kwargs)
        except ConfigError:
            raise
        except Exception as error:  # whatever a foreign constructor raises becomes our one line
            raise EnvError(f"robot {config.id!r} could not be made: {type(error).__name__}: {error}") from error
    if not all(hasattr(found, name) for name in METHODS):
        from headrace.actor.gym_robot import GymRobot

        if hasattr(found, "close"):
            found.close()
        return GymRobot(config)
    if config.wrappers:
        raise ConfigError(f"env.wrappers: {list(config.wrappers)} with the driver {config.id}; wrappers are for environments")
    robot = cast("Robot", found)
    judge = Judge.of(config.success, robot.obs)
    return robot if judge is None else JudgedRobot(robot, judge)


def robot_spec(config: EnvConfig, window: WindowConfig) -> TransitionSpec:
    """The spec of rows and frames that this robot gives; makes its driver, and connects to nothing.

    Raises:
        EnvError: as :func:`make_robot`, or what it says of itself cannot be stored.
        ConfigError: more than one lane, or a role for an observation that it does not give.
    """
    if config.lanes != 1:
        raise ConfigError(f"env.lanes: {config.lanes} with actor.robot true, and one actor drives one robot; nearest valid: 1")
    robot = make_robot(config)
    try:
        keys = [o.key for o in robot.obs]
        for key, role in config.roles.items():
            if key not in keys or role not in ROLES:
                raise ConfigError(f"env.roles: {key!r}: {role!r}; the robot observes {', '.join(keys)}")
        obs = tuple(ObsSpec(o.key, o.shape, o.dtype, str(config.roles.get(o.key, o.role))) for o in robot.obs)
        return window.spec(obs, robot.action)
    except SpecError as error:
        raise EnvError(f"robot {config.id}: {error}") from error
    finally:
        robot.close()
