"""A pool's own files, damaged while nobody had it open: what is found is named, and no single bit of the header passes."""

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec

from headrace.buffer import SACReplayPool
from headrace.buffer.header import Field
from headrace.buffer.view import PoolView
from headrace.common.errors import PoolDamaged

SPEC = lane_spec()


def made(path, *, closed=True):
    pool = SACReplayPool(30, path=path, spec=SPEC)
    pool.insert(Lane(SPEC, 1).block(20), "a", 1, 1)
    if closed:
        pool.close()
    else:
        die(pool)
    return path


def flipped(file, byte, bit):
    data = bytearray(file.read_bytes())
    data[byte] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("field", Field)
def test_a_flipped_bit_of_the_header_is_refused_by_the_name_of_its_word(tmp_path, field, closed):
    place = made(tmp_path / "pool", closed=closed)
    header = next(place.rglob("header.bin"))
    for byte, bit in ((0, 0), (1, 3), (3, 7), (5, 6), (6, 1), (7, 7)):
        flipped(header, 8 * field + byte, bit)
        for opened in (lambda: SACReplayPool(30, path=place), lambda: PoolView(place)):
            with pytest.raises(PoolDamaged, match=rf"header\.bin: not what was written: {field.name} \("):
                opened()
        flipped(header, 8 * field + byte, bit)
    with SACReplayPool(30, path=place) as pool:
        assert pool.size == 20
        assert pool.check_valid() == (True, "")


def test_a_row_that_points_beyond_all_frames_is_refused_by_its_file(tmp_path):
    place = made(tmp_path / "pool", closed=False)
    rows = np.load(next(place.rglob("rows.npy")), mmap_mode="r+")
    rows["obs"] |= 1 << 60
    rows.flush()
    with pytest.raises(PoolDamaged, match=r"rows\.npy: a row points at frame \d+, a pool counts from 0 to \d+"):
        SACReplayPool(30, path=place)


@pytest.mark.parametrize("byte", range(32))
def test_a_flipped_bit_in_front_of_the_words_is_refused(tmp_path, byte):
    place = made(tmp_path / "pool")
    flipped(next(place.rglob("header.bin")), byte, byte % 8)
    with pytest.raises(PoolDamaged, match=r"header\.bin: not the header of pool"):
        SACReplayPool(30, path=place)


def test_the_header_of_other_sizes_is_refused(tmp_path):
    place = made(tmp_path / "pool")
    header = next(place.rglob("header.bin"))
    old = header.read_bytes()
    SACReplayPool(20, path=place).close()
    next(place.rglob("header.bin")).write_bytes(old)
    with pytest.raises(PoolDamaged, match=r"header\.bin: of 30 rows, the pool has 20"):
        SACReplayPool(20, path=place)


@pytest.mark.parametrize("name", ["rows.npy", "outcome.npy"])
def test_a_flipped_bit_in_front_of_a_columns_numbers_is_named_or_changes_nothing(tmp_path, name):
    place, said = made(tmp_path / "pool"), []
    file = next(place.rglob(name))
    for byte in np.random.default_rng(0).integers(0, 118, 60).tolist():
        flipped(file, byte, 5)
        try:
            with SACReplayPool(30, path=place) as pool:
                assert pool.size == 20
        except PoolDamaged as error:
            said.append(str(error))
        flipped(file, byte, 5)
    assert len(said) > 30
    assert all(name in text for text in said)
