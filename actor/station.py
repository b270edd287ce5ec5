"""The station: a robot, its guard and its periods in a process of their own, which goes on whatever becomes of the actor."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
from collections import deque
from multiprocessing.connection import Connection

from headrace.actor.config import EnvConfig, RobotConfig
from headrace.actor.control import Control, Order, Phase
from headrace.actor.guard import Guard
from headrace.actor.pacer import Pacer
from headrace.actor.robot import Robot
from headrace.actor.robots import make_robot
from headrace.actor.signals import Close, Failed, Offer, Pause, Report, Say, Signal, Start, pack, unpack
from headrace.actor.teleop import Teleop, make_teleop
from headrace.common.clock import Clock, MonotonicClock

LOG = logging.getLogger(__name__)
REPORT_S = 0.25
PRIORITY = 10  # of 99: before everything ordinary, behind what the kernel itself needs
SPIN_S = 0.001  # a pipe is waited for in whole milliseconds; the rest of a period is slept
UNSENT = 64  # signals that wait for an actor that does not read


def serve(pipe: Connection, env: EnvConfig, config: RobotConfig) -> None:
    """Drive the robot until the actor says :class:`Close`, or is gone: the target of the process."""
    os.setsid()  # whoever ends the actor's group, or presses Ctrl-C, leaves the time for a stop
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s robot %(message)s", stream=sys.stderr)
    outbox = _Outbox(pipe)
    try:
        robot = make_robot(env)
        guard = Guard(config.guard, robot.obs, robot.action)
        teleop = make_teleop(config.teleop, robot.action, config.guard.command)
        robot.connect()
        teleop.connect(robot)
    except Exception as error:  # whatever a foreign driver raises is the actor's to tell
        outbox.put(Failed(f"{type(error).__name__}: {error}"))
        outbox.close()
        return
    if config.realtime:
        _hurry()
    clock = MonotonicClock()
    control = Control(config, guard, env.max_episode_steps, teleop.gives)
    station = Station(robot, teleop, control, 1 / config.rate_hz, pipe, outbox, clock)
    signal.signal(signal.SIGTERM, lambda *_: station.leave())
    try:
        station.run()
    finally:
        with contextlib.suppress(Exception):
            robot.stop()
        for part in (robot, teleop):
            with contextlib.suppress(Exception):
                part.close()
        outbox.close()


def _hurry() -> None:
    """Come before all ordinary threads of this machine, as far as the kernel allows; the outbox stays one of those."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except OSError as error:
        LOG.warning("robot.realtime: refused (%s); give this user rtprio in limits.conf, or CAP_SYS_NICE", error.strerror)


class _Outbox:
    """Sends in a thread of its own: an actor that does not read never makes the robot wait."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._queue: queue.Queue[bytes | None] = queue.Queue(UNSENT)
        self._thread = threading.Thread(target=self._run, name="headrace-station-outbox", daemon=True)
        self._thread.start()

    def put(self, message: Signal) -> bool:
        """Send; False when too much waits."""
        try:
            self._queue.put_nowait(pack(message))
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Send what waits, as far as somebody reads within a second."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(1.0)

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the actor is gone
            while (data := self._queue.get()) is not None:
                self._pipe.send_bytes(data)


class Station:
    """The loop around a :class:`Control`: it waits, calls the robot, and passes signals on.

    Args:
        robot: connected.
        teleop: with what people drive it, connected.
        control: decides.
        period_s: of the robot.
        pipe: to the actor.
        outbox: through which signals leave.
        clock: the monotonic clock of this machine, which stamps of pictures and of the actor are on too.
    """

    def __init__(
        self,
        robot: Robot,
        teleop: Teleop,
        control: Control,
        period_s: float,
        pipe: Connection,
        outbox: _Outbox,
        clock: Clock,
    ) -> None:
        self._robot, self._teleop, self._control = robot, teleop, control
        self._pipe, self._outbox, self._clock = pipe, outbox, clock
        self._pacer = Pacer(period_s, clock.now())
        self._closing = self._deaf = False
        self._unsent: deque[Signal] = deque()  # a robot that is stopped makes no more of them
        self._report_at, self._told = 0.0, control.phase
        self._said = ""

    def run(self) -> None:
        """Periods, until told to end."""
        while not self._closing:
            try:
                self._listen_until(self._pacer.due)
                self._period()
                self._tell()
            except Exception as error:  # a driver may raise anything; its robot stops, and people arm it again
                self._failed(error)
            self._closing |= self._deaf and self._control.phase is Phase.DISARMED

    def leave(self) -> None:
        """End with the running period; called by a signal too."""
        self._closing = True

    def _period(self) -> None:
        control, now = self._control, self._clock.now()
        missed = self._pacer.begin(now)
        seen, state = self._robot.observe(), self._robot.state()
        human = self._teleop.read(now, seen)
        control.begin(now, seen, state, missed, human.action)
        for word in human.words:
            self._hear(word)
        self._tell()
        while (wait_s := control.wait_s(self._clock.now())) > 0:
            self._listen(wait_s)
        order = control.decide(self._clock.now())
        if order is not None:
            self._carry_out(order)

    def _carry_out(self, order: Order) -> None:
        robot, control = self._robot, self._control
        if order.reset is not None:
            robot.reset(*order.reset)
            self._pacer.restart(self._clock.now())
            after = control.was_reset(self._clock.now(), robot.state())
            if after is not None:
                self._carry_out(after)
        elif order.command is None:
            robot.stop()
        elif robot.act(order.command):
            control.carried(self._clock.now(), order.command)
        else:
            self._carry_out(control.expired(self._clock.now()))

    def _failed(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            self._robot.stop()
        why = f"driver: {type(error).__name__}: {error}"
        if why != self._said:
            self._said = why
            LOG.exception("the robot's driver failed; the robot is disarmed")
        self._control.halt(self._clock.now(), why)

    # --- the pipe ---------------------------------------------------------------------------------------------------

    def _listen_until(self, due: float) -> None:
        while not self._closing and (left := due - self._clock.now()) > 0:
            if left > SPIN_S and not self._deaf:
                self._listen(left - SPIN_S)
            else:
                self._clock.sleep(left)

    def _listen(self, seconds: float) -> None:
        """Wait for a signal at most so long, and take it."""
        if self._deaf:
            self._clock.sleep(seconds)
            return
        try:
            if self._pipe.poll(seconds):
                self._take(unpack(self._pipe.recv_bytes()))
        except (EOFError, OSError):
            self._deaf = True
            self._control.lost("the actor is gone")

    def _take(self, message: Signal) -> None:
        control, now = self._control, self._clock.now()
        if isinstance(message, Offer):
            control.offer(now, message)
        elif isinstance(message, Start):
            control.start(now, message)
        elif isinstance(message, Close):
            self._carry_out(control.halt(now, "the actor has left"))
            self._closing = True
        elif isinstance(message, Pause):
            control.pause(now, paused=message.paused)
        elif isinstance(message, Say):
            self._hear(message.word)

    def _hear(self, word: str) -> None:
        control, now = self._control, self._clock.now()
        if word == "arm":
            control.arm(now, self._robot.state())
        elif word == "ready":
            control.ready(now)
        elif word == "halt":
            self._carry_out(control.halt(now, "somebody said halt"))
        else:
            control.said(now, word)

    def _tell(self) -> None:
        control, now = self._control, self._clock.now()
        self._unsent.extend(control.signals)
        control.signals.clear()
        while self._unsent and self._outbox.put(self._unsent[0]):
            self._unsent.popleft()
        if self._unsent and control.phase is Phase.RUNNING:
            self._carry_out(control.halt(now, "the actor reads nothing"))
        if now >= self._report_at or control.phase is not self._told:
            self._report_at, self._told = now + REPORT_S, control.phase
            self._outbox.put(Report({**control.report(now), **self._pacer.report()}))
