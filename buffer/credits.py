"""Credit: how many bytes each session may have under way, and who may send a message that is longer than that.

A client sends while less than its credit was not given back to it; bytes come back when they no longer wait here. A fragment
that waits for the rest of its message gives nothing back, so each session holds its credit at most, and a message that is
longer needs a turn. Turns are taken in the order in which the messages began, as many at once as fit together into one limit,
and always the first one. A turn ends when the pool has the message, or when its session ends. Heartbeats and the goodbye are
sent whatever the credit, so they are not counted.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.buffer.client import Client
from headrace.common.errors import WireError
from headrace.common.wire.answers import Out
from headrace.common.wire.codec import MAX_HEADER_BYTES, encode
from headrace.common.wire.messages import Goodbye, Message, Pulse
from headrace.common.wire.network import NetworkConfig


class Credits:
    """The credit of all sessions of one buffer.

    Args:
        network: ``credit_bytes`` of each session, and ``message_bytes`` of all messages together that have a turn.
    """

    def __init__(self, network: NetworkConfig) -> None:
        self._credit, self._limit = network.credit_bytes, network.message_bytes
        self._most = network.credit_bytes + network.fragment_bytes + MAX_HEADER_BYTES  # the last message may go beyond it
        self._turns: dict[bytes, int] = {}  # peer -> bytes of its message, in the order of beginning

    def check(self, client: Client, message: Message, nbytes: int) -> None:
        """Hold a message of ``nbytes``, which the client's ``taken`` counts already, against what it may send.

        Raises:
            WireError: ``credit``: its side sends no more than it was given back, and this is more.
        """
        if isinstance(message, (Pulse, Goodbye)):
            client.taken -= nbytes
        elif client.outstanding > self._most:
            raise WireError("credit", f"{client.outstanding} bytes were not given back, credit is {self._credit}")

    def give(self, client: Client, least: int | None = None) -> list[Out]:
        """Give back what no longer waits, when it is at least ``least`` bytes, or else an eighth of the credit."""
        received = client.credit(self._credit // 8 if least is None else least)
        return [] if received is None else [(client.session.peer, [encode(received)])]

    def begin(self, client: Client, size: int) -> None:
        """A message of ``size`` bytes begins, in parts; one before it that was not completed is given up."""
        if client.landing:
            return  # its own turn comes after that one's
        self.end(client)
        if self._credit < size <= self._limit:
            self._turns[client.session.peer] = size
            client.turn = client.session.peer in self._having()

    def complete(self, client: Client, size: int) -> None:
        """All parts of a message of ``size`` bytes are here."""
        client.landing = client.landing or size > self._credit

    def settle(self, clients: Collection[Client]) -> list[Out]:
        """End the turns of messages that wait no longer, and give credit to those whose turn it is now."""
        for client in clients:
            if client.landing and client.queued <= self._credit:
                client.landing = False
                self.begin(client, client.joiner.total)
        having = self._having()
        for client in clients:
            client.turn = client.session.peer in having
        return [out for client in clients if client.turn for out in self.give(client)]

    def end(self, client: Client) -> None:
        """The client needs its turn, or its place among those who wait, no longer."""
        self._turns.pop(client.session.peer, None)
        client.turn = False

    def _having(self) -> set[bytes]:
        """Whose turn it is."""
        out: set[bytes] = set()
        left = self._limit
        for peer, size in self._turns.items():
            if size > left:
                break  # nobody overtakes: a long message would wait for ever
            out.add(peer)
            left -= size
        return out

    def get_state(self) -> dict[str, int]:
        """Peers in hexadecimal digits, in order, with the size of their message."""
        return {peer.hex(): size for peer, size in self._turns.items()}

    def set_state(self, state: dict[str, int]) -> None:
        """Restore :meth:`get_state`."""
        self._turns = {bytes.fromhex(peer): size for peer, size in state.items()}

    def check_valid(self) -> tuple[bool, str]:
        """Whether every message that has a place needs it and can have it."""
        bad = [size for size in self._turns.values() if not self._credit < size <= self._limit]
        return not bad, f"messages of {bad} bytes with credit {self._credit} and limit {self._limit}" if bad else ""
