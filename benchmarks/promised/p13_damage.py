"""P13: a damaged checkpoint is found and named, and the newest good one is used.

Each trial writes two checkpoints as a learner does, harms the newer one, looks for one to go on from as the next learner
does, and mends it again, many times over. All numbers of a checkpoint are that of its write, so what is loaded says which one
it is.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

import numpy as np
from campaign import harming
from campaign.promise import SUM, Outcome, Part, Promise, Trial, at_least, never
from campaign.saving import SPEC, state, weights

from headrace.common.errors import CheckpointError
from headrace.common.policy_files import policy_files
from headrace.learner import checkpoint

FLIPS, ROUNDS = 100, 10
QUICK_FLIPS, QUICK_ROUNDS = 20, 2
FIGURES = never("silently_loaded", "not_named", "good_one_not_used")
Harm = Callable[[Path, Path, np.random.Generator], str]  # of the newer one, beside the older; the name of the file it harmed


def flip(newer: Path, older: Path, rng: np.random.Generator) -> str:
    """One bit at a random place of all files together."""
    return harming.flip(newer, rng)


def truncate(newer: Path, older: Path, rng: np.random.Generator) -> str:
    """The end of a file, from a random place on."""
    path = _any(newer, rng)
    harming.truncate(path, rng)
    return path.name


def delete(newer: Path, older: Path, rng: np.random.Generator) -> str:
    """A file."""
    path = _any(newer, rng)
    path.unlink()
    return path.name


def swap(newer: Path, older: Path, rng: np.random.Generator) -> str:
    """A file in place of the one that the other checkpoint has; where both are equal nothing would be harmed."""
    names = [path.name for path in harming.files(newer) if path.read_bytes() != (older / path.name).read_bytes()]
    name = names[int(rng.integers(len(names)))]
    shutil.copyfile(older / name, newer / name)
    return name


def flips(trial: Trial) -> Outcome:
    """Bits."""
    return harmed(trial.place, trial.rng, {"flipped": flip}, QUICK_FLIPS if trial.quick else FLIPS)


def files(trial: Trial) -> Outcome:
    """Whole files."""
    kinds = {"truncated": truncate, "deleted": delete, "swapped": swap}
    return harmed(trial.place, trial.rng, kinds, QUICK_ROUNDS if trial.quick else ROUNDS)


def harmed(place: Path, rng: np.random.Generator, harms: Mapping[str, Harm], rounds: int) -> Outcome:
    """Each harm so many times, judged."""
    older, newer = (
        checkpoint.write(place / "checkpoints", n, state(n), files=policy_files(weights(n), SPEC), keep=9) for n in (1, 2)
    )
    whole = shutil.copytree(newer, place / "whole")
    counts = Counter(dict.fromkeys((*harms, *(bar.figure for bar in FIGURES)), 0))
    for _ in range(rounds):
        for kind, harm in harms.items():
            name = harm(newer, older, rng)
            counts[kind] += 1
            counts.update(judged(older, newer, name))
            shutil.rmtree(newer)
            shutil.copytree(whole, newer)
    counts["harms"] = sum(counts[kind] for kind in harms)
    return Outcome(counts)


def judged(older: Path, newer: Path, name: str) -> list[str]:
    """What is wrong with what the next learner does after file ``name`` of the newer one was harmed."""
    wrong = []
    with harming.heard(checkpoint.__name__) as lines:
        try:
            found = checkpoint.newest(older.parent)
            loaded = None if found is None else checkpoint.read(found)
        except CheckpointError:
            loaded = None
    if loaded is not None and loaded.path == newer:
        wrong.append("silently_loaded")
    elif loaded is None or loaded.path != older or any(bool((t != 1).any()) for t in loaded.state["tensors"].values()):
        wrong.append("good_one_not_used")
    if not any(f"{newer.name}/{name}" in line for line in lines):
        wrong.append("not_named")
    return wrong


def blind(place: Path) -> dict[str, bool]:
    """Whether a reader that looks at no digest is found out."""
    with mock.patch.object(checkpoint, "_verify", _step_of):
        found = harmed(place, np.random.default_rng(0), {"swapped": swap}, 3)
    return {"no digests": found.figures["silently_loaded"] == 3}


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step_"))


def _any(path: Path, rng: np.random.Generator) -> Path:
    found = harming.files(path)
    return found[int(rng.integers(len(found)))]


PROMISE = Promise(
    "P13",
    "A damaged checkpoint is found and named, and the newest good one is used.",
    (
        Part("bits", 10, flips, (*at_least("flipped", 1000, SUM), *FIGURES), control=blind),
        Part("files", 10, files, (*at_least("harms", 300, SUM), *FIGURES), control=blind),
    ),
)
