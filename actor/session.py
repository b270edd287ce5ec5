"""The session of a program with a control loop of its own: it hands out the policy and takes every step, and never waits."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from headrace.actor.config import ActorConfig
from headrace.actor.deciding import Decided
from headrace.actor.handover import Handover, Step
from headrace.actor.outbox import FULL_FIX
from headrace.actor.plan import Plan
from headrace.actor.policy import MakePolicy, Policy, RandomPolicy, make_policy
from headrace.actor.remote import RemoteMind
from headrace.actor.scribe import Scribe, Verdict
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.spool import open_outbox
from headrace.actor.stacking import FrameStack
from headrace.actor.uplink import Counts, Uplink
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.ending import end_reason
from headrace.common.errors import ConfigError, DeadlineExceeded, EnvError, HeadraceError, OutboxFull
from headrace.common.label import VERDICTS
from headrace.common.process import wait_welcome
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, SOURCE_POLICY, TransitionSpec
from headrace.common.weights import NO_VERSION, Version
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)
ROUND_S = 0.01  # the thread looks this often what there is to do, so that nobody has to wake it
CLOSE_S = 5.0
REASON_CHARS = 200


class Session:
    """One robot's place in a run; :func:`~headrace.actor.connecting.connect` makes it.

    An episode is ``begin(obs)``, then for each executed action ``record(obs, action, reward, terminated, truncated)`` with the
    observation *after* it, also at the episode's end. :meth:`begin`, :meth:`record` and :meth:`act` belong to one thread, the
    control loop; they wait for neither network nor disk, and share no lock with what does. A thread of the session does the
    rest, until :meth:`close`.

    Args:
        endpoint, identity, spec, actor, network, rng, server: see :func:`~headrace.actor.connecting.connect`.
        clock: of the session's thread and its connection.
        make_uplink, make: a witness of what is said, and of what acts, gives an uplink and a policy of its own.
    """

    def __init__(
        self,
        endpoint: str,
        identity: str,
        spec: TransitionSpec,
        *,
        actor: ActorConfig | None = None,
        network: NetworkConfig | None = None,
        rng: np.random.Generator | None = None,
        clock: Clock | None = None,
        server: PolicyServerConfig | None = None,
        make_uplink: Callable[..., Uplink] = Uplink,
        make: MakePolicy = make_policy,
    ) -> None:
        network, self._clock = network or NetworkConfig(), clock or MonotonicClock()
        network.check()
        self._config = dataclasses.replace(actor or ActorConfig(), robot=True)
        self._config.check("actor")
        if (asks := self._config.policy == "server") and not (server and server.endpoint):
            raise ConfigError("actor.policy: server, and no policy_server.endpoint to ask; give connect() its server")
        self._plan = Plan(spec) if spec.kind == "chunk" else None
        self.spec, self.identity = spec, identity
        self._rng = rng or np.random.default_rng()
        self._handover = Handover(spec)
        outbox = open_outbox(self._config, identity, spec)
        self._uplink = make_uplink(spec, outbox, network.fragment_bytes, self._clock, self._config.drain_bytes_per_s)
        self._make = make
        self._patience_s, self._uplink.follows = network.connect_s, not asks
        self._scribe = Scribe(spec, self._handover, self._uplink, self._config, self._clock)
        hello = new_hello("actor", identity, spec=spec.to_dict(), robot=True)
        # Once welcomed, a robot outlives any silence: only the first wait has an end.
        network = dataclasses.replace(network, connect_s=math.inf)
        self._mind: RemoteMind | None = None
        try:
            if server is not None and asks:
                self._mind = RemoteMind(server.endpoint, hello, network, server.within_s, spec, self._uplink, self._clock)
            self._link = Link(hello, self._uplink, endpoint, network, self._clock, zero_copy=False)
        except BaseException:
            if self._mind is not None:
                self._mind.close()
            self._uplink.close()
            raise
        self._random = RandomPolicy(spec)
        self._acting: tuple[Policy, Version] | None = None
        self._version = NO_VERSION  # of the last decision
        self._stack = FrameStack(spec, 1)
        self._stacked: Mapping[str, Array] = {}
        self._episode = -1
        self._running = False
        self._cut = False  # something of this episode was missed
        self._unheard = self._absent = False  # nobody heard of its beginning; and no verdict on it means anything
        self._recorded = 0
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-session", daemon=True)
        self._link.start()
        self._thread.start()

    # --- control loop -----------------------------------------------------------------------------------------------

    def begin(self, obs: Mapping[str, Any]) -> None:
        """An episode begins with ``obs``, key -> ``(*shape)``; one that still runs ends as truncated at its last step.

        Raises:
            SpecError: ``obs`` is not as declared.
            HeadraceError: what ended the session, see :meth:`record`.
        """
        self._cut = self._unheard = not self._put(None, obs)
        self._absent = False
        self._running, self._episode = True, self._episode + 1
        if self._plan is not None:
            self._plan.restart()
        self._see(obs)

    def record(
        self,
        obs: Mapping[str, Any],
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        *,
        source: int = SOURCE_POLICY,
        health: int = 0,
        action_age: float = 0.0,
        version: Version | None = None,
        planned: Any = None,
    ) -> None:
        """Take one executed step; everything is copied.

        Args:
            obs: key -> ``(*shape)``, the true observation after the action, never one of the next episode.
            action: as executed in this step, in env units: ``action.shape``, or ``(A,)`` where rows are chunks.
            reward: raw.
            terminated: the task ended here.
            truncated: the episode was cut here, by a time limit or by somebody.
            source: ``SOURCE_*``, who acted.
            health: bits of the step's health.
            action_age: age of the action when it was executed (s).
            version: weights that chose the action; by default those of the last :meth:`act` or :meth:`policy`.
            planned: ``action.shape``. Where rows are chunks, a decision of the loop's own that begins with this step; without
                it the step goes on with the one that runs, or begins with that of :meth:`act`. Else, where ``spec.planned``,
                what the policy wanted; without it the row says that it has none.

        Raises:
            SpecError: an array is not as declared; nothing was taken.
            EnvError: no episode was begun, the session is closed, or a chunk is over and nothing was decided.
            OutboxFull: nothing more may wait, and ``actor.when_full`` is ``stop``.
            SessionRefused: the buffer turned this process away, such as for a newer one of the same id.
        """
        if not self._running:
            raise EnvError("record(): no episode runs; begin(obs) it with its first observation")
        version = self._version if version is None else version
        own = planned is not None
        if self._plan is not None:
            planned = self._plan.beginning(source, planned)
        decided = planned is not None and (self.spec.planned or self._plan is not None)
        step = Step(float(reward), bool(terminated), bool(truncated), version, source, health, action_age, decided)
        if self._cut or not self._put(step, obs, action, planned):
            self._cut = True  # a step is missing, so that none of this episode may follow
            self._uplink.missed += 1
            self._absent = self._unheard
        if self._plan is not None:
            self._plan.executed(source, began=decided, own=own)
        self._running = not (terminated or truncated)
        self._see(obs)

    def act(self, obs: Mapping[str, Any], *, deterministic: bool = False) -> Array:
        """The next action, float32 in env units, inside the box unless it is NaN: ``action.shape``, by the newest policy.

        Where rows are chunks, ``(A,)``: the next one of what was decided, until all of it is recorded, a human acts, or the
        episode ends. Then the newest policy decides on a chunk of them, from ``obs``. Asked again before a step is recorded it
        is the same.

        Args:
            obs: key -> ``(*shape)``, the newest observation. Where the spec stacks frames, the older ones are those that
                :meth:`begin` and :meth:`record` took.
            deterministic: the mode of the distribution in place of a sample.

        Raises:
            DeadlineExceeded: there are no weights yet; wait for them with :meth:`policy`. Or no decision of a policy server in
                time: that wait alone is for the network, and bounded.
        """
        return (
            self._decide(obs, deterministic)
            if self._plan is None
            else self._plan.next(lambda: self._decide(obs, deterministic))
        )

    def policy(self, timeout_s: float = 0.0) -> Policy:
        """The policy with the newest weights, which will never change; ask again before the next decision.

        Args:
            timeout_s: longest wait for the run's first weights (s).

        Raises:
            DeadlineExceeded: none came.
        """
        end = self._clock.now() + timeout_s
        while (acting := self._acting) is None:
            self._check()
            if self._clock.now() >= end:
                why = self._link.session.waiting or "the learner has published no weights yet"
                raise DeadlineExceeded(f"no policy within {timeout_s:g} s: {why}")
            self._clock.sleep(ROUND_S)
        policy, self._version = acting
        self._uplink.applied(self._version)
        return policy

    def _decide(self, obs: Mapping[str, Any], deterministic: bool) -> Array:
        """What the newest policy decides on, here or where a policy server is, ``action.shape``."""
        policy = self.policy() if self._mind is None or self._acting is not None else None
        if self.spec.stack == 1:
            seen: Mapping[str, Array] = {key: np.asarray(value)[None] for key, value in obs.items()}
        elif self._running:
            seen = self._stacked
            for o in self.spec.obs:
                seen[o.key][0, -1] = obs[o.key]
        else:
            raise EnvError("act(): no episode runs, so there are no older frames to stack; begin(obs) one")
        if policy is not None:
            action: Array = policy.act(seen, self._rng, deterministic)[0]
            return action
        self._check()
        choice = self._mind.decide(seen, None if deterministic else self._rng) if self._mind is not None else None
        if choice is None:
            raise DeadlineExceeded("no decision of the policy server in policy_server.within_s; hold the robot, and ask again")
        self._version = choice.version
        decided: Array = np.asarray(choice.found.actions if isinstance(choice.found, Decided) else choice.found)[0]
        return decided

    # --- any thread -------------------------------------------------------------------------------------------------

    def success(self, reward: float | None = None) -> None:
        """The running episode, or the last one if no step followed, is a success, and its last step earns ``reward`` if any."""
        self._say(Verdict(OUTCOME_SUCCESS, reward))

    def failure(self, reward: float | None = None) -> None:
        """That episode is a failure; the last word counts."""
        self._say(Verdict(OUTCOME_FAILURE, reward))

    def discard(self) -> None:
        """That episode is never to be sampled."""
        self._say(Verdict())

    @property
    def ended(self) -> str:
        """Why the run is over and this process is to leave; empty while it goes on."""
        return end_reason(self._uplink.stop, "")

    @property
    def paused(self) -> bool:
        """Whether people have paused the run (``headrace pause``): no update is granted. The robot is yours to hold."""
        return self._uplink.paused

    @property
    def version(self) -> Version:
        """Weights of the last decision."""
        return self._version

    @property
    def uplink(self) -> Uplink:
        """What is said to the buffer: allowance, heartbeats, counts."""
        return self._uplink

    @property
    def counts(self) -> Counts:
        """What became of the steps so far."""
        return self._uplink.counts

    @property
    def waiting(self) -> str:
        """Why the buffer does not hear this session now; empty while it does."""
        return self._link.session.waiting

    def wait_welcome(self, timeout_s: float) -> None:
        """Wait until the buffer has welcomed this process, telling the log what is waited for.

        Raises:
            DeadlineExceeded: it did not in ``timeout_s`` (s).
            SessionRefused: it will not.
        """
        wait_welcome(self._link, self._stop, timeout_s, self._clock)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float = CLOSE_S, *, reason: str = "") -> Counts:
        """End the running episode at its last step, hand everything over, and leave; no thread stays. Harmless twice.

        Args:
            timeout_s: longest wait for the buffer's acknowledgement (s); what it has not acknowledged by then stays in the
                spool, or without one is lost and counted.
            reason: why this process cannot go on, for people who watch the run; empty: it leaves in order.
        """
        if self._stop.is_set():
            return self.counts
        self._stop.set()
        end = self._clock.now() + timeout_s
        self._running = False
        self._thread.join(max(timeout_s, CLOSE_S))
        try:
            if self._thread.is_alive():
                LOG.error("the session's thread has not ended: disk or policy do not answer")
            else:
                self._hand_over_all(end)
        except Exception as error:
            self._failure = self._failure or error
            LOG.exception("what was left could not be handed over")
        finally:
            self._link.close(Goodbye(False, reason))
            if self._mind is not None:
                self._mind.close()
            self._uplink.close()
        counts = self.counts
        if counts.unsent:
            LOG.warning("%d steps were not handed over within %g s: %s", counts.unsent, timeout_s, counts)
        return counts

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        text = "" if error is None or not isinstance(error, Exception) else f"{type(error).__name__}: {error}"
        self.close(reason="".join(c if c.isprintable() else " " for c in text)[:REASON_CHARS])

    def _hand_over_all(self, end: float) -> None:
        """Everything becomes rows and labels of the uplink, and the uplink gets until ``end`` to be rid of them."""
        self._work(force=True)
        self._scribe.cut()
        while True:
            self._work(force=True)
            kept = self._uplink.outlives and bool(self.waiting)  # safe, and nobody is there to take it
            done = self._scribe.at_rest and (kept or not self._uplink.unacknowledged)
            if done or self._clock.now() >= end or self._is_refused():
                return
            self._uplink.wait(ROUND_S)

    def _is_refused(self) -> bool:
        try:
            self._link.check()
        except Exception:
            return True
        return False

    # --- the session's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        learned: tuple[Policy, Version] | None = None
        try:
            while not self._stop.wait(ROUND_S):
                self._link.check()
                weights = self._uplink.take_weights(ema=self._config.ema)
                if weights is not None:  # an object of its own, so that whoever acts by the one before acts by it to the end
                    learned = self._make(weights, self.spec, self._config), weights.version
                random = self._uplink.steps < self._uplink.allowance.random
                self._acting = (self._random, NO_VERSION) if random else learned
                self._work()
                for word in self._uplink.take_words():
                    self._say(Verdict(VERDICTS[word][1]))
        except BaseException as error:
            self._failure = error
            if not isinstance(error, HeadraceError):
                LOG.exception("the session's thread ended by a defect")

    def _work(self, *, force: bool = False) -> None:
        """Let the scribe do what there is to do; a full outbox stops the loop, while what waits may still go."""
        try:
            if self._scribe.round(force=force):
                self._link.wake()
        except OutboxFull as error:
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._stop.is_set():
            raise EnvError("the session is closed")

    def _put(self, step: Step | None, obs: Mapping[str, Any], action: Any = None, planned: Any = None) -> bool:
        """Hand an entry over; False when there is no room and the configured way is to go without it."""
        self._check()
        if self._handover.put(step, obs, action, planned):
            return True
        when_full = self._config.chosen_when_full
        if when_full == "drop_oldest":
            return False
        if when_full == "stop":
            raise OutboxFull(f"{self._handover.slots} steps wait for the session's thread, and more may not: {FULL_FIX}")
        end = self._clock.now() + self._patience_s
        while not self._handover.put(step, obs, action, planned):
            self._check()
            if self._clock.now() >= end:
                raise DeadlineExceeded(f"no room for a step within {self._patience_s:g} s (network.connect_s): {FULL_FIX}")
            self._clock.sleep(ROUND_S)
        return True

    def _say(self, verdict: Verdict) -> None:
        if not self._absent:
            self._scribe.say(verdict)

    def _see(self, obs: Mapping[str, Any]) -> None:
        if self.spec.stack > 1:
            frame = {o.key: np.asarray(obs[o.key], o.dtype)[None] for o in self.spec.obs}
            self._stacked = self._stack.push(frame, np.array([self._episode]))
