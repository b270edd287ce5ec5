"""Blocks of a scripted lane: every frame says (actor, episode, t), so that each stored row proves itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from headrace.buffer import SACReplayPool
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec


def lane_spec(stack: int = 1, window: int = 1, kind: str = "steps", image: int = 0) -> TransitionSpec:
    """``obs`` (3,) float32 says (actor, episode, t); ``image`` > 0 adds a uint8 image of that edge, filled with one value."""
    obs = [ObsSpec("obs", (3,), "<f4")]
    if image:
        obs.insert(0, ObsSpec("camera/0", (image, image), "|u1"))
    return TransitionSpec(tuple(obs), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0)), window, kind, stack)


@dataclass
class Lane:
    """One actor's decisions in order; episode e has ``lengths[e % len(lengths)]`` env steps and ends by termination."""

    spec: TransitionSpec
    actor: int
    lengths: tuple[int, ...] = (7, 1, 12)
    episode: int = 0
    t: int = 0
    seq: int = 1
    _decisions: list[tuple[int, int, int, int]] = field(default_factory=list)

    def block(self, n: int) -> Block:
        """The next n decisions."""
        spec = self.spec
        decisions = [self._decide() for _ in range(n)]
        frames: dict[tuple[int, int], int] = {}
        wanted = [(e, max(0, end - k)) for e, t, m, _ in decisions for end in (t, t + m) for k in range(spec.stack)]
        for place in sorted(set(wanted)):
            frames[place] = len(frames)
        rows = np.zeros(n, spec.row_dtype)
        for row, (e, t, m, length) in zip(rows, decisions, strict=True):
            for name, end in (("obs", t), ("next_obs", t + m)):
                row[name] = [frames[(e, max(0, end - k))] for k in reversed(range(spec.stack))]
            row["episode"], row["t"], row["steps"] = e, t, m
            row["action"] = (self.actor, t)
            row["rewards"][:m] = np.arange(t, t + m)
            row["terminated"] = t + m == length
        places = np.array(list(frames), np.float32)
        data = {"obs": np.insert(places, 0, self.actor, axis=1)}
        if len(spec.obs) == 2:
            shape = (len(places), *spec.obs[0].shape)
            data["camera/0"] = np.broadcast_to(shade(data["obs"])[:, None, None], shape).copy()
        self.seq += n
        return Block(rows, data)

    def _decide(self) -> tuple[int, int, int, int]:
        e, t, length = self.episode, self.t, self.lengths[self.episode % len(self.lengths)]
        m = min(self.spec.window, length - t)
        self.t += m if self.spec.kind == "chunk" else 1
        if self.t >= length:
            self.episode, self.t = e + 1, 0
        return e, t, m, length


def shade(obs: np.ndarray) -> np.ndarray:
    """Grey value of the image that belongs to an observation (actor, episode, t)."""
    return ((obs[..., 0] * 31 + obs[..., 1] * 7 + obs[..., 2]) % 256).astype(np.uint8)


def prove(batch: Batch, spec: TransitionSpec) -> None:
    """Fail unless every row of the batch is one decision of one lane."""
    rows = batch.rows
    stacked = spec.stack > 1
    for obs, ahead in ((batch.obs, 0), (batch.next_obs, rows["steps"].astype(int))):
        frames = obs["obs"] if stacked else obs["obs"][:, None]
        times = np.maximum(0, (rows["t"].astype(int) + ahead)[:, None] - np.arange(spec.stack)[::-1])
        np.testing.assert_array_equal(frames[..., 2], times)
        np.testing.assert_array_equal(frames[..., 1], np.broadcast_to(rows["episode"][:, None], times.shape))
        np.testing.assert_array_equal(frames[..., 0], np.broadcast_to(rows["action"][:, :1], times.shape))
        if len(spec.obs) == 2:
            images = obs["camera/0"] if stacked else obs["camera/0"][:, None]
            np.testing.assert_array_equal(images, np.broadcast_to(shade(frames)[..., None, None], images.shape))
    np.testing.assert_array_equal(rows["action"][:, 1], rows["t"])


def prove_pool(pool: SACReplayPool) -> None:
    """Fail unless every live row proves itself and the pool's parts agree."""
    assert pool.check_valid() == (True, "")
    if pool.size:
        assert pool.spec is not None
        prove(pool.gather(np.arange(pool.tail, pool.head)), pool.spec)
    counters = pool.counters()
    kept = counters["rows_live"] + counters["rows_evicted"] + counters["rows_retired"] + counters["rows_discarded"]
    assert counters["rows_accepted"] == kept
    assert min(counters.values()) >= 0


def seqs(pool: SACReplayPool, actor: str, stream: int = 1) -> list[int]:
    """Live sequence numbers of one stream, in id order."""
    return [row["seq"] for row in pool.dump() if (row["actor"], row["stream"]) == (actor, stream)]


def die(pool: SACReplayPool) -> None:
    """Drop a pool of this process as its death would: the lock goes, nothing is written."""
    assert pool._home.path is not None
    pool._release()


def cpu_only() -> dict[str, str]:
    """Environment of a child process with one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
