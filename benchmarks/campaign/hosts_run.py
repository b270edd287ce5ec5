"""One run on six hosts, which are namespaces: two with actors, two with buffers, two with a rank of the learner each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign import hosts_judge
from campaign.cluster import Cluster, Status
from campaign.hosts_judge import Held
from campaign.lan import Lan
from campaign.logbook import WRAPPER, read_lives
from campaign.process import ProcessFailed
from campaign.troubles import RATES, Point, Trouble, back_after, rates
from headrace.buffer.query import Observer
from headrace.common.config import merge, replace
from headrace.common.errors import DeadlineExceeded
from headrace.launch.config import make_config
from headrace.launch.play import find_policy, judge, make_player, read_policy
from headrace.launch.rundir import RunDir

HOSTS = ("sim-0", "sim-1", "store-0", "store-1", "gpu-0", "gpu-1")
ROLES: Mapping[str, Any] = {
    "buffers": [{"host": "store-0"}, {"host": "store-1"}],
    "ranks": [{"host": "gpu-0"}, {"host": "gpu-1"}],
    "actors": [{"host": "sim-0", "shard": 0}, {"host": "sim-1", "shard": 1}],
    "evaluator": "gpu-1",
}
ANSWER_S, LOOK_S, TELL_S = 2.0, 0.25, 15.0
TROUBLED_S = 150.0  # after which rates that are not back are given up


@dataclass(frozen=True)
class Course:
    """When which trouble comes.

    Attributes:
        troubles: in order.
        first: env steps at which the first one comes.
        gap: env steps between two.
        before_s: in which rates are taken ahead of each.
        window_s: in which they are to be back.
        settle_s: for which they are watched at least, as they have to stay so.
        bar_s: how long that may take.
    """

    troubles: Sequence[Trouble] = ()
    first: int = 0
    gap: int = 0
    before_s: float = 20.0
    window_s: float = 8.0
    settle_s: float = 60.0
    bar_s: float = 30.0


@dataclass(frozen=True)
class Trial:
    """What is run: an example with changes, a course of troubles, and the bar of its return over so many episodes."""

    example: str
    changes: Mapping[str, Any]
    course: Course
    least: float | None
    episodes: int
    deadline_s: float
    pause_s: float  # of each env step: envs set the pace, so that there is time for all troubles on any machine
    one_way: str = ""  # a host that nobody can dial


@dataclass
class Watch:
    """What the buffers tell meanwhile.

    Attributes:
        points: env steps and updates by time, as the home shard tells them.
        status: its newest.
        acked: (actor, stream) -> highest seq that was acknowledged.
        refused: rows rejected, by shard and reason.
    """

    cluster: Cluster
    points: list[Point] = field(default_factory=list)
    status: Status = field(default_factory=dict)
    acked: dict[tuple[str, int], int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    _observers: dict[int, Observer] = field(default_factory=dict)
    _told_at: float = -TELL_S

    def look(self) -> None:
        """Ask every buffer; start again what has ended."""
        self.cluster.look()
        for shard in range(len(self.cluster.endpoints)):
            at = time.monotonic()
            status = self._ask(shard)
            if not status:
                continue
            for actor in status["actors"]:
                for stream, seq in actor["acked"].items():
                    key = (actor["id"], int(stream))
                    self.acked[key] = max(seq, self.acked.get(key, 0))
            for name, count in status["counters"].items():
                if name.startswith("rejected_") and count:
                    self.refused[f"{name} at shard {shard}"] = count
            if shard == 0:
                self.status = status
                self.points.append((at, status["env_steps"], status["updates"]))
        self._tell()

    def close(self) -> None:
        """Leave."""
        for observer in self._observers.values():
            observer.close()

    def _ask(self, shard: int) -> Status:
        observer = self._observers.get(shard)
        try:
            if observer is None:
                observer = self._observers[shard] = Observer(self.cluster.endpoints[shard], self.cluster.network)
            return observer.status(ANSWER_S)
        except DeadlineExceeded:  # its connection may be one that the other end knows nothing of
            self._observers.pop(shard).close()
            return {}

    def _tell(self) -> None:
        now = time.monotonic()
        if not self.status or now - self._told_at < TELL_S:
            return
        self._told_at = now
        told, rate = self.status, self.status["rates"]
        tell(
            f"{told['phase']}: {told['env_steps']}/{told['env_steps_goal']} env steps ({rate['env_steps_s']:.0f}/s),"
            f" {told['updates']} updates ({rate['updates_s']:.0f}/s), return {told['return_mean']}"
        )


class Run:
    """A run under troubles.

    Args:
        lan: with :data:`HOSTS`.
        place: empty directory.
        plain: the run's config; its env gets a logbook.
        course: of troubles.
        deadline_s: of all of it.
        pause_s: of each env step, see :class:`campaign.logbook.Logbook`.
    """

    def __init__(
        self, lan: Lan, place: Path, plain: Mapping[str, Any], course: Course, deadline_s: float, pause_s: float = 0.0
    ) -> None:
        self._course, self._steps = course, place / "steps"
        logbook = {"name": WRAPPER, "kwargs": {"directory": str(self._steps), "pause_s": pause_s}}
        self._plain = merge(plain, {"env": {"wrappers": [logbook]}})
        self._goal = make_config(self._plain).pacing.env_steps
        self._end = time.monotonic() + deadline_s
        self.cluster = Cluster(lan, place, self._plain, ROLES)
        self.watch = Watch(self.cluster)

    def go(self) -> dict[str, Any]:
        """Run to the goal; what came of it."""
        begun = time.monotonic()
        with contextlib.closing(self.watch):
            self.cluster.start()
            told = [self._put_through(trouble, n) for n, trouble in enumerate(self._course.troubles)]
            self._wait(lambda: self.cluster.has_left, self._end)
            self.cluster.end()
        learned_s = time.monotonic() - begun
        found = self._account()
        return {
            **found,
            "troubles": told,
            "wall_s": round(learned_s, 1),
            "restarts": {p.name: p.starts - 1 for p in self.cluster.processes if p.starts > 1},
            "problems": [*found["problems"], *self._late(told)],
        }

    def judged(self, episodes: int) -> dict[str, Any]:
        """The last policy over so many episodes, without noise."""
        config = make_config(self._plain)
        bare = replace(config, env=replace(config.env, wrappers=()))
        leader = next(self.cluster.of_kind("learner"))
        weights = read_policy(find_policy(self.cluster.run_dir(leader)))
        player, _ = make_player(bare, weights)
        result = judge(bare, player, episodes, config.seed, tell)
        figures = {"return_mean": round(result.mean, 2), "return_std": round(result.std, 2), "episodes": episodes}
        return {**figures, "update": weights.version.step}

    def _put_through(self, trouble: Trouble, number: int) -> dict[str, Any]:
        """One trouble, and how long the rates take until they are back."""
        course = self._course
        wanted = course.first + number * course.gap
        self._wait(lambda: self._steps_done >= wanted or self.cluster.has_left, self._end)
        self._go_on(course.before_s)
        if self._is_over:
            return {"kind": trouble.kind, "host": trouble.host, "back_s": None}
        now = self.watch.points[-1][0]
        before = rates(self.watch.points, now - course.before_s, now)
        tell(f"{trouble.kind} of {trouble.host} at {self._steps_done} env steps")
        begun = time.monotonic()
        with trouble.happens(self.cluster):
            self._go_on(trouble.seconds)
        # A trouble that ends by itself is over then; who was rebooted has to be back from the first moment on.
        since = begun if trouble.is_reboot else time.monotonic()

        def back() -> list[float | None]:
            return back_after(self.watch.points, since, before, course.window_s)

        self._go_on(since + course.settle_s - time.monotonic(), until=lambda: self._is_over)
        self._wait(lambda: self._is_over or None not in back(), since + TROUBLED_S, must=False)
        took = back()
        shown = dict(zip(RATES, took, strict=True))
        tell(f"  back after {shown} s, of {before[0]:.0f} env steps and {before[1]:.0f} updates a second")
        return {
            "kind": trouble.kind,
            "host": trouble.host,
            "at_env_steps": self._steps_done,
            "before": dict(zip(RATES, (round(rate, 2) for rate in before), strict=True)),
            "back_s": None if None in took else max(t for t in took if t is not None),
        }

    def _late(self, told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        for one in told:
            if one["back_s"] is None or one["back_s"] > self._course.bar_s:
                yield f"{one['kind']} of {one['host']}: rates back after {one['back_s']} s, bar {self._course.bar_s:g}"

    def _account(self) -> dict[str, Any]:
        homes = list(self.cluster.of_kind("buffer"))
        places = [RunDir(self.cluster.run_dir(process)).shard(n) for n, process in enumerate(homes)]
        shards, lives = [Held.read(place.pool) for place in places], read_lives(self._steps)
        evidence = shards, lives, self.cluster.killed, self.watch.acked
        told = hosts_judge.account(*evidence)
        problems = [*told.problems, *(f"{count} {what}" for what, count in self.watch.refused.items())]
        status = self.watch.status
        steps = sum(shard.counters["env_steps"] for shard in shards)
        if not status["env_steps"] == steps == self._goal:
            problems.append(f"env_steps: {status['env_steps']} told, {steps} in the pools, the goal was {self._goal}")
        found = [] if problems else hosts_judge.controls(*evidence)
        return {
            **hosts_judge.figures(told),
            "env_steps": steps,
            "updates": status["updates"],
            "achieved_ratio": status["achieved_ratio"],
            "controls": found,
            "problems": problems,
        }

    @property
    def _steps_done(self) -> int:
        return int(self.watch.status.get("env_steps", 0))

    @property
    def _is_over(self) -> bool:
        """Whether nobody has to step any more."""
        return self.cluster.has_left or self._steps_done >= self._goal

    def _go_on(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        self._wait(until, time.monotonic() + seconds, must=False)

    def _wait(self, what: Callable[[], bool], end: float, *, must: bool = True) -> None:
        """Look on until something holds; raises :class:`ProcessFailed` where it must and does not."""
        while not what() and time.monotonic() < end:
            self.watch.look()
            time.sleep(LOOK_S)
        if must and not what():
            logs = "\n".join(f"{p.name}, started {p.starts} times:\n{p.last_words()}" for p in self.cluster.processes)
            raise ProcessFailed(f"not in time; last status: {self.watch.status.get('waiting')}\n{logs}")


def tell(text: str) -> None:
    """Print a line now."""
    print(text, flush=True)
