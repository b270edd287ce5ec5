import mmap

import pytest

from headrace.buffer.journal import Journal, size


def test_the_newest_record_is_there_and_no_other():
    buffer = mmap.mmap(-1, size(100))
    journal = Journal(buffer)
    assert journal.read(0) is None
    assert journal.read(1) is None
    journal.write(1, b"one" * 30)
    assert journal.read(1) == b"one" * 30
    journal.write(3, b"")
    assert (journal.read(1), journal.read(3)) == (None, b"")


def test_a_flipped_bit_anywhere_unmakes_a_record():
    buffer = mmap.mmap(-1, size(100))
    journal = Journal(buffer)
    journal.write(5, b"record")
    for at in range(32 + 16 + 6):
        for bit in range(8):
            buffer[at] ^= 1 << bit
            assert journal.read(5) is None
            buffer[at] ^= 1 << bit
    assert journal.read(5) == b"record"


def test_a_record_that_does_not_fit_is_refused():
    journal = Journal(mmap.mmap(-1, size(100)))
    with pytest.raises(ValueError, match="record of 5000 bytes"):
        journal.write(1, bytes(5000))
