"""The learner's speed table: which processes each row starts, and what is asked of it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from speed.children import Child
from speed.rows import Bar, Most, Row, Setup, Subject
from speed.table import filled_buffer

ROWS, QUICK_ROWS = 200_000, 10_000
FP32, BF16 = "fp32", "bf16"
SB3, SBX = "stable-baselines3", "SBX"
PEERS = {"sb3": SB3, "sbx": SBX}
MOST_WAITING, MOST_PUBLISHING, MOST_APART = 2.0, 1.0, 1e-6
Subjects = dict[str, Subject]


class Waiting:
    """Percent of its wall time that a learner has no batch."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def window(self, seconds: float) -> float:
        """Of the next ``seconds``."""
        self._child.window(seconds)
        return 100 * float(self._child.last["waiting"])


class Apart:
    """The largest difference of two children's losses of the same update, relative to the loss where that is above 1."""

    def __init__(self, one: Child, other: Child) -> None:
        self._children = one, other

    def window(self, seconds: float) -> float:
        """Of the updates that both made first."""
        for child in self._children:
            child.window(0.0)
        one, other = ([loss for update in child.last["losses"] for loss in update] for child in self._children)
        return max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(one, other, strict=True))


def _precisions() -> tuple[str, ...]:
    """What is worth measuring here."""
    import torch  # the results page needs this table too, and not torch

    from headrace.learner.precision import is_native

    return (FP32, BF16) if is_native(torch.device("cpu")) else (FP32,)


def _ours(setup: Setup, stack: ExitStack, **options: Any) -> Child:
    """A learner beside a buffer of its own."""
    rows = QUICK_ROWS if setup.quick else ROWS
    endpoint = filled_buffer(setup, stack, "flat", rows, rows)
    child: Child = stack.enter_context(Child("learning.py", {"role": "learner", "endpoint": endpoint, **options}))
    return child


def _updates(threads: int, *, autograd: bool) -> Row:
    def start(setup: Setup, stack: ExitStack) -> Subjects:
        out: Subjects = {}
        for precision in _precisions():
            options = {"threads": threads, "precision": precision}
            out[f"headrace {precision}"] = _ours(setup, stack, **options)
            if autograd:
                out[f"by autograd {precision}"] = _ours(setup, stack, **options, by_hand=False)
            out[f"products {precision}"] = stack.enter_context(Child("learning.py", {"role": "products", **options}))
        for peer, name in PEERS.items():
            if peer in setup.pythons:
                options = {"role": peer, "threads": threads, "rows": QUICK_ROWS if setup.quick else ROWS}
                out[name] = stack.enter_context(Child("sac_rivals.py", options, setup.pythons[peer]))
        return out

    least = {1: (1.2, 1.65, 1.0), 2: (1.3, 2.0, None)}[threads]
    bars = [
        Bar("headrace fp32", (SB3,), least[0]),
        Bar("headrace bf16", (SB3,), least[1]),
        Bar("headrace fp32", (SBX,)),
        Bar("headrace bf16", (SBX,), least[2]),
        Bar("headrace bf16", ("headrace fp32",)),
        *(Bar(f"headrace {p}", (f"by autograd {p}",)) for p in (FP32, BF16)),
        *(Bar(f"headrace {p}", (f"products {p}",)) for p in (FP32, BF16)),
    ]
    title = f"SAC, batch 256, 256x256 twin critics, obs 17, act 6, batches of a buffer's process, {threads} at work"
    return Row(f"update-{threads}", title, "updates/s", _BOUND, tuple(bars), start, rounds=8)


def _waiting(setup: Setup, stack: ExitStack) -> Subjects:
    options = {"threads": 2, "precision": _precisions()[-1]}
    return {"headrace": Waiting(_ours(setup, stack, **options))}


def _publishing(setup: Setup, stack: ExitStack) -> Subjects:
    options = {"role": "publisher", "threads": 1, "precision": _precisions()[-1]}
    return {"headrace": _ours(setup, stack, **options)}


def _ranks(setup: Setup, stack: ExitStack) -> dict[str, Child]:
    groups = {"1 rank": 1, "2 ranks": 2}
    return {name: stack.enter_context(Child("learning.py", {"role": "ranks", "size": size})) for name, size in groups.items()}


def _losses(setup: Setup, stack: ExitStack) -> Subjects:
    return {"largest difference": Apart(*_ranks(setup, stack).values())}


_BOUND = "products: what the arithmetic alone would take at the rate of 256 x 256 x 256 products on as many threads."
_TABLE = (
    _updates(1, autograd=True),
    _updates(2, autograd=False),
    Row(
        *("waiting", "a learner at full speed without a batch, 2 at work", "% of wall time"),
        "Batches are gathered by a thread of the learner as soon as the buffer has drawn them, half of 32 at a time.",
        (Most("headrace", MOST_WAITING),),
        _waiting,
    ),
    Row(
        *("publish", "what a publish every 50 updates takes of them, 1 at work", "%"),
        "Training pays for a copy of the policy and a wake-up; packing and sending are done by the link's thread.",
        (Most("headrace", MOST_PUBLISHING),),
        _publishing,
        window_s=6.0,
    ),
    Row(
        *("ranks", "2 ranks of 128 rows over gloo, and 1 rank of 256, on the same rows and noise", "updates/s"),
        "Two flat sums an update over loopback, and the order to update; two processes, and half the rows each.",
        (Bar("2 ranks", ("1 rank",)),),
        lambda setup, stack: {**_ranks(setup, stack)},
    ),
    Row(
        *("ranks-losses", "losses of 2 ranks and of 1 on the same rows and noise, 20 updates", "of a loss above 1"),
        "Sums in another order.",
        (Most("largest difference", MOST_APART),),
        _losses,
    ),
)
TABLE = {row.name: row for row in _TABLE}
