"""What people ask of a run: rates, returns, policy age, who is there and how far, as one machine-readable object."""

from __future__ import annotations

import asyncio
import json
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.buffer.gathered import COUNT, PART, joined, of_actors, spread, told_apart
from headrace.buffer.limits import Limits
from headrace.common.block import Array
from headrace.common.errors import WireError
from headrace.common.metrics import RateWindow, process_memory
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.fields import printable
from headrace.common.wire.fleet import Session, name_of

if TYPE_CHECKING:
    from headrace.buffer.service import Service

RETURNS_KEPT = 20
EVALUATIONS_KEPT = 1000
LOST_KEPT = 20
PUBLISHED_KEPT = 512
WAIT_FOR_PEOPLE = ("disarmed", "waiting for a human", "paused")  # phases of a robot's station
WHY_CHARS = 200
LOST_STEPS = {"dropped_steps": "for want of room (actor.when_full)", "damaged_steps": "in a damaged spool"}
LONG_STEP_S = 10.0  # of an env, from which on the status says that its actor waits for it


@dataclass
class ActorRecord:
    """What is known of one actor id, over all its processes."""

    streams: dict[int, int] = field(default_factory=dict)
    episodes: int = 0
    executed: int = 0
    settled: int = 0
    version: tuple[int, int] = (0, 0)
    rate: RateWindow = field(default_factory=RateWindow)


class Watch:
    """Collects what passes through the service; decides nothing.

    Args:
        run_id: of the run.
        now: seconds.
        limits: of this process.
    """

    def __init__(self, run_id: str, now: float, limits: Limits | None = None) -> None:
        self._run_id, self._since, self._limits = run_id, now, limits
        self._actors: dict[str, ActorRecord] = {}
        self._env_rate, self._update_rate = RateWindow(), RateWindow()
        self._returns: deque[tuple[float, int]] = deque(maxlen=RETURNS_KEPT)
        self._evaluations: deque[dict[str, Any]] = deque(maxlen=EVALUATIONS_KEPT)
        self._published: deque[tuple[tuple[int, int], float]] = deque(maxlen=PUBLISHED_KEPT)  # versions rise
        self._lost: deque[dict[str, Any]] = deque(maxlen=LOST_KEPT)
        self._episodes = 0

    def record(self, actor: str) -> ActorRecord:
        """The record of an actor id, made when new."""
        return self._actors.setdefault(actor, ActorRecord())

    @property
    def actors(self) -> int:
        """Actor ids ever seen by this pool."""
        return len(self._actors)

    @property
    def names(self) -> list[str]:
        """Those ids."""
        return list(self._actors)

    def knows(self, actor: str) -> bool:
        """Whether the id was seen before."""
        return actor in self._actors

    def streams(self, actor: str) -> tuple[tuple[int, int], ...]:
        """(stream, last acknowledged seq) pairs of an actor, newest streams last."""
        return tuple(sorted(self.record(actor).streams.items()))[-m.MAX_STREAMS :]

    def cursor(self, actor: str, stream: int, seq: int) -> None:
        """Rows up to ``seq`` of a stream are committed or rejected."""
        streams = self.record(actor).streams
        streams[stream] = max(seq, streams.get(stream, 0))
        while len(streams) > m.MAX_STREAMS:
            del streams[min(streams)]

    def pulse(self, session: Session, pulse: m.Pulse, now: float) -> None:
        """A client's heartbeat."""
        session.report = pulse.report if isinstance(pulse.report, dict) else {}
        if session.role == "actor":
            record = self.record(session.id)
            record.executed, record.settled, record.version = pulse.executed, pulse.settled, (pulse.epoch, pulse.step)
            record.rate.add(pulse.executed, now)

    def episode(self, session: Session, end: m.EpisodeEnd) -> None:
        """A finished training episode."""
        self._episodes += 1
        self.record(session.id).episodes += 1
        self._returns.append((end.total, end.length))

    def evaluation(self, head: m.Evaluation, returns: Array, lengths: Array, outcomes: Array) -> None:
        """A finished evaluation; raises :class:`WireError` for one without episodes or without a finite mean."""
        if not len(returns):
            raise WireError("malformed", "an evaluation of no episode")
        known = outcomes[outcomes != 0]
        with np.errstate(over="ignore", invalid="ignore"):  # of returns of 1e308 these are infinite
            numbers = returns.mean(), returns.std(), lengths.mean()
        if not np.isfinite(numbers).all():
            raise WireError("non-finite", "returns of an evaluation have no finite mean")
        self._evaluations.append(
            {
                "epoch": head.epoch,
                "step": head.step,
                "env_steps": head.env_steps,
                "episodes": head.episodes,
                "return_mean": float(numbers[0]),
                "return_std": float(numbers[1]),
                "length_mean": float(numbers[2]),
                "success_rate": float((known == 1).mean()) if len(known) else None,
            }
        )

    def published(self, version: Version, now: float) -> None:
        """New weights are on the shelf."""
        self._published.append((version.order, now))

    def lost(self, session: Session, now: float, why: str = "silent") -> None:
        """A session's lease has run out, or its process says why it cannot go on."""
        if session.role == "observer":
            return  # it only looked
        at = {"at_s": round(now - self._since, 3), "why": why}
        self._lost.append({"role": session.role, "id": session.id, "host": session.host, "pid": session.pid, **at})

    def left(self, session: Session, reason: str, now: float) -> None:
        """A session ends with a goodbye, in order unless it says why its process cannot go on."""
        if reason:
            self.lost(session, now, reason)

    @property
    def rates(self) -> dict[str, float]:
        """Env steps and updates in a second."""
        return {
            "env_steps_s": round(self._env_rate.per_second(), 2),
            "updates_s": round(self._update_rate.per_second(), 2),
        }

    def observe(self, env_steps: int, updates: int, now: float) -> None:
        """Counters of the run at ``now``."""
        self._env_rate.add(env_steps, now)
        self._update_rate.add(updates, now)

    def summary(self, service: Service, now: float) -> dict[str, Any]:
        """The part of the status that the learner writes to the run's metrics."""
        own = self.part(service, now)
        shards = [told(session) for session in service.fleet.sessions(m.SHARD)]
        parts = [report["part"] for report in shards if isinstance(report.get("part"), dict)]
        all_ = joined(own, parts) if parts else {name: own[name] for name in PART if name != COUNT}
        further = set(all_["actors"]) - set(own["actors"])
        rates = [told["env_steps_s"] for name, told in all_["actors"].items() if name in further and "env_steps_s" in told]
        return {
            "env_steps": service.env_steps,
            "updates": service.totals.updates,
            "offline_updates": service.totals.offline_updates,
            **self.rates,
            "achieved_ratio": round(service.pacing.achieved_ratio, 5),
            "ratio_alarm": int(bool(service.pacing.alarm)),
            "rows_accepted": service.totals.counters.get("rows_accepted", 0),
            **set_metrics(service.totals.sampling),
            "evaluations": len(self._evaluations),
            "evaluation": self._evaluations[-1] if self._evaluations else None,
            "pool_fill": round(service.totals.size / service.totals.info.get("capacity", 1), 5),
            "memory": process_memory(),
            "actor_env_steps_s": spread([*self._rates(service), *rates]),
            **all_,
        }

    def part(self, service: Service, now: float) -> dict[str, Any]:
        """This shard's part of what is gathered over all of them; a further one tells it to the home shard."""
        returns = [r for r, _ in self._returns]
        actors = {s.id: s for s in service.fleet.sessions("actor")}
        apart = [self._actor(actors[name], service, now) for name in told_apart(actors)]
        ages = [self._age(self.record(name).version, service, now) for name in actors]
        return {
            "pool_rows": service.totals.size,
            "episodes": self._episodes,
            "return_mean": as_shown(float(np.mean(returns))) if returns else None,
            COUNT: len(returns),
            "policy_lag_updates": max((a[0] for a in ages), default=0),
            "policy_age_s": round(max((a[1] for a in ages), default=0.0), 3),
            "rows_lost": service.totals.counters.get("lost_before", 0),
            "rows_rejected": sum(service.rejected.by_reason.values()),
            "messages_refused": sum(service.refused.by_reason.values()),
            "actors_connected": len(actors),
            "actors": of_actors(apart),
        }

    def _rates(self, service: Service) -> list[float]:
        """Env steps a second of each actor here."""
        return [round(self.record(s.id).rate.per_second(), 2) for s in service.fleet.sessions("actor")]

    def status(self, service: Service, now: float) -> dict[str, Any]:
        """The whole status; every value is plain JSON."""
        totals, pacing = service.totals, service.pacing
        shelf, version = service.shelf, service.shelf.version
        summary = self.summary(service, now)
        learners = service.fleet.sessions("learner")
        return {
            "run": self._run_id,
            "phase": service.phase,
            "paused_by": service.live.paused_by,
            "set": service.live.changed,
            "uptime_s": round(now - self._since, 3),
            "env_steps": service.env_steps,
            "env_steps_goal": pacing.config.env_steps,
            "updates": totals.updates,
            "updates_owed": pacing.config.offline_updates + pacing.owed,
            "offline_updates": totals.offline_updates,
            "offline_updates_goal": pacing.config.offline_updates,
            "rates": self.rates,
            "achieved_ratio": summary["achieved_ratio"],
            "target_ratio": pacing.config.ratio,
            "robot_share": {"least": pacing.config.robot_share, "achieved": pacing.quota.achieved},
            "episodes": summary["episodes"],
            "return_mean": summary["return_mean"],
            "policy_lag_updates": summary["policy_lag_updates"],
            "policy_age_s": summary["policy_age_s"],
            "weights": {"learner": version.learner, "epoch": version.epoch, "step": version.step, "bytes": shelf.nbytes},
            "pool": {"rows": totals.size, **totals.info},
            "actors": [self._actor(s, service, now) for s in service.fleet.sessions("actor")],
            "evaluators": [{**told(s), **_who(s, now)} for s in service.fleet.sessions("evaluator")],
            "policy_servers": [{**told(s), **_who(s, now)} for s in service.fleet.sessions(m.POLICY_SERVER)],
            "learner": {**told(learners[0]), **_who(learners[0], now)} if learners else None,
            "ranks": [{**told(s), **_who(s, now)} for s in service.fleet.sessions("rank")],
            "shards": [{**told(s), **service.satellites.report(s), **_who(s, now)} for s in service.fleet.sessions(m.SHARD)],
            "home": service.home,
            "evaluations": list(self._evaluations)[-50:],
            "lost_sessions": list(self._lost),
            "counters": {
                **totals.counters,
                "fenced": service.fleet.fenced,
                "asked_to_greet": service.reception.asked_to_greet,
                **{f"rejected_{k}": n for k, n in service.rejected.by_reason.items()},
                **{f"refused_{k}": n for k, n in service.refused.by_reason.items()},
                **{f"turned_away_{k}": n for k, n in service.reception.turned_away.items()},
            },
            "rejected_of": service.rejected.by_peer,
            "refused_of": service.refused.by_peer,
            "sampling": totals.sampling,
            "compression": {what: asdict(traffic) for what, traffic in service.traffic.items()},
            "snapshots": service.backups.report() if service.backups is not None else None,
            "security": service.reception.security,
            "memory": {**process_memory(), **(self._limits.report() if self._limits is not None else {})},
            "tasks": _tasks(),
            "waiting": self._waiting(service),
            "warnings": self._warnings(service),
        }

    def status_json(self, service: Service, now: float) -> bytes:
        """:meth:`status` as JSON in UTF-8."""
        return json.dumps(self.status(service, now)).encode()

    def _waiting(self, service: Service) -> list[str]:
        reasons = []
        phase = service.phase
        if service.totals.spec is None:
            reasons.append("no actor has declared its spec yet")
        if service.pacing.paused:
            reasons.append(f"the run is paused by {', '.join(service.live.paused_by)}")
        if phase == "offline":
            reasons.append(f"offline: {service.totals.offline_updates} of {service.pacing.config.offline_updates} updates")
        elif not service.fleet.sessions("actor") and not service.satellites.simulators and phase not in ("finishing", "done"):
            reasons.append("no actor is connected")
        for session in service.fleet.sessions("actor"):
            report = told(session)
            waited = report.get("in_step_s")
            if isinstance(waited, (int, float)) and waited > LONG_STEP_S:
                reasons.append(f"actor {session.id!r} has waited for its env for {waited:.0f} s")
            station = report.get("station")
            if isinstance(station, dict) and station.get("phase") in WAIT_FOR_PEOPLE:
                reasons.append(f"robot {session.id!r} is {station['phase']}: {str(station.get('why'))[:WHY_CHARS]}")
        if service.home is not None and not service.home["connected"]:
            reasons.append(f"the home shard {service.home['endpoint']} is not here: {service.home['waiting']}")
        if service.home is None and not service.fleet.sessions("learner") and phase != "done":
            reasons.append("no learner is connected")
        beyond_random = service.env_steps >= service.pacing.config.random_steps > 0
        if service.shelf.version.epoch == 0 and beyond_random and phase in ("filling", "training"):
            reasons.append("no weights have been published yet, and the random steps are done")
        if service.pacing.quota_holds:
            reasons.append(f"simulators wait for a robot: pacing.robot_share {service.pacing.config.robot_share:g}")
        if service.totals.waiting and service.fleet.sessions("learner") and phase != "done":
            reasons.append(service.totals.waiting)
        if phase == "filling" and service.env_steps < service.pacing.config.min_fill:
            reasons.append(
                f"filling: {service.env_steps} of {service.pacing.config.min_fill} env steps before the first update"
            )
        return reasons

    def _warnings(self, service: Service) -> list[str]:
        warnings = self._limits.warnings() if self._limits is not None else []
        warnings += [f"{n} rows rejected: {reason}" for reason, n in sorted(service.rejected.by_reason.items())]
        warnings += [f"not written: {what}: {why}" for what, why in _not_written(service).items() if why]
        refused = sorted((reason, n) for reason, n in service.refused.by_reason.items() if reason.startswith("priority-"))
        warnings += [f"{n} messages with priorities refused: {reason}" for reason, n in refused]
        warnings += _security(service.reception.security)
        for learner in service.fleet.sessions("learner"):
            report = told(learner)
            if report.get("not_saved"):
                warnings.append(f"no checkpoint: {report['not_saved']}")
            if report.get("sac/alpha_alarm"):
                warnings.append(f"alpha is {report.get('sac/alpha')}: check target entropy and reward scale")
            skipped = report.get("sac/updates_skipped")
            if isinstance(skipped, (int, float)) and skipped:
                warnings.append(f"{skipped:g} updates skipped: loss or gradient not finite")
        for session in service.fleet.sessions("actor"):
            for key, why in LOST_STEPS.items():
                count = session.report.get(key)  # a number, or nothing
                if isinstance(count, int) and count:
                    warnings.append(f"actor {session.id!r} has lost {count} steps {why}")
        filled = service.pacing.offline or service.env_steps >= service.pacing.config.min_fill
        if filled and not service.pacing.drawable and not service.totals.waiting:
            rows = service.totals.size + service.satellites.rows
            warnings.append(f"the pool holds {rows} rows, too few for a batch: see pool.min_block_rows and rows_retired")
        here = {session.name for session in service.fleet.sessions()}
        gone = {name_of(who["role"], who["id"]): who for who in self._lost}
        warnings += [f"{name} has not come back: {who['why']}" for name, who in sorted(gone.items()) if name not in here]
        lost = service.totals.counters.get("lost_before", 0)
        warnings += [service.pacing.alarm] if service.pacing.alarm else []
        return warnings + ([f"{lost} rows were lost before they reached the buffer"] if lost else [])

    def _age(self, version: tuple[int, int], service: Service, now: float) -> tuple[int, float]:
        newest = service.shelf.version
        if newest.epoch == 0 or version == newest.order:
            return 0, 0.0
        lag = newest.step - version[1] if version[0] == newest.epoch else newest.step
        later = bisect_right(self._published, version, key=itemgetter(0))
        return max(0, lag), now - self._published[later][1] if later < len(self._published) else 0.0

    def _actor(self, session: Session, service: Service, now: float) -> dict[str, Any]:
        record = self.record(session.id)
        lag, age = self._age(record.version, service, now)
        return {
            **told(session),
            **_who(session, now),
            "robot": service.pacing.is_robot(session.id),
            "acked": {str(stream): seq for stream, seq in sorted(record.streams.items())[-4:]},
            "version": list(record.version),
            "lag_updates": lag,
            "age_s": round(age, 3),
            "executed": record.executed,
            "settled": record.settled,
            "episodes": record.episodes,
            "rate": round(record.rate.per_second(), 2),
        }

    def get_state(self) -> dict[str, Any]:
        """What survives a hand-over: cursors and evaluations."""
        return {"streams": {k: dict(r.streams) for k, r in self._actors.items()}, "evaluations": list(self._evaluations)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`."""
        for actor, streams in state["streams"].items():
            self.record(actor).streams = dict(streams)
        self._evaluations.extend(state["evaluations"])

    def check_valid(self) -> tuple[bool, str]:
        """Whether every cursor is positive."""
        bad = [a for a, r in self._actors.items() if any(seq < 0 for seq in r.streams.values())]
        return not bad, f"negative cursors of {bad}" if bad else ""


def told(session: Session) -> dict[str, Any]:
    """What a client's heartbeat has told, as it may be shown: made so when somebody looks, since most are never looked at."""
    shown: dict[str, Any] = as_shown(session.report)
    return shown


def as_shown(value: Any) -> Any:
    """A plain value that a client has told, as a terminal and JSON may have it: printable, and no number without value."""
    if isinstance(value, dict):
        return {printable(key): as_shown(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_shown(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value


def _tasks() -> int:
    """Tasks of the event loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # there is none
        return 0


def _not_written(service: Service) -> dict[str, Any]:
    """What the disk does not take now, and why; all of it is tried again."""
    learners = service.fleet.sessions("learner")
    return {
        "sessions": service.fleet.not_written,
        "weights": service.shelf.not_written,
        "endpoint": service.not_told,
        "shards": service.satellites.not_written,
        "changes": service.live.not_written,
        "snapshot": "" if service.backups is None else service.backups.failure,
        "metrics": told(learners[0]).get("not_logged", "") if learners else "",
    }


def _security(security: Mapping[str, Any]) -> list[str]:
    if security["mode"] == "insecure":
        return ["network.insecure: anybody who reaches the port may read, write and publish"]
    problems = [f"a key is not known: {problem}" for problem in security.get("problems", ())]
    away = security.get("turned_away", {})
    return problems + [
        f"{sum(counts.values())} connections from {place} turned away: {', '.join(counts)}" for place, counts in away.items()
    ]


def _who(session: Session, now: float) -> dict[str, Any]:
    return {
        "id": session.id,
        "host": session.host,
        "pid": session.pid,
        "epoch": session.epoch,
        "protocol": session.protocol,
        "compression": session.compression,
        "connected_s": round(now - session.since, 3),
        "silent_s": round(now - session.seen, 3),
    }


def set_metrics(sampling: Mapping[str, Any]) -> dict[str, float]:
    """Of :meth:`SACReplayPool.sampling_info`, what a run's metrics hold: rows of each set, and realised parts of batches."""
    sizes = {f"set_rows/{name}": rows for name, rows in sampling.get("sets", {}).items()}
    mixes = sampling.get("mixes", {})
    return sizes | {f"{mix}_share/{name}": round(s["realised"], 5) for mix in mixes for name, s in mixes[mix].items()}
