"""Two hosts on one machine: the network namespace of this process, and a robot's, with a cable between them that can be cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from campaign.process import ProcessFailed, Unable
from headrace.launch.children import thread_variables
from headrace.launch.leash import leash

INSIDE = "HEADRACE_TWO_HOSTS"
HERE, THERE, BITS = "10.77.0.1", "10.77.0.2", 30
OUR_END, ITS_END = "to-robot", "to-gpu"
TOOL_S = 10.0


def move_in() -> None:
    """Begin this script again in a network namespace of its own, which goes with its last process.

    Raises:
        Unable: not root, or no tools for it.
    """
    if INSIDE in os.environ:
        return
    missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        raise Unable(f"network namespaces need root and {', '.join(missing) or 'nothing else'}")
    environment = {**os.environ, **thread_variables(1), INSIDE: "1"}  # a robot's numpy would wait for its own threads
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], environment)


class TwoHosts:
    """The robot's namespace, held by a process that does nothing, and the cable.

    Attributes:
        on_robot: words that run a command line on the robot.
    """

    def __init__(self, holder: int) -> None:
        self.on_robot = ["nsenter", f"--net=/proc/{holder}/ns/net", "--"]
        _ip(f"link add {OUR_END} type veth peer name {ITS_END} netns {holder}")
        for words, ends in (((), (HERE, OUR_END)), (self.on_robot, (THERE, ITS_END))):
            _ip("link set lo up", words)
            _ip(f"addr add {ends[0]}/{BITS} dev {ends[1]}", words)
            _ip(f"link set {ends[1]} up", words)

    def cable(self, *, whole: bool) -> None:
        """Cut the cable, or mend it."""
        _ip(f"link set {OUR_END} {'up' if whole else 'down'}")

    def inside(self, *, whole: bool) -> None:
        """Cut what processes of this host say to each other, or mend it."""
        _ip(f"link set lo {'up' if whole else 'down'}")


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Make them, in the namespace of :func:`move_in`; both go when the block is left."""
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=leash()) as holder:
        try:
            _wait_apart(holder.pid)
            yield TwoHosts(holder.pid)
        finally:
            holder.kill()


def _wait_apart(pid: int) -> None:
    """Wait until a process has left our namespace."""
    own = os.stat("/proc/self/ns/net").st_ino
    for _ in range(1000):
        if os.stat(f"/proc/{pid}/ns/net").st_ino != own:
            return
        time.sleep(0.01)
    raise ProcessFailed("the robot's namespace was not made")


def _ip(words: str, before: list[str] | tuple[()] = ()) -> None:
    command = [*before, "ip", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    if done.returncode:
        raise ProcessFailed(f"{' '.join(command)}: {done.stderr.strip()}", done.returncode)
