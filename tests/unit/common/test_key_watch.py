"""The key watch: changes of the directory reach the keyring, and what cannot be read lets nobody in."""

from __future__ import annotations

import pytest

from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.key_watch import LOOK_S, KeyWatch
from headrace.common.wire.keyring import Keyring


@pytest.fixture
def files(tmp_path):
    made = KeyFiles(tmp_path / "keys")
    made.new("arm", "actor")
    return made


def test_new_and_revoked_keys_are_known_at_the_next_look(files):
    ring = Keyring(b"here")
    watch = KeyWatch(files, ring)
    arm = files.secret("arm", "actor").public.decode()
    assert ring.who(arm).name == "arm"
    assert not watch.look(0.0)
    files.new("leg", "actor")
    leg = files.secret("leg", "actor").public.decode()
    assert not watch.look(LOOK_S / 2)  # a directory is not read at every turn of the loop
    assert watch.look(LOOK_S)
    assert ring.who(leg).name == "leg"
    assert not watch.look(2 * LOOK_S)
    files.revoke("arm")
    assert watch.look(3 * LOOK_S)
    assert ring.who(arm) is None


def test_a_directory_that_goes_lets_nobody_in_until_it_is_back(files):
    ring = Keyring(b"here")
    watch = KeyWatch(files, ring)
    aside = files.path.rename(files.path.with_name("aside"))
    assert not watch.look(0.0)  # no session is to end
    assert "No such file" in ring.report()["problems"][0]
    aside.rename(files.path)
    assert watch.look(LOOK_S)
    assert ring.report()["problems"] == []


def test_a_file_that_is_damaged_later_is_told_and_its_key_unknown(files):
    ring = Keyring(b"here")
    watch = KeyWatch(files, ring)
    arm = files.secret("arm", "actor").public.decode()
    (files.path / "arm.1.public").write_text("{")
    assert watch.look(0.0)
    assert ring.who(arm) is None
    assert "arm.1.public" in ring.report()["problems"][0]


def test_without_a_directory_there_is_no_start(tmp_path):
    with pytest.raises(ConfigError, match="nothing: No such file"):
        KeyWatch(KeyFiles(tmp_path / "nothing"), Keyring(b"here"))
