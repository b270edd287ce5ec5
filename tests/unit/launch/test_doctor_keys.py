"""What doctor says of keys: which file is wrong, and what to do."""

from __future__ import annotations

import pytest

from headrace.common.wire.key_files import KeyFiles
from headrace.launch.config import make_config
from headrace.launch.doctor import BAD, GOOD, WARN, _keys


@pytest.fixture
def files(tmp_path):
    made = KeyFiles(tmp_path / "keys")
    made.new("arm", "actor")
    return made


def findings(files):
    return [(f.verdict, str(f)) for f in _keys(make_config({"env": {"id": "x"}, "network": {"keys": str(files.path)}}))]


def test_good_keys_are_counted_and_their_secrets_named(files):
    ((verdict, text),) = findings(files)
    assert verdict == GOOD
    assert "2 in" in text
    assert "arm, buffer" in text


def test_a_robot_has_one_secret_and_nothing_else(files):
    for path in (*files.path.glob("*.public"), files.secret_path("buffer")):
        path.unlink()
    ((verdict, text),) = findings(files)
    assert verdict == GOOD
    assert "with the secrets of arm" in text


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda files: files.secret_path("arm").chmod(0o644), "chmod 600"),
        (lambda files: (files.path / "arm.1.public").unlink(), "not known here, or was revoked"),
        (lambda files: (files.path / "leg.1.public").write_text("{}"), "leg.1.public: name: required"),
        (lambda files: files.path.chmod(0o777), "chmod go-w"),
    ],
)
def test_what_is_wrong_is_named(files, spoil, words):
    spoil(files)
    told = findings(files)
    assert [verdict for verdict, _ in told] == [BAD]
    assert words in told[0][1]


def test_what_train_makes_is_not_missed_yet(files, tmp_path):
    ((verdict, text),) = findings(KeyFiles(tmp_path / "none"))
    assert (verdict, "train makes it" in text) == (WARN, True)
    assert list(_keys(make_config({"env": {"id": "x"}}))) == []
