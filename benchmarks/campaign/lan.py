"""Hosts on one machine: network namespaces with own addresses on a bridge, which can be rebooted, cut off and slowed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType

from campaign.spaces import Space, tool
from headrace.launch.leash import leash

NET, BITS, DESK = "10.78.0", 24, 1  # the desk is where this script looks on from
BRIDGE, DEVICE, HOLE = "lan", "eth0", "hole"
FIRST = 11
DROPPED = {  # what of what comes in is dropped
    "everything": "match u32 0 0",
    "calls": "match ip protocol 6 0xff match u8 0x02 0x12 at 33",  # TCP's SYN without ACK, behind a header of 20 bytes
}


class Host:
    """One host, which is on.

    Args:
        name: of the host.
        number: among all.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address = name, f"{NET}.{FIRST + number}"
        self._mac, self._port = f"02:00:00:00:00:{FIRST + number:02x}", f"port-{number}"
        self._space = self._boot()

    @property
    def words(self) -> Sequence[str]:
        """A command line behind them runs on it."""
        return self._space.words

    def crash(self) -> frozenset[int]:
        """All of its processes end at once, and what it knew of connections is gone, as when the power fails.

        Returns:
            Their pids.
        """
        tool(f"ip link del {self._port}")  # first, since the kernel would still take leave of everybody
        return self._space.kill()

    def boot(self) -> None:
        """It is on again, with the same address, and nothing runs on it."""
        self._space = self._boot()

    def cable(self, *, whole: bool) -> None:
        """Cut its cable, or mend it."""
        tool(f"ip link set {self._port} {'up' if whole else 'down'}")

    @contextlib.contextmanager
    def slow(self, bits_per_s: float) -> Iterator[None]:
        """What it sends and what it gets passes at this rate, each: token buckets, as on a slow link."""
        ends = ((DEVICE, self.words), (self._port, ()))
        for device, words in ends:
            tool(f"tc qdisc replace dev {device} root tbf rate {bits_per_s:.0f}bit burst 32kb latency 400ms", words)
        yield
        for device, words in ends:
            tool(f"tc qdisc del dev {device} root", words)

    @contextlib.contextmanager
    def drops(self, what: str) -> Iterator[None]:
        """Something of what comes in does not arrive, see :data:`DROPPED`; what it sends does.

        ``everything`` leaves connections half open; without ``calls`` it can dial, and nobody can dial it.
        """
        words = self.words
        tool(f"ip link add {HOLE} type veth peer name {HOLE}-end", words)
        tool(f"ip link set {HOLE} up", words)
        tool(f"tc qdisc add dev {DEVICE} ingress", words)
        match = f"u32 {DROPPED[what]} action mirred egress redirect dev {HOLE}"  # not every kernel has an action to drop
        tool(f"tc filter add dev {DEVICE} ingress protocol ip {match}", words)
        yield
        tool(f"tc qdisc del dev {DEVICE} ingress", words)
        tool(f"ip link del {HOLE}", words)

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """Somebody listens on a port of it, who says nothing."""
        script = "import socket, time; s = socket.create_server(('', 7000)); print(flush=True); time.sleep(60)"
        words = [*self.words, sys.executable, "-c", script]
        with subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=leash()) as process:
            if process.stdout is not None:
                process.stdout.readline()
            yield 7000
            process.kill()

    def close(self) -> None:
        """It is off for good."""
        self._space.kill()

    def _boot(self) -> Space:
        space = Space()
        tool(f"ip link add {self._port} type veth peer name {DEVICE} netns {space.holder}")
        tool(f"ip link set {DEVICE} address {self._mac}", space.words)  # as others remember it
        tool(f"ip addr add {self.address}/{BITS} dev {DEVICE}", space.words)
        tool(f"ip link set {DEVICE} up", space.words)
        tool(f"ip link set {self._port} master {BRIDGE} up")
        return space


class Lan:
    """All hosts by name, as a context; in the namespace of :func:`campaign.spaces.move_in`, whose address is the desk's."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Lan:
        tool("ip link set lo up")
        tool(f"ip link add {BRIDGE} type bridge forward_delay 0")
        tool(f"ip addr add {NET}.{DESK}/{BITS} dev {BRIDGE}")
        tool(f"ip link set {BRIDGE} up")
        for number, name in enumerate(self._names):
            self.hosts[name] = Host(name, number)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for host in self.hosts.values():
            host.close()
        tool(f"ip link del {BRIDGE}")
