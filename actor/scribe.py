"""The scribe: steps that were handed over become rows, labels and ended episodes of an uplink. No thread of its own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.config import ActorConfig
from headrace.actor.episodes import Episodes
from headrace.actor.handover import Entry, Handover
from headrace.actor.rating import find_rate
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import Clock
from headrace.common.errors import SpecError
from headrace.common.label import Kind
from headrace.common.specs import OUTCOME_UNKNOWN, TransitionSpec
from headrace.common.wire.messages import EpisodeEnd


@dataclass(frozen=True)
class Verdict:
    """What somebody says about the newest episode: its ``outcome``, or, without one, that it is to be discarded.

    Attributes:
        reward: what its last step earns in place of what was recorded; none: that stays.

    Raises:
        SpecError: the reward is no finite float32.
    """

    outcome: int = OUTCOME_UNKNOWN
    reward: float | None = None

    def __post_init__(self) -> None:
        if self.reward is not None and not abs(self.reward) <= float(np.finfo(np.float32).max):  # also what is no number
            raise SpecError(f"reward: {self.reward}, expected a finite number, or none")


class Scribe:
    """Works off a handover, one :meth:`round` at a time.

    A block never holds rows of two episodes. What is said about an episode waits until its rows were offered.

    Args:
        spec: of the rows.
        handover: where steps come from.
        uplink: where rows go.
        config: block size, flush time, priorities.
        clock: of the flush time.
    """

    def __init__(self, spec: TransitionSpec, handover: Handover, uplink: Uplink, config: ActorConfig, clock: Clock) -> None:
        self._spec = spec
        self._assembler = Assembler(spec, rate=find_rate(config.priorities))
        self._handover, self._uplink, self._config, self._clock = handover, uplink, config, clock
        self._held: Block | None = None
        self._flush_at = 0.0
        self._episodes = Episodes()
        self._episode = uplink.next_episode - 1  # the one that runs, or that ran last
        self._running = False
        self._total, self._length, self._outcome = 0.0, 0, OUTCOME_UNKNOWN
        self._before = -1  # the episode before it
        self._verdicts: deque[tuple[int, Verdict]] = deque()
        self._due: deque[tuple[int, Verdict]] = deque()

    def say(self, verdict: Verdict) -> None:
        """Say something about the episode of the last step that was put; any thread may call this."""
        self._verdicts.append((self._handover.put_count, verdict))

    @property
    def at_rest(self) -> bool:
        """Whether everything that was handed over and can be a row by now was offered."""
        done = self._handover.taken_count == self._handover.put_count and not self._verdicts
        return done and self._held is None and self._assembler.ready == 0 and not self._due

    def round(self, *, force: bool = False) -> bool:
        """Take what was handed over; offer what is ready once ``flush_s`` has passed, or at once with ``force``.

        Returns:
            Whether the uplink has something new to send.
        """
        offered = False
        while True:
            offered |= self._offer_held()
            if not self._running:
                offered |= self._hand_over(1)
            if self._held is not None:
                break
            self._hear()
            entry = self._handover.next()
            if entry is None:
                break
            if entry.step is None and self._running:
                self.cut()  # and its rows go first
                continue
            offered |= self._take(entry)
            self._handover.done()
        now = self._clock.now()
        if force or now >= self._flush_at:
            offered |= self._hand_over(1)
            self._flush_at = now + self._config.flush_s
        return self._tell() or offered

    def cut(self) -> None:
        """End the running episode at its last complete step, as truncated."""
        if self._running:
            self._assembler.abort()
            self._end()

    def _take(self, entry: Entry) -> bool:
        step = entry.step
        if step is None:
            self._before = self._episode
            self._episode += 1
            self._assembler.begin(self._episode, entry.obs)
            self._running, self._total, self._length, self._outcome = True, 0.0, 0, OUTCOME_UNKNOWN
            return False
        self._assembler.step(
            entry.action,
            step.reward,
            step.terminated,
            step.truncated,
            entry.obs,
            version=step.version,
            decided=entry.planned if step.decided else None,
            source=step.source,
            health=step.health,
            action_age=step.action_age,
        )
        self._uplink.executed(1)
        self._total, self._length = self._total + step.reward, self._length + 1
        if step.terminated or step.truncated:
            self._end()
            return False
        return self._hand_over(self._config.block_rows)

    def _end(self) -> None:
        self._running = False
        if self._length and np.isfinite(self._total):
            self._uplink.event(EpisodeEnd(self._episode, self._total, self._length, self._outcome))

    def _hear(self) -> None:
        """Find the episodes that verdicts up to here are about."""
        while self._verdicts and self._verdicts[0][0] <= self._handover.taken_count:
            _, verdict = self._verdicts.popleft()
            fresh = self._running and not self._length
            self._due.append((self._before if fresh else self._episode, verdict))
            self._outcome = verdict.outcome if not fresh else self._outcome

    def _tell(self) -> bool:
        """Send labels about episodes that have ended and whose rows were offered."""
        told = False
        for _ in range(len(self._due)):
            episode, verdict = self._due.popleft()
            if episode == self._episode and (self._running or self._held is not None or self._assembler.ready):
                self._due.append((episode, verdict))
                continue
            kind = Kind.DISCARD if verdict.outcome == OUTCOME_UNKNOWN else Kind.OUTCOME
            label = self._episodes.label(episode, kind, verdict.outcome)
            told |= label is not None and self._uplink.label(label)
            if verdict.reward is not None and (label := self._episodes.amend(episode, verdict.reward, self._spec.window)):
                told |= self._uplink.label(label)
        return told

    def _hand_over(self, least: int) -> bool:
        """Offer what is ready, as long as it is at least ``least`` rows."""
        offered = False
        while self._held is None and self._assembler.ready >= least:
            self._held = self._assembler.take(self._config.block_rows)
            offered |= self._offer_held()
        return offered

    def _offer_held(self) -> bool:
        if self._held is None:
            return False
        first = self._uplink.offer(self._held, 0.0)
        if first:
            self._episodes.sent(self._held.rows, first)
            self._held = None
        return first > 0
