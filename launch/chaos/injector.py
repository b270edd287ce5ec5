"""The injector: carries out faults on a job's processes and links, and ends them when their time is over."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from headrace.common.wire.messages import Ack, BlockHead
from headrace.launch.chaos.history import History
from headrace.launch.chaos.intruder import Intruder
from headrace.launch.chaos.job import LEASE_S, Job
from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.schedule import FULL_DISK, INTRUDE, Fault
from headrace.launch.chaos.tampering import Act, Faults, Rule, Way
from headrace.launch.children import Child

WAYS = (Way.UP, Way.DOWN)
ACKS, BLOCKS = frozenset({Ack.TAG}), frozenset({BlockHead.TAG})
REPLAY_AGE = 200  # messages: whatever is that old was acknowledged, or its process is gone
NOISE = Faults(
    (
        Rule(Act.DROP, Way.DOWN, ACKS, 0.3),
        Rule(Act.DUPLICATE, Way.UP, BLOCKS, 0.1),
        Rule(Act.REPLAY, Way.UP, BLOCKS, 0.05, age=REPLAY_AGE),
    )
)
QUIET = Faults()
SLOW = Faults(delay_s=0.05, bytes_per_s=20_000)
WORKS_S = 2.0  # how long a successor holds the id beside a woken predecessor


class Injector:
    """Faults on one job; called by one thread.

    Args:
        job: whose processes are hit.
        links: role name -> the proxy that it dials through.
        history: is told, before and after.
        intruder: tries to come in, where that is among the faults.
        noisy: whether actors' links always lose acks, and duplicate and replay rows.
    """

    def __init__(
        self, job: Job, links: Mapping[str, Proxy], history: History, intruder: Intruder | None = None, *, noisy: bool
    ) -> None:
        self._job, self._links, self._history, self._noisy = job, links, history, noisy
        self._ends: list[tuple[float, Callable[[], None]]] = []
        self._turns: Counter[str] = Counter()  # of each link: a fault ends only what has not been followed by another
        self._heirs: dict[str, Child] = {}
        self._intruder, self._intrusion = intruder, threading.Thread()
        self.hits: Counter[tuple[str, str]] = Counter()
        for name in links:
            self._set(name, self._usual(name))

    def begin(self, fault: Fault, now: float) -> None:
        """Begin a fault; ``now`` in seconds of the clock of :meth:`tick`."""
        names = self._job.names(fault.role)
        name = names[int(fault.pick * len(names))]
        self._history.write("fault", fault.kind, fault.role, name, round(fault.seconds, 3))
        begin = {
            "kill": self._kill,
            "restart": self._restart,
            "pause": self._pause,
            "usurp": self._usurp,
            FULL_DISK: self._fill,
            INTRUDE: self._intrude,
        }.get(fault.kind, self._break)
        begin(fault, name, now)

    def tick(self, now: float) -> None:
        """End what is over."""
        over = [end for end in self._ends if end[0] <= now]
        self._ends = [end for end in self._ends if end[0] > now]
        for _, end in sorted(over, key=lambda each: each[0]):
            end()

    def heal(self) -> None:
        """End everything, also the noise."""
        self.tick(float("inf"))
        for child in self._heirs.values():
            child.kill()
        if self._intrusion.ident is not None:
            self._intrusion.join()
        for name in self._links:
            self._set(name, QUIET)

    # --- processes --------------------------------------------------------------------------------------------------

    def _kill(self, fault: Fault, name: str, now: float) -> None:
        self._hit(fault, name, self._job.supervisor.signal(name, signal.SIGKILL))

    def _restart(self, fault: Fault, name: str, now: float) -> None:
        self._hit(fault, name, self._job.supervisor.signal(name, signal.SIGTERM))

    def _pause(self, fault: Fault, name: str, now: float) -> None:
        self._stop(fault, name, now + fault.seconds)

    def _usurp(self, fault: Fault, name: str, now: float) -> None:
        """Stop a process until after its successor has its id, and end that one a while later."""
        if name in self._heirs or not self._stop(fault, name, now + LEASE_S + fault.seconds):
            return
        if name in self._links:  # what a fenced process said is not to be said again by others
            self._set(name, QUIET)
        heir = self._heirs[name] = self._job.start_heir(name)

        def succeed() -> None:
            self._history.write("hit", "kill", fault.role, heir.pid)
            heir.kill()
            del self._heirs[name]
            if name in self._links:
                self._set(name, self._usual(name))

        self._ends.append((now + LEASE_S + fault.seconds + WORKS_S, succeed))

    def _fill(self, fault: Fault, name: str, now: float) -> None:
        if self._job.disk is not None:
            self.hits[fault.kind, fault.role] += 1
            self._history.write("hit", fault.kind, fault.role, 0)
            self._job.disk.fill()
            self._ends.append((now + fault.seconds, self._job.disk.free))

    def _intrude(self, fault: Fault, name: str, now: float) -> None:
        """Have somebody try, in a thread of his own: he waits for answers."""
        if self._intruder is None or self._intrusion.is_alive():
            return
        self.hits[fault.kind, fault.role] += 1
        self._history.write("hit", fault.kind, fault.role, 0)
        actors = self._job.names("actor")
        victim = int(fault.pick * len(actors))
        names = actors[victim], actors[victim - 1]
        self._intrusion = threading.Thread(target=self._intruder.try_all, args=names, name="headrace-intruder", daemon=True)
        self._intrusion.start()

    def _stop(self, fault: Fault, name: str, until: float) -> bool:
        pid = self._job.supervisor.signal(name, signal.SIGSTOP)
        self._hit(fault, name, pid)
        if pid:
            self._ends.append((until, lambda: self._go_on(name, pid)))
        return bool(pid)

    def _go_on(self, name: str, pid: int) -> None:
        self._history.write("over", name, pid)
        self._job.supervisor.signal(name, signal.SIGCONT)

    def _hit(self, fault: Fault, name: str, pid: int) -> None:
        if pid:
            self.hits[fault.kind, fault.role] += 1
            self._history.write("hit", fault.kind, fault.role, pid)

    # --- links ------------------------------------------------------------------------------------------------------

    def _break(self, fault: Fault, name: str, now: float) -> None:
        self.hits[fault.kind, fault.role] += 1
        self._history.write("hit", fault.kind, fault.role, 0)
        usual, way = self._usual(name), WAYS[int(fault.pick * 97) % 2]
        if fault.kind == "reset":
            self._links[name].reset()
            return
        changed = {
            "partition": Faults(usual.rules, held=True),
            "half-open": Faults(usual.rules, dead=True),
            "slow": Faults(usual.rules, SLOW.delay_s, SLOW.bytes_per_s),
            "lost-answers": Faults((*usual.rules, Rule(Act.DROP, Way.DOWN, ACKS, 0.9))),
            "cut": Faults((*usual.rules, Rule(Act.CUT, way, most=1))),
            "half-close": Faults((*usual.rules, Rule(Act.HALF_CLOSE, way, most=1))),
        }[fault.kind]
        turn = self._set(name, changed)
        self._ends.append((now + (fault.seconds or 1.0), lambda: self._mend(name, turn)))

    def _mend(self, name: str, turn: int) -> None:
        if self._turns[name] == turn:
            self._set(name, self._usual(name))

    def _set(self, name: str, faults: Faults) -> int:
        self._turns[name] += 1
        self._links[name].set(faults)
        return self._turns[name]

    def _usual(self, name: str) -> Faults:
        quiet = not self._noisy or name in self._heirs or self._job.plans[name].kind != "actor"
        return QUIET if quiet else NOISE
