"""How much private memory an actor takes at most beside its environment, its policy's library and the interpreter."""

from __future__ import annotations

from headrace.actor.config import ActorConfig
from headrace.actor.label_box import LABEL_BYTES
from headrace.actor.uplink import EVENT_BYTES
from headrace.common.bound import Bound
from headrace.common.specs import TransitionSpec
from headrace.common.wire.network import NetworkConfig

SETS = 4  # of weights at once: parts that came, their whole, what it was unpacked to, and the one that acts


def bound(actor: ActorConfig, network: NetworkConfig, spec: TransitionSpec, *, lanes: int, weights: int | None = None) -> Bound:
    """The bound of an actor process.

    Args:
        actor: its outbox and blocks.
        network: credit and messages.
        spec: of the rows.
        lanes: parallel episodes.
        weights: bytes of one weight set; None for the most that a learner can publish.
    """
    # a block brings a frame a row, the frames ahead of its last row, the history of its first stack, and its episodes' ends
    frames = 2 * actor.block_rows + spec.window + spec.stack
    block = actor.block_rows * spec.row_dtype.itemsize + frames * spec.frame_nbytes
    return Bound(
        {
            "outbox": actor.outbox_bytes + block,  # which takes one block more while there is room
            "lanes": lanes * block,
            "on the wire": network.credit_bytes + network.fragment_bytes + 2 * block,  # which is cut into fragments from a copy
            "weights": SETS * (network.message_bytes if weights is None else weights),
            "labels and events": 2 * LABEL_BYTES + 2 * EVENT_BYTES,
        }
    )
