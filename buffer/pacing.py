"""Pacing: how many updates the learner and how many env steps each simulator may still do.

The unit is optimiser updates (one over all ranks) per executed online env step after the minimum fill:
``updates <= ratio * (env_steps - min_fill)`` holds the learner, and
``env_steps <= min_fill + updates / ratio + lead_steps`` holds simulators, which wait in place.
Both counters live in the pool and never rewind; this class only decides from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.common.config import option
from headrace.common.errors import ConfigError


@dataclass(frozen=True)
class PacingConfig:
    """The ratio of learning to acting, and the length of the run."""

    ratio: float = option(1.0, help="optimiser updates per executed env step after the minimum fill", low=0, high=1000)
    min_fill: int = option(1000, help="env steps collected before the first update", unit="env steps", low=1)
    env_steps: int = option(
        10_000, help="executed env steps of the whole run; 0 runs until stopped", unit="env steps", low=0, resume=True
    )
    random_steps: int = option(1000, help="the run's first env steps act uniformly at random", unit="env steps", low=0)
    lead_steps: int = option(
        128, help="env steps that simulators may be ahead of the learner", unit="env steps", low=1, resume=True
    )
    hold_learner: bool = option(True, help="make the learner wait for data that the ratio asks for", resume=True)
    hold_actors: bool = option(
        True, help="make simulators wait for a learner that is behind (robots are never held)", resume=True
    )

    def check(self, path: str = "pacing") -> None:
        """Refuse a run that can never make an update."""
        if self.env_steps and self.min_fill >= self.env_steps and self.ratio > 0:
            raise ConfigError(
                f"{path}.min_fill: {self.min_fill} is not below {path}.env_steps {self.env_steps}, so"
                f" {path}.ratio {self.ratio:g} can never be met; nearest valid: {max(1, self.env_steps - 1)}"
            )
        beyond = self.env_steps - self.min_fill
        if self.env_steps and 0 < self.ratio * beyond < 1:
            raise ConfigError(
                f"{path}.ratio: {self.ratio:g} over the {beyond} env steps after {path}.min_fill {self.min_fill} owes no"
                f" update; nearest valid: {math.ceil(1e6 / beyond) / 1e6:g}, or 0 to collect only"
            )
        if self.env_steps and self.random_steps > self.env_steps:
            raise ConfigError(
                f"{path}.random_steps: {self.random_steps} is above {path}.env_steps {self.env_steps};"
                f" nearest valid: {self.env_steps}"
            )


@dataclass
class _Account:
    """One actor process: all counts in env steps since that process started."""

    quantum: int
    reserve: int  # steps that it must have under way before it can deliver its first row
    granted: int
    accounted: int  # committed, rejected or given up
    random: int
    turn: int = 0  # when it was last granted something

    @property
    def outstanding(self) -> int:
        return max(0, self.granted - self.accounted)


@dataclass(frozen=True)
class Allowance:
    """What one actor process may do: ``granted`` steps since its start, of which the first ``random`` are random."""

    granted: int
    random: int
    final: bool


class Pacing:
    """Shares the step budget among actors and the update credit with the learner."""

    def __init__(self, config: PacingConfig) -> None:
        self.config = config
        self.env_steps = 0
        self.updates = 0
        self._accounts: dict[str, _Account] = {}
        self._turn = 0

    def observe(self, env_steps: int, updates: int) -> None:
        """Take the pool's durable counters."""
        self.env_steps, self.updates = env_steps, updates

    def join(self, actor: str, *, executed: int, pending: int, lanes: int = 1, window: int = 1) -> None:
        """An actor process has (re)joined.

        Args:
            actor: its id.
            executed: env steps since it started.
            pending: those of them that are not acknowledged.
            lanes: it steps this many episodes at a time.
            window: env steps that one row may cover.
        """
        lanes = max(1, lanes)
        # A lane holds its newest row back, and a row of n steps is complete n steps later.
        reserve = lanes * (window + 1)
        self._accounts[actor] = _Account(lanes, reserve, executed, executed - min(pending, executed), 0)

    def leave(self, actor: str) -> None:
        """An actor is gone; what it was granted and never delivered returns to the budget."""
        self._accounts.pop(actor, None)

    def accounted(self, actor: str, steps: int) -> None:
        """``steps`` of this actor were committed or rejected."""
        if actor in self._accounts:
            self._accounts[actor].accounted += steps

    def settled(self, actor: str, total: int) -> None:
        """The actor reports ``total`` steps acknowledged or rejected since it started.

        This finds rows that were committed when it said hello, but whose acknowledgement was lost with the session before:
        they are not sent again, so :meth:`accounted` never hears of them.
        """
        account = self._accounts.get(actor)
        if account is not None:
            account.accounted = max(account.accounted, min(total, account.granted))

    @property
    def owed(self) -> int:
        """Updates that the executed steps so far allow in all."""
        return max(0, math.floor(self.config.ratio * (self.env_steps - self.config.min_fill)))

    def updates_allowed(self) -> int:
        """Updates that may be granted now."""
        if not self.config.hold_learner:
            return 1 << 30 if self.env_steps >= self.config.min_fill and not self.collected else 0
        return max(0, self.owed - self.updates)

    @property
    def collected(self) -> bool:
        """Whether the run's env steps are all committed."""
        return 0 < self.config.env_steps <= self.env_steps

    @property
    def finished(self) -> bool:
        """Whether the run's env steps are committed and their updates granted."""
        return self.collected and (self.updates >= self.owed or not self.config.hold_learner)

    @property
    def achieved_ratio(self) -> float:
        """Updates granted per env step after the minimum fill; 0 before it."""
        beyond = self.env_steps - self.config.min_fill
        return self.updates / beyond if beyond > 0 else 0.0

    def allowances(self) -> dict[str, Allowance]:
        """Share out what is free now, in turn and in whole vector steps; every actor's allowance."""
        free = self._limit() - self.env_steps - sum(a.outstanding for a in self._accounts.values())
        share = self._lead() // max(1, len(self._accounts))
        for account in sorted(self._accounts.values(), key=lambda a: a.turn):
            window = max(account.reserve, share) - account.outstanding
            if window >= account.quantum > free:
                break  # its turn: what comes free is saved up for its next vector step
            grant = min(free, window) // account.quantum * account.quantum
            if grant > 0:
                self._grant(account, grant, self._limit() - free)
                free -= grant
        final = self._budget() - self.env_steps - sum(a.outstanding for a in self._accounts.values())
        return {name: Allowance(a.granted, a.random, final < a.quantum) for name, a in self._accounts.items()}

    def _grant(self, account: _Account, grant: int, spoken_for: int) -> None:
        random = min(grant, max(0, self.config.random_steps - spoken_for))
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

    def _budget(self) -> int:
        return self.config.env_steps or 1 << 62

    def _limit(self) -> int:
        limit = self._budget()
        if self.config.hold_actors and self.config.ratio > 0:
            limit = min(limit, self.config.min_fill + self._lead() + math.floor(self.updates / self.config.ratio))
        return limit

    def get_state(self) -> dict[str, Any]:
        """Counters and accounts as plain values."""
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "accounts": {k: vars(a) for k, a in self._accounts.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`."""
        self.env_steps, self.updates, self._turn = state["env_steps"], state["updates"], state["turn"]
        self._accounts = {k: _Account(**a) for k, a in state["accounts"].items()}

    def check_valid(self) -> tuple[bool, str]:
        """Whether the counters can be; with the reason if not."""
        if self.env_steps < 0 or self.updates < 0:
            return False, f"negative counters: {self.env_steps} env steps, {self.updates} updates"
        if self.config.hold_learner and self.updates > self.owed:
            return False, f"{self.updates} updates granted, {self.owed} owed"
        return True, ""
