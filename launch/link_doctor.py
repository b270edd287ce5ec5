"""What a link to a buffer is good for: reachable, let in by its key, which versions, how far and wide, and the clocks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator

import headrace
from headrace.common.clock import MonotonicClock
from headrace.common.errors import HeadraceError, SessionRefused
from headrace.common.wire.network import NetworkConfig, split_endpoint
from headrace.launch import probe
from headrace.launch.finding import BAD, GOOD, WARN, Finding

SLOW_TRIP_S, CLOCK_S = 0.1, 1.0


def examine(call: probe.Call, network: NetworkConfig, judge: Callable[[probe.Told], Iterable[Finding]]) -> Iterator[Finding]:
    """Dial, be let in, measure and leave; ``judge`` says what the figures mean."""
    parts = split_endpoint(call.endpoint)
    if parts.scheme == "tcp" and parts.port == 0:
        yield Finding("buffer", WARN, f"{call.endpoint} is no place to dial", "say where: --connect tcp://HOST:PORT")
        return
    if parts.scheme == "tcp":
        reached = reach(call.endpoint)
        yield reached
        if reached.verdict == BAD:
            return
    try:
        told = probe.probe(call, network, MonotonicClock())
    except SessionRefused as error:
        yield Finding("session", BAD, str(error), "what is said after the colon has to change on one of the two sides")
        return
    except HeadraceError as error:
        yield Finding("session", BAD, str(error))
        return
    whole = "" if call.spec is None else ", and its spec is the run's"
    yield Finding("session", GOOD, f"{call.identity} is let in{whole}")
    yield from judge(told)


def reach(endpoint: str) -> Finding:
    """Whether somebody listens there."""
    try:
        took = probe.connect_s(endpoint)
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
