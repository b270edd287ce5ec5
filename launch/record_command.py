"""``headrace record``: demonstrations of a config's env or robot, by a script or by people, as a pool."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.envs import Lanes, LaneStep
from headrace.actor.guard import Vitals
from headrace.actor.people import People
from headrace.actor.rewarding import rewarded
from headrace.buffer.about import About
from headrace.common.clock import MonotonicClock
from headrace.common.config import replace
from headrace.common.errors import ConfigError
from headrace.common.naming import resolve
from headrace.common.seeds import derive_seed
from headrace.launch.config import RunConfig
from headrace.launch.interrupt import Interrupt
from headrace.launch.recording import ACTOR, Act, Recording, Shelf
from headrace.launch.targets import load_target

Array = np.ndarray[Any, Any]


def record_command(
    target: Path, overrides: Sequence[str], out: Path, *, episodes: int, by: str, keep: str, tasks: Sequence[str]
) -> int:
    """Play episodes of ``target``'s env or robot and keep them in the pool ``out``.

    Args:
        target: config file or run.
        overrides: of the config.
        out: a pool that takes more of the same, or where a new one is to be.
        episodes: how many are kept.
        by: ``module:function`` of ``(env, rng)`` that gives the next action; empty: people drive.
        keep: which episodes: ``success``, ``known`` or ``all``.
        tasks: what tasks 0, 1, ... are, in words.

    Raises:
        ConfigError: no episodes, or a script for a robot, which is driven by its device.
    """
    if episodes < 1:
        raise ConfigError(f"--episodes: {episodes}; nearest valid: 1")
    config, _ = load_target(target, overrides)
    config = replace(config, env=replace(config.env, lanes=1, vector="sync"))
    script = _script(config, by)
    session = Shelf.sessions(out)
    with Interrupt() as interrupt, contextlib.ExitStack() as stack:
        stage = stack.enter_context(_robot(config, session) if config.actor.robot else _env(config, session, script))
        shelf = stack.enter_context(Shelf(out, stage.lanes.spec, About(stage.fps, dict(enumerate(tasks)))))
        recording = Recording(shelf, episodes, keep)
        try:
            recording.run(stage.lanes, stage.act, stage.hear, lambda: interrupt.asked or stage.leaves())
        finally:
            done = recording.done
            print(f"{out}: {done.episodes} episodes, {done.rows} rows entered as actor {shelf.actor}, {shelf.rows} are live")
        if interrupt.asked:
            raise KeyboardInterrupt
    return 0


@dataclass(frozen=True)
class _Stage:
    """What plays.

    Attributes:
        lanes: one lane.
        act: what it is asked for.
        hear: what people said since, as :class:`Recording` takes it.
        leaves: whether they said that it is enough.
        fps: steps a second; 0 where nobody says.
    """

    lanes: Lanes
    act: Act
    hear: Callable[[], list[str]]
    leaves: Callable[[], bool]
    fps: float


def _script(config: RunConfig, by: str) -> Callable[..., Any] | None:
    if by and config.actor.robot:
        raise ConfigError(
            f"--by {by}: with actor.robot true the robot is driven by its device; name a Teleop of your own as"
            " robot.teleop.device"
        )
    if not by and config.actor.robot and config.robot.teleop.device == "none":
        raise ConfigError("robot.teleop.device: none, so nobody drives; nearest valid: keyboard, gamepad, or one of your own")
    return resolve(by, "--by") if by else None


@contextlib.contextmanager
def _env(config: RunConfig, session: int, script: Callable[..., Any] | None) -> Iterator[_Stage]:
    """An environment, by a script that sees all of it; without one by people that it lets take over by itself."""
    from headrace.actor.gym_lanes import GymLanes

    lanes = GymLanes(config.env, config.window, (config.seed, ACTOR, session))
    rng = np.random.default_rng(derive_seed(config.seed, ACTOR, session, "action"))
    low, high = (np.asarray(side, np.float32) for side in (lanes.spec.action.low, lanes.spec.action.high))
    rest = np.clip(np.zeros(lanes.spec.action.dim, np.float32), low, high)

    def act(step: LaneStep | None) -> Array:
        return rest if script is None else np.asarray(script(lanes.bare, rng), np.float32).reshape(rest.shape)

    with contextlib.closing(lanes):
        yield _Stage(rewarded(lanes, config.env), act, list, bool, float(lanes.bare.metadata.get("render_fps") or 0))


@contextlib.contextmanager
def _robot(config: RunConfig, session: int) -> Iterator[_Stage]:
    """A robot behind its guard, which rests while nobody holds its device."""
    from headrace.actor.robot_lanes import RobotLanes
    from headrace.actor.robots import robot_spec

    people, clock, stop, paused = People(), MonotonicClock(), threading.Event(), False
    spec = robot_spec(config.env, config.window)
    displaces = config.robot.guard.command == "displacement"
    unknown = np.zeros(spec.action.dim, np.float32) if displaces else np.full(spec.action.dim, np.nan, np.float32)

    def vitals() -> Vitals:
        return Vitals(clock.now(), 0.0)  # there is neither buffer nor policy whose age could matter

    def act(step: LaneStep | None) -> Array:
        held = None if step is None or displaces or not step.live[0] else step.executed
        return unknown if held is None else held[0]

    def hear() -> list[str]:
        nonlocal paused
        wish = people.ask(clock.now(), paused)  # no buffer is there to decide on it, so it is so
        paused = wish == "pause" if wish else paused
        return people.hear()

    lanes = RobotLanes(config.env, config.robot, spec, (config.seed, ACTOR, session), vitals, _Told(), stop, people)
    with contextlib.closing(lanes):
        yield _Stage(rewarded(lanes, config.env), act, hear, lambda: people.leave, config.robot.rate_hz)


class _Told:
    """Says what a robot reports of its phase, as often as that changes."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, report: Mapping[str, Any]) -> None:
        """Take a report."""
        why = report.get("why")
        text = f"robot: {report.get('phase')}{f' ({why})' if why else ''}"
        if text != self._last:
            self._last = text
            print(text, flush=True)
