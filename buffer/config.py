"""Options of the pool."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.common.config import option


@dataclass(frozen=True)
class PoolConfig:
    """How large the pool is; on which medium it lies is said by whoever makes it."""

    capacity: int = option(1_000_000, help="newest rows that the pool keeps", unit="rows", low=1, high=1 << 40)
    min_block_rows: int = option(
        1,
        help="fewest rows of a regular block and of a regular episode; sizes the frame ring, 1 is always safe",
        unit="rows",
        low=1,
        high=1 << 20,
    )
    max_block_rows: int = option(
        1024, help="most rows committed at once; larger blocks are split", unit="rows", low=1, high=1 << 20
    )
    max_actors: int = option(64, help="actor names that the ledger can ever hold", unit="actors", low=1, high=1 << 16)
