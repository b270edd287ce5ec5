"""An arm of LeRobot behind the guard: `env.id: examples.robots.lerobot_arm:LeRobotArm`, SO-100, SO-101, Koch and others.

pip install headrace lerobot, and calibrate the arm by LeRobot's own command first. See examples/so101.yaml.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.actor.robot import Command, Observation, RobotState
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec, ObsSpec

Array = np.ndarray[Any, Any]
STATE, IMAGES = "state", "images."  # a LeRobotDataset's observation.state and observation.images.* have these names here too
SAME = 1e-3  # of a command, in units of the arm
FRESH_S = 0.005  # a reading this young is the newest
FRAME_S = 5.0  # longest wait for a camera's first picture, and for its end


class LeRobotArm:
    """A :class:`headrace.actor.robot.Robot` whose commands are the goals of all motors, in LeRobot's units.

    Observed are the motors as one key ``state``, and each camera as ``images.NAME``, which a thread of its own reads, so that
    no period waits for a picture. An episode ends by what people say, a classifier (`env.success`) or its length; rewards are
    those of `env.reward`.

    Args:
        robot: what LeRobot's commands take as `--robot.*`, such as type, port and id; without cameras, and without limits of
            its own, since rows hold what the guard let through.
        low: least goal of each motor.
        high: largest.
        cameras: name -> what they take as one of `--robot.cameras`, such as type, index_or_path, width, height and fps.
        clock: the monotonic one.
    """

    def __init__(
        self,
        robot: Mapping[str, Any],
        low: Sequence[float],
        high: Sequence[float],
        cameras: Mapping[str, Mapping[str, Any]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        for key in ("cameras", "max_relative_target"):
            if robot.get(key) is not None:
                instead = "env.kwargs.cameras" if key == "cameras" else "robot.guard.max_delta"
                raise ConfigError(f"env.kwargs.robot.{key}: {robot[key]!r}; leave it out, and set {instead}")
        self._clock, self._named = clock or MonotonicClock(), f"{robot.get('type')} at {robot.get('port')}"
        self._arm = made("robots", robot)
        looks = {name: made("cameras", words) for name, words in (cameras or {}).items()}
        self._eyes = {IMAGES + name: Eye(camera, name, self._clock) for name, camera in looks.items()}
        self._motors, self._goals = list(self._arm.observation_features), list(self._arm.action_features)
        if any(kind is not float for kind in self._arm.observation_features.values()) or set(self._goals) - set(self._motors):
            raise ConfigError(
                f"env.kwargs.robot: {self._named} observes {self._arm.observation_features} and is sent {self._goals}; this"
                " driver is for arms that observe one number for each motor that they are sent"
            )
        if len(low) != len(self._goals) or len(high) != len(self._goals):
            raise ConfigError(f"env.kwargs: {len(low)} low and {len(high)} high, but {len(self._goals)} motors: {self._goals}")
        pictures = [ObsSpec(key, eye.shape, "|u1") for key, eye in self._eyes.items()]
        self.obs = tuple(sorted([ObsSpec(STATE, (len(self._motors),), "<f4"), *pictures], key=lambda o: o.key))
        self.action = ActionSpec((len(self._goals),), tuple(map(float, low)), tuple(map(float, high)))
        self._read: Mapping[str, float] = {}
        self._read_at, self._fault = -np.inf, ""

    def connect(self) -> None:
        """Reach motors and cameras; torque is on behind it, as LeRobot has it."""
        reach(self._arm, f"robot {self._named}")
        for eye in self._eyes.values():
            eye.open()

    def reset(self, episode: int, seed: int) -> None:
        """Nothing: people set the scene (`robot.gate`), and `robot.home` leads the arm back through the guard."""

    def observe(self) -> Observation:
        """The motors now, and each camera's newest picture with the time at which it came."""
        seen = self._motors_now()
        values: dict[str, Array] = {STATE: np.array([seen[name] for name in self._motors], np.float32)}
        pictures = {key: eye.newest() for key, eye in self._eyes.items()}
        values |= {key: picture for key, (picture, _) in pictures.items()}
        return Observation(values, {key: taken for key, (_, taken) in pictures.items()})

    def act(self, command: Command) -> bool:
        """Send the goals of all motors; a fault where LeRobot has sent others."""
        if self._clock.now() > command.deadline:
            return False
        goals = {name: float(x) for name, x in zip(self._goals, command.action, strict=True)}
        sent = self._arm.send_action(goals)
        if other := [name for name in self._goals if abs(float(sent[name]) - goals[name]) > SAME]:
            self._fault = f"LeRobot sent other goals than it was told: {other}"
        return True

    def stop(self) -> None:
        """Stay where the motors are."""
        seen = self._motors_now()
        self._arm.send_action({name: seen[name] for name in self._goals})

    def state(self) -> RobotState:
        """Where the motors are."""
        seen = self._motors_now()
        return RobotState(np.array([seen[name] for name in self._goals], np.float32), self._fault)

    def close(self) -> None:
        """Let go; LeRobot takes the torque off unless `robot.disable_torque_on_disconnect` is false, so hold the arm."""
        for eye in self._eyes.values():
            eye.close()
        if self._arm.is_connected:
            self._arm.disconnect()

    def _motors_now(self) -> Mapping[str, float]:
        now = self._clock.now()
        if now - self._read_at > FRESH_S:
            self._read, self._read_at = self._arm.get_observation(), now
        return self._read


class Eye:
    """One camera of LeRobot and its newest picture, read in a thread.

    Args:
        camera: not connected.
        name: of it.
        clock: of its stamps.

    Attributes:
        shape: (H, W, 3) of its pictures.
    """

    def __init__(self, camera: Any, name: str, clock: Clock) -> None:
        self._camera, self._name, self._clock = camera, name, clock
        self.shape = (int(camera.height), int(camera.width), 3)
        self._newest: tuple[Array, float] | None = None
        self._problem: BaseException | None = None
        self._first, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"camera-{name}", daemon=True)

    def open(self) -> None:
        """Connect, and wait for a picture."""
        try:
            self._camera.connect()
        except Exception as error:  # likewise
            raise EnvError(f"camera {self._name}: {one_line(error)}") from error
        self._thread.start()
        if not self._first.wait(FRAME_S):
            raise EnvError(f"camera {self._name}: no picture within {FRAME_S:g} s")
        self.newest()

    def newest(self) -> tuple[Array, float]:
        """The newest picture, and when it came (monotonic s).

        Raises:
            EnvError: it could not be read any more.
        """
        if self._problem is not None or self._newest is None:
            raise EnvError(f"camera {self._name}: {self._problem}")
        return self._newest

    def close(self) -> None:
        """End the thread, and let go of the camera."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(FRAME_S)
        if self._camera.is_connected:
            self._camera.disconnect()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    picture = np.asarray(self._camera.async_read())
                except TimeoutError:  # the guard knows how old a picture may be (robot.guard.frame_age_s)
                    continue
                if picture.shape != self.shape or picture.dtype != np.uint8:
                    raise EnvError(f"a picture is {picture.shape} {picture.dtype}, expected {self.shape} uint8")
                self._newest = picture, self._clock.now()
                self._first.set()
        except Exception as error:  # the period that looks next is told
            self._problem = error
            self._first.set()


def one_line(error: Exception) -> str:
    """What an error says, without its line breaks."""
    return " ".join(str(error).split())


def reach(arm: Any, named: str) -> None:
    """Connect a robot or a leader that was calibrated before.

    Raises:
        EnvError: it cannot be reached, or was not calibrated, and what to do.
    """
    try:
        arm.connect(calibrate=False)
    except Exception as error:  # whatever a bus raises becomes one line
        raise EnvError(f"{named} cannot be reached: {one_line(error)}; is it on, at this port?") from error
    if not arm.is_calibrated:
        raise EnvError(f"{named} is not calibrated under its id: run lerobot-calibrate with the same type, port and id")


def made(package: str, words: Mapping[str, Any]) -> Any:
    """One of LeRobot's robots, cameras or teleoperators, not connected, from the words that its commands take.

    Args:
        package: ``robots``, ``cameras`` or ``teleoperators``.
        words: ``type`` and what that type takes.

    Raises:
        ConfigError: LeRobot is not here, or has no such type, or takes no such words.
    """
    what = package.removesuffix("s")
    try:
        found, draccus = importlib.import_module(f"lerobot.{package}"), importlib.import_module("draccus")
    except ImportError as error:
        raise ConfigError(f"lerobot cannot be imported ({error}): pip install lerobot, where this actor runs") from error
    for module in pkgutil.iter_modules(found.__path__, f"lerobot.{package}."):
        with contextlib.suppress(ImportError):  # a type whose own packages are not here; one that is missing is named below
            importlib.import_module(module.name)
    config = getattr(found, f"{what.capitalize()}Config")
    known = sorted(config.get_known_choices())
    if words.get("type") not in known:
        raise ConfigError(f"lerobot's {package}: no type {words.get('type')!r}; there are {', '.join(known)}")
    try:
        decoded = draccus.decode(config, dict(words))
        if what == "camera":
            return found.make_cameras_from_configs({what: decoded})[what]
        return getattr(found, f"make_{what}_from_config")(decoded)
    except Exception as error:  # likewise
        raise ConfigError(f"lerobot's {what} of {dict(words)}: {type(error).__name__}: {one_line(error)}") from error
