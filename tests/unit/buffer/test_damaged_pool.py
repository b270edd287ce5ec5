"""A pool's own files, damaged while nobody had it open: what is found is named, and no single bit empties a pool."""

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool
from headrace.buffer.files import Field
from headrace.common.errors import PoolDamaged

SPEC = lane_spec()


def made(path):
    with SACReplayPool(30, path=path, spec=SPEC) as pool:
        pool.insert(Lane(SPEC, 1).block(20), "a", 1, 1)
    return path


def flipped(file, byte, bit):
    data = bytearray(file.read_bytes())
    data[byte] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.parametrize("bit", range(64))
def test_no_bit_of_the_loading_flag_empties_a_pool(tmp_path, bit):
    place = made(tmp_path / "pool")
    header = next(place.rglob("header.bin"))
    flipped(header, 8 * Field.RESTORING + bit // 8, bit % 8)
    with pytest.raises(PoolDamaged, match=r"header\.bin: -?\d+ where only 0 or"):
        SACReplayPool(30, path=place)
    flipped(header, 8 * Field.RESTORING + bit // 8, bit % 8)
    with SACReplayPool(30, path=place) as pool:
        assert pool.size == 20


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
