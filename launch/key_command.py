"""``headrace keys``: make, list and revoke the keys by which processes prove to a buffer who they are."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

NEW_ABOUT = """Make a key for each NAME, of an actor or an evaluator its id: the public half, which the buffer reads, and
NAME.secret, which belongs to its process alone; a process on another host needs that one file. The first key of a
directory brings the buffer's own. A further key for a name is valid beside those before it, until these are revoked."""
ROLES = ("actor", "evaluator", "policy-server", "learner", "shard", "operator", "buffer")


def add_keys(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command; ``add`` declares one of ``commands``, as :mod:`headrace.launch.cli` does."""
    keys = add(commands, "keys", _list, "Make, list and revoke the keys of actors, learners and operators.")
    actions = keys.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=type(keys), help="what to do")
    place: dict[str, Any] = {"type": Path, "metavar": "DIR", "help": "directory of keys, as network.keys names it (path)"}
    names: dict[str, Any] = {"nargs": "+", "metavar": "NAME", "help": "whose key (text)"}
    new = add(actions, "new", _new, NEW_ABOUT)
    new.add_argument("directory", **place)
    new.add_argument("names", **names)
    new.add_argument("--role", choices=ROLES, default="actor", help="what the keys are for")
    show = add(actions, "list", _list, "Show the keys that a buffer with this directory knows.")
    show.add_argument("directory", **place)
    show.add_argument("--json", action="store_true", help="print one JSON object a key")
    revoke = add(actions, "revoke", _revoke, "Make keys invalid; a running buffer ends their sessions within a second.")
    revoke.add_argument("directory", **place)
    revoke.add_argument("names", **names)
    revoke.add_argument("--old", action="store_true", help="all keys of the name but the newest, to end its replacement")


def _new(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.common.wire.key_files import KeyFiles

    for name in args.names:
        print(KeyFiles(args.directory).new(name, args.role))
    return 0


def _list(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.common.wire.key_files import KeyFiles

    keys, problems = KeyFiles(args.directory).public()
    if args.json:
        for file, key in keys.items():
            print(json.dumps({"file": file, **asdict(key)}))
    else:
        rows = [
            ("name", "role", "made", "public half", "file"),
            *((k.name, k.role, k.made, k.public, f) for f, k in keys.items()),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def _revoke(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.common.wire.key_files import KeyFiles

    for name in args.names:
        for path in KeyFiles(args.directory).revoke(name, old=args.old):
            print(f"revoked {path.name}")
    return 0
