"""Words of the header: each is sealed by itself, so that any one bit that flips is found and named."""

import mmap
import uuid

import numpy as np
import pytest

from headrace.buffer.header import MOST, Field, Header, sealed
from headrace.common.errors import PoolDamaged

NUMBERS = [0, 1, 1023, 0x5555_5555_5555, MOST, *np.random.default_rng(0).integers(0, MOST, 20).tolist()]


def begun():
    header = Header(mmap.mmap(-1, Header.SIZE))
    header.create(uuid.UUID(int=7))
    return header


@pytest.mark.parametrize("field", Field)
def test_a_word_gives_its_number_and_no_flipped_bit_passes(field):
    header = begun()
    for number in NUMBERS:
        header[field] = number
        assert header[field] == number
        assert header.damaged() == []
        for bit in range(64):
            header._words[field] ^= 1 << bit
            assert header.damaged() == [field]
            header._words[field] ^= 1 << bit


def test_whatever_burst_of_sixteen_bits_flips_is_found():
    header, draw = begun(), np.random.default_rng(0)
    header[Field.HEAD] = 123_456_789
    for burst in draw.integers(1, 1 << 16, 200).tolist():
        for shift in range(49):
            header._words[Field.HEAD] ^= burst << shift
            assert header.damaged() == [Field.HEAD]
            header._words[Field.HEAD] ^= burst << shift


def test_a_word_of_another_place_and_an_empty_one_are_found():
    for field in Field:
        for other in Field:
            header = begun()
            header._words[field] = sealed(other, 5)
            assert (header.damaged() == []) == (field is other)
        header._words[field] = 0
        assert header.damaged() == [field]


def test_numpys_numbers_are_as_good_as_pythons():
    assert [sealed(Field.HEAD, np.int64(n)) for n in NUMBERS] == [sealed(Field.HEAD, n) for n in NUMBERS]


@pytest.mark.parametrize("number", [-1, MOST + 1, 1 << 64])
def test_a_number_that_does_not_fit_is_not_stored(number):
    header = begun()
    with pytest.raises(ValueError, match="EPOCH: .* a word holds 0 to"):
        header[Field.EPOCH] = number
    assert header[Field.EPOCH] == 0
    assert header.damaged() == []


def test_what_is_refused_is_named(tmp_path):
    header = begun()
    header._words[Field.RETIRED] ^= 4
    header.require_whole(tmp_path, (Field.BOOT,))
    with pytest.raises(PoolDamaged, match=rf"{tmp_path}/header\.bin: .*: RETIRED \(bytes 88 to 95, 4\)"):
        header.require_whole(tmp_path)


def test_the_pool_is_named_in_front():
    header = begun()
    assert header.is_of(uuid.UUID(int=7))
    assert not header.is_of(uuid.UUID(int=8))
    for byte in range(32):
        header._buffer[byte] ^= 1
        assert not header.is_of(uuid.UUID(int=7))
        header._buffer[byte] ^= 1
