"""What a link to a buffer is good for: reachable, let in by its key, which versions, how far and wide, and the clocks."""

from __future__ import annotations

import contextlib
import socket
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import headrace
from headrace.common.clock import MonotonicClock
from headrace.common.errors import DeadlineExceeded, HeadraceError, SessionRefused
from headrace.common.wire.network import NetworkConfig, split_endpoint
from headrace.launch import probe
from headrace.launch.finding import BAD, GOOD, WARN, Finding

SLOW_TRIP_S, CLOCK_S = 0.1, 1.0
NEW_KEY = "where the key is revoked or of another directory, bring the secret of this run (docs/security.md)"


def examine(
    calls: Sequence[probe.Call], network: NetworkConfig, judge: Callable[[probe.Told], Iterable[Finding]]
) -> Iterator[Finding]:
    """Dial the one endpoint of ``calls``, all of them be let in, measure by the first one that is, and leave.

    All are there at the same time: whoever notes who has come misses none, and those who get no answer wait together.
    ``judge`` says what the figures mean.
    """
    parts = split_endpoint(calls[0].endpoint)
    if parts.scheme == "tcp" and parts.port == 0:
        yield Finding("buffer", WARN, f"{calls[0].endpoint} is no place to dial", "say where: --connect tcp://HOST:PORT")
        return
    if parts.scheme == "tcp":
        reached = reach(calls[0].endpoint)
        yield _named(reached, calls[0])
        if reached.verdict == BAD:
            return
    with contextlib.ExitStack() as stack:
        dialled = [_dial(call, network, stack) for call in calls]
        admitted = []
        for call, one in zip(calls, dialled, strict=True):
            found = one if isinstance(one, Finding) else _session(one, network)
            yield _named(found, call)
            if found.verdict == GOOD and isinstance(one, probe.Probe):
                admitted.append(one)
        for one in admitted[:1]:
            try:
                told = one.measure()
            except HeadraceError as error:
                yield _named(Finding("session", BAD, str(error)), one.call)
            else:
                yield from (_named(found, one.call) for found in judge(told))


def _named(found: Finding, call: probe.Call) -> Finding:
    return replace(found, what=f"{call.name} {found.what}".lstrip())


def _dial(call: probe.Call, network: NetworkConfig, stack: contextlib.ExitStack) -> probe.Probe | Finding:
    """Begin a session that ``stack`` ends; or what keeps it from being begun."""
    try:
        return stack.enter_context(contextlib.closing(probe.Probe(call, network, MonotonicClock())))
    except HeadraceError as error:
        return Finding("session", BAD, str(error))


def _session(dialled: probe.Probe, network: NetworkConfig) -> Finding:
    """Whether the role is let in by its own key."""
    call = dialled.call
    try:
        dialled.wait()
    except SessionRefused as error:
        if error.reason == "held":
            advice = f"the doctor is for before a start: stop {call.identity} to have its link measured"
            return Finding("session", WARN, f"{call.identity} is in a run now: {error}", advice)
        return Finding("session", BAD, str(error), "what is said after the colon has to change on one of the two sides")
    except DeadlineExceeded as error:
        key = f": compare with `headrace keys list` there; {NEW_KEY}" if network.keys else ""
        return Finding("session", BAD, str(error), f"somebody listens there, who does not answer to {call.identity}{key}")
    except HeadraceError as error:
        return Finding("session", BAD, str(error))
    whole = "" if call.spec is None else ", and its spec is the run's"
    return Finding("session", GOOD, f"{call.identity} is let in{whole}")


def reach(endpoint: str) -> Finding:
    """Whether somebody listens there."""
    try:
        took = probe.connect_s(endpoint)
    except socket.gaierror as error:
        advice = "mend the name or this machine's resolver, or give an address in its place"
        return Finding("network", BAD, f"{endpoint}: the name is not known here: {error.strerror or error}", advice)
    except OSError as error:
        advice = "is the buffer running, listening beyond its own host, and is that one port open to this one? docs/networks.md"
        return Finding("network", BAD, f"{endpoint}: {error.strerror or error}", advice)
    return Finding("network", GOOD, f"{endpoint} answers after {1e3 * took:.1f} ms")


def judge_link(told: probe.Told, bandwidth: Finding, network: NetworkConfig) -> Iterator[Finding]:
    """What a probe's figures mean for anybody; what its ``bandwidth`` is enough for only the role knows."""
    theirs = str(told.about.get("headrace", "unknown"))
    same = theirs == headrace.__version__
    advice = "" if same else "both speak this wire; bring both to one version when it suits, the buffer first"
    yield Finding("versions", GOOD if same else WARN, f"here {headrace.__version__}, buffer {theirs}", advice)

    middle, worst = statistics.median(told.round_trips_s), max(told.round_trips_s)
    late = worst > network.heartbeat_s or middle > SLOW_TRIP_S
    advice = "weights and labels come later, periods do not; Wi-Fi: switch power saving off (docs/networks.md)" if late else ""
    yield Finding("round trip", WARN if late else GOOD, f"{1e3 * middle:.1f} ms, at most {1e3 * worst:.1f}", advice)

    yield bandwidth

    far = abs(told.offset_s) > CLOCK_S
    seen = f"the buffer's is {1e3 * told.offset_s:+.0f} ms ahead, within {1e3 * min(told.round_trips_s) / 2:.1f}"
    advice = "nothing in a run compares them, but logs of both hosts will not line up: run chrony or systemd-timesyncd"
    yield Finding("clocks", WARN if far else GOOD, seen, advice if far else "")
