"""Headway: which roles got something done since the last status of the buffer, or had nothing to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.common.wire.messages import POLICY_SERVER
from headrace.launch.supervision import RolePlan

Status = Mapping[str, Any]
COLLECTING = ("waiting", "filling", "training")  # phases in which actors are to bring rows


class Headway:
    """Compares each status with those before.

    Done is, of an actor, that rows of it were acknowledged; of a learner, that updates were granted to it; of an evaluator,
    that an evaluation came; of a policy server, that the buffer knows it; of a buffer, that it answered. A role that waits
    for others is not to blame for it: an actor while no rows are collected, a learner that owes no update, an evaluator
    without a policy to judge.

    Args:
        plans: the roles; what the status says of others is nobody's headway.
    """

    def __init__(self, plans: Sequence[RolePlan]) -> None:
        self._plans = tuple(plans)
        self._acked: dict[str, dict[str, int]] = {}
        self._updates = 0
        self._evaluation: object = None

    def note(self, status: Status) -> list[str]:
        """Names of the roles that got something done since the status before, or have nothing to do."""
        free = {
            "buffer": True,
            "learner": self._learner(status),
            "evaluator": self._evaluator(status),
            "actor": status.get("phase") not in COLLECTING,
            POLICY_SERVER: bool(status.get("policy_servers")),
        }
        fed = {actor["id"] for actor in status.get("actors", []) if self._fed(actor)}
        return [plan.name for plan in self._plans if free.get(plan.kind) or (plan.kind == "actor" and plan.name in fed)]

    def _learner(self, status: Status) -> bool:
        updates: int = status.get("updates", 0)
        owed: int = status.get("updates_owed", 0)
        more, self._updates = updates > self._updates, updates
        return more or updates >= owed

    def _evaluator(self, status: Status) -> bool:
        last = (status.get("evaluations") or [None])[-1]
        fresh, self._evaluation = last != self._evaluation, last
        return fresh or not status.get("weights", {}).get("step")

    def _fed(self, actor: Status) -> bool:
        """Whether one of its streams reaches further than before."""
        acked, before = actor.get("acked", {}), self._acked.get(actor["id"], {})
        self._acked[actor["id"]] = dict(acked)
        return any(seq > before.get(stream, 0) for stream, seq in acked.items())
