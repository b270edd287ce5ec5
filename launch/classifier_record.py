"""A set of labelled episodes for success classifiers: an export like any other, of camera images and outcomes alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.buffer.pool import SACReplayPool
from headrace.buffer.transfer import export_pool, free_name
from headrace.common.block import Block
from headrace.common.errors import ConfigError
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, ActionSpec, TransitionSpec
from headrace.launch.classifier_frames import Clip, Clips

BLOCK_ROWS = 64
NO_ACTION = ActionSpec((1,), (-1.0,), (1.0,))  # an export has one, and images need none


def write_set(out: Path, sources: Sequence[tuple[str, Clips]]) -> list[Clip]:
    """Write the episodes of ``sources``, each with a name, as an export at ``out``; those that were written, each once.

    Raises:
        ConfigError: the sources have other cameras than each other, or no labelled episode.
        PoolError: ``out`` exists.
    """
    first, cameras = sources[0][0], sources[0][1].cameras
    for name, clips in sources:
        if clips.cameras != cameras:
            ours, theirs = ({o.key: o.shape for o in each} for each in (cameras, clips.cameras))
            raise ConfigError(f"cameras of {first}: {ours}, of {name}: {theirs}; --cameras names those that all have")
    spec = TransitionSpec(cameras, NO_ACTION)
    chosen: dict[str, tuple[str, Clip]] = {}
    for name, clips in sources:
        for clip in clips.clips:
            chosen.setdefault(clip.identity, (name, clip))
    if not chosen:
        raise ConfigError("no labelled episode was found; people label by keys or `headrace label`, see docs/robots.md")
    names: dict[str, str] = {}
    seqs: dict[str, int] = {}
    with SACReplayPool(sum(len(clip) - 1 for _, clip in chosen.values()), spec=spec) as pool:
        for episode, (name, clip) in enumerate(chosen.values()):
            if name not in names:
                names[name] = free_name(Path(name).name or "source", set(names.values()))
            actor = names[name]
            seqs[actor] = _put(pool, spec, clip, (actor, seqs.get(actor, 1), episode))
        export_pool(pool, out)
    return [clip for _, clip in chosen.values()]


def _put(pool: SACReplayPool, spec: TransitionSpec, clip: Clip, place: tuple[str, int, int]) -> int:
    """Insert an episode's rows as those of an actor, from a seq on, with an episode number; returns the seq after them."""
    (actor, seq, episode), n = place, len(clip) - 1
    for low in range(0, n, BLOCK_ROWS):
        high = min(n, low + BLOCK_ROWS)
        rows = np.zeros(high - low, spec.row_dtype)
        i = np.arange(high - low)
        rows["obs"][:, 0], rows["next_obs"][:, 0] = i, i + 1
        rows["t"], rows["steps"], rows["stream"] = low + i, 1, 1
        rows["episode"], rows["seq"] = episode, seq + low + i
        rows["outcome"] = OUTCOME_SUCCESS if clip.success else OUTCOME_FAILURE
        rows["terminated"][-1] = high == n
        images = {key: np.ascontiguousarray(values[low : high + 1]) for key, values in clip.images.items()}
        pool.insert(Block(rows, images), actor, 1, seq + low)
    return seq + n
