"""The learner process: take batches from the feed, update, publish, checkpoint, report."""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from typing import Any

import torch

from headrace.common.batch import Batch
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.ending import end_code, end_reason
from headrace.common.errors import CheckpointError, DeadlineExceeded
from headrace.common.figures import learner_families
from headrace.common.metrics import process_memory
from headrace.common.process import stop_on_signal, wait_welcome
from headrace.common.weights import Version, WeightSet
from headrace.common.wire.messages import Goodbye, Welcome
from headrace.learner import checkpoint
from headrace.learner.blend import Blend
from headrace.learner.claim import Claim
from headrace.learner.feed import Feed
from headrace.learner.group import Group, Order
from headrace.learner.heap import keep_freed
from headrace.learner.rank import RankLoop
from headrace.learner.rater import Rater
from headrace.learner.reach import Reach
from headrace.learner.report import Report
from headrace.learner.roofline import roofline
from headrace.learner.saver import Saver
from headrace.learner.settings import LearnerSettings
from headrace.learner.sinks import MetricSinks

LOG = logging.getLogger(__name__)
Copy = tuple[dict[str, Any], WeightSet]  # of all that learning changes, and of the policy
WAIT_S = 0.1
PUBLISH_S = 5.0
USE_UP_S = 2.0  # for updates that were granted when a signal says stop
QUIET_S = 0.1  # in which what was granted before has come
FINAL_S = 600.0  # for the last checkpoint; a supervisor is less patient
SAVE_AGAIN_S = 5.0  # from a checkpoint that could not be written to the next attempt
CLOSE_S = 5.0  # for one that is being written when the learner fails


def run(settings: LearnerSettings, clock: Clock | None = None) -> int:
    """Learn until the run reaches its goal or a signal says stop; 0 when a checkpoint holds all updates, if there were any.

    This may be one rank of a group, see :class:`Group`; the further ranks learn until rank 0 says stop.

    Raises:
        GroupLost: another rank is gone or silent.
        SessionRefused: the id is held, or the buffer turned this process away.
        CheckpointError: a checkpoint exists but none can be read, or another learner writes there.
        DeadlineExceeded: no session or no data in ``network.connect_s``.
    """
    stop = stop_on_signal()
    keep_freed()
    with Group.join(settings.learner.rank_timeout_s, settings.learner.device) as group:
        return _run(settings, group, stop, clock or MonotonicClock())


def _run(settings: LearnerSettings, group: Group, stop: threading.Event, clock: Clock) -> int:
    reach = Reach(settings.asks(group.rank), clock)
    feed, done = reach.feed, False
    reach.start()
    try:
        welcome = wait_welcome(reach.link, stop, settings.network.connect_s, clock)
        if welcome is not None:
            if group.leads:
                with MetricSinks(settings.run_dir, settings.sinks) as sinks, _exporting(settings, sinks):
                    done = LearnerLoop(settings, welcome, feed, reach, sinks, clock, group).run(stop)
            else:
                RankLoop(settings, welcome, feed, reach, group).run()
    finally:
        reach.close(Goodbye(done))
    return end_code(feed.stop, stop)


def _exporting(settings: LearnerSettings, sinks: MetricSinks) -> AbstractContextManager[None]:
    return settings.exporter.serve(lambda: learner_families(sinks.newest))


class LearnerLoop:
    """One learner's state between batches; of a group it is rank 0."""

    def __init__(
        self,
        settings: LearnerSettings,
        welcome: Welcome,
        feed: Feed | Blend,
        link: Reach,
        sinks: MetricSinks,
        clock: Clock,
        group: Group | None = None,
    ) -> None:
        self._settings, self._feed, self._link, self._sinks, self._clock = settings, feed, link, sinks, clock
        self._group = group or Group()
        self._claim = Claim(settings.run_dir, welcome.pool, welcome.epoch)
        self.sac = settings.make_sac(welcome, self._group)
        self._from_seed = self._restore()
        self.sac.begin()
        self._metrics: dict[str, torch.Tensor] = {}
        self._published_at = -1.0
        self._published_step = -1
        self._saved_step, self._saved_at = self.sac.step, clock.now()
        self._saver = Saver(settings.checkpoints, settings.learner.checkpoint_keep, self.sac.model.spec, self._claim)
        ideal = roofline(self.sac.model, settings.learner, clock)
        self._report = Report(settings.learner_id, clock.now(), self.sac.step, ideal)
        self._not_saved = ""  # as it was told
        self._batch: Batch | None = None
        self._fed_at = clock.now()
        self._heard = 0
        self._rater = Rater(feed)

    def run(self, stop: threading.Event) -> bool:
        """Train; whether the run reached its goal."""
        try:
            return self._run(stop)
        finally:
            self._saver.close(CLOSE_S)
            self._claim.release()
            self.sac.model.close()

    def _run(self, stop: threading.Event) -> bool:
        self._publish()
        self._feed.wait_published(PUBLISH_S)  # a foreign learner is turned away before it is granted an update
        had = self._feed.summary.get("updates", 0)
        if self._from_seed and had:
            LOG.warning("this run has had %d updates, but %s holds no checkpoint: begun anew", had, self._settings.checkpoints)
        self._feed.start_drawing()
        while not stop.is_set():
            self._link.check()
            self._saver.check()
            if self._save_due():
                self._save()
            asked = self._clock.now()
            batches = self._feed.get(WAIT_S)
            self._report.waited(self._clock.now() - asked)
            if self._feed.must_draw:
                self._link.wake()
            if batches is None:
                if self._feed.stop is not None:
                    break
                self._group.order(Order.WAIT)
                self._starved()
            else:
                self._fed_at = self._clock.now()
                self._update(batches)
            if self._publish_due():  # also of updates that came too soon behind the publish before: no further one may follow
                self._publish()
            self._log()
        self._use_up(stop)
        return self._finish()

    def _update(self, batches: list[Batch]) -> None:
        """One update of all ranks."""
        self._group.order(Order.UPDATE)
        batch, *actor_batch = batches
        self._metrics |= self.sac.update(batch, self._feed.statistics, *actor_batch)  # of steps not made: the last ones
        if self.sac.device.type != "cpu":
            for ahead in self._feed.peek():
                self.sac.prepare.ahead(ahead)
        self._batch = batch
        self._rater.note(batch, self.sac.td_error)

    def _save_due(self) -> bool:
        enough = self.sac.step - self._saved_step >= self._settings.learner.checkpoint_every_updates
        ended = self._saved_step < self._settings.offline_updates <= self.sac.step  # a phase that is not granted again
        again = bool(self._saver.not_saved) and self._clock.now() - self._saved_at >= SAVE_AGAIN_S
        return (enough or ended or again) and not self._saver.busy

    def _save(self, copy: Copy | None = None) -> None:
        """Hand over a copy of everything; one that cannot be written is due again later, and training goes on."""
        state, weights = copy or self._copy()
        self._saved_step, self._saved_at = self.sac.step, self._clock.now()
        self._saver.save(self.sac.step, state, weights)

    def _copy(self) -> Copy:
        """State and policy as they are now."""
        self._have_gathered(Order.STATE)
        return self.sac.get_state(), self.sac.weights(self._version())

    def _have_gathered(self, order: Order) -> None:
        """Have the other ranks do their part in what all hold shares of."""
        if self.sac.is_sharded:
            self._group.order(order)

    def _use_up(self, stop: threading.Event) -> None:
        """Make the updates of batches that are here or on their way: they were granted and will not come again."""
        if not stop.is_set():
            return
        self._feed.stop_drawing()
        self._link.wake()
        end = self._clock.now() + USE_UP_S
        while self._clock.now() < end and (batches := self._feed.get(QUIET_S)) is not None:
            self._update(batches)

    def _restore(self) -> bool:
        """Go on from the newest checkpoint, or from ``init_from``; whether there is neither, and the seed tells everything."""
        found = checkpoint.resume(self._settings.checkpoints)
        if found is not None:
            self.sac.set_state(found.state)
            LOG.info("continued from %s at update %d", found.path, self.sac.step)
        elif (weights := self._settings.init_from) is not None:
            self.sac.load_policy(weights)
            LOG.info("begins with the policy of update %d of %s", weights.version.step, weights.version.learner)
        return found is None and self._settings.init_from is None

    def _version(self) -> Version:
        return Version(self._settings.learner_id, self._feed.epoch, self.sac.step)

    def _publish_due(self) -> bool:
        config = self._settings.learner
        enough = self.sac.step - self._published_step >= config.publish_every_updates
        return enough and self._clock.now() - self._published_at >= config.publish_period_s

    def _publish(self, weights: WeightSet | None = None) -> None:
        self._published_at, self._published_step = self._clock.now(), self.sac.step
        if weights is None:
            self._have_gathered(Order.WEIGHTS)
            weights = self.sac.weights(self._version())
        self._feed.publish(weights, self.sac.halved)
        self._link.wake()

    def _finish(self) -> bool:
        LOG.info("leaving: %s", end_reason(self._feed.stop))
        done = self._feed.stop is not None and self._feed.stop.done
        copy = self._copy()  # what follows may take longer than the other ranks would wait
        self._group.order(Order.STOP)
        if self._published_step != self.sac.step:
            self._publish(copy[1])
        self._feed.wait_published(PUBLISH_S)
        self._save_last(copy)
        self._log(force=True)
        return done

    def _save_last(self, copy: Copy) -> None:
        """Have everything on disk.

        Raises:
            CheckpointError: it could not be written.
            DeadlineExceeded: the disk took longer than ``FINAL_S``.
        """
        self._saver.wait(FINAL_S)
        if self._must_save():
            self._save(copy)
            self._saver.wait(FINAL_S)
        if self._saver.not_saved:
            raise CheckpointError(self._saver.not_saved)
        LOG.info("ends at update %d with all of it on disk", self.sac.step)

    def _must_save(self) -> bool:
        """Whether the end would lose something: neither a checkpoint holds all of this, nor would the seed give it again."""
        if self._saver.not_saved or self._saved_step != self.sac.step:
            return True
        untouched = self._from_seed and self.sac.step == 0
        return not untouched and checkpoint.newest(self._settings.checkpoints) is None

    def _starved(self) -> None:
        """Wait for batches as long as the buffer lives: slow robots, held actors and a late start are no faults."""
        if self._feed.heard != self._heard:
            self._heard, self._fed_at = self._feed.heard, self._clock.now()
        waited = self._clock.now() - self._fed_at
        if waited > self._settings.network.connect_s:
            raise DeadlineExceeded(f"no batch, and no word of the buffer, for {waited:.0f} s")

    def _log(self, *, force: bool = False) -> None:
        now, news = self._clock.now(), self._saver.not_saved != self._not_saved
        if not self._report.due(now, self._settings.sinks.period_s) and not force and not news:
            return
        self._not_saved = self._saver.not_saved
        accepted = self._feed.summary.get("rows_accepted")
        values = self._report.values(now, self.sac, self._metrics, self._batch, accepted)
        values |= {f"learner/{name}": size for name, size in process_memory().items()}
        self._sinks.write({**{f"run/{k}": v for k, v in self._feed.summary.items()}, **values})
        about: dict[str, Any] = {"ranks": self._group.size}
        if self._not_saved:
            about["not_saved"] = self._not_saved
        if self._sinks.not_logged:
            about["not_logged"] = self._sinks.not_logged
        self._feed.report({**values, **about})
