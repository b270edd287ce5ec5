"""The pacing of a further shard: what the home shard has granted it is shared out among its own actors, by the same rules.

Ratio, minimum fill, length and phase of the run are the home shard's to decide, which sees all shards; here is only a limit, in
env steps that are committed in this shard's own pool.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.buffer.pacing import UNBOUNDED, Pacing, PacingConfig
from headrace.common.errors import ConfigError
from headrace.common.wire.messages import PAUSED

BEGUN = ("offline", "training", "finishing", "done")  # phases of a run in which there are updates
COLLECTED = ("finishing", "done")


@dataclass(frozen=True)
class Loan:
    """What the home shard says last.

    Attributes:
        limit: env steps that may be committed here or under way; the first ``random`` act at random.
        final: whether no more will ever be granted.
        phase: of the run; empty before the home shard was heard.
        env_steps: of all shards.
    """

    limit: int = 0
    random: int = 0
    final: bool = False
    phase: str = ""
    env_steps: int = 0


class LentPacing(Pacing):
    """Shares a loan among actors; grants no update.

    Attributes:
        loan: the present one.
    """

    def __init__(self, config: PacingConfig) -> None:
        super().__init__(config)
        self.loan = Loan()
        self._begun = False

    def hear(self, loan: Loan) -> None:
        """Go on by another loan."""
        self.loan = loan
        self._begun = self._begun or loan.phase in BEGUN

    def reconfigure(self, config: PacingConfig) -> None:
        """Refuse: the home shard paces the run."""
        raise ConfigError("this is a further shard of the run, and its first one, the home shard, paces it: set it there")

    @property
    def under_way(self) -> int:
        """Env steps that actors were granted and have not delivered."""
        return sum(a.outstanding for a in self._accounts.values())

    @property
    def simulators(self) -> int:
        """Actors that share the loan; none while some may come back whose rows nobody knows yet."""
        return 0 if self.absent else sum(not a.robot for a in self._accounts.values())

    @property
    def reserve(self) -> int:
        """Env steps that they must have under way."""
        return 0 if self.absent else sum(a.reserve for a in self._accounts.values())

    @property
    def begun(self) -> bool:
        """Whether the run has had an update."""
        return self._begun

    @property
    def owed(self) -> int:
        """None: updates are owed by the home shard."""
        return 0

    def updates_allowed(self) -> int:
        """None: what readers draw here is for updates that the home shard grants."""
        return 0

    @property
    def collected(self) -> bool:
        """Whether the run's env steps are all committed."""
        return self.loan.phase in COLLECTED

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self.loan.phase == "done"

    @property
    def alarm(self) -> str:
        """None: the ratio is that of all shards."""
        return ""

    def _lead(self) -> int:
        return max(self.loan.limit - self.env_steps, sum(a.reserve for a in self._accounts.values()))

    def _budget(self) -> int:
        return self.loan.limit if self.loan.final else UNBOUNDED

    def _random_steps(self) -> int:
        return self.loan.random

    def _limit(self) -> int:
        limit = self.loan.limit
        if self.paused or self.absent or self.loan.phase == PAUSED:
            limit = min(limit, self.env_steps)
        if self.quota.active:
            limit = min(limit, self.env_steps + math.floor(self.quota.credit))
        return limit
