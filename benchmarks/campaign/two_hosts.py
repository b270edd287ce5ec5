"""Two hosts on one machine: the network namespace of this process, and a robot's, with a cable between them that can be cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from campaign.spaces import Space, tool

HERE, THERE, BITS = "10.77.0.1", "10.77.0.2", 30
OUR_END, ITS_END = "to-robot", "to-gpu"


class TwoHosts:
    """The robot's namespace and the cable.

    Attributes:
        on_robot: words that run a command line on the robot.
    """

    def __init__(self, robot: Space) -> None:
        self.on_robot = list(robot.words)
        tool(f"ip link add {OUR_END} type veth peer name {ITS_END} netns {robot.holder}")
        tool("ip link set lo up")
        for words, ends in (((), (HERE, OUR_END)), (robot.words, (THERE, ITS_END))):
            tool(f"ip addr add {ends[0]}/{BITS} dev {ends[1]}", words)
            tool(f"ip link set {ends[1]} up", words)

    def cable(self, *, whole: bool) -> None:
        """Cut the cable, or mend it."""
        tool(f"ip link set {OUR_END} {'up' if whole else 'down'}")

    def inside(self, *, whole: bool) -> None:
        """Cut what processes of this host say to each other, or mend it."""
        tool(f"ip link set lo {'up' if whole else 'down'}")


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Make them, in the namespace of :func:`campaign.spaces.move_in`; both go when the block is left."""
    with contextlib.closing(Space()) as robot:
        yield TwoHosts(robot)
