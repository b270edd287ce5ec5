"""The status of a run until it is over, or its buffer is gone."""

from __future__ import annotations

import pytest

from headrace.buffer.query import LOCAL
from headrace.common.errors import DeadlineExceeded
from headrace.launch import watch


class Told:
    """An observer that is told so many phases, and then nothing."""

    def __init__(self, *phases):
        self.phases = list(phases)

    def status(self, deadline_s):
        if not self.phases:
            raise DeadlineExceeded("no status")
        return {"phase": self.phases.pop(0)}

    def close(self):
        pass


class Shown:
    def __init__(self, *words):
        pass

    def update(self, status):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watch, "Progress", Shown)
    monkeypatch.setattr(watch, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "REFRESH_S", 0.0)


@pytest.mark.parametrize("last", ["finishing", "done", "stopping"])
def test_a_run_that_ends_while_one_looks_is_over(monkeypatch, capsys, last):
    monkeypatch.setattr(watch, "Observer", lambda endpoint, network: Told("training", last))
    assert watch.show("tcp://here:1", LOCAL, as_json=False, once=False, deadline_s=1.0) == 0
    assert capsys.readouterr().out == "the run is over\n"


def test_a_buffer_that_is_gone_in_the_middle_is_an_error(monkeypatch):
    monkeypatch.setattr(watch, "Observer", lambda endpoint, network: Told("filling", "training"))
    with pytest.raises(DeadlineExceeded, match="no status"):
        watch.show("tcp://here:1", LOCAL, as_json=False, once=False, deadline_s=1.0)
