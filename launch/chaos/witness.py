"""Witnesses inside an actor or evaluator: what it sends and is told goes into a history first, and its actions say by what
weights it acts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from headrace.actor.config import ActorConfig
from headrace.actor.outbox import Outbox
from headrace.actor.policy import MlpPolicy
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import Clock
from headrace.common.label import Kind
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, decode
from headrace.launch.chaos.history import History

Array = np.ndarray[Any, Any]
Head = m.BlockHead | m.LabelHead
Meddle = Callable[[Head, Parts], list[Parts]]


def digest_of(parts: Parts) -> str:
    """8-byte digest in hex of a message's bytes."""
    out = hashlib.blake2b(digest_size=8)
    for part in parts:
        out.update(part)
    return out.hexdigest()


def honest(head: Head, parts: Parts) -> list[Parts]:
    """What is sent in place of a block or a label: itself."""
    return [parts]


def keep(block: Block) -> bool:
    """Whether a block is kept that the loop hands over: it is."""
    return True


class WitnessUplink(Uplink):
    """An uplink that tells a history what it is about to say of rows, what it keeps, and what is answered and applied.

    Args:
        history: is told.
        meddle: what is sent in place of each block or label, behind the history's back.
        keeps: whether a block that the history is told of is kept.
        args: of an uplink.
    """

    def __init__(
        self,
        spec: TransitionSpec,
        outbox: Outbox,
        part_bytes: int,
        clock: Clock | None = None,
        drain_bytes_per_s: float = 0.0,
        *,
        history: History,
        meddle: Meddle = honest,
        keeps: Callable[[Block], bool] = keep,
    ) -> None:
        super().__init__(spec, outbox, part_bytes, clock, drain_bytes_per_s)
        self._row_dtype, self._history, self._meddle, self._keeps = spec.row_dtype, history, meddle, keeps

    def offer(self, block: Block, timeout_s: float) -> int:
        """Tell which rows outlive this process from now on."""
        first = super().offer(block, timeout_s) if self._keeps(block) else 1
        if first and self.outlives:
            self._history.write("kept", runs_of(block.rows))
        return first

    def applied(self, version: Version) -> None:
        """Tell what is acted by from now on."""
        if version != self._version:
            self._history.write("applied", version.epoch, version.step)
        super().applied(version)

    def welcomed(self, welcome: m.Welcome) -> None:
        """Tell epoch and streams of a session."""
        self._history.write("welcomed", welcome.epoch, [list(stream) for stream in welcome.streams])
        super().welcomed(welcome)

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """Tell what is settled."""
        if isinstance(message, m.Ack):
            self._history.write("acked", message.stream, message.seq)
        elif isinstance(message, m.Reject):
            self._history.write("rejected", message.stream, message.first, message.last, message.reason)
        elif isinstance(message, m.Labelled):
            self._history.write("labelled", message.number, message.reason)
        super().received(message, frames)

    def outgoing(self, room: int) -> Iterable[Parts]:
        """Tell the rows of each block, and each outcome, that leaves."""
        out: list[Parts] = []
        for parts in super().outgoing(room):
            head = decode(parts[0])
            if isinstance(head, m.BlockHead):
                rows = np.frombuffer(parts[1], self._row_dtype)
                self._history.write("sent", head.stream, head.seq, head.rows, runs_of(rows), digest_of(parts))
            elif isinstance(head, m.LabelHead) and head.kind == Kind.OUTCOME:
                about = head.stream, head.first, head.last, head.outcome, head.episode
                self._history.write("said", head.number, *about)
            out += self._meddle(head, parts) if isinstance(head, (m.BlockHead, m.LabelHead)) else [parts]
        return out


def runs_of(rows: Array) -> list[list[int]]:
    """(episode, first t, count) of each run of consecutive rows of an episode."""
    episode, t = rows["episode"].astype(np.int64), rows["t"].astype(np.int64)
    breaks = np.flatnonzero((np.diff(episode) != 0) | (np.diff(t) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    counts = np.diff(np.concatenate([starts, [len(rows)]]))
    return [[int(episode[i]), int(t[i]), int(n)] for i, n in zip(starts, counts, strict=True)]


class WitnessPolicy:
    """Runs the MLP policy, and answers the least and the greatest number in its tensors in place of its action.

    Args:
        weights: of an MLP.
        spec: with two action dimensions, whose bounds hold every version number.
    """

    def __init__(self, weights: WeightSet, spec: TransitionSpec, config: ActorConfig) -> None:
        self._policy = MlpPolicy(weights, spec)

    def load(self, weights: WeightSet) -> None:
        """Take other weights."""
        self._policy.load(weights)

    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """``(L, 2)`` float32: least and greatest number."""
        lanes = len(self._policy.act(obs, rng, deterministic))
        arrays = self._policy.arrays
        ends = [min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)]
        return np.tile(np.array(ends, np.float32), (lanes, 1))
