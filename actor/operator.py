"""Operators: the human who says words to the robot, or whoever stands for one; see :mod:`headrace.actor.words`."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, Protocol, cast

from headrace.actor.config import RobotConfig
from headrace.actor.control import Phase
from headrace.actor.words import WORDS
from headrace.common.errors import ConfigError
from headrace.common.naming import resolve


class Operator(Protocol):
    """Says words, from what the robot reports."""

    def asked(self, report: Mapping[str, Any]) -> str:
        """The next word; empty when there is none. Called often, and never waits."""
        ...


class Nobody:
    """A program says the words itself, by :meth:`headrace.actor.robot_lanes.RobotLanes.say`."""

    def asked(self, report: Mapping[str, Any]) -> str:
        """Nothing."""
        return ""


class Terminal:
    """Somebody reads in the terminal what the robot waits for, and types words there.

    Args:
        listen: whether words are typed; no, where keys of this terminal say them.
    """

    def __init__(self, *, listen: bool = True) -> None:
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._shown, self._hint = "", f" [{', '.join(WORDS)}]" if listen else ""
        if listen:
            threading.Thread(target=self._read, name="headrace-operator", daemon=True).start()

    def asked(self, report: Mapping[str, Any]) -> str:
        """The next line that is one of the words; what the robot waits for is shown whenever it changes."""
        shown = f"robot: {report.get('phase', '')}: {report.get('why', '')}"
        if shown != self._shown:
            self._shown = shown
            print(f"{shown}{self._hint}", file=sys.stderr, flush=True)
        try:
            return self._words.get_nowait()
        except queue.Empty:
            return ""

    def _read(self) -> None:
        for line in sys.stdin:
            word = line.strip().lower()
            if word in WORDS:
                self._words.put(word)
            elif word:
                print(f"robot: {word!r} is not one of {', '.join(WORDS)}", file=sys.stderr, flush=True)


class Willing:
    """Arms whenever nothing is in the way, and finds every scene ready: for fake robots, never for real ones."""

    def asked(self, report: Mapping[str, Any]) -> str:
        """What moves the robot on."""
        return {Phase.DISARMED.value: "arm", Phase.WAITING.value: "ready"}.get(str(report.get("phase")), "")


def make_operator(config: RobotConfig) -> Operator:
    """The operator that ``config.operator`` names.

    Raises:
        ConfigError: it cannot be imported or made.
    """
    name = config.operator
    if name == "none":
        return Nobody()
    if name == "terminal":
        return Terminal(listen=config.teleop.device != "keyboard")
    found = resolve(name, "robot.operator")()
    if not hasattr(found, "asked"):
        raise ConfigError(f"robot.operator: {name!r} makes a {type(found).__name__}, which has no asked()")
    return cast("Operator", found)
