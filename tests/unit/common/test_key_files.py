"""Keys as files: made with the right bits, refused with wider ones, replaced and revoked; every error says what to do."""

from __future__ import annotations

import json
import os
import stat

import pytest

from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import KeyFiles, own_secret
from headrace.common.wire.network import NetworkConfig


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def files(tmp_path):
    return KeyFiles(tmp_path / "keys")


def bits(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_is_its_owners_alone_whatever_the_umask_from_the_first_instant(files, umask, monkeypatch):
    made, real = {}, os.open

    def note(path, flags, mode=0o777, **rest):
        descriptor = real(path, flags, mode, **rest)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL, "somebody may have put a file or a link there"
            made[os.path.basename(path)] = stat.S_IMODE(os.fstat(descriptor).st_mode)
        return descriptor

    monkeypatch.setattr(os, "open", note)
    secret = files.new("arm", "actor")
    assert {name: mode for name, mode in made.items() if ".secret." in name and mode & 0o077} == {}
    assert len(made) == 4
    assert (bits(secret), bits(files.secret_path("buffer"))) == (0o600, 0o600)
    assert bits(files.path / "arm.1.public") == 0o644
    assert bits(files.path) & 0o077 == 0
    assert sorted(p.name for p in files.path.iterdir()) == ["arm.1.public", "arm.secret", "buffer.1.public", "buffer.secret"]


def test_what_was_made_is_read_back_and_all_know_the_same_buffer(files):
    files.new("arm", "actor")
    files.new("learner", "learner")
    arm, learner, buffer = (files.secret(n, r) for n, r in (("arm", "actor"), ("learner", "learner"), ("buffer", "buffer")))
    keys, problems = files.public()
    assert problems == []
    assert {(k.name, k.role, k.public.encode()) for k in keys.values()} == {
        (s.name, s.role, s.public) for s in (arm, learner, buffer)
    }
    assert arm.buffer == learner.buffer == buffer.public.decode()
    assert json.loads(files.secret_path("arm").read_text())["name"] == "arm"  # text that people can read


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o602, 0o666])
def test_a_secret_that_others_may_touch_is_refused_with_the_command_that_mends_it(files, mode):
    path = files.new("arm", "actor")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        files.secret("arm", "actor")
    path.chmod(0o400)
    assert files.secret("arm", "actor").name == "arm"


def test_a_missing_secret_is_named_with_the_command_that_makes_it(files):
    network = NetworkConfig(keys=str(files.path))
    with pytest.raises(ConfigError, match=r"keys/arm\.secret is missing.*`headrace keys new .*/keys arm --role actor`"):
        own_secret(network, "actor", "arm")
    with pytest.raises(ConfigError, match=r"operator\.secret is missing.*operator --role operator"):
        own_secret(network, "observer", "observer-17")
    with pytest.raises(ConfigError, match="cannot name a key"):
        own_secret(network, "actor", "../arm")
    assert own_secret(NetworkConfig(), "actor", "arm") is None


def test_a_secret_of_another_role_is_refused_by_name(files):
    files.new("learner", "actor")
    with pytest.raises(ConfigError, match="role actor, needed is learner"):
        own_secret(NetworkConfig(keys=str(files.path)), "rank", "learner.1")


def test_a_further_key_of_a_name_leaves_the_one_before_valid_until_that_is_revoked(files):
    files.new("arm", "actor")
    old = files.secret("arm", "actor")
    files.new("arm", "actor")
    new = files.secret("arm", "actor")
    assert new.secret != old.secret
    assert {k.public.encode() for k in files.public()[0].values() if k.name == "arm"} == {old.public, new.public}
    assert [p.name for p in files.revoke("arm", old=True)] == ["arm.1.public"]
    assert [k.public.encode() for k in files.public()[0].values() if k.name == "arm"] == [new.public]
    assert files.secret("arm", "actor") == new
    assert files.revoke("arm", old=True) == []
    assert [p.name for p in files.revoke("arm")] == ["arm.2.public"]
    assert not files.secret_path("arm").exists()
    with pytest.raises(ConfigError, match="no key of 'arm'.*there are buffer"):
        files.revoke("arm")


def test_ten_keys_of_one_name_are_numbered_and_the_tenth_is_the_newest(files):
    for _ in range(10):
        files.new("arm", "actor")
    assert len(files.revoke("arm", old=True)) == 9
    assert [n for n in files.public()[0] if n.startswith("arm")] == ["arm.10.public"]


def test_names_with_dots_and_numbers_are_kept_apart(files):
    files.new("arm", "actor")
    files.new("arm.1", "actor")
    assert [p.name for p in files.revoke("arm")] == ["arm.1.public"]
    assert "arm.1.1.public" in files.public()[0]


def test_a_name_keeps_its_role_and_the_buffers_key_is_for_good(files):
    files.new("arm", "actor")
    with pytest.raises(ConfigError, match="has a key of role actor"):
        files.new("arm", "learner")
    before = files.secret("buffer", "buffer")
    assert files.new("buffer", "buffer") == files.secret_path("buffer")
    assert files.secret("buffer", "buffer") == before
    with pytest.raises(ConfigError, match="in every secret"):
        files.revoke("buffer")


def test_keys_can_be_made_where_the_buffers_secret_is_not(files):
    files.new("arm", "actor")
    files.secret_path("buffer").unlink()
    files.new("leg", "actor")
    assert files.secret("leg", "actor").buffer == files.secret("arm", "actor").buffer
    assert not files.secret_path("buffer").exists()


DAMAGED = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[1]",
    "too long": b" " * 5000 + b"{}",
    "nested": b"[" * 4000,
    "no text": b"\xff\xfe",
    "a field too many": b'{"name": "arm", "role": "actor", "public": "x", "admin": true}',
    "another role": b'{"name": "arm", "role": "root", "public": "x"}',
    "no key": b'{"name": "arm", "role": "actor", "public": "x"}',
    "a number": b'{"name": 3, "role": "actor", "public": "x"}',
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_no_key_and_named_and_the_others_are_good(files, what):
    files.new("leg", "actor")
    (files.path / "arm.1.public").write_bytes(DAMAGED[what])
    files.secret_path("arm").write_bytes(DAMAGED[what])
    files.secret_path("arm").chmod(0o600)
    keys, problems = files.public()
    assert sorted(k.name for k in keys.values()) == ["buffer", "leg"]
    assert len(problems) == 1
    assert "arm.1.public" in problems[0]
    with pytest.raises(ConfigError, match=r"arm\.secret"):
        files.secret("arm", "actor")


def test_who_may_write_here_may_let_people_in_so_only_the_owner_may(files):
    files.new("arm", "actor")
    (files.path / "arm.1.public").chmod(0o664)
    keys, problems = files.public()
    assert [k.name for k in keys.values()] == ["buffer"]
    assert f"chmod go-w {files.path / 'arm.1.public'}" in problems[0]
    files.path.chmod(0o775)
    for look in (files.public, files.stamp, lambda: files.new("leg", "actor")):
        with pytest.raises(ConfigError, match=f"chmod go-w {files.path}"):
            look()


def test_a_pipe_holds_nobody_up(files):
    files.new("leg", "actor")
    os.mkfifo(files.path / "arm.1.public", 0o600)
    assert "is no file" in files.public()[1][0]


def test_the_stamp_changes_with_whatever_changes_the_answer(files):
    files.new("leg", "actor")
    stamps = [files.stamp(), files.stamp()]
    assert stamps[0] == stamps[1]
    for change in (
        lambda: files.new("arm", "actor"),
        lambda: files.new("arm", "actor"),
        lambda: files.revoke("arm", old=True),
        lambda: (files.path / "leg.1.public").chmod(0o666),
        lambda: files.revoke("arm"),
    ):
        change()
        assert files.stamp() not in stamps
        stamps.append(files.stamp())


def test_a_directory_that_is_not_there_is_an_error_that_names_it(files):
    for look in (files.public, files.stamp, lambda: files.revoke("arm")):
        with pytest.raises(ConfigError, match=f"network.keys: {files.path}: No such file"):
            look()
