"""``headrace doctor``: its command line; what it looks at is in :mod:`headrace.launch.doctor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.launch.exits import USAGE

ABOUT = "Check this machine and, with a config, whether its run fits here; with a topology, the links of this host."


def add_doctor(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command; ``add`` declares one of ``commands``, as :mod:`headrace.launch.cli` does."""
    doctor = add(commands, "doctor", _run, ABOUT, keys=True)
    doctor.add_argument(
        "config", nargs="?", type=Path, metavar="CONFIG|CLUSTER", help="YAML file of a run, or of a topology (path)"
    )
    doctor.add_argument("--robot", action="store_true", help="on a robot's computer: its link, disk, cameras, people's device")
    doctor.add_argument(
        "--connect",
        metavar="ENDPOINT",
        help="with --robot: where the buffer listens, tcp://HOST:PORT; default: as the config says",
    )
    doctor.add_argument("--id", default="arm-0", help="with --robot: the actor's id, whose key is used (text)")
    doctor.add_argument("--host", default="", help="with a topology: this host's name there (text); default: by its address")
    doctor.add_argument(
        "--listen",
        type=float,
        default=0.0,
        metavar="S",
        help="with a topology: how long stand-ins wait for the doctors of other hosts (float, s)",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON list")


def _run(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.cluster.checkup import Visit
    from headrace.launch.doctor import Place, doctor

    if args.robot and args.config is None:
        print("headrace: error: doctor --robot needs CONFIG, the file that the robot's actor is started with", file=sys.stderr)
        return USAGE
    robot = Place(args.connect or "", args.id) if args.robot else None
    return doctor(args.config, overrides, robot, Visit(args.host, args.listen), as_json=args.json)
