"""Operators: the human who arms the robot, says that a scene is ready, and halts it, or whoever stands for one."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, Protocol, cast

from headrace.actor.control import Phase
from headrace.common.errors import ConfigError
from headrace.common.naming import resolve

WORDS = ("arm", "ready", "halt")


class Operator(Protocol):
    """Says ``arm``, ``ready`` or ``halt``, from what the robot reports."""

    def asked(self, report: Mapping[str, Any]) -> str:
        """The next word; empty when there is none. Called often, and never waits."""
        ...


class Nobody:
    """A program says the words itself, by :meth:`headrace.actor.robot_lanes.RobotLanes.say`."""

    def asked(self, report: Mapping[str, Any]) -> str:
        """Nothing."""
        return ""


class Terminal:
    """Somebody types the words into the terminal, and reads there what the robot waits for."""

    def __init__(self) -> None:
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._shown = ""
        threading.Thread(target=self._read, name="headrace-operator", daemon=True).start()

    def asked(self, report: Mapping[str, Any]) -> str:
        """The next line that is one of the words; what the robot waits for is shown whenever it changes."""
        shown = f"robot: {report.get('phase', '')}: {report.get('why', '')}"
        if shown != self._shown:
            self._shown = shown
            print(f"{shown} [{', '.join(WORDS)}]", file=sys.stderr, flush=True)
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


def make_operator(name: str) -> Operator:
    """The operator that ``robot.operator`` names.

    Raises:
        ConfigError: it cannot be imported or made.
    """
    if name == "none":
        return Nobody()
    if name == "terminal":
        return Terminal()
    found = resolve(name, "robot.operator")()
    if not hasattr(found, "asked"):
        raise ConfigError(f"robot.operator: {name!r} makes a {type(found).__name__}, which has no asked()")
    return cast("Operator", found)
