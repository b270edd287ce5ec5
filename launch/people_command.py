"""``headrace pause | resume | label | set``: what people change of a run while it goes on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

DEADLINE_S = 10.0
ABOUT_SET = "Change an option of a running run; it holds until the config says something else."
ABOUT_LABEL = "Say how the running episode of an actor goes, or the one that ended last if no step followed."
ABOUT_PAUSE = "Pause a run: no update is granted, simulators wait, and robots hold with their episode broken off."


def add_people(commands: Any, add: Any) -> None:
    """Add the four commands; ``add`` is the command line's own."""
    _add_target(add(commands, "pause", _change, ABOUT_PAUSE))
    resume = add(
        commands, "resume", _change, "Have a run go on that was paused from here; people at a robot end their own pause."
    )
    _add_target(resume)
    resume.add_argument("--everybody", action="store_true", help="end the pauses of people at robots too; look at them first")
    label = add(commands, "label", _change, ABOUT_LABEL)
    label.add_argument("actor", metavar="ACTOR", help="id of the actor (text); headrace status lists them")
    label.add_argument("word", metavar="WORD", help="success, failure or discard (text); a robot's running episode ends there")
    _add_target(label)
    change = add(commands, "set", _change, ABOUT_SET)
    change.add_argument("key", metavar="KEY", help="one of those that can be changed (text); any other word lists them")
    change.add_argument("value", metavar="VALUE", help="as in a config (text)")
    _add_target(change)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", metavar="RUN|ENDPOINT", help="run directory or tcp://HOST:PORT; default: newest in runs/"
    )
    parser.set_defaults(takes_overrides=True)
    parser.epilog = "Beyond this host say --network.keys DIR, where operator.secret lies, or --network.insecure true."


def _change(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.buffer.query import Observer
    from headrace.launch.config import parse_value
    from headrace.launch.credentials import network_of
    from headrace.launch.watch import endpoint_of, newest_run

    said: tuple[Any, ...] = ()
    if args.command == "label":
        said = args.actor, args.word
    elif args.command == "set":
        said = args.key, parse_value(args.value)
    elif args.command == "resume" and args.everybody:
        said = ("*",)
    target = args.target or newest_run(Path("runs"))
    observer = Observer(endpoint_of(target), network_of(target, overrides))
    try:
        warning = observer.change(args.command, DEADLINE_S, *said)
    finally:
        observer.close()
    print(warning or "done")
    return 0
