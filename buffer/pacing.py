"""Pacing: how many updates the learner and how many env steps each actor may still do.

The unit is optimiser updates (one over all ranks) per executed online env step after the minimum fill. The offline phase
comes first: ``offline_updates`` updates on the rows that the pool began with, while simulators wait; they are counted apart.

held          rule                                                         the run ends with its last env step and ...
learner       updates <= ratio * (env_steps - min_fill)                    ... the last update that they owe
simulators    env_steps <= min_fill + updates / ratio + lead_steps         ... the last update that they owe
both          both rules                                                   ... the last update that they owe
none          the ratio is only reported, all go as fast as they can       nothing else

Robots are never held; they end with the run. While one is connected, simulators also keep to :mod:`headrace.buffer.quota`.
While people have paused the run, no update is granted and no simulator gets a step.
The counters live in the pool and never rewind; this class only decides from them. Time earns nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.buffer.quota import Quota
from headrace.common.config import option
from headrace.common.errors import ConfigError

UNBOUNDED = 1 << 62
RATIO_TOLERANCE = 0.05


@dataclass(frozen=True)
class PacingConfig:
    """The ratio of learning to acting, and the length of the run."""

    ratio: float = option(
        1.0, help="optimiser updates per executed env step after the minimum fill; 0 only collects", low=0, high=1000
    )
    min_fill: int = option(1000, help="env steps collected before the first online update", unit="env steps", low=1)
    env_steps: int = option(
        10_000,
        help="executed env steps of the whole run; 0 runs until stopped, or with offline_updates ends after these",
        unit="env steps",
        low=0,
        resume=True,
        live=True,
    )
    random_steps: int = option(1000, help="the run's first env steps act uniformly at random", unit="env steps", low=0)
    offline_updates: int = option(
        0, help="updates on run.pool_from and pool.demos before the first env step", unit="updates", low=0, resume=True
    )
    lead_steps: int = option(
        128, help="env steps that simulators may be ahead of the learner", unit="env steps", low=1, resume=True, live=True
    )
    hold_learner: bool = option(
        True, help="make the learner wait for data; false trains as fast as it can until the last env step", resume=True
    )
    hold_actors: bool = option(
        True, help="make simulators wait for a learner that is behind (robots are never held)", resume=True
    )
    robot_share: float = option(
        0.0,
        help="least share of the env steps that robots provide while one is connected; simulators wait for it",
        low=0,
        high=1,
        resume=True,
        live=True,
    )

    def check(self, path: str = "pacing") -> None:
        """Refuse a run that can never make an update; sizes are looked at together with those of batch and pool."""
        if self.ratio == 0 and not self.hold_learner:
            raise ConfigError(
                f"{path}.hold_learner: false, so the learner never waits, with {path}.ratio 0, which asks for no update;"
                " nearest valid: true"
            )
        if self.env_steps == 1 and self.ratio > 0:
            raise ConfigError(
                f"{path}.env_steps: 1 with {path}.ratio {self.ratio:g}: the first step fills, so none is left to learn from;"
                " nearest valid: 2"
            )

    @property
    def online(self) -> bool:
        """Whether the run has an online phase."""
        return self.env_steps > 0 or self.offline_updates == 0

    def steps_for(self, updates: int) -> int:
        """Env steps that allow so many more updates; 0 where the learner does not wait for any."""
        return math.ceil(updates / self.ratio) if self.hold_learner and self.ratio > 0 else 0


@dataclass
class _Account:
    """One actor process: all counts in env steps since that process started."""

    quantum: int
    reserve: int  # steps that it must have under way before it can deliver its first row
    robot: bool
    granted: int
    accounted: int  # committed, rejected or given up
    random: int
    turn: int = 0  # when it was last granted something
    simulators: int = 1  # of a further shard those that share what it is granted
    returned: int = 0  # by it, of what it was granted

    @property
    def outstanding(self) -> int:
        return 0 if self.robot else max(0, self.granted - self.returned - self.accounted)


@dataclass(frozen=True)
class Allowance:
    """What one actor process may do: ``granted`` steps since its start, of which the first ``random`` are random."""

    granted: int
    random: int
    final: bool


class Pacing:
    """Shares the step budget among actors and the update credit with the learner.

    Attributes:
        env_steps: executed online env steps that are committed.
        updates: updates granted in the online phase.
        offline_updates: updates granted in the offline phase.
        drawable: whether the pool holds enough rows for a batch. While it does not, no one waits for the learner,
            neither in the offline phase nor at the end.
        absent: whether actors that knew this run before the buffer was started again may still come back. Until then as
            many steps as all may have had under way are kept for them, or the run would end beyond its goal.
        paused: whether people have paused the run.
    """

    def __init__(self, config: PacingConfig) -> None:
        self.config = config
        self.env_steps = 0
        self.updates = 0
        self.offline_updates = 0
        self.drawable = True
        self.absent = self.paused = False
        self.quota = Quota(config.robot_share)
        self._accounts: dict[str, _Account] = {}
        self._turn = 0

    def observe(self, env_steps: int, updates: int, offline_updates: int = 0) -> None:
        """Take the pool's durable counters; ``updates`` are those of both phases."""
        self.env_steps, self.updates, self.offline_updates = env_steps, updates - offline_updates, offline_updates

    def reconfigure(self, config: PacingConfig) -> None:
        """Go on by other options, of which :data:`headrace.buffer.live.LIVE` lists those that may change."""
        if config.robot_share != self.config.robot_share:
            self.quota = Quota(config.robot_share)
        self.config = config
        self._limit_simulators()

    # --- actors -----------------------------------------------------------------------------------------------------

    def join(self, actor: str, *, executed: int, pending: int, lanes: int = 1, window: int = 1, robot: bool = False) -> None:
        """An actor process has (re)joined.

        Args:
            actor: its id.
            executed: env steps since it started.
            pending: those of them that are not acknowledged.
            lanes: it steps this many episodes at a time.
            window: env steps that one row may cover.
            robot: it is never held.
        """
        lanes = max(1, lanes)
        # A lane holds its newest row back, and a row of n steps is complete n steps later.
        reserve = 0 if robot else lanes * (window + 1)
        granted = UNBOUNDED if robot else executed
        account = self._accounts[actor] = _Account(lanes, reserve, robot, granted, executed, 0)
        # No simulator was ever granted more ahead, so whoever says so would only take it from the others.
        account.accounted -= min(pending, executed, UNBOUNDED if robot else Pacing._lead(self))
        self._limit_simulators()

    def join_shard(self, shard: str, *, limit: int, under_way: int) -> None:
        """A further shard has (re)joined. Its account is in its own committed env steps, which outlive its processes.

        Args:
            shard: the name of its account.
            limit: what it may have committed by what it was granted before.
            under_way: those of it that are not committed.
        """
        self._accounts[shard] = _Account(1, 0, False, limit, limit - min(under_way, limit), 0, simulators=0)

    def shard_holds(self, shard: str, env_steps: int, *, returned: int, under_way: int, simulators: int, reserve: int) -> None:
        """What a further shard says of itself, see :class:`headrace.common.wire.messages.Holdings`."""
        account = self._accounts.get(shard)
        if account is not None:
            account.accounted, account.returned = env_steps, returned
            account.simulators, account.reserve = simulators, reserve
            # Robots, and actors of the shard's process before, bring rows for which this one was granted nothing.
            account.granted = max(account.granted, env_steps + under_way + returned)

    def leave(self, actor: str) -> None:
        """An actor is gone; what it was granted and never delivered returns to the budget."""
        self._accounts.pop(actor, None)
        self._limit_simulators()

    def _limit_simulators(self) -> None:
        robots = any(a.robot for a in self._accounts.values())
        if robots and not self.quota.active:
            self.quota.begin(self._lead())
        elif not robots:
            self.quota.end()

    def accounted(self, actor: str, steps: int) -> None:
        """``steps`` of this actor were committed or rejected."""
        account = self._accounts.get(actor)
        if account is not None:
            account.accounted += steps
            self.quota.count(steps, robot=account.robot)

    def settled(self, actor: str, total: int) -> None:
        """The actor reports ``total`` steps acknowledged or rejected since it started.

        This finds rows that were committed when it said hello, but whose acknowledgement was lost with the session before:
        they are not sent again, so :meth:`accounted` never hears of them.
        """
        account = self._accounts.get(actor)
        if account is not None:
            account.accounted = max(account.accounted, min(total, account.granted))

    def is_robot(self, actor: str) -> bool:
        """Whether an actor with this id is here and is a robot."""
        account = self._accounts.get(actor)
        return account is not None and account.robot

    @property
    def quota_holds(self) -> bool:
        """Whether simulators have used up what the robots' steps so far leave them."""
        under_way = sum(a.outstanding for a in self._accounts.values())
        least = min((a.quantum for a in self._accounts.values() if not a.robot), default=0)
        return least > 0 and self.quota.credit - under_way < least

    def allowances(self) -> dict[str, Allowance]:
        """Share out what is free now, in turn and in whole vector steps; every actor's allowance."""
        simulators = [a for a in self._accounts.values() if not a.robot]
        taken = self.env_steps + sum(a.outstanding for a in simulators)
        end, limit = self._budget(), self._limit()
        share = self._lead() // max(1, sum(a.simulators for a in simulators))
        for account in sorted(simulators, key=lambda a: a.turn):
            free, window = limit - taken, max(account.reserve, share * account.simulators) - account.outstanding
            if window < account.quantum:
                continue
            # Less than a vector step is given out only where no more will ever come; the actor then does a whole one.
            if free < account.quantum and (free <= 0 or limit < end):
                break  # its turn: what comes free is saved up for its next vector step
            grant = min(free, window) // account.quantum * account.quantum or free
            self._grant(account, grant, taken)
            taken += grant
        return {name: self._allowance(account, taken) for name, account in self._accounts.items()}

    def _allowance(self, account: _Account, taken: int) -> Allowance:
        if not account.robot:
            return Allowance(account.granted, account.random, taken >= self._budget())
        if self.collected:
            return Allowance(0, 0, True)
        random = self._random_steps() - taken
        return Allowance(account.granted, account.accounted + random if random > 0 else 0, False)

    def _grant(self, account: _Account, grant: int, taken: int) -> None:
        random = min(grant, max(0, self._random_steps() - taken))
        if random > 0:
            account.random = account.granted + random
        account.granted += grant
        self._turn += 1
        account.turn = self._turn

    def _lead(self) -> int:
        """Steps that actors may be ahead: as configured, but never so few that no row could be completed."""
        reserves = sum(a.reserve for a in self._accounts.values())
        whole_update = math.ceil(1 / self.config.ratio) if 0 < self.config.ratio < 1 else 0
        return max(self.config.lead_steps, reserves + whole_update)

    def _random_steps(self) -> int:
        """Env steps of the run that act at random, from the first one on."""
        return self.config.random_steps

    def _budget(self) -> int:
        """Env steps of the whole run."""
        return self.config.env_steps or (UNBOUNDED if self.config.online else 0)

    def _limit(self) -> int:
        """Env steps that may be committed or under way before simulators wait."""
        limit, config = self._budget(), self.config
        if self.absent:
            limit -= self._lead()
        if self.paused or (self.offline and self.drawable):
            return min(limit, self.env_steps)
        filled = self.env_steps >= config.min_fill
        if config.hold_actors and config.ratio > 0 and (self.drawable or not filled):
            limit = min(limit, config.min_fill + self._lead() + math.floor(self.updates / config.ratio))
        if self.quota.active:
            limit = min(limit, self.env_steps + math.floor(self.quota.credit))
        return limit

    # --- learner ----------------------------------------------------------------------------------------------------

    @property
    def offline(self) -> bool:
        """Whether the next update belongs to the offline phase."""
        return self.offline_updates < self.config.offline_updates

    @property
    def _offline_over(self) -> bool:
        return not self.offline or not self.drawable

    @property
    def owed(self) -> int:
        """Online updates that the executed steps so far allow in all."""
        return max(0, math.floor(self.config.ratio * (self.env_steps - self.config.min_fill)))

    def updates_allowed(self) -> int:
        """Updates of the present phase that may be granted now."""
        config = self.config
        if self.paused:
            return 0
        if self.offline:
            return config.offline_updates - self.offline_updates
        if config.hold_learner or (self.collected and config.hold_actors):
            return max(0, self.owed - self.updates)
        return UNBOUNDED if self.env_steps >= config.min_fill and not self.collected else 0

    @property
    def begun(self) -> bool:
        """Whether an update was granted: before that a batch would be of the few first rows."""
        return self.updates + self.offline_updates > 0

    @property
    def collected(self) -> bool:
        """Whether the run's env steps are all committed."""
        if self.config.env_steps:
            return self.env_steps >= self.config.env_steps
        return not self.config.online and self._offline_over

    @property
    def finished(self) -> bool:
        """Whether the run's env steps are committed and the updates that it waits for granted."""
        waits = (self.config.hold_learner or self.config.hold_actors) and self.drawable
        return self.collected and self._offline_over and (self.updates >= self.owed or not waits)

    @property
    def achieved_ratio(self) -> float:
        """Online updates granted per env step after the minimum fill; 0 before it."""
        beyond = self.env_steps - self.config.min_fill
        return self.updates / beyond if beyond > 0 else 0.0

    @property
    def alarm(self) -> str:
        """What is wrong with the ratio, if anything is; empty otherwise.

        That is when updates differ from what is asked for by more than 5 % and by more than the lead of simulators explains.
        More of them are right where the learner is not held.
        """
        config = self.config
        asked = config.ratio * max(0, self.env_steps - config.min_fill)
        missing = asked - self.updates
        off = missing if missing > 0 or not config.hold_learner else -missing
        if asked == 0 or off <= max(RATIO_TOLERANCE * asked, config.ratio * self._lead()):
            return ""
        return f"{self.achieved_ratio:.3f} updates per env step, {config.ratio:g} asked for: off by {off / asked:.0%}"

    def get_state(self) -> dict[str, Any]:
        """Counters and accounts as plain values."""
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "offline_updates": self.offline_updates,
            "turn": self._turn,
            "quota": self.quota.get_state(),
            "accounts": {k: dict(vars(a)) for k, a in self._accounts.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`."""
        self.env_steps, self.updates, self._turn = state["env_steps"], state["updates"], state["turn"]
        self.offline_updates = state["offline_updates"]
        self.quota.set_state(state["quota"])
        self._accounts = {k: _Account(**a) for k, a in state["accounts"].items()}

    def check_valid(self) -> tuple[bool, str]:
        """Whether the counters can be; with the reason if not."""
        if min(self.env_steps, self.updates, self.offline_updates) < 0:
            return False, f"negative counters: {self.env_steps} env steps, {self.updates}+{self.offline_updates} updates"
        if self.config.hold_learner and self.updates > self.owed:
            return False, f"{self.updates} updates granted, {self.owed} owed"
        return self.quota.check_valid()
