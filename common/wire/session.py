"""The client's side of a session, without sockets: who we are to the buffer, and since when we have not heard from it.

state     event                                next      also
SEEKING   tick, hello not answered for a while SEEKING   hello again
SEEKING   hello found no connection            SEEKING   hello again at once, until there is one
SEEKING   Welcome                              LIVE      ``welcome`` is set, byte credit starts afresh
SEEKING   Refused, retry_s > 0                 SEEKING   hello again after retry_s; held too long -> ENDED
SEEKING   no session for connect_s             ENDED     DeadlineExceeded
LIVE      any message, or bytes of one         LIVE      the lease is renewed
any       silence for lease_s                  SEEKING   the connection is made anew
LIVE      Refused, retry_s > 0                 SEEKING   (the buffer was restarted)
any       Refused, retry_s = 0                 ENDED     SessionRefused
"""

from __future__ import annotations

import enum
from dataclasses import replace

from headrace.common.errors import DeadlineExceeded, HeadraceError, SessionRefused
from headrace.common.wire.messages import Hello, Message, Received, Refused, Welcome
from headrace.common.wire.network import NetworkConfig

HELLO_AGAIN_S = 1.0
CONNECTING_S = 0.02


class Phase(enum.Enum):
    """Where a client session stands."""

    SEEKING = "seeking"
    LIVE = "live"
    ENDED = "ended"


class ClientSession:
    """Hello, lease and byte credit of one client process towards one buffer."""

    def __init__(self, hello: Hello, network: NetworkConfig, endpoint: str, now: float) -> None:
        self.hello = hello
        self.phase = Phase.SEEKING
        self.waiting = f"waiting for an answer from {endpoint}"
        self.advice = ""  # what to look at while nothing is heard
        self.welcome: Welcome | None = None
        self.failure: HeadraceError | None = None
        self.reconnect = False
        self._network = network
        self._endpoint = endpoint
        self._since = now
        self._heard = self._dialled = now
        self._answered = False  # since we seek
        self._hello_at = now
        self._held_since: float | None = None
        self._sent = 0
        self._received = 0

    def tick(self, now: float) -> Hello | None:
        """Move time on; a hello to send, or none. Sets ``reconnect`` when the connection should be made anew."""
        if self.overdue(now):
            self._seek(now, f"{self._endpoint} has been silent for {self._network.lease_s:g} s")
        if self.phase is Phase.SEEKING and now - max(self._heard, self._dialled) > self._network.lease_s:
            self._dialled, self.reconnect = now, True
        if self.phase is not Phase.SEEKING:
            return None
        if now - self._since > self._network.connect_s:
            self._end(DeadlineExceeded(f"no session within {self._network.connect_s:g} s: {self.why}"))
            return None
        if now < self._hello_at:
            return None
        self._hello_at = now + HELLO_AGAIN_S
        return self.hello

    def overdue(self, now: float) -> bool:
        """Whether the buffer has a session with us and its lease has run out."""
        return self.phase is Phase.LIVE and now - self._heard > self._network.lease_s

    def arriving(self, at: float) -> None:
        """Bytes of a message that is not complete yet came last at this time."""
        self._heard = max(self._heard, at)

    def unsent(self, now: float) -> None:
        """The hello met no connection: it is for the next tick at which there may be one."""
        self._hello_at = now + CONNECTING_S

    @property
    def heard_at(self) -> float:
        """When the last message came, or bytes of one; before that, when the session was made."""
        return self._heard

    @property
    def why(self) -> str:
        """Why there is no session, with what to look at where nobody answers."""
        silent = self.advice and not self._answered and self.phase is Phase.SEEKING
        return f"{self.waiting}; {self.advice}" if silent else self.waiting

    @property
    def held(self) -> bool:
        """Whether another process has our id, as was said last."""
        return self._held_since is not None

    def hello_in(self, now: float) -> float:
        """Seconds until the next hello, while there is no session."""
        return max(0.0, self._hello_at - now)

    def receive(self, message: Message, now: float) -> bool:
        """Take a message of the buffer; true when it is for the role to handle (Welcome included)."""
        self._heard = now
        self._answered = True
        if isinstance(message, Refused):
            self._refused(message, now)
            return False
        if self.phase is Phase.SEEKING:
            if not isinstance(message, Welcome):
                return False  # left over from the session before
            self.phase, self.welcome, self.waiting = Phase.LIVE, message, ""
            self.hello = replace(self.hello, pool=message.pool)
            self._held_since = None
            self._sent = self._received = 0
            return True
        if self.phase is Phase.ENDED or isinstance(message, Welcome):
            return False
        if isinstance(message, Received):
            self._received = max(self._received, min(message.bytes, self._sent))
            return False
        return True

    def room(self) -> int:
        """Bytes that may be sent now."""
        if self.phase is not Phase.LIVE or self.welcome is None:
            return 0
        credit = min(self.welcome.credit_bytes, self._network.credit_bytes)  # whatever a buffer grants
        return max(0, credit - (self._sent - self._received))

    def sent(self, size: int) -> None:
        """Account for bytes that were handed to the socket."""
        self._sent += size

    def _refused(self, message: Refused, now: float) -> None:
        if message.retry_s <= 0:
            self._end(SessionRefused(message.reason, message.detail))
            return
        if self.phase is Phase.LIVE:
            self._seek(now, message.detail)
            self._hello_at = now
            return
        self.waiting = message.detail
        self._hello_at = now + message.retry_s
        if message.reason != "held":
            return
        self._held_since = now if self._held_since is None else self._held_since
        if now - self._held_since > 2 * self._network.lease_s:
            self._end(SessionRefused("held", message.detail))

    def _seek(self, now: float, why: str) -> None:
        self.phase, self.waiting, self._answered = Phase.SEEKING, why, False
        self._since = self._hello_at = now

    def _end(self, failure: HeadraceError) -> None:
        self.phase, self.failure, self.waiting = Phase.ENDED, failure, str(failure)
