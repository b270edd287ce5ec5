"""The supervisor: carries out what :mod:`headrace.launch.supervision` decides, with real processes, signals and time."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

from headrace.common.errors import HeadraceError
from headrace.launch.children import Child, role_environment, wait_all
from headrace.launch.headway import Headway
from headrace.launch.rundir import RunDir
from headrace.launch.supervision import DONE, LEARNER, Action, RolePlan, Supervision, SupervisorConfig

TICK_S = 0.05
STATUS_S = 0.5
STATUS_DEADLINE_S = 0.5
GATHER_S = 3.0  # roles that one cause takes away within this time are named together
Status = dict[str, Any]


class Observes(Protocol):
    """A connection to a buffer."""

    def status(self, deadline_s: float) -> Status:
        """The status, within ``deadline_s``."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Watcher(Protocol):
    """Who is told what happens."""

    def notice(self, text: str) -> None:
        """One line for people."""
        ...

    def update(self, status: Status) -> None:
        """The newest status of the run."""
        ...


class Supervisor:
    """Runs the roles of one run to their end.

    Args:
        plans: the roles.
        run: where their logs go and the buffer says where it listens.
        config: limits and times.
        command: the command line of a role; the flag says whether it is started again.
        environment: variables of a role, beside those of this process.
        observe: connects to an endpoint, to ask for its status.
        watcher: is told what happens.
    """

    def __init__(
        self,
        plans: Sequence[RolePlan],
        run: RunDir,
        config: SupervisorConfig,
        *,
        command: Callable[[RolePlan, bool], list[str]],
        environment: Callable[[RolePlan], Mapping[str, str]],
        observe: Callable[[str], Observes],
        watcher: Watcher,
    ) -> None:
        self.decisions = Supervision(plans, config)
        self.status: Status = {}
        self._headway = Headway(plans)
        self._plans = {plan.name: plan for plan in plans}
        self._run, self._command, self._environment = run, command, environment
        self._observe, self._watcher = observe, watcher
        self._observer: Observes | None = None
        self._children: dict[str, Child] = {}
        self._living: set[str] = set()
        self._told: set[str] = set()  # given-up roles that people know of
        self._asked = 0  # stop requests that a signal handler has counted
        self._heard = 0
        self._status_at = 0.0
        self._tell_at = 0.0

    def run(self) -> Supervision:
        """Start everything, keep it alive, end it; returns the decisions with their outcome."""
        self._run.forget_endpoints()
        try:
            with self._signals():
                while not self.decisions.ended:
                    self._step(time.monotonic())
                    time.sleep(TICK_S)
                self._tell(time.monotonic())
        finally:
            self._kill_all()
            if self._observer is not None:
                self._observer.close()
            self._run.forget_endpoints()
            self._run.meeting.unlink(missing_ok=True)
        return self.decisions

    def stop(self) -> None:
        """Ask for the end, as a signal does; any thread may."""
        self._asked += 1

    def signal(self, name: str, number: int) -> int:
        """Send a signal to a role from outside, as the kernel or a person would; its pid, or 0 when it does not run."""
        child = self._children.get(name)
        return child.pid if child is not None and child.signal(number) else 0

    def last_words(self) -> list[tuple[str, list[str]]]:
        """The last log lines of each role that was given up, in the order of the plans; equal ones once."""
        seen: list[tuple[str, list[str]]] = []
        for name in self._given_up():
            words = self._children[name].last_words()
            if words not in [w for _, w in seen]:
                seen.append((name, words))
        return seen

    def _step(self, now: float) -> None:
        while self._heard < self._asked:
            self._heard += 1
            self.decisions.stop(now)
            hint = "ending in order; once more ends at once" if self._heard == 1 else "ending at once"
            self._watcher.notice(hint)
        for name in list(self._children):
            code = self._children[name].poll()
            if code is not None and name in self._living:
                self._living.discard(name)
                self.decisions.exited(name, code, now, self._children[name].last_line())
        for action in self.decisions.tick(now):
            self._perform(action)
        self._tell(now)
        if now - self._status_at >= STATUS_S and not self.decisions.ending:
            self._status_at = now
            self._ask(now)

    def _perform(self, action: Action) -> None:
        if action.verb == "start":
            self._start(self._plans[action.role])
        elif action.verb == "terminate":
            self._children[action.role].terminate()
        else:
            self._children[action.role].kill()

    def _start(self, plan: RolePlan) -> None:
        again = plan.name in self._children
        command = self._command(plan, again)
        if plan.kind == LEARNER:  # the first of its ranks, and none of those before is left
            self._run.meeting.unlink(missing_ok=True)
        environment = role_environment(self._environment(plan))
        self._children[plan.name] = Child(plan.name, command, self._run.log(plan.name), environment)
        self._living.add(plan.name)
        self.decisions.started(plan.name)

    def _ask(self, now: float) -> None:
        if self._observer is None:
            if not self._run.endpoint.exists():
                return
            self._observer = self._observe(self._run.endpoint.read_text().strip())
        with contextlib.suppress(HeadraceError):  # a buffer that is being started again does not answer
            self.status = self._observer.status(STATUS_DEADLINE_S)
            for name in self._headway.note(self.status):
                self.decisions.progressed(name)
            self._watcher.update(self.status)
            if self.status.get("phase") == DONE:
                self.decisions.job_done(now)

    def _given_up(self) -> list[str]:
        """Given-up roles in the order of the plans: which of several dies first of the same cause is chance."""
        return [name for name in self._plans if name in self.decisions.given_up]

    def _tell(self, now: float) -> None:
        for line in self.decisions.notices():
            self._watcher.notice(line)
        fresh = [name for name in self._given_up() if name not in self._told]
        if not fresh or self.decisions.ending:  # at the end the run's last words are about it
            self._tell_at = now + GATHER_S
        elif now >= self._tell_at:
            self._told.update(fresh)
            together: dict[str, list[str]] = {}
            for name in fresh:
                together.setdefault(self._children[name].last_line(), []).append(name)
            for said, names in together.items():
                reason = f"{self.decisions.given_up[names[0]]} ({said or 'it said nothing'})"
                self._watcher.notice(f"{reason}; the run goes on without {', '.join(names)}")

    def _kill_all(self) -> None:
        living = [c for c in self._children.values() if c.poll() is None]
        for child in living:
            child.kill()
        wait_all(living, 2.0)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Count SIGINT and SIGTERM instead of dying from them; only the main thread may."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: FrameType | None) -> None:
            self.stop()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means: outlive the terminal
            numbers.append(signal.SIGHUP)
        old = {number: signal.signal(number, count) for number in numbers}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
