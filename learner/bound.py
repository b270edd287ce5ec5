"""How much memory a learner takes at most beside torch, its model, optimisers and the copy that becomes a checkpoint."""

from __future__ import annotations

from headrace.common.bound import Bound
from headrace.common.specs import TransitionSpec
from headrace.common.staging import batch_nbytes
from headrace.common.wire.batches import AHEAD_BYTES
from headrace.common.wire.network import NetworkConfig
from headrace.learner.config import LearnerConfig
from headrace.learner.feed import MAX_RATINGS

IN_USE = 3  # batches that arrive, are gathered anew, or are learned from
SETS = 3  # of weights at once: made, packed, and being sent


def bound(
    learner: LearnerConfig,
    network: NetworkConfig,
    spec: TransitionSpec,
    *,
    rows: int,
    weights: int | None = None,
    shards: int = 1,
) -> Bound:
    """The bound of a learner process.

    Args:
        learner: how many batches are kept ahead.
        network: the largest message.
        spec: of the rows.
        rows: of one update, all its batches together.
        weights: bytes of one weight set; None for the most that can be published.
        shards: buffers that it draws from.
    """
    batch = batch_nbytes(spec, rows)
    ahead = min(learner.prefetch_batches * batch, max(2 * batch, shards * AHEAD_BYTES))
    return Bound(
        {
            "batches": ahead + (IN_USE + (shards > 1)) * batch,  # of several, one is put together
            "on the wire": network.credit_bytes + network.fragment_bytes + ahead,  # that many may be messages still
            "weights": SETS * (network.message_bytes if weights is None else weights),
            "ratings": MAX_RATINGS * rows * 16,
        }
    )
