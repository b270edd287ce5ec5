"""The probe: what a host and a buffer are to each other; by a role's own key, in a session of its own id."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.common.clock import Clock
from headrace.common.errors import DeadlineExceeded, SessionRefused, WireError
from headrace.common.specs import TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, encode, take_object
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.network import NetworkConfig, split_endpoint

ROUND_TRIPS, FILLERS_S, WAIT_S, LOOK_S = 9, 2.0, 10.0, 0.05


@dataclass(frozen=True)
class Call:
    """Who dials whom.

    Attributes:
        endpoint: of the buffer.
        role: of the session.
        identity: its id.
        spec: of the rows that it would send; none for who sends none.
        robot: whether it is one.
        name: of the process that it stands for, where there are several; empty: there is one.
    """

    endpoint: str
    role: str
    identity: str
    spec: TransitionSpec | None
    robot: bool = False
    name: str = ""


@dataclass(frozen=True)
class Told:
    """What a probe has found.

    Attributes:
        about: what the buffer says of itself.
        round_trips_s: of a question and its answer, while nothing else is under way.
        offset_s: how far the buffer's wall clock is ahead of ours, within half of the shortest round trip.
        bytes_s: bytes that went there in a second, each answered for.
    """

    about: Mapping[str, Any]
    round_trips_s: tuple[float, ...]
    offset_s: float
    bytes_s: float


class _Asker:
    """The role of a link that only asks ``about``, some of it with a filler."""

    def __init__(self) -> None:
        self._asked: list[Parts] = []
        self.answers: list[tuple[float, dict[str, Any]]] = []
        self.declined = ""

    def ask(self, filler: bytes = b"") -> None:
        """Ask once more; to be followed by a wake."""
        self._asked.append([encode(m.Query("about")), *([filler] if filler else [])])

    def welcomed(self, welcome: m.Welcome) -> None:
        """Nothing is to do."""

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """An answer, or that the buffer gives none."""
        if isinstance(message, m.Answer) and message.what == "about":
            self.answers.append((time.time(), take_object(frames[0], message.what)))
        elif isinstance(message, m.Declined):
            self.declined = message.detail or message.reason

    def outgoing(self, room: int) -> Iterable[Parts]:
        """What was asked and has not left."""
        while self._asked and room > 0:
            parts = self._asked.pop(0)
            room -= sum(len(part) for part in parts)
            yield parts

    def pulse(self) -> m.Pulse:
        """A heartbeat of somebody who has executed nothing."""
        return m.Pulse(0, 0, 0, 0)

    def position(self) -> tuple[int, int]:
        """No step."""
        return 0, 0


class Probe:
    """The session of one call, from its making to :meth:`close`; several may be under way at the same time.

    Attributes:
        call: who dials whom.

    Raises:
        ConfigError: the endpoint is none, or needs a key that is not here.
    """

    def __init__(self, call: Call, network: NetworkConfig, clock: Clock) -> None:
        self.call, self._network, self._clock = call, network, clock
        self._asker = _Asker()
        spec = None if call.spec is None else call.spec.to_dict()
        hello = new_hello(call.role, call.identity, spec=spec, robot=call.robot)
        self._link = Link(hello, self._asker, call.endpoint, network, clock)
        self._end = clock.now() + WAIT_S
        self._link.start()

    def wait(self) -> None:
        """Wait to be let in, until 10 s after the making.

        Raises:
            SessionRefused: the buffer does not let this role in: its spec, its id, its key. ``held``: the id is in use.
            DeadlineExceeded: it gave no session in that time.
        """
        try:
            self._link.wait_welcome(max(0.0, self._end - self._clock.now()))
        except DeadlineExceeded:
            session = self._link.session
            if session.held:
                raise SessionRefused("held", session.waiting) from None
            raise DeadlineExceeded(f"no session within {WAIT_S:g} s: {session.waiting}") from None

    def measure(self) -> Told:
        """Ask, and find out what the link is good for.

        Raises:
            SessionRefused: the session was ended.
            DeadlineExceeded: no answer within 10 s.
        """
        role, link = self._asker, self._link
        trips: list[float] = []
        offsets: list[float] = []
        for _ in range(ROUND_TRIPS):
            begun = time.time()
            role.ask()
            link.wake()
            _wait(link, role, len(trips) + 1, self._clock)
            heard, about = role.answers[-1]
            trips.append(heard - begun)
            offsets.append(float(about.get("at_s", heard)) - (begun + heard) / 2)
        rate = _fill(link, role, self._network, self._clock)
        return Told(role.answers[-1][1], tuple(trips), offsets[int(np.argmin(trips))], rate)

    def close(self) -> None:
        """Leave."""
        self._link.close(m.Goodbye(False))


def _fill(link: Link, role: _Asker, network: NetworkConfig, clock: Clock) -> float:
    """Send for two seconds what cannot be compressed, a few messages ahead of their answers."""
    filler = np.random.default_rng(0).bytes(network.fragment_bytes // 2)
    begun, before, sent = clock.now(), len(role.answers), 0
    while clock.now() < begun + FILLERS_S:
        done = len(role.answers) - before
        if sent - done < max(2, network.credit_bytes // (4 * len(filler))):
            role.ask(filler)
            link.wake()
            sent += 1
        else:
            _wait(link, role, before + done + 1, clock)
    _wait(link, role, before + sent, clock)
    return sent * len(filler) / (clock.now() - begun)


def _wait(link: Link, role: _Asker, count: int, clock: Clock) -> None:
    end = clock.now() + WAIT_S
    while len(role.answers) < count:
        link.check()
        if role.declined:
            raise WireError("query", f"the buffer declines: {role.declined}")
        if clock.now() >= end:
            raise DeadlineExceeded(f"no answer within {WAIT_S:g} s: {link.session.waiting or 'the link is cut'}")
        clock.sleep(0.0002)


def connect_s(endpoint: str, deadline_s: float = 3.0) -> float:
    """How long a TCP connection to ``endpoint`` takes, which is a round trip of the network alone (s).

    Raises:
        OSError: nobody listens, the name is unknown, or something between drops what is sent.
    """
    parts = split_endpoint(endpoint)
    begun = time.monotonic()
    with socket.create_connection((parts.hostname or "", parts.port or 0), deadline_s):
        return time.monotonic() - begun
