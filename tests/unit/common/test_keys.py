"""Keys as nouns: what is one, whose it is, and that a secret does not get into a log."""

from __future__ import annotations

import pytest
import zmq

from headrace.common.errors import ConfigError
from headrace.common.wire import keys
from headrace.common.wire.messages import ROLES

PUBLIC, SECRET = keys.new_pair()


def test_a_pair_belongs_together_and_no_two_are_alike():
    assert zmq.curve_public(SECRET.encode()) == PUBLIC.encode()
    assert keys.Secret("a", "actor", SECRET, PUBLIC).public == PUBLIC.encode()
    assert keys.new_pair() != keys.new_pair()


def test_every_session_role_has_one_kind_of_key():
    held = [role for roles in keys.SESSIONS.values() for role in roles]
    assert sorted(held) == sorted(ROLES)


@pytest.mark.parametrize(
    ("role", "identity", "name", "kind"),
    [
        ("actor", "arm-0", "arm-0", "actor"),
        ("evaluator", "eve", "eve", "evaluator"),
        ("learner", "any", "learner", "learner"),
        ("rank", "any.1", "learner", "learner"),
        ("observer", "observer-1", "operator", "operator"),
    ],
)
def test_a_process_takes_the_key_of_its_role_or_id(role, identity, name, kind):
    assert keys.holder(role, identity) == (name, kind)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\nb", "a\0b", "-x", " a", "ä", "x" * 65])
def test_what_cannot_name_a_file_names_no_key(name):
    with pytest.raises(ConfigError, match="cannot name a key"):
        keys.check_name(name)


@pytest.mark.parametrize("half", ["", PUBLIC[:-1], PUBLIC + "0", " " * 40, "#" * 40, "ä" * 40, PUBLIC[:-1] + "~"])
def test_what_is_not_32_bytes_in_z85_is_no_key(half):
    with pytest.raises(ConfigError, match="public: not a key"):
        keys.check_half(half, "public")
    with pytest.raises(ConfigError, match="public: not a key"):
        keys.Key("a", "actor", half).check()
    for secret in (keys.Secret("a", "actor", half, PUBLIC), keys.Secret("a", "actor", SECRET, half)):
        with pytest.raises(ConfigError, match="not a key"):
            secret.check()


def test_the_text_of_a_secret_does_not_hold_it():
    secret = keys.Secret("a", "actor", SECRET, PUBLIC)
    assert SECRET not in f"{secret} {secret!r} {[secret]}"
