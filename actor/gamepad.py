"""A gamepad as teleop device, by the kernel's joystick interface: eight bytes an event, so no package is needed.

A button that is held (the dead man's) takes the robot over, and letting it go gives it back. Sticks say displacements, other
buttons words. Numbers of axes and buttons are the kernel's; ``jstest`` of the Debian package ``joystick`` shows them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.actor.robot import Observation, Robot
from headrace.actor.teleop import Reading
from headrace.actor.words import WORDS
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec

Array = np.ndarray[Any, Any]
EVENT = struct.Struct("<IhBB")  # time (ms), value, type, number: struct js_event of linux/joystick.h
BUTTON, AXIS, INIT = 0x01, 0x02, 0x80  # types; with INIT the kernel tells how things stood when the device was opened
FULL = 32767
AXES = (0, 1, 4, 3)  # sticks of most pads: left to the right, left down, right down, right to the right
SIGNS = (1.0, -1.0, -1.0, 1.0)
BUTTONS = {0: "success", 1: "failure", 2: "discard", 3: "ready", 4: "resume", 6: "arm", 7: "pause", 8: "halt"}
READ_EVENTS = 256


class Gamepad:
    """A :class:`headrace.actor.teleop.Teleop`.

    Args:
        action: the robot's commands.
        step: change of a command in a period at full deflection, env units; one for all dimensions, or one for each. Where
            commands are displacements, it is the command.
        device: of the kernel.
        axes: axis that moves each dimension, in turn; further dimensions stand still. -1: none.
        signs: of each of these axes.
        dead: share of the deflection around the middle that counts as none.
        hold: button that takes over while it is held.
        buttons: button -> word.
    """

    gives = "displacement"

    def __init__(
        self,
        action: ActionSpec,
        step: float | Sequence[float],
        device: str = "/dev/input/js0",
        axes: Sequence[int] = AXES,
        signs: Sequence[float] = SIGNS,
        dead: float = 0.1,
        hold: int = 5,
        buttons: Mapping[int, str] | None = None,
    ) -> None:
        self._step = np.broadcast_to(np.asarray(step, np.float32), (action.dim,))
        self._device, self._dead, self._hold = device, dead, hold
        self._buttons = {int(number): word for number, word in (BUTTONS if buttons is None else buttons).items()}
        unknown = sorted(set(self._buttons.values()) - set(WORDS))
        if unknown:
            raise ConfigError(f"robot.teleop.kwargs.buttons: {unknown[0]!r} is none of {', '.join(WORDS)}")
        self._axes = list(zip(range(action.dim), axes, signs, strict=False))
        self._file = -1
        self._rest = b""
        self._held = False
        self._at: dict[int, float] = {}  # axis -> deflection, -1 to 1

    def connect(self, robot: Robot) -> None:
        """Open the device."""
        try:
            self._file = os.open(self._device, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise EnvError(
                f"gamepad: {self._device}: {error.strerror}; is it plugged in, is the kernel's module joydev loaded, and may"
                " this user read it (group input)?"
            ) from error

    def read(self, now: float, seen: Observation) -> Reading:
        """What sticks and buttons say."""
        words = []
        for value, kind, number in self._events():
            if kind & ~INIT == AXIS:
                self._at[number] = max(-1.0, value / FULL)
            elif number == self._hold:
                self._held = bool(value) and not kind & INIT  # one that is held from the start is no decision
            elif value and not kind & INIT and number in self._buttons:
                words.append(self._buttons[number])
        return Reading(self._wanted() if self._held else None, tuple(words))

    def close(self) -> None:
        """Let go of the device."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _events(self) -> list[tuple[int, int, int]]:
        """(value, type, number) of what has happened since."""
        found: list[tuple[int, int, int]] = []
        while True:
            try:
                data = os.read(self._file, READ_EVENTS * EVENT.size)
            except BlockingIOError:
                return found
            except OSError as error:
                raise EnvError(f"gamepad: {self._device} is gone: {error.strerror}") from error
            if not data:
                raise EnvError(f"gamepad: {self._device} is gone")
            data = self._rest + data
            whole = len(data) - len(data) % EVENT.size
            self._rest = data[whole:]
            found += [event[1:] for event in EVENT.iter_unpack(data[:whole])]

    def _wanted(self) -> Array:
        action = np.zeros(len(self._step), np.float32)
        for dim, axis, sign in self._axes:
            at = self._at.get(axis, 0.0)
            beyond = max(0.0, abs(at) - self._dead) / (1 - self._dead)
            action[dim] = np.copysign(beyond, at) * sign * self._step[dim]
        return action
