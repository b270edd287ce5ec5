"""The conductor: a job is whole first, driven, brought to rest, and ended; a failure or a person ends it before."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from headrace.common.errors import HeadraceError
from headrace.launch.chaos import campaign
from headrace.launch.chaos.campaign import Conductor
from headrace.launch.supervision import FAILED, INTERRUPTED


@dataclass
class Supervisor:
    """One that looks at the job until it is asked to stop."""

    ends_as: str = INTERRUPTED
    by_itself_s: float = 60.0
    status: dict[str, object] = field(default_factory=dict)

    def __post_init__(self):
        self.decisions = SimpleNamespace(ending=False, outcome="", reason="an actor is missing")
        self.asked = threading.Event()

    def run(self):
        end = time.monotonic() + self.by_itself_s
        while not self.asked.is_set() and time.monotonic() < end:
            self.status = {"looks": object()}
            time.sleep(0.001)
        self.decisions.ending, self.decisions.outcome = True, self.ends_as
        return self.decisions

    def stop(self):
        self.asked.set()


def job(supervisor, *, whole=True):
    return SimpleNamespace(supervisor=supervisor, is_whole=whole, run=SimpleNamespace(logs="logs"))


def test_what_happens_in_which_order(monkeypatch):
    monkeypatch.setattr(campaign, "TICK_S", 0.001)
    seen = []
    supervisor = Supervisor()

    def drive(now):
        assert supervisor.status
        seen.append("drive")
        return len(seen) < 3

    Conductor(job(supervisor), drive, lambda: seen.append("rest")).run()
    assert seen == ["drive", "drive", "drive", "rest"]
    assert supervisor.asked.is_set()


def test_a_job_that_is_never_whole_is_told_and_ended(monkeypatch):
    monkeypatch.setattr(campaign, "WHOLE_S", 0.05)
    rested = []
    with pytest.raises(HeadraceError, match=r"not whole within 0\.05 s at its start; logs are in logs"):
        Conductor(job(Supervisor(), whole=False), lambda now: False, lambda: rested.append(1)).run()
    assert rested == [1]


def test_a_defect_of_the_driver_ends_the_job_and_is_raised():
    def drive(now):
        raise ZeroDivisionError

    rested = []
    with pytest.raises(ZeroDivisionError):
        Conductor(job(Supervisor()), drive, lambda: rested.append(1)).run()
    assert rested == [1]


@pytest.mark.parametrize(("ends_as", "error"), [(FAILED, HeadraceError), (INTERRUPTED, KeyboardInterrupt)])
def test_a_job_that_ends_before_its_time(ends_as, error):
    rested = []
    with pytest.raises(error):
        Conductor(job(Supervisor(ends_as, by_itself_s=0.1)), lambda now: True, lambda: rested.append(1)).run()
    assert rested == [1]
