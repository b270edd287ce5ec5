"""``headrace pool``: look into a pool, and bring rows out of it and into it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.launch.lerobot_options import LAYOUTS

IMPORT_ABOUT = """Append rows to a pool, or make a new one of them: from an export, robomimic's or D4RL's HDF5, a Minari data
set, or a LeRobotDataset, which is seen from what SRC holds. SRC is read through first: of one that is refused nothing enters,
and a new pool appears when it is whole. What a kill cuts while rows are appended is finished by the same import once more."""


def add_pool(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command; ``add`` declares one of ``commands``, as :mod:`headrace.launch.cli` does."""
    pool = add(commands, "pool", _look, "Look into a pool, and bring rows out of it and into it.")
    actions = pool.add_subparsers(
        dest="what", required=True, metavar="WHAT", parser_class=type(pool), help="what to do with it"
    )
    source: dict[str, Any] = {"type": Path, "metavar": "DIR|RUN", "help": "pool directory or run directory (path)"}
    for name, about, json_help in (
        ("info", "Show sizes and counters.", "print one JSON object"),
        (
            "dump",
            "Print every live row, also discarded ones, oldest first, one a line.",
            "print one JSON object a row",
        ),
        (
            "snapshot",
            "Write a snapshot of a run's pool into the run directory; its buffer does it while it runs.",
            "print one JSON object",
        ),
    ):
        look = add(actions, name, _look, about)
        look.add_argument("target", **source)
        look.add_argument("--json", action="store_true", help=json_help)
    out = add(
        actions, "export", _export, "Write the live rows as plain .npz files with a manifest, which numpy alone can open."
    )
    out.add_argument("target", **source)
    out.add_argument("out", type=Path, metavar="OUT", help="directory to make; it appears when everything is written (path)")
    out.add_argument("--flat", action="store_true", help="store obs and next_obs of each row instead of each frame once")
    out.add_argument(
        "--format", choices=("npz", "lerobot"), default="npz", help="what to write: an export, or a LeRobotDataset"
    )
    given = out.add_argument_group("LeRobotDataset", "with --format lerobot, also of an export")
    given.add_argument("--cameras", choices=("video", "image"), help="image: as PNG, bit for bit; default: video")
    given.add_argument("--fps", type=float, metavar="HZ", help="steps a second, where the pool does not say it (float, 1/s)")
    given.add_argument("--tasks", nargs="+", metavar="TEXT", help="tasks 0, 1, ... in words, where the pool does not say them")
    given.add_argument("--robot-type", metavar="NAME", help="what the data set says of the robot (text); default: unknown")
    given.add_argument("--layout", choices=LAYOUTS, help="of the data set; lerobot before 0.4 reads 2.1; default: 3.0")
    into = add(actions, "import", _import, IMPORT_ABOUT)
    into.add_argument("source", type=Path, metavar="SRC", help="what to read (path)")
    into.add_argument(
        "target", type=Path, metavar="POOL", help="pool of no run to append to, or directory of a new pool (path)"
    )
    into.add_argument("--capacity", type=int, metavar="ROWS", help="of a new pool (count); default: the rows that SRC makes")
    into.add_argument(
        "--evict", action="store_true", help="rows may be evicted for those of SRC; else such an import is refused"
    )
    merge = add(
        actions, "merge", _merge, "Move the rows of a shard that a run has no more into the pool of its home shard; remove it."
    )
    merge.add_argument("source", type=Path, metavar="SHARD", help="pool of that shard, such as RUN/shard-1/pool (path)")
    merge.add_argument("target", type=Path, metavar="POOL|RUN", help="pool of the home shard, or its run directory (path)")
    merge.add_argument("--evict", action="store_true", help="rows may be evicted for those of SHARD; else it is refused")
    demos = into.add_argument_group("demonstrations", "for HDF5, Minari and LeRobotDataset; after SRC and POOL")
    demos.add_argument("--obs", nargs="+", metavar="PATH=KEY", help="take these observations only, under these keys (text)")
    demos.add_argument("--low", nargs="+", type=float, metavar="X", help="lower bounds of actions, one or one a dimension")
    demos.add_argument("--high", nargs="+", type=float, metavar="X", help="upper bounds of actions, one or one a dimension")
    demos.add_argument("--success", metavar="PATH", help="flags of which the last one is an episode's outcome (text)")
    demos.add_argument(
        "--dones", choices=("terminated", "truncated"), default="terminated", help="what a done means that does not say"
    )
    demos.add_argument("--reward", metavar="MODULE:FUNCTION", help="gives the rewards, as env.reward of a run does (text)")
    demos.add_argument("--outcome", choices=("success", "failure"), help="of episodes of which SRC says none")
    demos.add_argument("--n-step", type=int, metavar="N", help="window of a new pool (env steps); default: 1")
    demos.add_argument("--chunk", type=int, metavar="H", help="env steps of a decision in a new pool (count); default: 1")
    demos.add_argument("--stack", type=int, metavar="H", help="frames of one observation in a new pool (count); default: 1")
    demos.add_argument("--actor", metavar="NAME", help="whose rows they become (text); default: SRC's name")


def _merge(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.merging import merge_command

    return merge_command(args.source, args.target, evict=args.evict)


def _look(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.pools import dump_pool, show_info, take_snapshot

    run = {"dump": dump_pool, "info": show_info, "snapshot": take_snapshot}[args.what]
    return run(args.target, as_json=args.json)


def _export(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.transfer import export_command, export_lerobot_command

    given = {name: getattr(args, name) for name in ("cameras", "fps", "tasks", "robot_type", "layout")}
    given["tasks"] = args.tasks and tuple(args.tasks)
    if args.format == "lerobot":
        return export_lerobot_command(args.target, args.out, given, flat=args.flat)
    return export_command(args.target, args.out, given, flat=args.flat)


def _import(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.demos import ReadOptions
    from headrace.launch.transfer import import_command

    pairs = [pair.partition("=") for pair in args.obs or ()]
    low, high = tuple(args.low or ()), tuple(args.high or ())
    names = {path: key or path for path, _, key in pairs}
    options = ReadOptions(names, low, high, args.success or "", args.dones, args.outcome or "", args.reward or "")
    sizes = {name: getattr(args, name) for name in ("capacity", "n_step", "chunk", "stack", "actor")}
    return import_command(args.source, args.target, options, **sizes, evict=args.evict)
