"""``headrace policy-server``: decide for actors that have no policy of their own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

ABOUT = "Run a policy server of a run: it decides for actors that have no policy of their own (actor.policy server)."


def add_policy_server(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command; ``add`` declares one of ``commands``, as :mod:`headrace.launch.cli` does."""
    server = add(commands, "policy-server", _run, ABOUT, keys=True)
    server.add_argument("target", type=Path, metavar="CONFIG|RUN", help="YAML file or run directory (path)")
    server.add_argument(
        "--connect", metavar="ENDPOINT", help="where the buffer listens, tcp://HOST:PORT; default: as the run or config says"
    )
    server.add_argument(
        "--bind", metavar="ENDPOINT", help="where to listen, tcp://HOST:PORT; without it policy_server.endpoint"
    )
    server.add_argument("--id", help="name of this policy server, unique in the run (text); default: host and process id")


def _run(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch import roles
    from headrace.launch.targets import load_target

    name = args.id or roles.own_id("policy-server")

    def body() -> int:
        config, run = load_target(args.target, overrides)
        return roles.run_policy_server(config, run, args.connect, args.bind, name)

    return roles.guarded(name, body)
