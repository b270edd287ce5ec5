import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, die, prove_pool

from headrace.buffer import books
from headrace.common.errors import PoolDamaged


def test_a_damaged_ledger_is_named_when_no_copy_is_left(tmp_path):
    pool = make(5, path=tmp_path)
    put(pool, Lane(SPECS["plain"], 1), 3)
    pool.close()
    whole = bytearray((tmp_path / "generation-000001" / "ledger.bin").read_bytes())
    for start in (100, len(whole) // 2 + 100):
        whole[start] ^= 1
    (tmp_path / "generation-000001" / "ledger.bin").write_bytes(whole)
    with pytest.raises(PoolDamaged, match=r"ledger\.bin"):
        make(5, path=tmp_path)


def test_a_kill_between_the_two_copies_loses_nothing(tmp_path):
    """Whichever copy is torn at the kill, the other and the rows give back ledger, counters and statistics."""
    lane = Lane(SPECS["plain"], 1)
    with make(6, path=tmp_path) as pool:
        for _ in range(9):
            put(pool, lane, 2)
    pool = make(6, path=tmp_path)
    put(pool, lane, 4)
    expected, statistics = pool.counters(), pool.statistics()
    die(pool)
    whole = (tmp_path / "generation-000001" / "ledger.bin").read_bytes()
    for copy in (0, 1):
        torn = bytearray(whole)
        torn[copy * len(whole) // 2 + 60] ^= 1
        (tmp_path / "generation-000001" / "ledger.bin").write_bytes(torn)
        pool = make(6, path=tmp_path)
        assert pool.counters() == expected
        np.testing.assert_allclose(pool.statistics().var["obs"], statistics.var["obs"], rtol=1e-6)
        assert pool.statistics().count == 22
        prove_pool(pool)
        die(pool)


def test_replay_at_open_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(books, "STAMP_ROWS", 20)
    lane = Lane(SPECS["plain"], 1)
    pool = make(1000, path=tmp_path)
    for _ in range(30):
        put(pool, lane, 7)
        assert pool.head - pool._store.files.stamps.newest < 20
    pool.close()
