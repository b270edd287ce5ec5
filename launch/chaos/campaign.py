"""A campaign: jobs, the faults that they are put through for some time, and the rows that their pools held meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.actor.envs import make_spec
from headrace.common.errors import HeadraceError
from headrace.launch.chaos.disk import Disk
from headrace.launch.chaos.harvest import Harvest
from headrace.launch.chaos.history import SUFFIX, History
from headrace.launch.chaos.injector import Injector
from headrace.launch.chaos.intruder import INTRUDER, Intruder
from headrace.launch.chaos.job import Job, Scale, free_port
from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.schedule import FULL_DISK, INTRUDE, NOISE, Chapter, Schedule
from headrace.launch.pools import open_pool
from headrace.launch.supervision import FAILED as RUN_FAILED

TICK_S = 0.02
WHOLE_S = 60.0
SAY_S = 10.0
COUNTERS = "counters.json"


class Diary:
    """Is told what happens: notices go into a file, and people get one line from time to time."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._file, self._say = path.open("w", buffering=1, encoding="utf-8"), say
        self._said_at = time.monotonic()

    def notice(self, text: str) -> None:
        """One line for people who look for it."""
        self._file.write(f"{text}\n")

    def update(self, status: Mapping[str, Any]) -> None:
        """The newest status of the job."""

    def say(self, text: Callable[[], str]) -> None:
        """One line on standard error, if it is time to."""
        if time.monotonic() - self._said_at >= SAY_S:
            self._said_at = time.monotonic()
            self._say(text())

    def close(self) -> None:
        """No notice follows."""
        self._file.close()


class Conductor:
    """Drives one job from its own thread: waits until it is whole, has faults happen, lets it come to rest, ends it.

    Args:
        job: is run by the caller's thread.
        drive: called with the seconds since the job was whole until it is false.
        rest: called before the job is to come to rest.
    """

    def __init__(self, job: Job, drive: Callable[[float], bool], rest: Callable[[], None]) -> None:
        self._job, self._drive, self._rest = job, drive, rest
        self._thread = threading.Thread(target=self._run, name="headrace-chaos", daemon=True)
        self._failure: BaseException | None = None
        self._finished = False

    def run(self) -> None:
        """Run the job to its end.

        Raises:
            HeadraceError: the job failed, or was never whole.
            KeyboardInterrupt: a person ended it before its time.
        """
        self._thread.start()
        decisions = self._job.supervisor.run()
        self._thread.join(WHOLE_S)
        if self._failure is not None:
            raise self._failure
        if decisions.outcome == RUN_FAILED:
            raise HeadraceError(f"the job failed: {decisions.reason}; logs are in {self._job.run.logs}")
        if not self._finished:
            raise KeyboardInterrupt

    def _run(self) -> None:
        try:
            self._wait_whole("at its start")
            begun = time.monotonic()
            while not self._ended and self._drive(time.monotonic() - begun):
                time.sleep(TICK_S)
            self._rest()
            self._wait_whole("after the last fault")
            self._finished = not self._ended
        except BaseException as error:
            self._failure = error
            self._rest()
        finally:
            self._job.supervisor.stop()

    @property
    def _ended(self) -> bool:
        return self._job.supervisor.decisions.ending

    def _wait_whole(self, when: str) -> None:
        seen = self._job.supervisor.status
        end = time.monotonic() + WHOLE_S
        while not self._ended and (self._job.supervisor.status is seen or not self._job.is_whole):
            if time.monotonic() > end:
                raise HeadraceError(f"the job was not whole within {WHOLE_S:g} s {when}; logs are in {self._job.run.logs}")
            time.sleep(TICK_S)


def run_chapter(place: Path, seed: int, chapter: Chapter, scale: Scale, say: Callable[[str], None]) -> Mapping[str, int]:
    """Put a job below ``place`` through a chapter; the pool's counters at its end."""
    port, kinds, seconds = free_port(), chapter.kinds, chapter.seconds
    plans = [*(f"actor-{n}" for n in range(scale.actors)), "learner", *(["evaluator"] if scale.evaluator else [])]
    with contextlib.ExitStack() as stack:
        links = {name: stack.enter_context(Proxy(f"tcp://127.0.0.1:{port}", seed + i)) for i, name in enumerate(plans)}
        place.mkdir(parents=True)
        diary = stack.enter_context(contextlib.closing(Diary(place / "notices.log", say)))
        dials = {name: proxy.endpoint for name, proxy in links.items()}
        disk = stack.enter_context(Disk(place / "disk", place / "kept")) if FULL_DISK in kinds else None
        job = Job.make(place, seed, scale, diary, port=port, dials=dials, sabotage={}, keyed=chapter.keyed, disk=disk)
        faults = stack.enter_context(contextlib.closing(History(job.history / f"faults-0{SUFFIX}", {"seed": seed})))
        intruder = stack.enter_context(intruding(job)) if INTRUDE in kinds else None
        injector = Injector(job, links, faults, intruder, noisy=NOISE in kinds)
        schedule = Schedule(seed, kinds)

        def drive(now: float) -> bool:
            for fault in schedule.due(now):
                injector.begin(fault, now)
            injector.tick(now)
            diary.say(lambda: f"{now:5.0f} of {seconds:.0f} s   {said(job.supervisor.status)}   faults {injector.hits.total()}")
            return now < seconds

        with harvested(job):
            Conductor(job, drive, injector.heal).run()
        return final_counters(job)


@contextlib.contextmanager
def intruding(job: Job) -> Iterator[Intruder]:
    """Somebody who wants to come into a job, and his history."""
    spec = make_spec(job.config.env, job.config.window)
    with contextlib.closing(History(job.history / f"{INTRUDER}-0{SUFFIX}", {})) as history:
        yield Intruder(job.config.network.endpoint, job.network, spec, history)


@contextlib.contextmanager
def harvested(job: Job) -> Iterator[Harvest]:
    """Read every row of the job's pool while it runs, and all that are there at its end."""
    with contextlib.closing(History(job.history / f"rows-0{SUFFIX}", {})) as history:
        harvest = Harvest(job.run.pool, history)
        harvest.start()
        try:
            yield harvest
        finally:
            harvest.close()


def final_counters(job: Job) -> Mapping[str, int]:
    """The counters of the pool that the job has left, kept beside its histories."""
    with open_pool(job.run.pool) as pool:
        counters = dict(pool.counters())
    (job.place / COUNTERS).write_text(json.dumps(counters) + "\n", encoding="utf-8")
    return counters


def said(status: Mapping[str, Any]) -> str:
    """A job's status in a few words."""
    pool, learner = status.get("pool", {}), status.get("learner")
    return (
        f"env steps {status.get('env_steps', 0):,}   updates {status.get('updates', 0):,}   rows {pool.get('rows', 0):,}"
        f"   actors {len(status.get('actors', []))}   learner {'there' if learner else 'gone'}"
    )


def to_stderr(text: str) -> None:
    """One line for people."""
    print(text, file=sys.stderr, flush=True)
