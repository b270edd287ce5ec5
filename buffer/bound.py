"""How much private memory a buffer takes at most, whatever is offered to it: the sum of its byte bounds.

The pool's files are mapped and not counted, since the kernel can drop their pages; where they lie in memory (``/dev/shm``)
they take :func:`headrace.buffer.files.nbytes` beside this.
"""

from __future__ import annotations

from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.buffer.demand import ROUND_BYTES
from headrace.buffer.ring import geometry
from headrace.common.bound import MIB, Bound
from headrace.common.specs import TransitionSpec
from headrace.common.staging import batch_nbytes
from headrace.common.wire.batches import AHEAD_BYTES
from headrace.common.wire.codec import MAX_HEADER_BYTES
from headrace.common.wire.network import NetworkConfig

PROCESS = 128 * MIB  # interpreter, libraries, stacks, and what an allocator keeps
SNAPSHOT = 64 * MIB  # pieces that are copied before they are written
DISCARDED, SET, TREE = 32, 34, 5  # bytes a slot: ids and ranks while they change; members, places, groups, versions; sums
COPIES = 4  # of the rows of one commit: cut out, checked, summed up as float64


def bound(
    pool: PoolConfig, sampling: SamplingConfig, network: NetworkConfig, spec: TransitionSpec | None, *, readers: int, rows: int
) -> Bound:
    """The bound of a buffer.

    Args:
        pool: its capacity and actors.
        sampling: the sets that are kept beside the pool.
        network: credit and messages.
        spec: of the rows; None before an actor has declared it, when a commit may be as large as a message.
        readers: ranks of the learner.
        rows: of one update, all its batches together.
    """
    slots = pool.capacity if spec is None else geometry(spec, pool).row_slots
    commit, batch = network.message_bytes, network.message_bytes
    if spec is not None:
        commit = min(commit, COPIES * pool.max_block_rows * (spec.row_dtype.itemsize + 2 * spec.frame_nbytes))
        batch = batch_nbytes(spec, rows)
    trees = (1 + len(sampling.sets)) * (sampling.method == "prioritised")
    return Bound(
        {
            "process": PROCESS,
            "sessions": (pool.max_actors + readers) * (network.credit_bytes + network.fragment_bytes + MAX_HEADER_BYTES),
            "long messages": network.message_bytes * 5 // 4,
            "commit": commit,
            "batches": readers * (max(AHEAD_BYTES, 2 * batch) + batch) + ROUND_BYTES,
            "weights": 2 * network.message_bytes,
            "indexes": slots * (DISCARDED + SET * len(sampling.sets) + TREE * trees),
            "snapshot": SNAPSHOT,
        }
    )
