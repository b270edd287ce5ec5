"""Control: one robot's periods, episodes and stops, without I/O. What is late, or of another episode, is never carried out.

phase       event                                   next        what leaves in each period
DISARMED    arm, and the state allows it            IDLE        nothing
IDLE        begin, nothing older than declared      HOMING      a hold
HOMING      home is reached, or none is given       RESETTING   the home command, limited by the guard
HOMING      not reached in home_s                   DISARMED
RESETTING   the scene is ready                      WAITING     nothing: the robot may move by itself
WAITING     ready, or no gate is asked for          RUNNING     a hold
WAITING     nobody came in gate_s                   DISARMED or RUNNING, as gate_timeout says
RUNNING     the episode's end                       IDLE        the action of this period, or a hold without one
PAUSED      the run goes on                         IDLE        a hold
any but     the run is paused, or somebody          PAUSED      a hold: what was executed so far is kept
DISARMED    discards what runs                      or IDLE
any         halt, a fault, the guard's stop         DISARMED    a stop
any         the actor is lost                       hold now, DISARMED with the next period
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.actor.config import RobotConfig
from headrace.actor.guard import Deed, Guard, Verdict, Vitals
from headrace.actor.robot import Command, Observation, RobotState
from headrace.actor.signals import Begun, Broken, Offer, Said, Signal, Start, Stepped
from headrace.actor.success import health_of
from headrace.actor.takeover import Hands, TakeOver
from headrace.actor.teleop import NOBODY
from headrace.actor.words import OUTCOME_OF
from headrace.common.specs import (
    HEALTH_HELD,
    HEALTH_LIMITED,
    HEALTH_OVERRUN,
    HEALTH_STALE,
    SOURCE_HUMAN,
    SOURCE_POLICY,
)

Array = np.ndarray[Any, Any]


KEPT = 256  # periods whose beginning is remembered


class Phase(str, enum.Enum):
    """Where a robot stands, in the words that people see."""

    DISARMED = "disarmed"
    IDLE = "idle"
    HOMING = "moving home"
    RESETTING = "resetting"
    WAITING = "waiting for a human"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True)
class Order:
    """What the robot's process does next: carry out ``command``, ``reset`` for an episode and seed, or else stop."""

    command: Command | None = None
    reset: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Wanted:
    """An action of the policy, and when what it rests on was seen."""

    action: Array
    seen_at: float


@dataclass(frozen=True)
class _Done:
    """What was carried out in the running period."""

    action: Array
    health: int
    age: float
    source: int


class Control:
    """Decides period by period; the process of the robot calls it and does what it says.

    Attributes:
        phase: where the robot stands.
        why: what it waits for, or what disarmed it.
        signals: what the actor is to be told, in order; taken by whoever sends it.
        counts: actions dropped, by cause.

    Args:
        config: how it is driven.
        guard: the last stage; owned by this control from now on.
        max_steps: steps after which an episode is truncated; none leaves that to the robot.
        gives: what the device of the human gives, see :class:`headrace.actor.teleop.Teleop`.
    """

    def __init__(self, config: RobotConfig, guard: Guard, max_steps: int | None = None, gives: str = "displacement") -> None:
        self._config, self._guard, self._max_steps = config, guard, max_steps
        self._period_s = 1 / config.rate_hz
        self._home = np.array(config.home, np.float64)
        self.phase, self.why = Phase.DISARMED, guard.why
        self.signals: list[Signal] = []
        self.counts: Counter[str] = Counter()
        self._since = 0.0
        self._start = Start(-1, 0, Vitals(0.0, 0.0))
        self._vitals, self._state = self._start.vitals, RobotState()
        self._begun = self._deadline = self._carried_at = 0.0
        self._decided = True
        self._lost, self._lost_seen = "", False
        self._queue: dict[int, _Wanted] = {}
        self._begins: dict[int, float] = {}  # when the newest periods of this episode began
        self._tick, self._health = -1, 0
        self._done: _Done | None = None
        self._over, self._human = TakeOver(config.teleop, gives), NOBODY.action
        self._paused, self._verdict = False, ""  # a word that ends the running episode

    # --- what people and the actor say ------------------------------------------------------------------------------

    def arm(self, now: float, state: RobotState) -> None:
        """Somebody arms the robot, whose ``state`` was read just now."""
        if self.phase is not Phase.DISARMED or self._lost:
            return
        if self._guard.arm(now, state):
            self._rest(now)
        else:
            self.why = self._guard.why

    def start(self, now: float, start: Start) -> None:
        """The actor asks for an episode; nothing happens while the robot is not idle, or anything is too old."""
        if self.phase is not Phase.IDLE:
            return
        old = self._guard.too_old(now, start.vitals)
        self.why = f"no episode begins: {old} older than declared" if old else ""
        if not old:
            self._start, self._vitals = start, start.vitals
            self._enter(Phase.HOMING if len(self._home) else Phase.RESETTING, now)

    def ready(self, now: float) -> None:
        """Somebody says that the scene is ready."""
        if self.phase is Phase.WAITING:
            self._run(now)

    def said(self, now: float, word: str) -> None:
        """Somebody says a word that is not only the robot's: a verdict, ``pause``, ``resume`` or ``quit``."""
        begun = self.phase is Phase.RUNNING and self._tick > 0
        if word in OUTCOME_OF and begun:
            self._verdict = word  # the step that is under way is the last one
            return
        if word == "discard" and begun:
            self._break_off(now, "somebody has discarded it")
        elif word == "pause":
            self.pause(now, paused=True)
        self.signals.append(Said(word))

    def pause(self, now: float, *, paused: bool) -> None:
        """The run is paused, or goes on; a robot that is disarmed stays so."""
        if paused == self._paused:
            return
        self._paused = paused
        if self.phase is not Phase.DISARMED:
            self._break_off(now, "paused")

    def offer(self, now: float, offer: Offer) -> None:
        """The actor wants these actions; dropped, and counted, are those of another episode and those that come late."""
        self._vitals = offer.vitals
        if self.phase is not Phase.RUNNING or offer.episode != self._start.episode:
            self.counts["dropped_episode"] += len(offer.actions)
            return
        self._queue = {tick: action for tick, action in self._queue.items() if tick < offer.tick}
        seen = offer.tick if offer.seen < 0 else offer.seen
        seen_at = self._begins.get(min(seen, self._tick), -math.inf)
        for tick, action in enumerate(offer.actions, offer.tick):
            if tick == self._tick and self._over.hands is not Hands.POLICY:
                continue  # a human has it, and nobody waited for this
            if tick < self._tick or (tick == self._tick and (self._decided or now > self._deadline)):
                self.counts["dropped_late"] += 1
            else:
                self._queue[tick] = _Wanted(action, seen_at)

    def halt(self, now: float, why: str) -> Order:
        """Stop now, whatever is going on; also when a driver raised."""
        self._guard.disarm(why)
        return self._stopped(now, why)

    def lost(self, why: str) -> None:
        """The actor is gone: nothing more will be wanted."""
        self._lost = why
        self._queue.clear()

    # --- one period -------------------------------------------------------------------------------------------------

    def begin(
        self, now: float, seen: Observation, state: RobotState, missed: int = 0, human: Array | None = NOBODY.action
    ) -> None:
        """A period begins: what the robot sees, its state, how many periods were left out before, and what a human wants."""
        self._state, self._decided = state, False
        self._deadline = now + self._config.act_within * self._period_s
        self._guard.see(now, seen)
        if self.phase is Phase.RUNNING:
            self._complete(now, seen, missed)
        elif self.phase is Phase.HOMING and self._is_home(state):
            self._enter(Phase.RESETTING, now)
        self._begun, self._human = now, human
        if self.phase is Phase.RUNNING:
            self._over.decide(now, human, self._guard.last)
        else:
            self._over.reset()

    def wait_s(self, now: float) -> float:
        """How long an action may still be waited for in this period; 0: decide now."""
        if self.phase is not Phase.RUNNING or self._lost or self._over.hands is not Hands.POLICY:
            return 0.0
        waits = self._tick >= self._config.ahead and self._tick not in self._queue
        return max(0.0, self._deadline - now) if waits else 0.0

    def decide(self, now: float) -> Order | None:
        """The order of this period; none where nothing is to be done."""
        self._decided = True
        if self.phase is Phase.DISARMED:
            return None
        if self._lost and self._lost_seen:
            return self.halt(now, self._lost)
        self._lost_seen = bool(self._lost)
        if self.phase is Phase.RESETTING and not self._lost:
            return Order(reset=(self._start.episode, self._start.seed))
        if self.phase is Phase.RUNNING:
            return self._act(now, self._queue.pop(self._tick, None))
        if self.phase is Phase.HOMING and not self._lost:
            if now - self._since > self._config.home_s:
                return self.halt(now, f"home was not reached in {self._config.home_s:g} s")
            return self._order(now, self._guard.decide(now, self._home, self._state), "home")
        if self.phase is Phase.WAITING and now - self._since > self._config.gate_s:
            if self._config.gate_timeout == "stop":
                return self.halt(now, f"nobody came in {self._config.gate_s:g} s")
            self._run(now)
        return self._order(now, self._guard.hold(now, self._state), "hold")

    def carried(self, now: float, command: Command) -> None:
        """The robot took the command."""
        self._carried_at = now
        self._guard.left(now, command.action)

    def expired(self, now: float) -> Order:
        """The command's deadline had passed when it reached the robot: hold in its place."""
        self.counts["dropped_late"] += 1
        self._human = None  # a human's command too is carried out in time or not at all
        self._done = None
        return self._act(now, None)

    def was_reset(self, now: float, state: RobotState) -> Order | None:
        """The scene is ready, and the robot may stand elsewhere now."""
        self._guard.reread(now, state)
        if not self._guard.armed:
            return self._stopped(now, self._guard.why)
        if self._config.gate:
            self._enter(Phase.WAITING, now, "a human says that the scene is ready")
        else:
            self._run(now)
        return None

    def report(self, now: float) -> dict[str, Any]:
        """What people see of the robot."""
        place = {"phase": self.phase.value, "why": self.why, "episode": self._start.episode, "tick": max(0, self._tick)}
        place["hands"] = self._over.hands.value
        return {**place, "since_s": round(now - self._since, 1), "dropped": dict(self.counts), **self._guard.report(now)}

    # --- parts ------------------------------------------------------------------------------------------------------

    def _act(self, now: float, wanted: _Wanted | None) -> Order:
        if self._tick < 0:  # the first observation of the episode comes with the next period
            return self._order(now, self._guard.hold(now, self._state), "hold")
        if self._over.refused:
            return self.halt(now, self._over.refused)
        kind, verdict = self._whose(now, wanted)
        order = self._order(now, verdict, kind)
        if verdict.command is not None:
            bits = HEALTH_HELD * (kind == "hold") | HEALTH_LIMITED * verdict.limited | HEALTH_STALE * verdict.stale
            source = SOURCE_HUMAN if kind == "human" else SOURCE_POLICY
            seen_at = self._begun if wanted is None or kind != "policy" else wanted.seen_at
            self._done = _Done(verdict.command, self._health | bits, now - seen_at, source)
        return order

    def _whose(self, now: float, wanted: _Wanted | None) -> tuple[str, Verdict]:
        """What leaves for what the policy ``wanted`` or the human wants, and its kind: a hold is nobody's."""
        hands, guard = self._over.hands, self._guard
        if hands is Hands.POLICY and wanted is None and self._tick < self._config.ahead:
            kind, verdict = "hold", guard.hold(now, self._state)  # nobody can have decided yet
        elif hands is Hands.POLICY:
            action, age_s = (None, 0.0) if wanted is None else (wanted.action, now - wanted.seen_at)
            kind, verdict = "policy", guard.decide(now, action, self._state, self._vitals, age_s)
        elif hands is Hands.HUMAN:  # who sees the robot, and rests on no weights and no link
            human = self._over.wanted(self._human, guard.last) if self._config.guard.command == "position" else self._human
            kind, verdict = "human", guard.decide(now, human, self._state)
        else:
            kind, verdict = "hold", guard.hold(now, self._state)
        return (kind if verdict.deed is Deed.GO else "hold"), verdict

    def _order(self, now: float, verdict: Verdict, kind: str) -> Order:
        if verdict.command is None:
            return self._stopped(now, self._guard.why)
        running = self.phase is Phase.RUNNING and self._tick >= 0
        episode, tick = (self._start.episode, self._tick) if running else (-1, 0)
        deadline = self._deadline if kind in ("policy", "human") else math.inf
        return Order(Command(verdict.command, kind, episode, tick, deadline))

    def _complete(self, now: float, seen: Observation, missed: int) -> None:
        """What was seen completes the step of the period before, or begins the episode."""
        self._health = HEALTH_OVERRUN if missed else 0
        done, self._done = self._done, None
        self._tick += 1
        self._begins[self._tick] = now
        self._begins.pop(self._tick - KEPT, None)
        if self._tick == 0:
            self.signals.append(Begun(self._start.episode, dict(seen.values)))
            return
        assert done is not None, "a running period carries out a command or ends the episode"
        done = replace(done, health=done.health | health_of(seen.judged))
        if seen.judged is not None and self._verdict:
            seen = replace(seen, reward=float(self._verdict == "success"))  # people have the last word, not the classifier
        action, source = done.action, done.source
        if seen.executed is not None:
            action, source = seen.executed, SOURCE_HUMAN
            self._guard.left(self._carried_at, action)
        terminated = seen.terminated or bool(self._verdict)
        outcome = OUTCOME_OF.get(self._verdict, seen.outcome)
        truncated = seen.truncated or (self._tick == self._max_steps and not terminated)
        what = (action, seen.reward, terminated, truncated, outcome, done.health, done.age, source)
        self.signals.append(Stepped(self._start.episode, self._tick, *what, dict(seen.values)))
        if terminated or truncated:
            self._rest(now)

    def _break_off(self, now: float, why: str) -> None:
        """The episode, if one is under way, ends with its last complete step, and the robot holds."""
        self._tell_broken(why)
        self._rest(now)

    def _tell_broken(self, why: str) -> None:
        if self.phase in (Phase.HOMING, Phase.RESETTING, Phase.WAITING, Phase.RUNNING):
            self.signals.append(Broken(self._start.episode, why))
            if self._verdict:
                self.signals.append(Said(self._verdict))

    def _stopped(self, now: float, why: str) -> Order:
        self._tell_broken(why)
        self._forget()
        if self.phase is not Phase.DISARMED:
            self._enter(Phase.DISARMED, now, why)
        return Order()

    def _rest(self, now: float) -> None:
        """No episode is under way, and the robot holds."""
        self._forget()
        if self._paused:
            self._enter(Phase.PAUSED, now, "the run is paused; status says by whom")
        else:
            self._enter(Phase.IDLE, now, "no episode was asked for")

    def _run(self, now: float) -> None:
        self._forget()
        self._enter(Phase.RUNNING, now)

    def _enter(self, phase: Phase, now: float, why: str = "") -> None:
        self.phase, self._since, self.why = phase, now, why

    def _forget(self) -> None:
        """Nothing of an episode is left: no action that was queued for it, no step that was begun."""
        self._queue = {}
        self._begins = {}
        self._tick, self._health, self._done = -1, 0, None
        self._verdict = ""

    def _is_home(self, state: RobotState) -> bool:
        return state.position is not None and bool(
            (np.abs(np.asarray(state.position) - self._home) <= self._config.home_within).all()
        )
