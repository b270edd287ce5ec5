"""A network of its own for a process: a namespace that one cable, which can be pulled, joins to this host."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType

from campaign.process import Unable

TOOL_S = 60.0  # on a host with much else to do; how long it took is part of the fault
_NUMBERS = itertools.count(1)


class Cable:
    """A pair of veth devices, of which one is in the namespace; as a context.

    Attributes:
        host: this host's address at the cable's end.
        words: a command line behind them runs in the namespace.
    """

    def __init__(self) -> None:
        number = next(_NUMBERS)
        net = f"10.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
        self.host, self._peer = f"{net}.{4 * number + 1}", f"{net}.{4 * number + 2}"
        self._space = f"headrace-{os.getpid()}-{number}"
        self._near, self._far = f"hr{os.getpid()}n{number}", f"hr{os.getpid()}f{number}"
        self.words = ("ip", "netns", "exec", self._space)

    def __enter__(self) -> Cable:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise Unable("network namespaces need root and iproute2")
        try:
            _run("ip", "netns", "add", self._space)
            _run("ip", "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self._space)
            _run("ip", "addr", "add", f"{self.host}/30", "dev", self._near)
            _run("ip", "link", "set", self._near, "up")
            _run(*self.words, "ip", "addr", "add", f"{self._peer}/30", "dev", self._far)
            for device in ("lo", self._far):
                _run(*self.words, "ip", "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            self._remove()
            raise Unable(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def pull(self) -> None:
        """Nothing passes from now on."""
        _run("ip", "link", "set", self._near, "down")

    def plug(self) -> None:
        """Everything passes again."""
        _run("ip", "link", "set", self._near, "up")

    def limit(self, bits_per_s: float) -> None:
        """What the process sends passes at this rate: a token bucket, as on a slow uplink."""
        words = ("tc", "qdisc", "replace", "dev", self._far, "root", "tbf")
        _run(*self.words, *words, "rate", f"{bits_per_s:.0f}bit", "burst", "32kb", "latency", "400ms")

    def _remove(self) -> None:
        for words in (("ip", "link", "del", self._near), ("ip", "netns", "del", self._space)):
            subprocess.run(words, capture_output=True, timeout=TOOL_S, check=False)


def _run(*words: str) -> Sequence[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_S, check=True)
    return done.stdout.splitlines()
