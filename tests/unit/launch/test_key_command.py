"""headrace keys: what it makes, shows and revokes, and what it says when it cannot."""

from __future__ import annotations

import json

import pytest

from headrace.launch import cli


@pytest.fixture
def place(tmp_path):
    return tmp_path / "keys"


def said(capsys, *words, code=0):
    assert cli.main(["keys", *map(str, words)]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else out + err


def test_keys_are_made_shown_replaced_and_revoked(place, capsys):
    made = said(capsys, "new", place, "arm", "leg").split()
    assert made == [str(place / "arm.secret"), str(place / "leg.secret")]
    said(capsys, "new", place, "learner", "--role", "learner")
    said(capsys, "new", place, "arm")
    listed = [json.loads(line) for line in said(capsys, "list", place, "--json").splitlines()]
    files = ["arm.1.public", "arm.2.public", "buffer.1.public", "learner.1.public", "leg.1.public"]
    assert [key["file"] for key in listed] == files
    assert said(capsys, "revoke", place, "arm", "leg", "--old") == "revoked arm.1.public\n"
    assert said(capsys, "revoke", place, "arm", "leg") == "revoked arm.2.public\nrevoked leg.1.public\n"
    table = said(capsys, "list", place).splitlines()
    assert [line.split()[:2] for line in table] == [["name", "role"], ["buffer", "buffer"], ["learner", "learner"]]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("new", "../arm"), "cannot name a key"),
        (("revoke", "arm"), "No such file"),
        (("list",), "No such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(place, capsys, words, error):
    what, *names = words
    text = said(capsys, what, place, *names, code=1)
    assert error in text
    assert text.count("\n") == 1


def test_a_list_names_what_is_damaged_and_fails(place, capsys):
    said(capsys, "new", place, "arm")
    (place / "arm.1.public").write_text("{")
    assert "arm.1.public holds no key" in said(capsys, "list", place, code=1)


def test_beyond_this_host_nothing_is_dialled_without_a_key_unless_one_says_so(capsys):
    words = ["status", "tcp://192.0.2.1:9", "--deadline", "0.05"]  # nobody is there: what matters is whether it is tried
    assert cli.main(words) == 1
    err = capsys.readouterr().err
    assert "--network.keys DIR" in err
    assert "--network.insecure true" in err
    assert cli.main([*words, "--network.insecure", "true"]) == 1
    assert "no status from tcp://192.0.2.1:9 within 0.05 s" in capsys.readouterr().err


def test_who_looks_is_told_which_key_is_missing_and_that_it_may_be_unknown(place, capsys):
    words = ["status", "tcp://127.0.0.1:9", "--deadline", "0.05", "--network.keys", str(place)]
    assert cli.main(words) == 1
    assert f"headrace keys new {place} operator --role operator" in capsys.readouterr().err
    said(capsys, "new", place, "operator", "--role", "operator")
    assert cli.main(words) == 1
    assert f"know the key of {place / 'operator.secret'}" in capsys.readouterr().err
