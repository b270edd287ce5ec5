import json

import pytest

from headrace.buffer import manifest
from headrace.common.errors import PoolDamaged


def test_round_trip_and_replacement(tmp_path):
    assert manifest.read(tmp_path) is None
    manifest.write(tmp_path, {"a": 1, "b": [1.5, "x"]})
    manifest.write(tmp_path, {"a": 2})
    assert manifest.read(tmp_path) == {"a": 2}
    assert [p.name for p in tmp_path.iterdir()] == [manifest.NAME]


def test_every_changed_byte_is_noticed(tmp_path):
    manifest.write(tmp_path, {"capacity": 100, "files": {"a": "b"}})
    path = tmp_path / manifest.NAME
    good = path.read_bytes()
    for i in range(len(good)):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        try:
            assert manifest.read(tmp_path) == {"capacity": 100, "files": {"a": "b"}}  # white space only
        except PoolDamaged as error:
            assert manifest.NAME in str(error)  # noqa: PT017  # both outcomes are right, by byte


def test_one_that_cannot_be_read_is_damaged(tmp_path):
    (tmp_path / manifest.NAME).mkdir()
    with pytest.raises(PoolDamaged, match=r"manifest.json: cannot be read \(Is a directory\)"):
        manifest.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "7", '{"a": 1}', json.dumps({"sha256": 3}), "[" * 100_000])
def test_what_is_no_manifest_is_named(tmp_path, text):
    (tmp_path / manifest.NAME).write_text(text)
    with pytest.raises(PoolDamaged, match=manifest.NAME):
        manifest.read(tmp_path)
