"""What every role process does at its edges: stop on a signal, wait for its session with a visible reason."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from headrace.common.clock import Clock
from headrace.common.ending import A_SIGNAL
from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.link import Link
from headrace.common.wire.messages import Welcome

LOG = logging.getLogger(__name__)
LOOK_S = 0.5


def stop_on_signal() -> threading.Event:
    """An event that SIGTERM or SIGINT sets; a second SIGINT ends the process at once.

    The handlers stay to the end of the process: one that is just leaving must not be killed by a late SIGTERM. Only
    role processes call this, never a library client.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop


@contextlib.contextmanager
def mortal() -> Iterator[None]:
    """Within, SIGTERM and SIGINT end this process at once: it waits in a library that would let no handler run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_welcome(link: Link, stop: threading.Event, deadline_s: float, clock: Clock) -> Welcome | None:
    """Wait for a session, whose link tells the log what for; none when stopped meanwhile.

    Raises:
        DeadlineExceeded: naming what was waited for.
        SessionRefused: the buffer turned this process away.
    """
    end = clock.now() + deadline_s
    while not stop.is_set():
        try:
            return link.wait_welcome(LOOK_S)
        except DeadlineExceeded:
            link.check()
            if clock.now() > end:
                raise DeadlineExceeded(f"no session within {deadline_s:g} s: {link.session.why}") from None
    LOG.info("leaving: %s; there was no session: %s", A_SIGNAL, link.session.waiting)
    return None
