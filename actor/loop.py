"""The actor process: act in the lanes as far as the allowance goes, and hand every step to the uplink."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.deciding import Acts, Decided, Decider, held
from headrace.actor.envs import HoldingLanes, Lanes, LaneStep, make_lanes
from headrace.actor.episodes import Episodes
from headrace.actor.exploring import Explorer, epsilon_of
from headrace.actor.guard import Vitals
from headrace.actor.joining import ActorSettings, Joined, joined
from headrace.actor.minds import Mind, make_mind
from headrace.actor.people import People
from headrace.actor.policy import MakePolicy, RandomPolicy, make_policy
from headrace.actor.rating import find_rate
from headrace.actor.recorder import Ended, Obs, Recorder
from headrace.actor.rewarding import RewardedLanes, rewarded
from headrace.actor.success import find_classifier
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.ending import A_SIGNAL, end_reason
from headrace.common.errors import DeadlineExceeded, OutboxFull
from headrace.common.label import VERDICTS, Kind, Label
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_SUCCESS, OUTCOME_UNKNOWN, TransitionSpec
from headrace.common.weights import NO_VERSION, Version
from headrace.common.wire.link import Link
from headrace.common.wire.messages import Change, EpisodeEnd

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)
WAIT_S = 0.02
DRAIN_S = 5.0


def run(
    settings: ActorSettings,
    clock: Clock | None = None,
    *,
    make_uplink: Callable[..., Uplink] = Uplink,
    make: MakePolicy = make_policy,
) -> int:
    """Act until the buffer or a signal says stop; 0 when everything was handed over, ``BUFFER_LEFT`` when the run may go on.

    Whoever wants to see what this process says and acts with gives an uplink and a policy of its own.

    Raises:
        SessionRefused: the id is held, or the spec differs.
        EnvError: the env cannot be made or keeps crashing.
        DeadlineExceeded: no session or no weights in ``network.connect_s``.
        OutboxFull: as ``actor.when_full`` asks for.
    """
    clock = clock or MonotonicClock()
    with joined("actor", settings, clock, make_uplink) as here:
        if here is None:
            return 0
        people = People()
        with contextlib.ExitStack() as stack:
            mind = stack.enter_context(make_mind(settings, here, clock, make))
            lanes = stack.enter_context(contextlib.closing(_make_lanes(settings, here, mind, people)))
            rng = np.random.default_rng(derive_seed(settings.seed, settings.actor_id, here.welcome.epoch, "action"))
            ActorLoop(settings, here.spec, lanes, here.uplink, here.link, clock, rng, mind, people, here.complete).run(
                here.stop
            )
        return 0 if people.leave else here.code


def _make_lanes(settings: ActorSettings, here: Joined, mind: Mind, people: People) -> Lanes:
    """The lanes of this process: environments, or one robot behind its guard."""
    place = settings.seed, settings.actor_id, here.welcome.epoch
    if not settings.actor.robot:
        return make_lanes(settings.env, settings.window, run_seed=place[0], actor=place[1], epoch=place[2])
    from headrace.actor.robot_lanes import RobotLanes

    uplink = here.uplink

    def vitals() -> Vitals:
        return Vitals(min(uplink.heard_at, mind.heard_at), uplink.acted / settings.robot.rate_hz)

    def tell(report: Mapping[str, Any]) -> None:
        uplink.about["station"] = report

    lanes = RobotLanes(settings.env, settings.robot, here.spec, place, vitals, tell, here.stop, people)
    people.robot = lanes.say
    lanes.set_state({"next": uplink.next_episode})  # a spool's stream goes on, and its episodes with it
    return rewarded(lanes, settings.env)


class ActorLoop:
    """One actor's lanes and policy, and where its rows are on their way out.

    Attributes:
        people: what is said to it; what they say of an episode means that of the first lane's newest step.
    """

    def __init__(
        self,
        settings: ActorSettings,
        spec: TransitionSpec,
        lanes: Lanes,
        uplink: Uplink,
        link: Link,
        clock: Clock,
        rng: np.random.Generator,
        mind: Mind,
        people: People | None = None,
        complete: Callable[[Block], Block] = lambda block: block,
    ) -> None:
        self._complete = complete
        self._mind, self.people = mind, people or People()
        self._holding = lanes if isinstance(lanes, HoldingLanes) else None
        self._settings, self._spec, self._lanes = settings, spec, lanes
        self._uplink, self._link, self._clock, self._rng = uplink, link, clock, rng
        self._recorder = Recorder(spec, lanes.count, find_rate(settings.actor.priorities))
        self._decider = Decider(spec, lanes.count)
        self._random = RandomPolicy(spec)
        self._explorer = Explorer(spec, epsilon_of(settings.actor_id, settings.actor))
        if settings.env.success.file:
            classifier, uplink.about["classifier"] = find_classifier(settings.env.success)
            LOG.info("success by %s, judged by %s", uplink.about["classifier"], classifier.about.get("held_out", "nobody"))
        uplink.about["epsilon"] = round(self._explorer.epsilon, 6)
        self._version: Version = NO_VERSION  # of the newest decision
        self._ahead = settings.actor.robot and settings.robot.ahead
        self._before: tuple[Acts, Version] | None = None  # the newest decision, which is still to be executed
        self._flush_at = 0.0
        self._idle_since: float | None = None
        self._heard = 0
        self._stop = threading.Event()
        self._abandoned = 0
        self._episodes = Episodes()
        self._verdicts: deque[tuple[int, str]] = deque()  # episodes that may still run, and what was said of them

    def run(self, stop: threading.Event) -> None:
        """Act until told to stop, then hand over what is left in a bounded time."""
        self._stop = stop
        with self._uplink.in_step():
            obs = self._begin()
        try:
            self._act_on(obs)
        except OutboxFull:
            self._drain()  # what waits may still go
            raise
        LOG.info("leaving: %s", self._why())
        self._cut()
        self._hear()
        self._drain()

    def _why(self) -> str:
        return end_reason(self._uplink.stop, "somebody said quit" if self.people.leave else A_SIGNAL)

    def _act_on(self, obs: Obs) -> None:
        cut = False
        while not (self._stop.is_set() or self._uplink.stop is not None or self.people.leave):
            self._link.check()
            why = self._mind.look()
            self._hear()
            if self._uplink.paused and self.people.robot is None:
                self._hold("the run is paused")
                continue
            allowance = self._uplink.allowance
            if self._uplink.steps >= allowance.granted:
                if allowance.final and not cut:
                    self._cut()  # no step will follow, so the running windows end here
                    cut = True
                self._hold("the learner is behind (pacing)")
                continue
            if cut:
                obs, cut = self._begin(), False
            random = self._uplink.steps < allowance.random
            if why and not random and (self._holding is None or self._version is NO_VERSION):
                self._hold(why)
                continue
            obs = self._act(obs, random)

    def _begin(self) -> Obs:
        self._decider.restart()
        return self._recorder.begin(self._lanes.reset())

    def _act(self, obs: Obs, random: bool) -> Obs:
        acts = self._decide(obs, random)
        if acts is not None:
            with self._uplink.in_step():
                step = self._lanes.step(acts.actions)
        elif self._holding is not None:
            with self._uplink.in_step():
                step = self._holding.hold()
            acts = held(step, self._spec)
        else:
            self._hold("nothing was decided in time")
            return obs
        self._idle_since = None
        ended = self._recorder.record(*self._behind(step, acts, NO_VERSION if random else self._version))
        self._uplink.executed(int(step.live.sum()))
        self._uplink.about["human_steps"] = self._recorder.human_steps
        for episode in ended:
            self._end(episode)
        obs = self._recorder.go_on(step)
        self._decider.restart(self._recorder.anew)
        self._flush(force=False)
        return obs

    def _behind(self, step: LaneStep, acts: Acts, version: Version) -> tuple[Acts, LaneStep, Version]:
        """What to record: a robot that decides ahead has executed what was decided a step before this one, or has held."""
        if not self._ahead:
            return acts, step, version
        before, self._before = self._before, (acts, version) if step.live[0] else None
        decided, version = before or (held(step, self._spec), version)
        return decided, step, version

    def _decide(self, obs: Obs, random: bool) -> Acts | None:
        """What the lanes do; none where no decision came in time, or nothing is to be decided."""
        if self._holding is not None and not self._holding.running:
            return None

        def choose(seen: Obs) -> Array | Decided:
            if random:
                return self._random.act(seen, self._rng, False)
            choice = self._mind.decide(seen, self._rng)
            if choice is None:
                raise _UndecidedError
            self._version = choice.version
            return self._explorer.mix(choice.found, self._rng)

        try:
            return self._decider.act(obs, choose)
        except _UndecidedError:
            return None

    def _end(self, ended: Ended) -> None:
        if ended.outcome != OUTCOME_UNKNOWN:
            self._hand_over(self._recorder.assemblers[ended.lane], 1)
            self._say(self._episodes.label(ended.episode, Kind.OUTCOME, ended.outcome))
        if np.isfinite(ended.total):
            self._uplink.event(EpisodeEnd(ended.episode, ended.total, ended.length, ended.outcome))

    def _hear(self) -> None:
        """Do what people say. What they say of an episode is passed on once it has ended, behind its rows."""
        for word in self._uplink.take_words():
            self.people.told(word)
        for word in self.people.hear():
            self._verdicts.append((int(self._recorder.newest[0]), word))
        if self._uplink.heard and (request := self.people.ask(self._clock.now(), self._uplink.paused)):
            self._uplink.event(Change(request))
            self._link.wake()
        for _ in range(len(self._verdicts)):
            episode, word = self._verdicts.popleft()
            if episode == self._recorder.running(0) >= 0:
                self._verdicts.append((episode, word))
                continue
            self._hand_over(self._recorder.assemblers[0], 1)
            kind, outcome = VERDICTS[word]
            self._say(self._episodes.label(episode, kind, outcome))
            if kind is Kind.OUTCOME and (worth := self._worth(episode, outcome)) is not None:
                self._say(self._episodes.amend(episode, worth, self._spec.window))

    def _worth(self, episode: int, outcome: int) -> float | None:
        """What the last step of the first lane's ``episode`` is worth by what people say; none where env or driver say it."""
        if isinstance(self._lanes, RewardedLanes):
            return self._lanes.worth(0, episode, outcome)
        return float(outcome == OUTCOME_SUCCESS) if self._settings.env.success.file else None

    def _say(self, label: Label | None) -> None:
        if label is not None and self._uplink.label(label):
            self._link.wake()

    def _hold(self, why: str) -> None:
        """Wait in place for the buffer's news; what is ready still leaves. The deadline runs while the buffer is silent."""
        now = self._clock.now()
        if self._idle_since is None or self._uplink.heard != self._heard:
            self._idle_since, self._heard = now, self._uplink.heard
        if now - self._idle_since > self._settings.network.connect_s:
            raise DeadlineExceeded(f"held for {now - self._idle_since:.0f} s: {why}")
        self._flush(force=False)
        self._uplink.wait(WAIT_S)

    def _flush(self, *, force: bool) -> None:
        config, now = self._settings.actor, self._clock.now()
        due = force or now >= self._flush_at
        for assembler in self._recorder.assemblers:
            self._hand_over(assembler, 1 if due else config.block_rows)
        if due:
            self._flush_at = now + config.flush_s

    def _hand_over(self, assembler: Assembler, least: int) -> None:
        """Offer what is ready, as long as it is at least ``least`` rows."""
        while assembler.ready >= least:
            block = assembler.take(self._settings.actor.block_rows)
            if block is None:
                break
            self._offer(self._complete(block))

    def _offer(self, block: Block) -> None:
        """Hand a block over; while the outbox is full, wait in place until the buffer acknowledges, or we are to stop."""
        while not (first := self._uplink.offer(block, 0.0 if self._abandoned else WAIT_S)):
            self._link.check()
            if self._stop.is_set() or self._uplink.stop is not None:
                self._abandoned += block.n_rows
                return
        self._episodes.sent(block.rows, first)
        self._link.wake()

    def _cut(self) -> None:
        self._recorder.cut()
        self._flush(force=True)

    def _drain(self) -> None:
        """Give the buffer a bounded time to acknowledge what was produced."""
        end = self._clock.now() + DRAIN_S
        while self._uplink.unacknowledged and self._clock.now() < end:
            self._link.check()
            self._uplink.wait(WAIT_S)
        if self._abandoned:
            LOG.warning("%d rows were abandoned: the outbox was full when this actor was stopped", self._abandoned)
        if self._uplink.unacknowledged:
            LOG.warning("%d blocks were not acknowledged within %g s", self._uplink.unacknowledged, DRAIN_S)


class _UndecidedError(Exception):
    """No decision came in time."""
