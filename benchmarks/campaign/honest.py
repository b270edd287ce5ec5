"""Honest messages of every kind, in both directions: what a fuzzing campaign begins with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.common.block import Block
from headrace.common.label import Kind, Label
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.batches import drawn_message, rate_message
from headrace.common.wire.codec import block_parts, encode, label_parts
from headrace.common.wire.compression import WEIGHTS, compress, widths
from headrace.common.wire.fragments import split

Parts = list[bytes]
SPEC = TransitionSpec(
    (ObsSpec("held", (2,), "|b1"), ObsSpec("image", (4, 4, 3), "|u1"), ObsSpec("state", (3,), "<f4")),
    ActionSpec((2,), (-1.0, -2.0), (1.0, 2.0)),
    window=2,
    stack=2,
)
POLICY = {"type": "mlp", "hidden": [8, 8]}
FRAGMENT_BYTES = 4096


def rows(n: int, first: int = 0, seed: int = 0) -> Block:
    """``n`` rows of an episode that begins with row ``first``."""
    rng = np.random.default_rng(seed)
    made = np.zeros(n, SPEC.row_dtype)
    made["t"], made["steps"] = np.arange(first, first + n), 2
    made["obs"] = np.arange(n)[:, None] + (0, 1)
    made["next_obs"] = made["obs"] + 1
    made["action"], made["rewards"] = rng.uniform(-1, 1, (n, 2)), rng.normal(size=(n, 2))
    frames = {
        "held": rng.integers(0, 2, (n + 2, 2)).astype(np.bool_),
        "image": rng.integers(0, 256, (n + 2, 4, 4, 3)).astype(np.uint8),
        "state": rng.normal(size=(n + 2, 3)).astype(np.float32),
    }
    return Block(made, frames)


def block(seq: int, n: int = 4, *, priorities: bool = False) -> Parts:
    """Rows ``seq .. seq + n - 1`` of stream 1 as frames."""
    made = rows(n, seq, seq)
    if priorities:
        made = replace(made, priorities=np.ones(n, np.float32))
    return _bytes(block_parts(m.BlockHead(1, seq, n, n + 2), made, SPEC))


def weights(epoch: int, step: int) -> bytes:
    """A packed weight set of the learner ``l``."""
    tensors = {"a.weight": np.full((8, 5), step, np.float32), "a.bias": np.full(8, step, np.float32)}
    return WeightSet(Version("l", epoch, step), POLICY, tensors).pack()


def hello(role: str, identity: str, incarnation: bytes) -> Parts:
    """Asks for a session that may compress."""
    spec = SPEC.to_dict() if role == "actor" else None
    return [encode(m.Hello(m.PROTOCOL, role, identity, incarnation, "host", 7, spec, compression="zlib"))]


def of_actors() -> list[Parts]:
    """What an actor may send."""
    big = block(33, 200)
    return [
        hello("actor", "m", b"7"),
        *(block(seq) for seq in (1, 5, 9)),
        block(13, priorities=True),
        _bytes(compress(list(block(17, 16)), widths(SPEC))),
        *(_bytes(part) for part in split(list(big), FRAGMENT_BYTES)),
        [encode(m.Pulse(10, 7, 1, 2, {"in_step_s": 0.5, "parts": [1, "two", None], "rejected": 3}))],
        _bytes(label_parts(1, Label(Kind.OUTCOME, 1, 1, 4, 1))),
        _bytes(label_parts(2, Label(Kind.REWARDS, 1, 1, 2, 0, np.ones((2, 2), np.float32)))),
        _bytes(label_parts(3, Label(Kind.DISCARD, 1, 3, 4))),
        [encode(m.WeightsGet(1, 2, 0, 4096))],
        [encode(m.EpisodeEnd(3, 1.5, 200, 1))],
        [encode(m.Change("pause"))],
        [encode(m.Goodbye(False, "EnvError: gone"))],
    ]


def of_learners() -> list[Parts]:
    """What a learner may send."""
    return [
        hello("learner", "l", b"8"),
        [encode(m.Draw(4, 8, statistics=True))],
        [encode(m.Draw(8, 8, mapped=True))],
        [encode(m.Redraw(3, 2, gather=True))],
        _bytes(rate_message(1, np.arange(4, dtype="<i8"), np.ones(4, "<f4"))),
        [encode(m.Publish(1, 2)), weights(1, 2)],
        _bytes(compress([encode(m.Publish(1, 3)), weights(1, 3)], WEIGHTS)),
        [encode(m.Pulse(report={"sac/alpha": 0.2, "sac/updates_skipped": 1.0}))],
        [encode(m.Goodbye(True))],
    ]


def of_evaluators() -> list[Parts]:
    """What an evaluator may send."""
    returns, lengths, outcomes = np.ones(3, "<f8"), np.ones(3, "<i8"), np.ones(3, "|u1")
    return [
        hello("evaluator", "e", b"5"),
        [encode(m.Evaluation(1, 2, 100, 3)), returns.tobytes(), lengths.tobytes(), outcomes.tobytes()],
    ]


def of_observers() -> list[Parts]:
    """What an observer may send."""
    return [
        hello("observer", "o", b"4"),
        [encode(m.Query("status"))],
        [encode(m.Change("label", 1, "a", "success"))],
        [encode(m.Change("set", 2, "pacing.lead_steps", 64))],
        [encode(m.Change("resume", 3))],
    ]


def of_buffers() -> list[Parts]:
    """What a buffer may send to an actor."""
    packed = weights(1, 2)
    middle = len(packed) // 2
    ids = np.arange(8, dtype="<i8")
    return [
        [encode(m.Welcome(3, 5.0, 0.5, 1 << 20, FRAGMENT_BYTES, 1 << 24, SPEC.to_dict(), ((3, 4),), "ab", compression="zlib"))],
        [encode(m.State("l", 1, 2, 1000, 50, False, "training", 99, None))],
        [encode(m.Ack(3, 4))],
        [encode(m.Reject(3, 5, 6, "non-finite", "rewards"))],
        [encode(m.Received(4096))],
        [encode(m.WeightsPart(1, 2, 0, len(packed))), packed[:middle]],
        [encode(m.WeightsPart(1, 2, middle, len(packed))), packed[middle:]],
        [encode(m.Labelled(1, 3, 1, "ahead", "later"))],
        [encode(m.Declined("malformed", "not msgpack"))],
        _bytes(drawn_message(m.DrawnHead(1, 8), ids, None, None)),
        [encode(m.Published(1, 2))],
        [encode(m.Refused("hello-first", "no session", 0.2))],
        [encode(m.Answer("status")), b"{}"],
    ]


def _bytes(parts: list[bytes | memoryview]) -> Parts:
    return [bytes(part) for part in parts]
