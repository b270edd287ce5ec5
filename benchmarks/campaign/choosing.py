"""Which of a script's measurements to run, and in which order; ``--only NAME,...`` is the same in every script."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping


def add_only(parser: argparse.ArgumentParser, names: Iterable[str], what: str) -> None:
    """Add ``--only`` over ``names``, each a ``what``; parsed, it is a list of names."""
    known = list(names)

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {what} {unknown[0]!r}; there are {', '.join(known)}")
        return chosen

    metavar = f"{what.upper()},..."
    parser.add_argument("--only", type=parse, default=known, metavar=metavar, help=f"each {what} to run; default: all")


def plan_of(trials: Mapping[str, int]) -> list[tuple[str, int]]:
    """All trials of all kinds, with the kinds spread evenly."""
    spread = [((n + 0.5) / count, kind, n) for kind, count in trials.items() for n in range(count)]
    return [(kind, n) for _, kind, n in sorted(spread)]
