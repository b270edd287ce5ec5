"""What to start, restart, give up and stop: the supervisor's decisions, without processes, signals or a clock.

Rules
-----
1. Roles share a fate: the ranks of a learner do, every other role has one of its own. Those of one fate are started together,
   when none of them is running.
2. When one of them has ended, the others are to end too: they notice by themselves. After a death, or when the learner (rank
   0) is gone, those that are still there have their ``PATIENCE_S`` and are killed then.
3. A fate whose roles all exit 0 before the job is reported done was ended in order by somebody else, or its buffer was: it is
   started again after ``pause_max_s``, and no death is counted.
4. Otherwise it is started again after a pause that doubles with each death, unless a role exited with ``MUST_NOT_RESTART`` or
   there were more than ``restarts`` deaths within ``restart_window_s``, or in a row, at any pace, without anything that one of
   them got done in between: then it is given up. The role to blame is named: who cannot go on, else who died by itself, else
   who had to be killed since it did not notice, which is what a silent rank does.
5. A given-up buffer or learner ends the run. A given-up actor does not, while another actor is left; an evaluator never does.
6. An ordered end goes in turns (actors and evaluator, learner with all ranks, buffer): each turn's roles are asked to end and
   have their share of ``stop_s``, or all of it when the job is done and nobody waits for a prompt; what is still there then is
   killed; the next turn begins when the one before it is gone.
7. The second request of a person kills everything at once. A role is never started during an end.
8. The run did its job only when the job was reported done and the learner ended cleanly after that, and no buffer failed by
   itself. Another role that had to be killed then because it was slow to leave costs a notice and nothing else. A role that
   the request itself ended (a finished run was resumed, and is done at once) had not begun, and has nothing to end cleanly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.common.config import option
from headrace.common.wire.messages import POLICY_SERVER
from headrace.launch.exits import BUFFER_LEFT, GROUP_LOST, MUST_NOT_RESTART

UNHEARD = -15  # ended by SIGTERM: a role listens for it from its first line on
LEARNER, RANK = "learner", "rank"  # kinds: rank 0, and each further one
TURNS = {"actor": 0, "evaluator": 0, LEARNER: 1, RANK: 1, POLICY_SERVER: 1, "buffer": 2}
SHARES = (0.3, 0.5, 0.2)  # of stop_s, for each turn of a run that is interrupted: the learner writes its final checkpoint
DEEDS = {
    **{"actor": "acknowledged row", "evaluator": "evaluation", LEARNER: "update", RANK: "update"},
    **{POLICY_SERVER: "session", "buffer": "answer"},
}
# How long a rank may take to leave a group that has lost another: the learner may be writing a checkpoint.
PATIENCE_S = {LEARNER: 12.0, RANK: 5.0}
DONE, INTERRUPTED, FAILED = "done", "interrupted", "failed"


@dataclass(frozen=True)
class SupervisorConfig:
    """How role processes are kept alive and ended."""

    restarts: int = option(
        10,
        help="deaths of one role, or of a learner's ranks, within restart_window_s or with nothing done between, that end it",
        low=0,
        high=10_000,
        resume=True,
    )
    restart_window_s: float = option(60.0, help="time over which deaths are counted", unit="s", low=1, resume=True)
    pause_s: float = option(
        0.1, help="pause before the first restart; doubles with each death in the window", unit="s", low=0, high=60, resume=True
    )
    pause_max_s: float = option(3.0, help="longest pause before a restart", unit="s", low=0, high=600, resume=True)
    stop_s: float = option(9.0, help="time that an ordered end may take before roles are killed", unit="s", low=1, resume=True)


@dataclass(frozen=True)
class RolePlan:
    """One role process of a run: its unique name and its kind (buffer, learner, rank, actor, evaluator, policy server)."""

    name: str
    kind: str

    @property
    def fate(self) -> str:
        """What names its fate."""
        return LEARNER if self.kind == RANK else self.name


@dataclass(frozen=True)
class Action:
    """What the shell must do now: ``start``, ``terminate`` or ``kill`` the named role."""

    verb: str
    role: str


@dataclass
class _Role:
    plan: RolePlan
    state: str = "down"  # down, running, ended, given_up
    asked: bool = False
    killed: bool = False  # because it was slow to leave
    code: int = 0
    said: str = ""


@dataclass
class _Fate:
    """Roles that live and die together."""

    roles: list[_Role] = field(default_factory=list)
    due: float = 0.0
    fallen: list[_Role] = field(default_factory=list)  # of this life, the first to end first
    broken_at: float = math.inf
    deaths: deque[float] = field(default_factory=deque)
    in_vain: int = 0  # deaths in a row with nothing done in between

    @property
    def running(self) -> list[_Role]:
        return [role for role in self.roles if role.state == "running"]


class Supervision:
    """Decides over the roles of one run; fed with events and the time, answers with actions.

    Attributes:
        outcome: ``""`` while undecided, then ``done``, ``interrupted`` or ``failed``.
        reason: why the run failed, or empty.
        given_up: role name -> why it was given up; of roles of one fate the one to blame.
    """

    def __init__(self, plans: Sequence[RolePlan], config: SupervisorConfig) -> None:
        self._config = config
        self._roles = {plan.name: _Role(plan) for plan in plans}
        if len(self._roles) != len(plans):
            raise ValueError("two roles of one run share a name")
        self._fates: dict[str, _Fate] = {}
        for role in self._roles.values():
            self._fates.setdefault(role.plan.fate, _Fate()).roles.append(role)
        self._turn = -1  # -1: not ending
        self._turn_deadline = 0.0
        self._requests = 0
        self._notices: list[str] = []
        self.outcome = ""
        self.reason = ""
        self.given_up: dict[str, str] = {}

    @property
    def ending(self) -> bool:
        """Whether an end has begun."""
        return self._turn >= 0

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
        role.state, role.asked, role.killed = "running", False, False

    def exited(self, name: str, code: int, now: float, said: str = "") -> None:
        """``name`` ended with ``code`` (negative: minus the signal); ``said`` is the line that tells why, if it left one."""
        code = 0 if code == BUFFER_LEFT else code  # its buffer's code says what that means
        role = self._roles[name]
        role.code, role.said = code, said
        if self.ending:
            role.state = "ended"
            if self.outcome == DONE and code != 0 and not (role.asked and code in (UNHEARD, GROUP_LOST)):
                self._ended_badly(role, code)
            return
        role.state = "down"
        fate = self._fates[role.plan.fate]
        fate.fallen.append(role)
        if not fate.running:
            self._fell(fate, now)
        elif code != 0 or role.plan.kind == LEARNER:
            fate.broken_at = min(fate.broken_at, now)

    def progressed(self, name: str) -> None:
        """``name`` got something done, or has nothing to do."""
        self._fates[self._roles[name].plan.fate].in_vain = 0

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
            self._enter_turn(self._turn, now)  # somebody waits now

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
        return [action for fate in self._fates.values() for action in self._keep(fate, now)]

    def _keep(self, fate: _Fate, now: float) -> list[Action]:
        """Start all, or kill those whose patience with a broken fate is over."""
        running = fate.running
        if not running:
            return [Action("start", r.plan.name) for r in fate.roles if r.state == "down" and fate.due <= now]
        late = [r for r in running if now >= fate.broken_at + PATIENCE_S.get(r.plan.kind, 0.0)]
        for role in late:
            role.killed = True
        return [Action("kill", r.plan.name) for r in late]

    def _ended_badly(self, role: _Role, code: int) -> None:
        name, kind = role.plan.name, role.plan.kind
        if kind != LEARNER and role.killed:
            self._notices.append(f"{name} did not leave in time after the job was done and was killed; the result stands")
        elif kind in (LEARNER, "buffer"):
            self._fail(f"{name} did not end cleanly after the job was done ({describe_exit(code)})")

    def _fell(self, fate: _Fate, now: float) -> None:
        """Nobody of this fate is left."""
        bad = [r for r in fate.fallen if r.code != 0]
        fate.fallen, fate.broken_at = [], math.inf
        if bad:
            self._died(fate, min(bad, key=_innocence), now)
        else:
            fate.due = now + self._config.pause_max_s

    def _died(self, fate: _Fate, blamed: _Role, now: float) -> None:
        name, config = blamed.plan.name, self._config
        fate.deaths.append(now)
        fate.in_vain += 1
        while now - fate.deaths[0] > config.restart_window_s:
            fate.deaths.popleft()
        if blamed.code == MUST_NOT_RESTART:
            self._give_up(fate, blamed, f"{name} cannot go on", now)
        elif len(fate.deaths) > config.restarts:
            limit = f"supervisor.restarts {config.restarts} within {config.restart_window_s:g} s"
            self._give_up(fate, blamed, f"{_told_often(fate, blamed, len(fate.deaths))}; the limit is {limit}", now)
        elif fate.in_vain > config.restarts:
            often = _told_often(fate, blamed, fate.in_vain, f" without one {DEEDS[blamed.plan.kind]}")
            self._give_up(fate, blamed, f"{often}; the limit is supervisor.restarts {config.restarts} in a row", now)
        else:
            pause = min(config.pause_max_s, config.pause_s * 2 ** (len(fate.deaths) - 1))
            fate.due = now + pause
            again = "it" if len(fate.roles) == 1 else f"all {len(fate.roles)} ranks"
            why = f"; it said: {blamed.said}" if blamed.said and not blamed.killed else ""
            self._notices.append(f"{name} {_fall(blamed)}; starting {again} again in {pause:.1f} s{why}")

    def _give_up(self, fate: _Fate, blamed: _Role, reason: str, now: float) -> None:
        kind = blamed.plan.kind
        for role in fate.roles:
            role.state = "given_up"
        self.given_up[blamed.plan.name] = reason
        left = [r for r in self._roles.values() if r.plan.kind == kind and r.state in ("down", "running")]
        if kind != "evaluator" and not (kind == "actor" and left):
            self.fail(reason, now)

    def _fail(self, reason: str) -> None:
        if self.outcome != FAILED:
            self.outcome, self.reason = FAILED, reason

    def _begin_end(self, now: float) -> None:
        for role in self._roles.values():
            if role.state == "down":
                role.state = "ended"
        self._enter_turn(0, now)

    def _enter_turn(self, turn: int, now: float) -> None:
        share = 1.0 if self.outcome == DONE and not self._requests else SHARES[turn]
        self._turn, self._turn_deadline = turn, now + share * self._config.stop_s

    def _end(self, now: float) -> list[Action]:
        while True:
            members = [r for r in self._roles.values() if TURNS[r.plan.kind] == self._turn and r.state == "running"]
            if members or self._turn + 1 >= len(SHARES):
                break
            self._enter_turn(self._turn + 1, now)
        if now >= self._turn_deadline:
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


def _innocence(role: _Role) -> int:
    """The lower, the more it is to blame for the end of its fate."""
    if role.code == MUST_NOT_RESTART:
        return 0
    if role.killed:
        return 2
    return 3 if role.code == GROUP_LOST else 1


def _fall(role: _Role) -> str:
    return "did not answer and was killed" if role.killed else f"died ({describe_exit(role.code)})"


def _told_often(fate: _Fate, blamed: _Role, deaths: int, without: str = "") -> str:
    name = blamed.plan.name
    if len(fate.roles) == 1:
        return f"{name} died {deaths} times{without}, last by {describe_exit(blamed.code)}"
    return f"the learner's ranks were lost {deaths} times{without}; {name} {_fall(blamed)} last"
