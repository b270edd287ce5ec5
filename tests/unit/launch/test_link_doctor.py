"""The doctor of links: each role by its own key, all at the same time, and the measuring once."""

from __future__ import annotations

import errno
import socket

import pytest

from headrace.common.errors import ConfigError, DeadlineExceeded, SessionRefused
from headrace.common.wire import sockets
from headrace.common.wire.network import NetworkConfig
from headrace.launch import link_doctor, probe
from headrace.launch.finding import BAD, GOOD, WARN, Finding

IN = None
SILENT = DeadlineExceeded("no session within 10 s: waiting for an answer")
HELD = SessionRefused("held", "actor id 'a' is held by pid 7 on there")
SPEC = SessionRefused("spec", "stack: 8 != 9")
NO_KEY = ConfigError("a.secret is missing")


@pytest.fixture
def dialled(monkeypatch):
    """Probes whose sessions end as their name's entry in ``ends`` says; ``told`` notes what was done."""

    class Probe:
        def __init__(self, call, network, clock):
            self.call = call
            self.end = self.ends[call.identity]
            if isinstance(self.end, ConfigError):
                raise self.end
            self.told.append(f"dial {call.identity}")

        def wait(self):
            if self.end is not None:
                raise self.end

        def measure(self):
            self.told.append(f"measure {self.call.identity}")

        def close(self):
            self.told.append(f"close {self.call.identity}")

    monkeypatch.setattr(probe, "Probe", Probe)
    monkeypatch.setattr(link_doctor, "reach", lambda endpoint: Finding("network", GOOD, endpoint))
    return Probe


@pytest.mark.parametrize(
    ("ends", "verdicts", "measures"),
    [
        ({"a": IN, "b": IN}, {"a session": GOOD, "b session": GOOD}, "a"),
        ({"a": IN, "b": SILENT}, {"a session": GOOD, "b session": BAD}, "a"),
        ({"a": SILENT, "b": IN}, {"a session": BAD, "b session": GOOD}, "b"),
        ({"a": NO_KEY, "b": SPEC, "c": IN}, {"a session": BAD, "b session": BAD, "c session": GOOD}, "c"),
        ({"a": HELD, "b": HELD}, {"a session": WARN, "b session": WARN}, ""),
    ],
)
def test_every_role_is_let_in_or_not_by_its_own_key_and_one_measures(dialled, ends, verdicts, measures):
    dialled.ends, dialled.told = ends, []
    calls = [probe.Call("tcp://127.0.0.1:1", "actor", one, None, name=one) for one in ends]
    judged = lambda told: [Finding("bandwidth", GOOD, "")]  # noqa: E731
    found = list(link_doctor.examine(calls, NetworkConfig(), judged))
    measured = {f"{measures} bandwidth": GOOD} if measures else {}
    assert {one.what: one.verdict for one in found} == {"a network": GOOD, **verdicts, **measured}
    begun = [name for name in ends if not isinstance(ends[name], ConfigError)]
    middle = [f"measure {measures}"] if measures else []
    assert dialled.told == [f"dial {n}" for n in begun] + middle + [f"close {n}" for n in reversed(begun)]


def test_an_id_of_a_run_that_goes_on_is_no_fault(dialled):
    dialled.ends, dialled.told = {"a": HELD}, []
    *_, found = link_doctor.examine([probe.Call("tcp://h:1", "actor", "a", None)], NetworkConfig(), list)
    assert found.what == "session"
    assert found.seen == "a is in a run now: actor id 'a' is held by pid 7 on there"
    assert "before a start" in found.advice


def test_a_name_that_nobody_knows_is_not_told_as_a_buffer_that_is_not_there(monkeypatch):
    def connect_s(endpoint):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(probe, "connect_s", connect_s)
    found = link_doctor.reach("tcp://store.lab:1")
    assert (found.verdict, "the name is not known here" in found.seen, "buffer" in found.advice) == (BAD, True, False)


def test_an_address_of_another_machine_is_told_with_those_of_this_one(monkeypatch):
    monkeypatch.setattr(sockets, "own_addresses", lambda: ("192.0.2.9", "::1"))
    assert sockets.fix_of(errno.EADDRNOTAVAIL) == "this machine has no such address, but 192.0.2.9, ::1"
    assert "free the port" in sockets.fix_of(errno.EADDRINUSE)
