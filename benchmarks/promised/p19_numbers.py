"""P19: numbers without value never enter the pool or leave the learner.

door      an actor sends blocks of which random rows hold NaN or an infinity: in an observation, an action, a reward, the age of
          an action, or their priority. As many rows are rejected as hold one; the pool and its statistics hold none.
learner   SAC makes updates from batches of which some hold one, or rewards that overflow the loss: each such update is skipped
          and counted, and nothing that is published is without value.
ranks     of two ranks one alone is given such a batch: both skip that update, and stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
from campaign.promise import SUM, Outcome, Part, Promise, Trial, at_least, never, told
from helpers.group import finish, start
from helpers.learner import make_batch, make_sac, make_spec
from helpers.serving import SPEC, Buffer, block

from headrace.common.block import Block
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts

NUMBERS = ("action", "rewards", "action_age")
BAD = (np.nan, np.inf, -np.inf)
BLOCKS, QUICK_BLOCKS, ROWS = 400, 20, 8
UPDATES, QUICK_UPDATES = 300, 30
POISONED = 0.3  # of the rows and batches
OVERFLOW = 3e38


def door(trial: Trial) -> Outcome:
    """Blocks of one actor."""
    buffer = Buffer(trial.place, env_steps=0)
    buffer.actor()
    sent = ill = 0
    differ = 0
    for number in range(QUICK_BLOCKS if trial.quick else BLOCKS):
        made, poisoned = poison(trial.rng)
        head = m.BlockHead(1, 1 + ROWS * number, ROWS, made.n_frames)
        before = buffer.service.rejected.by_reason["non-finite"]
        answers = buffer.raw(b"A", block_parts(head, made, SPEC))
        rejected = sum(a.last - a.first + 1 for _, a, _ in answers if isinstance(a, m.Reject))
        differ += abs(rejected - poisoned) + abs(buffer.service.rejected.by_reason["non-finite"] - before - poisoned)
        sent, ill = sent + ROWS, ill + poisoned
    pool = buffer.worker.pool
    if pool is None:
        raise AssertionError("there is no pool")
    batch = pool.sample(pool.size)
    columns = [
        batch.rows["action"],
        batch.rows["rewards"],
        batch.rows["action_age"],
        *batch.obs.values(),
        *batch.next_obs.values(),
    ]
    statistics = pool.statistics()
    columns += [*statistics.mean.values(), *statistics.var.values()]
    inside = sum(int((~np.isfinite(column)).sum()) for column in columns)
    buffer.worker.close()
    return Outcome({"rows": sent, "rows_without_value": ill, "rejected_otherwise": differ, "numbers_inside": inside})


def poison(rng: np.random.Generator) -> tuple[Block, int]:
    """A block of which some rows hold a number without value; how many do."""
    made = block(range(ROWS))
    for row in np.flatnonzero(rng.random(ROWS) < POISONED):
        column = (*NUMBERS, "obs")[rng.integers(4)]
        value = BAD[rng.integers(3)]
        if column == "obs":
            made.frames["obs"][row, rng.integers(3)] = value
        else:
            made.rows[column][row] = value
    frames = ~np.isfinite(made.frames["obs"]).all(axis=1)
    own = [~np.isfinite(made.rows[name].reshape(ROWS, -1)).all(axis=1) for name in NUMBERS]
    ill = np.logical_or.reduce([*own, frames[made.rows["obs"][:, 0]], frames[made.rows["next_obs"][:, 0]]])
    return made, int(ill.sum())


def learner(trial: Trial) -> Outcome:
    """Updates of one learner."""
    spec = make_spec()
    sac = make_sac(spec, seed=int(trial.rng.integers(1000)))
    ill = published = 0
    for step in range(QUICK_UPDATES if trial.quick else UPDATES):
        batch = make_batch(spec, seed=step)
        if trial.rng.random() < POISONED:
            ill += 1
            value = (*BAD, OVERFLOW)[trial.rng.integers(4)]
            target = batch.rows["rewards"] if value == OVERFLOW or trial.rng.random() < 0.5 else batch.obs["obs"]
            target[trial.rng.integers(len(target))] = value
        skipped = float(sac.update(batch)["sac/updates_skipped"])
        published += sac.weights(Version("learner", 1, step)).first_non_finite() is not None
    return Outcome({"ill_batches": ill, "skipped_otherwise": abs(skipped - ill), "published_without_value": published})


def ranks(trial: Trial) -> Outcome:
    """Updates of two ranks, of which one alone has an ill batch."""
    ill = sorted({int(n) for n in trial.rng.integers(0, 4, 2)})
    said = finish(start(2, ill={"poisoned": [[n, int(trial.rng.integers(2))] for n in ill]}))
    lines = [[line for line in rank["ill"] if "skipped" in line] for rank in said]
    unlike = sum(a["digest"] != b["digest"] or a["skipped"] != b["skipped"] for a, b in zip(*lines, strict=True))
    return Outcome({"ill_updates": len(ill), "skipped_otherwise": abs(lines[0][-1]["skipped"] - len(ill)), "unlike": unlike})


def open_door(place: Path) -> Mapping[str, bool]:
    """Whether rows that are not looked at are found."""
    with mock.patch.object(Block, "check", return_value=None):
        found = door(Trial(place, 0, np.random.default_rng(0), True)).figures
    return {"rows not looked at": found["rejected_otherwise"] > 0 and found["numbers_inside"] > 0}


def blind_learner(place: Path) -> Mapping[str, bool]:
    """Whether weights that are never looked at would be told from those that are finite."""
    with mock.patch.object(WeightSet, "first_non_finite", return_value="w"):
        found = learner(Trial(place, 0, np.random.default_rng(0), True)).figures
    return {"weights without value": found["published_without_value"] == QUICK_UPDATES}


OUTSIDE = (*never("rejected_otherwise", "numbers_inside"), *told("rows", over=SUM))
PROMISE = Promise(
    "P19",
    "Numbers without value never enter the pool or leave the learner.",
    (
        Part(
            "door",
            5,
            door,
            (
                *at_least("rows_without_value", 1000, SUM),
                *never("rejected_otherwise", "numbers_inside"),
                *told("rows", over=SUM),
            ),
            control=open_door,
        ),
        Part(
            "learner",
            5,
            learner,
            (*at_least("ill_batches", 100, SUM), *never("skipped_otherwise", "published_without_value")),
            control=blind_learner,
        ),
        Part("ranks", 5, ranks, (*at_least("ill_updates", 5, SUM), *never("skipped_otherwise", "unlike"))),
    ),
)
