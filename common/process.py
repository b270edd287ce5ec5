"""What every role process does at its edges: stop on a signal, wait for its session with a visible reason."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator

from headrace.common.clock import Clock
from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.link import Link
from headrace.common.wire.messages import Welcome

LOG = logging.getLogger(__name__)
LOOK_S = 0.5


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM or SIGINT sets; only role processes use it, never a library client."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {n: signal.signal(n, lambda *_: stop.set()) for n in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_welcome(link: Link, stop: threading.Event, deadline_s: float, clock: Clock) -> Welcome | None:
    """Wait for a session, logging each new reason for waiting; none when stopped meanwhile.

    Raises:
        DeadlineExceeded: naming what was waited for.
        SessionRefused: the buffer turned this process away.
    """
    end, said = clock.now() + deadline_s, ""
    while not stop.is_set():
        try:
            return link.wait_welcome(LOOK_S)
        except DeadlineExceeded:
            link.check()
            if clock.now() > end:
                raise DeadlineExceeded(f"no session within {deadline_s:g} s: {link.session.waiting}") from None
        if link.session.waiting != said:
            said = link.session.waiting
            LOG.info("waiting: %s", said)
    return None
