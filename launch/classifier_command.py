"""``headrace classifier record | train | check``: whether the task has succeeded, learned from images that people labelled."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.launch.classifier_frames import Clips

RECORD_ABOUT = """Collect labelled episodes for a classifier: camera images and outcomes of pools, runs and exports, in an
export of their own. Record again, with the old set among the sources, as more are labelled."""
TRAIN_ABOUT = """Train a classifier on labelled episodes, and judge it by others that are held out: in how many of them it says
success where there is none, with the 95 % bound that so many episodes allow."""
CHECK_ABOUT = "Judge a classifier by labelled episodes; those that it was trained on are left out."
SOURCE = "run, pool, snapshot or export (path)"
LISTS = ("channels", "strides", "hidden")
OPTIONS = ("threshold", "hold", "updates", "batch-size", "lr", "shift", "seed", *LISTS)


def add_classifier(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command; ``add`` declares one of ``commands``, as :mod:`headrace.launch.cli` does."""
    top = add(commands, "classifier", _check, "Learn from labelled episodes what success looks like, as a source of rewards.")
    actions = top.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=type(top), help="what to do")
    record = add(actions, "record", _record, RECORD_ABOUT)
    record.add_argument("sources", type=Path, nargs="+", metavar="SOURCE", help=SOURCE)
    record.add_argument("out", type=Path, metavar="OUT", help="directory to make; it appears when all is written (path)")
    record.add_argument("--cameras", nargs="+", metavar="KEY", help="take these alone (text); default: all of them")
    train = add(actions, "train", _train, TRAIN_ABOUT)
    train.add_argument("source", type=Path, metavar="SOURCE", help=SOURCE)
    train.add_argument("out", type=Path, metavar="OUT", help="file to write, such as cube.hrw (path)")
    train.add_argument("--cameras", nargs="+", metavar="KEY", help="look at these alone (text); default: all of them")
    train.add_argument("--held-out", type=float, default=0.3, metavar="X", help="share of episodes to judge by (float)")
    train.add_argument("--last", type=int, default=1, metavar="N", help="images at the end of a success that show it (count)")
    train.add_argument("--margin", type=int, default=3, metavar="N", help="images before them that are left out (count)")
    options = train.add_argument_group("the classifier", "threshold and hold can be others where it is used")
    for name in OPTIONS:
        kind: dict[str, Any] = {"nargs": "+", "type": int} if name in LISTS else {"type": float}
        options.add_argument(f"--{name}", metavar="N" if name in LISTS else "X", help=_help(name), **kind)
    check = add(actions, "check", _check, CHECK_ABOUT)
    check.add_argument("file", type=Path, metavar="FILE", help="as `headrace classifier train` wrote it (path)")
    check.add_argument("source", type=Path, metavar="SOURCE", help=SOURCE)
    check.add_argument("--threshold", type=float, metavar="X", help="another than the file's (float)")
    check.add_argument("--hold", type=int, metavar="N", help="another than the file's (frames)")
    check.add_argument("--json", action="store_true", help="print one JSON object")


def _help(name: str) -> str:
    return {
        "threshold": "probability from which an image shows success (float); 0.5",
        "hold": "images in a row that must show it (frames); 3",
        "updates": "training steps (count); 500",
        "batch-size": "images of a training step, half of them of success (count); 64",
        "lr": "Adam step size (float); 0.001",
        "shift": "how far training moves images at random (pixels); 4",
        "seed": "of weights, batches, and which episodes are held out (int); 0",
        "channels": "output channels of the convolutions (count); 16 32 32 32",
        "strides": "their strides (pixels); 2 2 2 1",
        "hidden": "widths of the layers behind (count); 64",
    }[name]


def _record(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.classifier_record import write_set

    found = [(str(source.resolve()), _read(source, tuple(args.cameras or ()))) for source in args.sources]
    kept = write_set(args.out, found)
    wins = sum(clip.success for clip in kept)
    images = sum(len(clip) for clip in kept)
    print(f"{args.out}: {len(kept)} episodes, {wins} successes and {len(kept) - wins} failures, {images} images a camera")
    for source, clips in found:
        _say_left_out(source, clips)
    return 0


def _train(args: argparse.Namespace, overrides: list[str]) -> int:
    import numpy as np

    from headrace.actor.success import SuccessClassifier
    from headrace.common.config import load
    from headrace.common.errors import ConfigError
    from headrace.common.weights import WeightSet
    from headrace.launch.classifier_frames import Rule, held_out, together
    from headrace.launch.classifier_report import figures, probabilities
    from headrace.launch.counting import Counting
    from headrace.launch.rundir import write_whole
    from headrace.learner.classifier import ClassifierOptions, train_classifier

    for name, low, high in (("held_out", 0.0, 1.0), ("last", 1, 10_000), ("margin", 0, 10_000)):
        value = getattr(args, name)
        if not low <= value <= high:
            raise ConfigError(f"--{name.replace('_', '-')}: {value:g}; expected {low:g} to {high:g}")
    given = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in OPTIONS}
    options = load(ClassifierOptions, {name: value for name, value in given.items() if value is not None}, "classifier")
    found, rule = _read(args.source, tuple(args.cameras or ())), Rule(args.last, args.margin)
    train, test = held_out(found.clips, args.held_out, np.random.default_rng(options.seed))
    with Counting("training", unit="steps") as counting:
        weights = train_classifier(*together(train, rule), options, counting)
    classifier = SuccessClassifier(weights)
    judged = figures([(clip, probabilities(classifier, clip)) for clip in test], rule, options.threshold, options.hold)
    said = {
        "rule": {"last": rule.last, "margin": rule.margin},
        "trained_on": {"successes": sum(c.success for c in train), "failures": sum(not c.success for c in train)},
        "learned_from": [clip.identity for clip in train],
        "held_out": judged.to_dict(),
    }
    write_whole(args.out, WeightSet(weights.version, {**weights.policy, **said}, weights.tensors).pack())
    print(f"{args.out}: trained on {len(train)} episodes, judged by {len(test)} that were held out")
    for line in judged.lines():
        print(f"  {line}")
    _say_left_out(str(args.source), found)
    return 0


def _check(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.actor.success import read_classifier
    from headrace.common.errors import ConfigError
    from headrace.launch.classifier_frames import Rule
    from headrace.launch.classifier_report import figures, learned_from, probabilities

    classifier, name = read_classifier(args.file, "FILE")
    found = _read(args.source, tuple(o.key for o in classifier.what.cameras))
    classifier.require_cameras(found.cameras)
    known = learned_from(classifier.about)
    fresh = [clip for clip in found.clips if clip.identity not in known]
    if not fresh:
        raise ConfigError(f"{args.source}: no labelled episode that the classifier was not trained on; label some more")
    told = classifier.about.get("rule", {})
    rule = Rule(int(told.get("last", 1)), int(told.get("margin", 3)))
    threshold = classifier.what.threshold if args.threshold is None else args.threshold
    hold = classifier.what.hold if args.hold is None else args.hold
    if not 0 < threshold < 1 or hold < 1:
        raise ConfigError(f"--threshold {threshold:g}, --hold {hold}: expected a probability, and 1 or more")
    judged = figures([(clip, probabilities(classifier, clip)) for clip in fresh], rule, threshold, hold)
    learned = len(found.clips) - len(fresh)
    if args.json:
        print(json.dumps({"classifier": name, "trained_on_and_left_out": learned, **judged.to_dict()}))
        return 0
    print(f"{name}: judged by {len(fresh)} episodes of {args.source}; {learned} that it was trained on are left out")
    for line in judged.lines():
        print(f"  {line}")
    _say_left_out(str(args.source), found)
    return 0


def _read(source: Path, cameras: tuple[str, ...]) -> Clips:
    """The labelled episodes of a source."""
    from headrace.common.errors import PoolError
    from headrace.launch.classifier_frames import cameras_among, read_clips
    from headrace.launch.counting import Counting
    from headrace.launch.transfer import rows_of

    with tempfile.TemporaryDirectory(prefix="headrace-") as place, rows_of(source, Path(place) / "rows") as pool:
        if pool.spec is None:
            raise PoolError(f"{source}: the pool holds no rows")
        with Counting("reading", passes=2) as counting:
            return read_clips(pool, cameras_among(pool.spec.obs, cameras), counting)


def _say_left_out(source: str, clips: Clips) -> None:
    for why, count in clips.left_out.items():
        print(f"  {source}: {count} episode{'s' * (count != 1)} left out: {why}")
