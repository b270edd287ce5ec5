"""A robot as the one lane of an actor: the station's signals become steps, and the loop's actions become offers."""

from __future__ import annotations

import logging
import multiprocessing
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace.actor.config import EnvConfig, RobotConfig
from headrace.actor.control import Phase
from headrace.actor.envs import LaneObs, LaneStep
from headrace.actor.guard import Vitals
from headrace.actor.keyboard import Kept, placed
from headrace.actor.operator import make_operator
from headrace.actor.people import People
from headrace.actor.signals import (
    Begun,
    Broken,
    Close,
    Failed,
    Offer,
    Pause,
    Report,
    Said,
    Say,
    Signal,
    Start,
    Stepped,
    pack,
    unpack,
)
from headrace.actor.station import serve
from headrace.common.config import replace
from headrace.common.errors import EnvError
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_UNKNOWN, TransitionSpec

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)
CONNECT_S = 120.0
IDLE_S = 0.05  # longest wait of a step while no episode runs, so that the loop goes on with all else
CLOSE_S = 5.0


class RobotLanes:
    """:class:`headrace.actor.envs.Lanes` over one robot, whose :mod:`headrace.actor.station` runs in a process of its own.

    A step while no episode runs executes nothing (``live`` is False) and returns soon, however long people or the robot take:
    the loop still hears signals and its buffer. ``reset`` begins nothing either: the episode is -1 until one has begun.

    Attributes:
        report: the station's newest report.

    Args:
        env: the robot.
        config: how it is driven.
        spec: of its rows.
        place: run seed and place from which the seed of every episode is derived.
        vitals: tells how old link and weights are.
        tell: gets each report of the station.
        people: hears what is said at the robot, and says whether the run is paused.
        stop: set when the process is to end.

    Raises:
        ConfigError: limits are not given, or do not fit the robot; names each.
        EnvError: the robot cannot be made or reached.
    """

    count = 1
    restarts = 0

    def __init__(
        self,
        env: EnvConfig,
        config: RobotConfig,
        spec: TransitionSpec,
        place: tuple[int | str, ...],
        vitals: Callable[[], Vitals],
        tell: Callable[[Mapping[str, Any]], None],
        stop: threading.Event,
        people: People | None = None,
    ) -> None:
        config.guard.require(spec.action.dim)
        config = replace(config, teleop=placed(config.teleop))
        self._terminal, self._ahead = Kept(config.teleop), int(config.ahead)
        self.spec = spec
        self._env, self._place, self._vitals, self._tell, self._stop = env, place, vitals, tell, stop
        self._operator = make_operator(config)
        self._people = people or People(paused=False)
        self._paused: bool | None = False  # as the robot was told last; none: not known
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._obs = {o.key: np.zeros((1, *o.shape), o.dtype) for o in spec.obs}
        self._episode, self._tick, self._next = -1, -1, 0
        self.report: Mapping[str, Any] = {}
        self._asked: tuple[str, Mapping[str, Any]] = ("", {})
        context = multiprocessing.get_context("spawn")  # forking a process with sockets and BLAS threads is not safe
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, env, config), name="headrace-robot")
        self._process.start()
        theirs.close()
        self._connect()

    # --- lanes ------------------------------------------------------------------------------------------------------

    def reset(self) -> LaneObs:
        """No episode runs from now on; the next one begins in some later step."""
        if self._running:
            self._send(Say("halt"))
            self._tick = -1
        return LaneObs(self._obs, np.array([-1]))

    @property
    def running(self) -> bool:
        """Whether an episode runs."""
        return self._running

    def step(self, actions: Array) -> LaneStep:
        """Offer the action of the running period and wait for its end; without an episode, ask for one."""
        return self._step(actions)

    def hold(self) -> LaneStep:
        """Offer no action, so that the robot holds, and wait for the running period's end; without an episode, ask for one."""
        return self._step(None)

    def _step(self, actions: Array | None) -> LaneStep:
        self._ask()
        vitals = self._vitals()
        if self._running and actions is not None:
            actions = np.asarray(actions, np.float32)
            self._send(Offer(self._episode, self._tick + self._ahead, actions, vitals, self._tick))
        # A pause that is not known of may be one.
        elif not self._running and self.report.get("phase") == Phase.IDLE.value and self._people.paused is False:
            seed = derive_seed(int(self._place[0]), *self._place[1:], self._next)
            self._send(Start(self._next, seed, vitals))
        while True:
            message = self._receive(IDLE_S)
            if isinstance(message, Begun):
                return self._begun(message)
            if isinstance(message, Stepped):
                return self._stepped(message)
            if isinstance(message, Broken):
                LOG.warning("episode %d was broken off: %s", message.episode, message.why)
                self._next, self._tick = message.episode + 1, -1
                return self._nothing(crashed=True)
            if message is None and (not self._running or self._stop.is_set()):
                return self._nothing(crashed=False)
            self._ask()

    def say(self, word: str) -> None:
        """Say one of :data:`headrace.actor.words.WORDS` to the robot; may be called by another thread."""
        self._words.put(word)

    def close(self) -> None:
        """Stop the robot and end its process."""
        if self._process.is_alive():
            try:
                self._send(Close())
            except EnvError:
                LOG.warning("the robot's process is gone")
            self._process.join(CLOSE_S)
            if self._process.is_alive():
                LOG.warning("the robot's process did not end within %g s and is killed", CLOSE_S)
                self._process.kill()
                self._process.join(CLOSE_S)
        self._pipe.close()
        self._terminal.restore()

    def get_state(self) -> dict[str, Any]:
        """The episode that begins next."""
        return {"next": self._next}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`."""
        self._next = int(state["next"])

    def check_valid(self) -> tuple[bool, str]:
        """Whether the running episode is one that was asked for."""
        if self._running and self._episode != self._next:
            return False, f"episode {self._episode} runs, {self._next} was asked for"
        return True, ""

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> bool:
        return self._tick >= 0

    def _begun(self, message: Begun) -> LaneStep:
        self._episode, self._tick = message.episode, 0
        self._see(message.values)
        return self._nothing(crashed=False)

    def _stepped(self, message: Stepped) -> LaneStep:
        self._see(message.values)
        ends = message.terminated or message.truncated
        self._tick = -1 if ends else message.tick
        self._next += ends
        return LaneStep(
            live=np.array([True]),
            rewards=np.array([message.reward], np.float32),
            terminated=np.array([message.terminated]),
            truncated=np.array([message.truncated]),
            next_obs=self._obs,
            crashed=np.array([False]),
            obs=self._obs,
            episode=np.array([self._episode]),
            success=np.array([message.outcome], np.uint8),
            executed=message.action[None],
            health=np.array([message.health], np.uint8),
            action_age=np.array([message.age], np.float32),
            source=np.array([message.source], np.uint8),
        )

    def _nothing(self, *, crashed: bool) -> LaneStep:
        no, unknown = np.array([False]), np.array([OUTCOME_UNKNOWN], np.uint8)
        episode = np.array([self._episode])
        return LaneStep(no, np.zeros(1, np.float32), no, no, self._obs, np.array([crashed]), self._obs, episode, unknown)

    def _see(self, values: Mapping[str, Array]) -> None:
        self._obs = {key: value[None] for key, value in values.items()}

    def _ask(self) -> None:
        """Pass on what people say, and whether the run is paused."""
        paused = self._people.paused
        if paused is not None and paused != self._paused:
            self._paused = paused
            self._send(Pause(paused))
        word = self._operator.asked(self.report)
        if word and self._asked != (word, self.report):  # once, until the robot has reported again: it may be busy for long
            self._asked = word, self.report
            self._send(Say(word))
        while not self._words.empty():
            self._send(Say(self._words.get()))

    def _heard(self, word: str) -> None:
        self._people.say(word)  # first: from here on nothing is known of the run, and so nothing told to the robot
        if word in ("pause", "resume"):
            self._paused = None  # what the buffer says next is told in any case
        if word == "pause":
            self._send(Pause(True))  # also to a robot that was told to go on meanwhile

    def _connect(self) -> None:
        waited = 0.0
        while not self.report and waited < CONNECT_S and not self._stop.is_set():
            self._receive(IDLE_S)
            waited += IDLE_S
        if not self.report and not self._stop.is_set():
            self.close()
            raise EnvError(f"robot {self._env.id}: not connected within {CONNECT_S:g} s")

    def _send(self, message: Signal) -> None:
        try:
            self._pipe.send_bytes(pack(message))
        except OSError as error:
            raise self._gone() from error

    def _receive(self, seconds: float) -> Signal | None:
        try:
            message = unpack(self._pipe.recv_bytes()) if self._pipe.poll(seconds) else None
        except (EOFError, OSError) as error:
            raise self._gone() from error
        if isinstance(message, Failed):
            raise EnvError(f"robot {self._env.id}: {message.why}")
        if isinstance(message, Said):
            self._heard(message.word)
        elif isinstance(message, Report):
            self.report = message.report
            self._tell(self.report)
        return message

    def _gone(self) -> EnvError:
        self._process.join(0.1)
        self._terminal.restore()
        return EnvError(
            f"robot {self._env.id}: its process has ended (exit code {self._process.exitcode}); look at the robot before you"
            " start this actor again"
        )
