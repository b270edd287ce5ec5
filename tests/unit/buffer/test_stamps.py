import mmap

import pytest

from headrace.buffer.stamps import Stamps, size
from headrace.common.errors import PoolDamaged


@pytest.fixture
def buffer():
    with mmap.mmap(-1, size(16)) as memory:
        yield memory


def payload(n):
    return n.to_bytes(16, "little")


def test_the_newest_of_many_is_read_back(buffer):
    stamps = Stamps(buffer, 16)
    for head in range(10):
        stamps.write(head, payload(head))
        assert stamps.newest == head
        assert stamps.older == max(0, head - 1)
    found = Stamps(buffer, 16).read(0, 9)
    assert (found.head, found.payload) == (9, payload(9))


def test_a_torn_write_leaves_the_other_copy(buffer):
    stamps = Stamps(buffer, 16)
    stamps.write(5, payload(5))
    before = bytes(buffer)
    stamps.write(8, payload(8))
    after = bytes(buffer)
    changed = [i for i in range(len(after)) if after[i] != before[i]]
    for cut in changed[1:]:
        buffer[:] = after[:cut] + before[cut:]
        assert Stamps(buffer, 16).read(0, 9).head == 5
    buffer[:] = after
    reader = Stamps(buffer, 16)
    assert reader.read(0, 9).head == 8
    reader.write(9, payload(9))
    assert Stamps(buffer, 16).read(0, 9).head == 9


def test_after_damage_the_next_write_spares_the_good_copy(buffer):
    stamps = Stamps(buffer, 16)
    stamps.write(5, payload(5))
    stamps.write(8, payload(8))
    buffer[size(16) // 2 + 40] ^= 1
    reader = Stamps(buffer, 16)
    assert reader.read(0, 9).head == 5
    reader.write(9, payload(9))
    assert reader.older == 5
    assert Stamps(buffer, 16).read(0, 9).head == 9


def test_copies_from_beyond_the_rows_do_not_count(buffer):
    stamps = Stamps(buffer, 16)
    stamps.write(5, payload(5))
    stamps.write(8, payload(8))
    assert Stamps(buffer, 16).read(0, 7).head == 5
    with pytest.raises(PoolDamaged, match="ledger.bin"):
        Stamps(buffer, 16).read(0, 4)
    with pytest.raises(PoolDamaged, match="ledger.bin"):
        Stamps(buffer, 16).read(9, 20)
