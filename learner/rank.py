"""A further rank of a learner's group: it updates when rank 0 says so, on rows of its own."""

from __future__ import annotations

import logging

from headrace.common.batch import Batch
from headrace.common.errors import DeadlineExceeded
from headrace.common.weights import NO_VERSION
from headrace.common.wire.messages import Welcome
from headrace.learner.blend import Blend
from headrace.learner.feed import Feed
from headrace.learner.group import Group, Order
from headrace.learner.rater import Rater
from headrace.learner.reach import Reach
from headrace.learner.settings import LearnerSettings

LOG = logging.getLogger(__name__)
PATIENCE_S = 1.0


class RankLoop:
    """One further rank between rank 0's orders."""

    def __init__(self, settings: LearnerSettings, welcome: Welcome, feed: Feed | Blend, link: Reach, group: Group) -> None:
        self._feed, self._link, self._group = feed, link, group
        self.sac = settings.make_sac(welcome, group)
        self._rater = Rater(feed)
        self._last: list[Batch] = []
        self._hungry = 0
        self._timeout_s = settings.learner.rank_timeout_s

    def run(self) -> None:
        """Learn until rank 0 says stop; signals are rank 0's business.

        Raises:
            GroupLost: another rank is gone or silent.
            DeadlineExceeded: not one batch came while the others waited for this rank.
        """
        try:
            self.sac.begin()
            self._feed.start_drawing()
            self._link.wake()
            while (order := self._group.order()) is not Order.STOP:
                self._link.check()
                if order is Order.UPDATE:
                    self._update()
                elif order is Order.STATE:
                    self.sac.get_state()
                if order in (Order.STATE, Order.WEIGHTS):
                    self.sac.weights(NO_VERSION)
            LOG.info("leaving: rank 0 said so, at update %d", self.sac.step)
        finally:
            self.sac.model.close()

    def _update(self) -> None:
        """One update of all ranks; where no new rows come in time, the last ones serve and count nothing."""
        fresh, waited = self._feed.get(PATIENCE_S), PATIENCE_S
        while fresh is None and not self._last:  # the others wait, as long as a group waits for a rank
            self._link.check()
            if waited >= self._timeout_s:
                raise DeadlineExceeded(f"not one batch within {waited:g} s, and the others wait (learner.rank_timeout_s)")
            fresh, waited = self._feed.get(PATIENCE_S), waited + PATIENCE_S
        if self._feed.must_draw:
            self._link.wake()
        self._last = fresh or self._last
        batch, *actor_batch = self._last
        self.sac.update(batch, None, *actor_batch, counts=fresh is not None)
        if self.sac.device.type != "cpu":
            for ahead in self._feed.peek():
                self.sac.prepare.ahead(ahead)
        self._rater.note(batch, self.sac.td_error)
        self._hungry += fresh is None
        self._feed.report({"learner/updates": self.sac.step, "updates_without_rows": self._hungry})
