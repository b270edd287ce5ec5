"""A keyboard as teleop device: keys of a terminal jog the robot, take it over and say words. No package is needed.

Terminals tell that a key is pressed, again and again while it is held, and never that it is let go. So a key counts as held for
``held_s`` after it was last heard of (shorter than most terminals wait before they repeat it: a robot that stops in between is
better than one that goes on), and taking the robot and giving it back is a key of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.actor.config import TeleopConfig
from headrace.actor.robot import Observation, Robot
from headrace.actor.teleop import Reading
from headrace.common.config import replace
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec

Array = np.ndarray[Any, Any]
AXES = ("qa", "ws", "ed", "rf", "tg", "yh", "uj", "ik", "ol")  # keys of one dimension: more, less
TAKE = " "
WORDS = {
    "\n": "ready",
    "m": "arm",
    "\x1b": "halt",  # Esc, with which other keys begin that have no meaning here; a stop too many does no harm
    "1": "success",
    "0": "failure",
    "\x7f": "discard",  # Backspace
    "p": "pause",
    "c": "resume",
    "X": "quit",
}
HELP = (
    "space: take over, give back; Enter: ready; m: arm; Esc: halt; 1: success; 0: failure; Backspace: discard; p: pause;"
    " c: go on; X: quit; jog: "
)
READ_BYTES = 4096


class Keyboard:
    """A :class:`headrace.actor.teleop.Teleop`.

    Args:
        action: the robot's commands.
        step: change of a command in a period while its key is held, env units; one for all dimensions, or one for each. Where
            commands are displacements, it is the command.
        dims: dimensions that have keys, in the order of the keys; none: the first nine.
        held_s: how long a key counts as held.
        tty: path of the terminal.
    """

    gives = "displacement"

    def __init__(
        self,
        action: ActionSpec,
        step: float | Sequence[float],
        dims: Sequence[int] | None = None,
        held_s: float = 0.25,
        tty: str = "",
    ) -> None:
        self._step = np.broadcast_to(np.asarray(step, np.float32), (action.dim,))
        dims = range(min(action.dim, len(AXES))) if dims is None else dims
        if len(dims) > len(AXES) or any(not 0 <= dim < action.dim for dim in dims):
            raise ConfigError(
                f"robot.teleop.kwargs.dims: {list(dims)}; there are keys for {len(AXES)} of the dimensions 0 to"
                f" {action.dim - 1}"
            )
        self._keys = {
            key: (dim, sign) for dim, keys in zip(dims, AXES, strict=False) for key, sign in zip(keys, (1, -1), strict=True)
        }
        self._held_s, self._tty = held_s, tty
        self._file = -1
        self._before: list[Any] | None = None
        self._taken = False
        self._seen: dict[int, tuple[float, int]] = {}  # dimension -> when its key was last heard of, and its sign

    def connect(self, robot: Robot) -> None:
        """Take the terminal's keys one by one, without showing them; Ctrl-C stays what it is."""
        try:
            self._file = os.open(self._tty, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
            self._before = termios.tcgetattr(self._file)
        except (OSError, termios.error) as error:
            raise EnvError(
                f"keyboard: {self._tty or 'no terminal'}: {error.args[-1]}; start the actor in a terminal"
            ) from error
        mode = list(self._before)
        mode[3] = mode[3] & ~(termios.ICANON | termios.ECHO)
        mode[6] = list(mode[6])
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0  # else no key would look like a terminal that was closed
        termios.tcsetattr(self._file, termios.TCSANOW, mode)
        jog = ", ".join(f"{AXES[i][0]}/{AXES[i][1]}" for i in range(len(self._keys) // 2))
        os.write(self._file, f"robot: {HELP}{jog}\n".encode())

    def read(self, now: float, seen: Observation) -> Reading:
        """What the keys say."""
        words = []
        for key in self._pressed():
            if key == TAKE:
                self._taken = not self._taken
                self._seen.clear()
            elif key in WORDS:
                words.append(WORDS[key])
            elif key in self._keys:
                dim, sign = self._keys[key]
                self._seen[dim] = now, sign
        return Reading(self._jog(now) if self._taken else None, tuple(words))

    def close(self) -> None:
        """Leave the terminal as it was found."""
        if self._file >= 0:
            with contextlib.suppress(OSError, termios.error):  # the terminal is gone
                if self._before is not None:
                    termios.tcsetattr(self._file, termios.TCSANOW, self._before)
            os.close(self._file)
        self._file = -1

    def _pressed(self) -> str:
        try:
            data = os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return ""
        except OSError as error:
            raise EnvError(f"keyboard: {self._tty} is gone: {error.strerror}") from error
        if not data:
            raise EnvError(f"keyboard: {self._tty} was closed")
        return data.decode("ascii", errors="replace")

    def _jog(self, now: float) -> Array:
        action = np.zeros(len(self._step), np.float32)
        for dim, (at, sign) in self._seen.items():
            if now - at <= self._held_s:
                action[dim] = sign * self._step[dim]
        return action


def placed(config: TeleopConfig) -> TeleopConfig:
    """``config`` with the terminal of this process, which the robot's process has not.

    Raises:
        ConfigError: this process has none.
    """
    if config.device != "keyboard" or config.kwargs.get("tty"):
        return config
    if not sys.stdin.isatty():
        raise ConfigError(
            "robot.teleop.device: keyboard, and standard input is no terminal; start this robot's actor by hand in one:"
            " headrace actor CONFIG --connect tcp://HOST:PORT"
        )
    return replace(config, kwargs={**config.kwargs, "tty": os.ttyname(sys.stdin.fileno())})


class Kept:
    """The state of a terminal, to be brought back should the robot's process be killed; without a terminal it is nothing."""

    def __init__(self, config: TeleopConfig) -> None:
        self._tty = str(config.kwargs.get("tty", "")) if config.device == "keyboard" else ""
        self._mode = self._each(termios.tcgetattr)

    def restore(self) -> None:
        """Bring it back."""
        if self._mode is not None:
            self._each(lambda file: termios.tcsetattr(file, termios.TCSANOW, self._mode or []))

    def _each(self, what: Any) -> Any:
        if not self._tty:
            return None
        with contextlib.suppress(OSError, termios.error):
            file = os.open(self._tty, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                return what(file)
            finally:
                os.close(file)
        return None
