"""A block: m frames and n rows of one lane's consecutive decisions, self-contained and immutable once numbered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.common.errors import BlockRefused
from headrace.common.specs import ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
ROW_REASONS = ("steps", "reward", "flag", "label", "non-finite")  # of single rows; the other reasons damn a block


@dataclass(frozen=True)
class Block:
    """Rows with the frames they refer to.

    Attributes:
        rows: ``(n,)`` of ``spec.row_dtype``; ``obs`` and ``next_obs`` are offsets into the frames, 0..m-1;
            ``actor``, ``stream`` and ``seq`` are written by whoever numbers the block, not by its maker.
        frames: key -> ``(m, *shape)``.
        priorities: ``(n,)`` <f4, |td| as whoever made the rows thinks of it; none leaves them at the pool's maximum.

    Raises:
        BlockRefused: reason ``priority``: there is not one for each row.
    """

    rows: Array
    frames: dict[str, Array]
    priorities: Array | None = None

    def __post_init__(self) -> None:
        if self.priorities is not None and self.priorities.shape != (len(self.rows),):
            raise BlockRefused("priority", f"priorities {self.priorities.shape} for {len(self.rows)} rows")

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return len(self.rows)

    @property
    def n_frames(self) -> int:
        """m, the number of frames."""
        return len(next(iter(self.frames.values())))

    @property
    def nbytes(self) -> int:
        """Bytes of rows, frames and priorities."""
        extra = 0 if self.priorities is None else self.priorities.nbytes
        return int(self.rows.nbytes + extra + sum(f.nbytes for f in self.frames.values()))

    @classmethod
    def join(cls, blocks: Sequence[Block]) -> Block:
        """Blocks of one spec as one, in order; the sum of their bytes is its own.

        Raises:
            BlockRefused: reason ``reference``, since joined a wrong reference could point at another block's frame; or
                ``priority``, when some bring priorities and others none.
        """
        if len(blocks) == 1:
            return blocks[0]
        priorities = [b.priorities for b in blocks if b.priorities is not None]
        if len(priorities) not in (0, len(blocks)):
            raise BlockRefused("priority", f"{len(priorities)} of {len(blocks)} blocks bring priorities")
        rows = np.concatenate([b.rows.view(f"V{b.rows.itemsize}") for b in blocks]).view(blocks[0].rows.dtype)
        lengths = [b.n_frames for b in blocks]
        counts = [b.n_rows for b in blocks]
        limit, shift = (np.repeat(n, counts)[:, None] for n in (lengths, np.cumsum([0, *lengths[:-1]])))
        for name in ("obs", "next_obs"):
            if not ((rows[name] >= 0) & (rows[name] < limit)).all():
                raise BlockRefused("reference", f"{name} points outside a block's frames")
            rows[name] += shift
        frames = {key: np.concatenate([b.frames[key] for b in blocks]) for key in blocks[0].frames}
        return cls(rows, frames, np.concatenate(priorities) if priorities else None)

    def part(self, start: int, stop: int) -> Block:
        """Rows ``[start, stop)`` with only the frames that they use; the references must be sound."""
        rows = self.rows[start:stop].copy()
        used, where = np.unique(np.concatenate([rows["obs"], rows["next_obs"]]), return_inverse=True)
        where = where.reshape(2, len(rows), -1)
        rows["obs"], rows["next_obs"] = where
        priorities = None if self.priorities is None else self.priorities[start:stop]
        return Block(rows, {key: frames[used] for key, frames in self.frames.items()}, priorities)

    def check(self, spec: TransitionSpec) -> None:
        """Refuse rows that must not enter a pool.

        Raises:
            BlockRefused: with a countable reason: ``shape``, ``reference``, ``steps``, ``reward``, ``flag``,
                ``label`` or ``non-finite``.
        """
        rows = self.rows
        if rows.dtype != spec.row_dtype or rows.ndim != 1 or not len(rows):
            raise BlockRefused("shape", f"rows {rows.shape} of {rows.dtype.itemsize} bytes")
        if sorted(self.frames) != [o.key for o in spec.obs]:
            raise BlockRefused("shape", f"observation keys {sorted(self.frames)[:8]}")
        m = self.n_frames
        for o in spec.obs:
            frame = self.frames[o.key]
            if frame.shape != (m, *o.shape) or frame.dtype != np.dtype(o.dtype):
                raise BlockRefused("shape", f"obs.{o.key}: {frame.shape} {frame.dtype}, declared (m, *{o.shape}) {o.dtype}")
        check_rows(rows, m, spec)
        for o in spec.obs:
            check_frames(o, self.frames[o.key])


def check_rows(rows: Array, frames: int, spec: TransitionSpec) -> None:
    """Refuse rows with values that must not enter a pool; ``rows`` are of the spec's row dtype, and at least one.

    Raises:
        BlockRefused: ``reference`` (to another than one of so many ``frames``), ``steps``, ``reward``, ``flag``, ``label`` or
            ``non-finite``.
    """
    grouped = rows.view(spec.grouped_dtype)
    if _largest(grouped["references"]) >= frames:  # unsigned, a negative reference is a huge one
        name = "next_obs" if _largest(rows["obs"].view("<u8")) < frames else "obs"
        raise BlockRefused("reference", f"{name} points outside the block's {frames} frames")
    steps = rows["steps"]
    if _largest(steps - np.uint16(1)) >= spec.window:  # unsigned, 0 steps are 65535 too many
        raise BlockRefused("steps", f"steps must be 1 to {spec.window}")
    if spec.window > 1 and rows["rewards"][np.arange(spec.window)[None, :] >= steps[:, None]].any():
        raise BlockRefused("reward", "a reward beyond the executed steps is not zero")
    if _largest(grouped["flags"]) > 1:
        flags = [
            name for name in ("terminated", "truncated", "has_latent", "has_planned") if name in (spec.row_dtype.names or ())
        ]
        name = next(name for name in flags if _largest(rows[name]) > 1)
        raise BlockRefused("flag", f"{name} must be 0 or 1")
    if _largest(rows["outcome"]) > 2 or _largest(rows["source"]) > 2:
        raise BlockRefused("label", "outcome and source must be 0, 1 or 2")
    if not _finite(grouped["numbers"]):
        numbers = ("action", "next_action", "planned", "latent", "rewards", "action_age")
        columns = [name for name in numbers if name in (spec.row_dtype.names or ())]
        name = next(name for name in columns if not _finite(rows[name]))
        raise BlockRefused("non-finite", f"{name} holds NaN or infinity")


def check_frames(of: ObsSpec, frames: Array) -> None:
    """Refuse observations, ``(m, *shape)`` of a spec's key, with values that must not enter a pool.

    Raises:
        BlockRefused: ``non-finite`` or ``flag``.
    """
    if of.dtype == "<f4" and not _finite(frames):
        raise BlockRefused("non-finite", f"obs.{of.key} holds NaN or infinity")
    if of.dtype == "|b1" and len(frames) and _largest(frames.view(np.uint8)) > 1:
        raise BlockRefused("flag", f"obs.{of.key} must be 0 or 1")


def _finite(values: Array) -> bool:
    return bool(np.logical_and.reduce(np.isfinite(values), axis=None))


def _largest(values: Array) -> int:
    """Maximum over all axes; a block is checked on every insert, and this costs half of ``(values > x).any()``."""
    return int(np.maximum.reduce(values, axis=None))
