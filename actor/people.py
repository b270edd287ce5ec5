"""People: what is said to an actor, by keys at its robot or from another host, until it is done."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from headrace.actor.words import WORDS
from headrace.common.label import VERDICTS

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0  # from one request to pause or go on to the next, until the buffer has heard it


class People:
    """Words come in from any thread; the control loop takes them from here.

    A run is paused by its buffer, since updates and other actors pause with it. Who asks for that here waits for the buffer's
    word: meanwhile :attr:`paused` is not known, so a robot that holds already goes on only when the buffer says so too.

    Args:
        paused: what is known at first.

    Attributes:
        paused: whether the run is paused; none where that is not known: before the buffer has said it, and while a wish of this
            actor's people waits for it.
        robot: says a word to the robot, if this actor drives one.
        leave: whether somebody has said that this actor is to leave.
    """

    def __init__(self, paused: bool | None = None) -> None:
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()  # a wish and what is known are one
        self._wish: bool | None = None
        self._ask_at = 0.0
        self.paused = paused
        self.robot: Callable[[str], None] | None = None
        self.leave = False

    def say(self, word: str) -> None:
        """Say one of :data:`headrace.actor.words.WORDS`; any thread may."""
        if word not in ("pause", "resume"):
            self._words.put(word)
            return
        with self._lock:
            self._wish, self.paused, self._ask_at = word == "pause", None, 0.0

    def told(self, word: str) -> None:
        """Pass on a word from elsewhere: to the robot, whose running episode it may end, or else to the actor itself."""
        (self.robot or self.say)(word)

    def hear(self) -> list[str]:
        """Sort what was said since; what was said about an episode: ``success``, ``failure`` or ``discard``."""
        labels: list[str] = []
        while not self._words.empty():
            word = self._words.get()
            if word in VERDICTS:
                labels.append(word)
            elif word == "quit":
                self.leave = True
            else:
                LOG.warning("%r was said, which is none of %s", word, ", ".join(WORDS))
        return labels

    def ask(self, now: float, paused: bool) -> str:
        """What to ask of a buffer that says whether the run is ``paused``: ``pause``, ``resume`` or nothing."""
        with self._lock:
            if self._wish in (None, paused):
                self._wish, self.paused = None, paused
                return ""
            if now < self._ask_at:
                return ""
            self._ask_at = now + AGAIN_S
            return "pause" if self._wish else "resume"
