"""What to start, restart, give up and stop: the supervisor's decisions, without processes, signals or a clock.

Rules
-----
1. A role that exits 0 before the job is reported done was ended in order by somebody else, or its buffer was: it is
   started again after ``pause_max_s``, and no death is counted.
2. A role that exits otherwise is started again after a pause that doubles with each death, unless it exited with
   ``MUST_NOT_RESTART`` or died more than ``restarts`` times within ``window_s``: then it is given up.
3. A given-up buffer or learner ends the run. A given-up actor does not, while another actor is left; an evaluator never does.
4. An ordered end goes rank by rank (actors and evaluator, learner, buffer): each rank is asked to end and has its share of
   ``stop_s``, or all of it when the job is done and nobody waits for a prompt; what is still there then is killed; the next
   rank is asked when the one before it is gone.
5. The second request of a person kills everything at once. A role is never started during an end.
6. The run did its job only when the job was reported done and the learner ended cleanly after that, and no buffer failed by
   itself. Another role that had to be killed then because it was slow to leave costs a notice and nothing else. A role that
   the request itself ended (a finished run was resumed, and is done at once) had not begun, and has nothing to end cleanly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.common.config import option
from headrace.launch.exits import MUST_NOT_RESTART

UNHEARD = -15  # ended by SIGTERM: a role listens for it from its first line on
RANKS = {"actor": 0, "evaluator": 0, "learner": 1, "buffer": 2}
SHARES = (0.3, 0.5, 0.2)  # of stop_s, for each rank of a run that is interrupted: the learner writes its final checkpoint
DONE, INTERRUPTED, FAILED = "done", "interrupted", "failed"


@dataclass(frozen=True)
class SupervisorConfig:
    """How role processes are kept alive and ended."""

    restarts: int = option(
        10, help="deaths of one role within restart_window_s after which it is given up", low=0, high=10_000, resume=True
    )
    restart_window_s: float = option(60.0, help="time over which deaths are counted", unit="s", low=1, resume=True)
    pause_s: float = option(
        0.1, help="pause before the first restart; doubles with each death in the window", unit="s", low=0, high=60, resume=True
    )
    pause_max_s: float = option(3.0, help="longest pause before a restart", unit="s", low=0, high=600, resume=True)
    stop_s: float = option(9.0, help="time that an ordered end may take before roles are killed", unit="s", low=1, resume=True)


@dataclass(frozen=True)
class RolePlan:
    """One role process of a run: its unique name and its kind (buffer, learner, actor or evaluator)."""

    name: str
    kind: str


@dataclass(frozen=True)
class Action:
    """What the shell must do now: ``start``, ``terminate`` or ``kill`` the named role."""

    verb: str
    role: str


@dataclass
class _Role:
    plan: RolePlan
    state: str = "due"  # due, running, ended, given_up
    due: float = 0.0
    asked: bool = False
    killed: bool = False  # because it was slow to leave
    code: int | None = None
    deaths: deque[float] = field(default_factory=deque)


class Supervision:
    """Decides over the roles of one run; fed with events and the time, answers with actions.

    Attributes:
        outcome: ``""`` while undecided, then ``done``, ``interrupted`` or ``failed``.
        reason: why the run failed, or empty.
        given_up: role name -> why it was given up.
    """

    def __init__(self, plans: Sequence[RolePlan], config: SupervisorConfig) -> None:
        self._config = config
        self._roles = {plan.name: _Role(plan) for plan in plans}
        if len(self._roles) != len(plans):
            raise ValueError("two roles of one run share a name")
        self._rank = -1  # -1: not ending
        self._rank_deadline = 0.0
        self._requests = 0
        self._notices: list[str] = []
        self.outcome = ""
        self.reason = ""
        self.given_up: dict[str, str] = {}

    @property
    def ending(self) -> bool:
        """Whether an end has begun."""
        return self._rank >= 0

    @property
    def ended(self) -> bool:
        """Whether an end has begun and no role is left."""
        return self.ending and not any(r.state == "running" for r in self._roles.values())

    @property
    def hurried(self) -> bool:
        """Whether a person asked for the end twice."""
        return self._requests > 1

    def notices(self) -> list[str]:
        """Lines for people since the last call."""
        lines, self._notices = self._notices, []
        return lines

    def started(self, name: str) -> None:
        """The shell has started ``name``."""
        role = self._roles[name]
        role.state, role.asked, role.killed, role.code = "running", False, False, None

    def exited(self, name: str, code: int, now: float, said: str = "") -> None:
        """``name`` ended with ``code`` (negative: minus the signal); ``said`` is the line that tells why, if it left one."""
        role = self._roles[name]
        role.code = code
        if self.ending:
            role.state = "ended"
            if self.outcome == DONE and code != 0 and not (role.asked and code == UNHEARD):
                self._ended_badly(role, code)
        elif code == 0:
            role.state, role.due = "due", now + self._config.pause_max_s
        else:
            self._died(role, code, now, said)

    def job_done(self, now: float) -> None:
        """The buffer reports that the job is done."""
        if not self.ending:
            self.outcome = DONE
            self._begin_end(now)

    def stop(self, now: float) -> None:
        """Somebody asks for the end; asked twice, everything is killed."""
        self._requests += 1
        if not self.ending:
            self.outcome = INTERRUPTED
            self._begin_end(now)
        else:
            self._enter_rank(self._rank, now)  # somebody waits now

    def fail(self, reason: str, now: float) -> None:
        """The run cannot go on, for a reason that no single role is to blame for."""
        self._fail(reason)
        if not self.ending:
            self._begin_end(now)

    def tick(self, now: float) -> list[Action]:
        """What to do at ``now``."""
        if self.hurried:
            return [Action("kill", r.plan.name) for r in self._roles.values() if r.state == "running"]
        if self.ending:
            return self._end(now)
        return [Action("start", r.plan.name) for r in self._roles.values() if r.state == "due" and r.due <= now]

    def _ended_badly(self, role: _Role, code: int) -> None:
        name, kind = role.plan.name, role.plan.kind
        if kind != "learner" and role.killed:
            self._notices.append(f"{name} did not leave in time after the job was done and was killed; the result stands")
        elif kind in ("learner", "buffer"):
            self._fail(f"{name} did not end cleanly after the job was done ({describe_exit(code)})")

    def _died(self, role: _Role, code: int, now: float, said: str) -> None:
        name, config = role.plan.name, self._config
        role.deaths.append(now)
        while now - role.deaths[0] > config.restart_window_s:
            role.deaths.popleft()
        if code == MUST_NOT_RESTART:
            self._give_up(role, f"{name} cannot go on", now)
        elif len(role.deaths) > config.restarts:
            limit = f"supervisor.restarts {config.restarts} within {config.restart_window_s:g} s"
            self._give_up(
                role, f"{name} died {len(role.deaths)} times, last by {describe_exit(code)}; the limit is {limit}", now
            )
        else:
            pause = min(config.pause_max_s, config.pause_s * 2 ** (len(role.deaths) - 1))
            role.state, role.due = "due", now + pause
            why = f"; it said: {said}" if said else ""
            self._notices.append(f"{name} died ({describe_exit(code)}); starting it again in {pause:.1f} s{why}")

    def _give_up(self, role: _Role, reason: str, now: float) -> None:
        role.state = "given_up"
        self.given_up[role.plan.name] = reason
        left = [r for r in self._roles.values() if r.plan.kind == role.plan.kind and r.state in ("due", "running")]
        if role.plan.kind != "evaluator" and not (role.plan.kind == "actor" and left):
            self.fail(reason, now)

    def _fail(self, reason: str) -> None:
        if self.outcome != FAILED:
            self.outcome, self.reason = FAILED, reason

    def _begin_end(self, now: float) -> None:
        for role in self._roles.values():
            if role.state == "due":
                role.state = "ended"
        self._enter_rank(0, now)

    def _enter_rank(self, rank: int, now: float) -> None:
        share = 1.0 if self.outcome == DONE and not self._requests else SHARES[rank]
        self._rank, self._rank_deadline = rank, now + share * self._config.stop_s

    def _end(self, now: float) -> list[Action]:
        while True:
            members = [r for r in self._roles.values() if RANKS[r.plan.kind] == self._rank and r.state == "running"]
            if members or self._rank + 1 >= len(SHARES):
                break
            self._enter_rank(self._rank + 1, now)
        if now >= self._rank_deadline:
            for role in members:
                role.killed = True
            return [Action("kill", r.plan.name) for r in members]
        unasked = [r for r in members if not r.asked]
        for role in unasked:
            role.asked = True
        return [Action("terminate", r.plan.name) for r in unasked]


def describe_exit(code: int) -> str:
    """An exit code in words: ``signal 9`` or ``exit code 1``."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
