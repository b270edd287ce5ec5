"""Options of the pool and of how it is sampled."""

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


@dataclass(frozen=True)
class SamplingConfig:
    """How the rows of a batch are chosen."""

    method: str = option("uniform", help="each row equally likely, or by its |td|", choices=("uniform", "prioritised"))
    priority_exponent: float = option(
        0.6, help="a of P(i) = p_i^a / sum p^a with prioritised; 0 is uniform, 1 fully proportional", low=0, high=1
    )
    priority_eps: float = option(1e-6, help="added to each |td|, so that every row is drawn some day", low=1e-12, high=1e6)
    importance_exponent: float = option(
        0.4, help="b of the weights (N P)^-b / max that take the bias out of prioritised batches; 0 leaves it in", low=0, high=1
    )
    importance_anneal_updates: int = option(
        0, help="updates over which b rises linearly to 1; 0 keeps it", unit="updates", low=0, high=1 << 53
    )
