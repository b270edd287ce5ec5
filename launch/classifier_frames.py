"""Labelled episodes as a success classifier sees them: images of cameras, and what is known of each.

An episode that succeeded shows success in its last images, as many as people say; a few before them are left out, since
nobody can tell; all others, and those of failures, show none. Where a classifier has judged already, only what people have said
against it counts: nobody knows whether they have seen the rest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.buffer.trails import Trail, taken, trails
from headrace.buffer.transfer import Readable
from headrace.common.errors import ConfigError
from headrace.common.specs import HEALTH_JUDGED, HEALTH_SUCCESS, OUTCOME_SUCCESS, OUTCOME_UNKNOWN, ObsSpec
from headrace.common.weights import Array

NOT, SUCCESS, NOBODY_KNOWS = 0, 1, 2
MOST_BYTES = 8 << 30  # of images in memory


@dataclass(frozen=True)
class Clip:
    """One episode.

    Attributes:
        actor: whose it is.
        episode: its number there.
        success: whether it succeeded.
        images: camera -> ``(n + 1, H, W, C)`` uint8, before each of its n steps and after the last one.
        said: what a classifier said when it ran; none where there was none.
    """

    actor: str
    episode: int
    success: bool
    images: Mapping[str, Array]
    said: bool | None = None

    def __len__(self) -> int:
        return len(next(iter(self.images.values())))

    @property
    def identity(self) -> str:
        """The same for the same images, wherever they lie."""
        digest = hashlib.sha256()
        for key in sorted(self.images):
            digest.update(key.encode() + np.ascontiguousarray(self.images[key]).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Rule:
    """What an episode's images show.

    Attributes:
        last: images at the end of a success that show it.
        margin: images before them that are left out.
    """

    last: int = 1
    margin: int = 3

    def labels(self, clip: Clip) -> Array:
        """``(n + 1,)`` uint8: ``NOT``, ``SUCCESS`` or ``NOBODY_KNOWS``."""
        labels = np.full(len(clip), NOT, np.uint8)
        if clip.success:
            labels[-self.last - self.margin :] = NOBODY_KNOWS
            labels[-self.last :] = SUCCESS
        return labels


@dataclass(frozen=True)
class Clips:
    """Labelled episodes of one or several pools.

    Attributes:
        cameras: their images.
        clips: one an episode.
        left_out: why others were not taken -> how many.
    """

    cameras: tuple[ObsSpec, ...]
    clips: list[Clip]
    left_out: Counter[str]


def cameras_among(obs: tuple[ObsSpec, ...], wanted: tuple[str, ...] = ()) -> tuple[ObsSpec, ...]:
    """The cameras of a pool, uint8 images (H, W, C), or those of them that are wanted.

    Raises:
        ConfigError: there is none, or one that is wanted is none.
    """
    there = {o.key: o for o in obs if o.dtype == "|u1" and len(o.shape) == 3}
    for key in wanted:
        if key not in there:
            raise ConfigError(f"--cameras {key}: no camera of these rows; there are {', '.join(there) or 'none'}")
    if not there:
        raise ConfigError(f"no camera (uint8 images H, W, C) among {', '.join(o.key for o in obs)}; a classifier needs one")
    return tuple(there[key] for key in sorted(wanted or there))


def read_clips(pool: Readable, cameras: tuple[ObsSpec, ...], told: Callable[[int, int], None]) -> Clips:
    """Every episode of a pool that people, or its env, have labelled, and that is there to its end.

    Args:
        pool: of rows of steps.
        cameras: which images to take.
        told: rows done and all; each is counted twice.

    Raises:
        SpecError: rows of chunks.
        PoolError: no rows.
        ConfigError: more images than memory is meant for.
    """
    clips, left_out, done = [], Counter[str](), 0
    found = trails(pool, told)
    rows = sum(len(trail.ids) for trail in found)
    nbytes = rows * sum(o.nbytes for o in cameras)
    if nbytes > MOST_BYTES:
        raise ConfigError(
            f"{rows} images of {len(cameras)} cameras are {nbytes >> 20} MiB, at most {MOST_BYTES >> 20}; name fewer"
        )
    for trail in found:
        why = _unfit(trail)
        clip = None if why else _clip(pool, trail, cameras)
        done += len(trail.ids)
        told(rows + done, 2 * rows)
        if clip is None:
            left_out[why] += 1
        elif clip.said is not None and clip.said == clip.success:
            left_out["a classifier judged them, and nobody has said otherwise"] += 1
        else:
            clips.append(clip)
    return Clips(cameras, clips, left_out)


def _unfit(trail: Trail) -> str:
    """Why a trail is of no use; empty where it is."""
    if trail.outcome == OUTCOME_UNKNOWN:
        return "nobody has labelled them"
    return "" if trail.ended and trail.first == 0 else "their beginning or end is not there"


def _clip(pool: Readable, trail: Trail, cameras: tuple[ObsSpec, ...]) -> Clip:
    parts = list(taken(pool, trail))
    images = {o.key: np.concatenate([*(p.obs[o.key] for p in parts), parts[-1].after[o.key][None]]) for o in cameras}
    health = np.concatenate([p.health for p in parts])
    judged = bool((health & HEALTH_JUDGED).any())
    said = bool((health & HEALTH_SUCCESS).any()) if judged else None
    return Clip(trail.actor, trail.episode, trail.outcome == OUTCOME_SUCCESS, images, said)


def held_out(clips: list[Clip], share: float, rng: np.random.Generator) -> tuple[list[Clip], list[Clip]]:
    """Episodes to train on, and others to judge by: of successes and failures so large a share each, and one at least.

    A failure may be missing among both, where there are too few; a success never is.

    Raises:
        ConfigError: fewer than two successes.
    """
    kinds = [[c for c in clips if c.success == kind] for kind in (True, False)]
    if len(kinds[0]) < 2:
        raise ConfigError(
            f"{len(kinds[0])} labelled successes; two are needed, one to train on and one to judge by, and ten help"
        )
    train: list[Clip] = []
    test: list[Clip] = []
    for kind in kinds:
        count = min(len(kind) - 1, max(1, round(share * len(kind)))) if len(kind) > 1 else 0
        order = rng.permutation(len(kind)).tolist()
        test += [kind[i] for i in order[:count]]
        train += [kind[i] for i in order[count:]]
    return train, test


def together(clips: list[Clip], rule: Rule) -> tuple[dict[str, Array], Array]:
    """All images whose label is known: camera -> ``(n, H, W, C)``, and ``(n,)`` bool whether they show success."""
    labels = [rule.labels(clip) for clip in clips]
    known = [each != NOBODY_KNOWS for each in labels]
    keys = clips[0].images
    images = {k: np.concatenate([c.images[k][mask] for c, mask in zip(clips, known, strict=True)]) for k in keys}
    return images, np.concatenate([each[mask] == SUCCESS for each, mask in zip(labels, known, strict=True)])


def pieces(clip: Clip, size: int = 256) -> Iterator[dict[str, Array]]:
    """The clip's images, a bounded number at a time."""
    for low in range(0, len(clip), size):
        yield {key: values[low : low + size] for key, values in clip.images.items()}
