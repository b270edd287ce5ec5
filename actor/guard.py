"""The guard: the last stage before the robot. From what is wanted it decides what leaves: that, less of it, a hold, or a stop.

what it sees                                           what leaves
disarmed                                               nothing, until arm()
the robot reports a fault, or its state is no number   stop
no action in its time                                  hold; ``late`` periods in a row: stop
an action of NaN, infinity or another shape            hold, and counted; never raised
an action that rests on too old an observation         hold, and counted
an action beyond box, delta or rate                    the nearest one within, and counted
a command that the workspace refuses                   hold; where it refuses the hold too: stop
pictures, weights or link older than declared          the declared reaction
a hold that lasts longer than ``hold_s``               stop

A stop disarms. Only arm() undoes that, and it reads the robot's state again first. Nothing here clears a fault. A hold is the
last command again where commands are positions, and otherwise comes to rest as fast as delta and rate allow. So all that
leaves is within the limits.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor.freshness import Freshness
from headrace.actor.limits import GuardConfig, Workspace
from headrace.actor.robot import Observation, RobotState
from headrace.common.rounding import inwards
from headrace.common.specs import ActionSpec, ObsSpec

Array = np.ndarray[Any, Any]


class Deed(enum.IntEnum):
    """What leaves, from the least to the most careful."""

    GO = 0
    HOLD = 1
    STOP = 2


@dataclass(frozen=True)
class Vitals:
    """What an action rests on.

    Attributes:
        heard: when the actor last heard from its buffer, monotonic seconds.
        acted_s: how long it has acted by the same weights while newer ones were there or due (s).
    """

    heard: float
    acted_s: float


@dataclass(frozen=True)
class Verdict:
    """What leaves in this period.

    Attributes:
        deed: what.
        command: ``(A,)`` float32 within the limits; none with a stop.
        causes: why it is not what was wanted, by the words that counters are keyed by.
        limited: whether it is less than was wanted.
        stale: whether a picture was older, or repeated more often, than declared, whatever the reaction.
    """

    deed: Deed
    command: Array | None
    causes: tuple[str, ...] = ()
    limited: bool = False
    stale: bool = False


class Guard:
    """Limits, ages and the armed state of one robot. Takes the time, and never waits.

    Attributes:
        counts: cause -> periods in which it changed what left.
        armed: whether commands may leave.
        why: what disarmed it.

    Args:
        config: what is allowed.
        obs: what the robot observes.
        action: its commands.

    Raises:
        ConfigError: the limits are not all there, or do not fit the robot; names each.
    """

    def __init__(self, config: GuardConfig, obs: tuple[ObsSpec, ...], action: ActionSpec) -> None:
        config.require(action.dim)
        self._config = config
        self._moves = config.command == "position"
        self._low, self._high = (_spread(bounds, action.dim) for bounds in (config.low, config.high))
        self._delta, self._rate = (_spread(bounds, action.dim) for bounds in (config.max_delta, config.max_rate))
        self._workspace: Workspace | None = config.find_workspace()
        self._fresh = Freshness(obs)
        self._last = np.zeros(action.dim, np.float32)
        self._last_at = 0.0
        self._late = 0
        self._held_since = math.inf
        self.counts: Counter[str] = Counter()
        self.armed, self.why = False, "not armed yet"

    @property
    def last(self) -> Array:
        """``(A,)`` float32, the last command that the robot took; where it stands, before there is one."""
        return self._last

    # --- arming -----------------------------------------------------------------------------------------------------

    def arm(self, now: float, state: RobotState) -> bool:
        """Allow commands from ``state`` on, which was read just now; else ``why`` says what is in the way."""
        self._late, self._held_since = 0, math.inf
        self.armed, self.why = False, self._unfit(state)
        if not self.why:
            self.armed = True
            self.reread(now, state)
        return self.armed

    def reread(self, now: float, state: RobotState) -> None:
        """The robot has moved by itself: go on from ``state``; disarms when that is no state to go on from."""
        why = self._unfit(state)
        if why:
            self.disarm(why)
        elif self.armed:
            self._last = self._rest(state).astype(np.float32)
            self._last_at = now

    def disarm(self, why: str) -> Verdict:
        """Stop, until :meth:`arm`."""
        if self.armed:
            self.armed, self.why = False, why
        return Verdict(Deed.STOP, None, (why,))

    def _unfit(self, state: RobotState) -> str:
        """Why nobody may command a robot in this state; empty when one may."""
        if state.fault:
            return f"fault: {state.fault}"
        if not self._moves:
            return ""
        if state.position is None:
            return "state: the robot says no position, and guard.command is position"
        position = np.asarray(state.position, np.float32)
        if position.shape != self._last.shape or not np.isfinite(position).all():
            return f"state: position {position.tolist()} is not {len(self._last)} finite numbers"
        for i in np.flatnonzero((position < self._low) | (position > self._high))[:1]:
            place = f"[{self._low[i]:g}, {self._high[i]:g}] of dimension {i}"
            return f"state: position {position[i]:g} is outside of the box {place}; bring the robot back by hand"
        return ""

    def _rest(self, state: RobotState) -> Array:
        return np.asarray(state.position) if self._moves else np.zeros(len(self._last))

    # --- deciding ---------------------------------------------------------------------------------------------------

    def see(self, now: float, observation: Observation) -> None:
        """Watch the cameras: call it with every observation."""
        self._fresh.see(now, observation)

    def decide(
        self, now: float, wanted: Array | None, state: RobotState, vitals: Vitals | None = None, age_s: float = 0.0
    ) -> Verdict:
        """What may leave now; say :meth:`left` when it did.

        Args:
            now: time of the decision; it never goes back.
            wanted: ``(A,)``; none when no action came in time.
            state: the robot's, read in this period.
            vitals: ages of the policy that acts; none when nobody's policy does (on the way home, between episodes).
            age_s: of the observation that ``wanted`` rests on.
        """
        if not self.armed:
            return Verdict(Deed.STOP, None, ("disarmed",))
        if state.fault:
            return self._stop(f"fault: {state.fault}", "fault")
        deed, causes = (Deed.GO, ()) if vitals is None else self._ages(now, vitals)
        self._late = self._late + 1 if wanted is None else 0
        if wanted is None:
            deed, causes = max(deed, Deed.HOLD), (*causes, "late")
        elif not _sound(wanted, self._last.shape):
            deed, causes = max(deed, Deed.HOLD), (*causes, "bad")
        elif age_s > self._config.action_age_s:
            deed, causes = max(deed, Deed.HOLD), (*causes, "old")
        if self._late >= self._config.late:
            return self._stop(f"no action for {self._late} periods", *causes)
        if deed is Deed.STOP:
            return self._stop(" and ".join(causes), *causes)
        command, limited = self._within(now, self._hold() if deed is Deed.HOLD or wanted is None else wanted)
        refused = self._refuses(command, state)
        if refused and deed is Deed.GO:
            deed, causes = Deed.HOLD, (*causes, "workspace")
            command, _ = self._within(now, self._hold())
            refused = self._refuses(command, state)
        if refused:
            return self._stop(f"workspace: {refused}", *causes, "workspace")
        if deed is Deed.GO:
            self._held_since = math.inf
        elif now - min(self._held_since, now) > self._config.hold_s:
            return self._stop(f"held for {now - self._held_since:.2f} s: {', '.join(causes)}", *causes)
        else:
            self._held_since = min(self._held_since, now)
        limited = limited and deed is Deed.GO
        self.counts.update([*causes, "limited"] if limited else causes)
        return Verdict(deed, command, causes, limited, self._stale(now))

    def left(self, now: float, command: Array) -> None:
        """The robot took this command: the next one is limited from here."""
        self._last, self._last_at = command, now

    def hold(self, now: float, state: RobotState) -> Verdict:
        """What leaves when nobody wants anything: between episodes, and while people work at the scene."""
        self._held_since = math.inf
        return self.decide(now, self._hold(), state)

    def too_old(self, now: float, vitals: Vitals) -> str:
        """Why no episode should begin; empty when one may."""
        return " and ".join(self._ages(now, vitals)[1])

    def report(self, now: float) -> Mapping[str, Any]:
        """What it changed, and how old the pictures are."""
        ages = {key: round(age, 3) for key, age in self._fresh.ages(now).items()}
        return {"guard": dict(self.counts), "frame_age_s": ages}

    # --- parts ------------------------------------------------------------------------------------------------------

    def _ages(self, now: float, vitals: Vitals) -> tuple[Deed, tuple[str, ...]]:
        """The most careful reaction to what is older than declared, and what that is (``continue`` is no cause)."""
        config = self._config
        seen = (
            ("frames", self._stale(now), config.frame_reaction),
            ("weights", vitals.acted_s > config.weight_age_s, config.weight_reaction),
            ("link", now - vitals.heard > config.link_age_s, config.link_reaction),
        )
        found = [(name, reaction) for name, old, reaction in seen if old and reaction != "continue"]
        deeds = {"finish_episode": Deed.GO, "hold": Deed.HOLD, "stop": Deed.STOP}
        return max((deeds[r] for _, r in found), default=Deed.GO), tuple(name for name, _ in found)

    def _stale(self, now: float) -> bool:
        config = self._config
        ages, repeats = self._fresh.ages(now).values(), self._fresh.repeats.values()
        return any(age > config.frame_age_s for age in ages) or any(count > config.frame_repeats for count in repeats)

    def _hold(self) -> Array:
        return self._last if self._moves else np.zeros_like(self._last)

    def _within(self, now: float, wanted: Array) -> tuple[Array, bool]:
        """The nearest float32 command within box, delta and rate, and whether that is another one than ``wanted``."""
        last = self._last.astype(np.float64)
        reach = np.minimum(self._delta, self._rate * max(0.0, now - self._last_at))
        low, high = inwards(np.maximum(self._low, last - reach), np.minimum(self._high, last + reach))
        wanted = np.asarray(wanted, np.float64)
        command = np.minimum(np.maximum(wanted, low), high).astype(np.float32)
        command = np.where(low <= high, command, self._last)  # too little room for any other float32
        return command, bool((command != wanted.astype(np.float32)).any())

    def _refuses(self, command: Array, state: RobotState) -> str:
        if self._workspace is None:
            return ""
        try:
            return str(self._workspace(command.copy(), state) or "")
        except Exception as error:  # a foreign function that fails allows nothing
            return f"{type(error).__name__}: {error}"

    def _stop(self, why: str, *causes: str) -> Verdict:
        self.counts.update([*causes, "stops"])
        return self.disarm(why)


def _spread(bounds: tuple[float, ...], dim: int) -> Array:
    """One bound a dimension; one given stands for all."""
    return np.full(dim, bounds[0]) if len(bounds) == 1 else np.array(bounds)


def _sound(wanted: Any, shape: tuple[int, ...]) -> bool:
    """Whether a policy's output is finite numbers of this shape."""
    try:
        array = np.asarray(wanted, np.float64)
    except (TypeError, ValueError):
        return False
    return array.shape == shape and bool(np.isfinite(array).all())
