import errno

import numpy as np
import pytest
from helpers.lane_rows import lane_spec

from headrace.buffer import files, space
from headrace.buffer.config import PoolConfig
from headrace.buffer.files import frame_file
from headrace.buffer.header import Field, Header
from headrace.buffer.ring import geometry
from headrace.common.errors import NoSpace, PoolDamaged

SPEC = lane_spec(image=4)
SIZES = geometry(SPEC, PoolConfig(capacity=10, max_block_rows=4))


def test_no_key_is_a_path_and_no_two_share_a_name():
    keys = ["obs", "a/b", "a%2Fb", "..", "../x", "", ".", "a.b", "A\0", "é", "\n", "x" * 5000, "x" * 5001, "\ud800"]
    names = [frame_file(k) for k in keys]
    assert len(set(names)) == len(keys)
    for name in names:
        assert "/" not in name
        assert "\0" not in name
        assert len(name.encode()) < 255
        assert name not in (".", "..")


def test_files_open_with_plain_numpy_and_are_reserved(tmp_path):
    made = files.create(tmp_path, SPEC, SIZES, 100)
    made.rows["seq"][3] = 7
    made.frames["camera/0"][2] = 9
    made.columns["outcome"][1] = 2
    assert np.load(tmp_path / "rows.npy")["seq"][3] == 7
    assert np.load(tmp_path / "outcome.npy")[1] == 2
    camera = np.load(tmp_path / "frames.camera%2F0.npy")
    assert camera.shape == (SIZES.frame_slots, 4, 4)
    assert camera[2].tolist() == [[9] * 4] * 4
    header = Header((tmp_path / "header.bin").read_bytes())
    assert header[Field.CAPACITY] == 10
    assert header.raw(8) == b"headrace"
    for path in tmp_path.iterdir():
        assert path.stat().st_blocks * 512 >= path.stat().st_size


def test_a_new_owner_raises_the_epoch(tmp_path):
    made = files.create(tmp_path, SPEC, SIZES, 100)
    made.begin(11)
    again = files.open_existing(tmp_path, SPEC, SIZES, 100, made.pool_id)
    again.begin(12)
    header = Header((tmp_path / "header.bin").read_bytes())
    assert (header[Field.EPOCH], header[Field.NONCE]) == (2, 12)


@pytest.mark.parametrize("name", ["rows.npy", "outcome.npy", "frames.obs.npy", "header.bin", "ledger.bin"])
def test_a_cut_or_missing_file_is_named(tmp_path, name):
    made = files.create(tmp_path, SPEC, SIZES, 100)
    path = tmp_path / name
    whole = path.read_bytes()
    for part in (whole[:-1], whole[:20], b""):
        path.write_bytes(part)
        with pytest.raises(PoolDamaged, match=name):
            files.open_existing(tmp_path, SPEC, SIZES, 100, made.pool_id)
    path.unlink()
    with pytest.raises(PoolDamaged, match=name):
        files.open_existing(tmp_path, SPEC, SIZES, 100, made.pool_id)


def test_a_file_of_another_pool_is_named(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    made, other = files.create(here, SPEC, SIZES, 100), files.create(there, SPEC, SIZES, 100)
    (here / "header.bin").write_bytes((there / "header.bin").read_bytes())
    with pytest.raises(PoolDamaged, match="header.bin"):
        files.open_existing(here, SPEC, SIZES, 100, made.pool_id)
    files.open_existing(here, SPEC, SIZES, 100, other.pool_id)


def test_an_object_array_is_never_loaded(tmp_path):
    made = files.create(tmp_path, SPEC, SIZES, 100)
    np.save(tmp_path / "rows.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(PoolDamaged, match=r"rows\.npy"):
        files.open_existing(tmp_path, SPEC, SIZES, 100, made.pool_id)


def test_too_little_space_is_known_before_anything_is_written(tmp_path, monkeypatch):
    def refuse(needed, directory):
        raise NoSpace(f"{needed}")

    monkeypatch.setattr(space, "require", refuse)
    with pytest.raises(NoSpace) as caught:
        files.create(tmp_path, SPEC, SIZES, 100)
    assert int(str(caught.value)) > SIZES.row_slots * SPEC.row_dtype.itemsize + SIZES.frame_slots * SPEC.frame_nbytes
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", range(6))
def test_a_reservation_that_fails_leaves_nothing(tmp_path, monkeypatch, step):
    real, calls = files.os.posix_fallocate, []

    def fallocate(*args):
        calls.append(args)
        if len(calls) == step + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args)

    monkeypatch.setattr(files.os, "posix_fallocate", fallocate)
    with pytest.raises(NoSpace, match="No space left"):
        files.create(tmp_path, SPEC, SIZES, 100)
    assert list(tmp_path.iterdir()) == []
