"""The command line: words parted rightly, every option documented, one clear line for what is wrong."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headrace.launch import cli, exits
from headrace.launch.keys import all_keys, keys_text

PENDULUM = {"env": {"id": "Pendulum-v1"}}


@pytest.fixture
def config_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(PENDULUM))
    return tmp_path / "p.yaml"


def fails(capsys, *words):
    """The one line that the command says on standard error."""
    code = cli.main(words)
    out, err = capsys.readouterr()
    assert code == 1
    assert out == ""
    assert err.startswith("headrace: error: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("words", "known", "overrides"),
    [
        ("train c.yaml --learner.lr 3e-4 --seed 1", "train c.yaml", "--learner.lr 3e-4 --seed 1"),
        ("train --seed=1 c.yaml", "train c.yaml", "--seed=1"),
        ("train --learner.lr 3e-4 c.yaml", "train c.yaml", "--learner.lr 3e-4"),
        ("train --seeds 0..4 c.yaml", "train --seeds 0..4 c.yaml", ""),
        ("train c.yaml --run.flag --env.kwargs.x -1", "train c.yaml", "--run.flag --env.kwargs.x -1"),
        ("status tcp://127.0.0.1:5 --json", "status tcp://127.0.0.1:5 --json", ""),
    ],
)
def test_words_are_parted_into_options_and_overrides(words, known, overrides):
    assert cli.split_overrides(words.split()) == (known.split(), overrides.split())


def subcommands():
    action = next(a for a in cli.make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return action.choices


def test_every_help_text_can_be_shown():
    """A % in one of them is a format to argparse, and is met only when the text is made."""
    assert "95 % intervals" in " ".join(cli.make_parser().format_help().split())
    for parser in subcommands().values():
        assert parser.format_help()


MANUAL = [
    "train",
    "buffer",
    "learner",
    "actor",
    "policy-server",
    "eval",
    "export",
    "plot",
    "status",
    "pool",
    "chaos",
    "dry-run",
    "record",
    "pause",
    "resume",
    "label",
    "set",
    "classifier",
    "keys",
    "launch",
    "doctor",
]


def test_every_command_of_the_manual_is_there():
    assert list(subcommands()) == MANUAL


@pytest.mark.parametrize("name", MANUAL)
def test_every_option_says_what_it_is(name, capsys):
    parser = subcommands()[name]
    assert all(action.help for action in parser._actions), [a.dest for a in parser._actions if not a.help]
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert ("--learner.batch_size" in text) == parser.lists_keys


def test_the_exit_codes_stand_in_the_help_of_train_and_in_the_readme(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    readme = (Path(__file__).resolve().parents[3] / "README.md").read_text()
    for text in (capsys.readouterr().out, readme):
        assert exits.TEXT in " ".join(text.split())


def parsers(parser, words=()):
    """Every command and subcommand, with the words that call it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from parsers(child, (*words, name))
            return
    yield words, parser


def sample(action):
    """Words that give an option or argument another value than its default."""
    if action.nargs == 0:
        return []
    text = action.choices[0] if action.choices else {int: "7", float: "7"}.get(action.type, "k=v")
    return [text if text != action.default else action.choices[1]]


LISTED = [
    (words, action.option_strings[0], sample(action), [w for a in parser._actions if not a.option_strings for w in sample(a)])
    for words, parser in parsers(cli.make_parser())
    for action in parser._actions
    if action.option_strings and action.dest != "help"
]


RUNS = {  # what the commands run, by where it stands
    "cli": "train buffer learner actor eval export_policy plot status chaos dry_run record",
    "pool_command": "look export import merge",
    "classifier_command": "record train check",
    "key_command": "new list revoke",
    "cluster.command": "plan ray",
    "doctor_command": "run",
    "people_command": "change",
    "policy_server_command": "run",
}


def test_options_of_every_command_are_listed():
    assert {words for words, *_ in LISTED} >= {("eval",), ("export",), ("status",), ("pool", "import"), ("train",), ("actor",)}
    assert (("eval",), "--seed") in [(words, option) for words, option, *_ in LISTED]


@pytest.mark.parametrize(("words", "option", "value", "arguments"), LISTED, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("glue", ["", "="])
def test_every_option_that_help_lists_is_taken(words, option, value, arguments, glue, monkeypatch):
    seen = []
    for place, names in RUNS.items():
        for name in names.split():
            function = f"headrace.launch.{place}._{name}"
            monkeypatch.setattr(function, lambda args, overrides: seen.append((vars(args), overrides)) or 0)
    given = [f"{option}={value[0]}"] if glue and value else [option, *value]
    dest = option[2:].replace("-", "_")
    assert cli.main([*words, *arguments, *given]) == 0
    assert cli.main([*words, *arguments]) == 0
    (with_it, overrides), (without, _) = seen
    assert with_it[dest] != without[dest]
    assert overrides == []


@pytest.mark.parametrize("command", ["train", "buffer", "learner", "actor", "doctor"])
def test_every_config_key_that_help_lists_is_an_override(command):
    own = cli.own_options(cli.make_parser(), [command])
    for key in all_keys():
        words = [f"--{key}", "1"]
        assert cli.split_overrides([command, "c.yaml", *words], own) == ([command, "c.yaml"], words)


def test_help_lists_each_config_key_with_type_default_and_unit():
    text = keys_text()
    assert all(f"--{key}" in text for key in all_keys())
    assert "--pacing.env_steps *" in text
    assert "env steps" in text
    assert "default" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "nothing.yaml"], "nothing.yaml: cannot be read: No such file"),
        (["train"], "which config?"),
        (["train", "p.yaml", "--learner.batch_sice", "4"], "learner.batch_sice: unknown key; did you mean 'batch_size'?"),
        (["train", "p.yaml", "--learner.batch_size", "many"], "learner.batch_size: expected an integer, got 'many'"),
        (["train", "p.yaml", "--learner.batch_size", "0"], "nearest valid: 1"),
        (["train", "p.yaml", "--learner.batch_size"], "--learner.batch_size: its value is missing; expected int in [1,"),
        (["train", "p.yaml", "--run.name", "--seed", "1"], "--run.name: its value is missing; expected str"),
        (["train", "p.yaml", "--seeds", "4..0"], "--seeds: '4..0' is an empty range, which must go up; nearest valid: 0..4"),
        (["train", "p.yaml", "--seeds", "0..1", "--seed", "3"], "--seeds 0..1 and --seed 3 say the same; give one of them"),
        (["train", "p.yaml", "--seed=3", "--seeds", "0..1"], "--seeds 0..1 and --seed 3 say the same"),
        (["train", "p.yaml", "--mode", "sync", "--run.mode", "async"], "--mode sync and --run.mode async say the same"),
        (["train", "p.yaml", "--actor.device", "cuda:4096"], "actor.device: 'cuda:4096' cannot be used here: "),
        (["train", "p.yaml", "--learner.device", "cuda", "--learner.ranks", "64"], "learner.device: cuda, but torch sees "),
        (["train", "p.yaml", "--learner.ranks", "2", "--mode", "sync"], "learner.ranks: 2 with run.mode sync"),
        (["train", "p.yaml", "--actor.device", "nonsense"], "actor.device: 'nonsense' cannot be used here: "),
        (["train", "p.yaml", "--env.id", "Pendulun-v1"], "env.id: 'Pendulun-v1' is unknown to gymnasium; nearest: Pendulum-v1"),
        (["train", "p.yaml", "--env.id", "no_such:make"], "env.id: 'no_such:make' could not be imported: ModuleNotFoundError"),
        (["train", "p.yaml", "--env.wrappers", "[RescaleActoin]"], "not in gymnasium.wrappers; nearest: RescaleAction"),
        (["train", "p.yaml", "--model.options.hiden", "[8]"], "model.options.hiden: unknown key; did you mean 'hidden'?"),
        (["train", "p.yaml", "--model.options.critics", "0"], "model.options.critics: 0 is below"),
        (["train", "p.yaml", "--model.type", "no.such:Net"], "model.type: 'no.such:Net' cannot be imported"),
        (
            ["train", "p.yaml", "--model.type", "helpers.learner:OwnModel", "--model.options.width", "99"],
            "model.options.width: 99 is above the largest allowed value; nearest valid: 64",
        ),
        (
            ["status", "tcp://127.0.0.1:70000"],
            "port 70000 of 'tcp://127.0.0.1:70000' is above the largest; nearest valid: 65535",
        ),
        (["train", "p.yaml", "--seeds", "4.."], "--seeds: '4..' is neither"),
        (["train", "p.yaml", "--seeds", "3,0,3"], "--seeds: '3,0,3' names 3 twice; nearest valid: 3,0"),
        (["train", "--resume", "nowhere"], "nowhere: not a run directory"),
        (["train", "p.yaml", "--resume", "nowhere"], "--resume takes config"),
        (["train", "p.yaml", "--init-from", "nowhere"], "nowhere: no policy here"),
        (["eval", "nowhere"], "nowhere: no policy here"),
        (["eval", "nowhere", "--best"], "nowhere: no best policy here"),
        (["export", "nowhere", "out"], "nowhere: no policy here"),
        (["plot", "nowhere"], "nowhere: neither a run directory"),
        (["status"], "no run in runs/"),
        (["status", "nowhere"], "nowhere: not a run directory"),
        (["pool", "dump", "nowhere"], "nowhere: no pool here"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_is_wrong_is_one_line(words, said, config_file, capsys, monkeypatch):
    monkeypatch.setattr("headrace.launch.runner._Job.run", lambda job: pytest.fail("a run was begun"))
    assert said in fails(capsys, *words)
    assert [p.name for p in config_file.parent.iterdir()] == ["p.yaml"]


def test_a_listener_that_is_not_there_is_named(config_file, capsys):
    said = fails(capsys, "status", "tcp://127.0.0.1:9", "--once", "--deadline", "0.2")
    assert "no status from tcp://127.0.0.1:9 within 0.2 s" in said


def test_an_unknown_option_hints_at_the_key_that_was_meant(config_file, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "p.yaml", "--batch_size", "4"])
    assert end.value.code == 2
    assert "did you mean --learner.batch_size?" in capsys.readouterr().err


def test_a_command_without_config_refuses_overrides(config_file, capsys):
    assert cli.main(["plot", "run", "--seed", "1"]) == 2
    assert "takes no config keys such as --seed" in capsys.readouterr().err


def test_what_the_system_refuses_is_no_defect(config_file, capsys, monkeypatch):
    def full(*words):
        raise OSError(28, "No space left on device", "/full/curve.png")

    monkeypatch.setattr("headrace.launch.curves.find_groups", full)
    assert fails(capsys, "plot", "x") == "headrace: error: /full/curve.png: No space left on device\n"


def test_a_defect_is_one_line_too_and_debug_shows_where(config_file, capsys, monkeypatch):
    def broken(*words):
        raise RuntimeError("not this way")

    monkeypatch.setattr("headrace.launch.curves.find_groups", broken)
    assert "internal error: RuntimeError: not this way" in fails(capsys, "plot", "x")
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    assert cli.main(["plot", "x"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_light_roles_bind_the_numeric_libraries_to_one_thread_before_numpy():
    code = (
        "import os, sys\n"
        "for name in list(os.environ):\n"
        "    if name.endswith('_NUM_THREADS'): del os.environ[name]\n"
        "from headrace.launch import cli\n"
        "assert 'numpy' not in sys.modules\n"
        "cli.main(['status', 'nowhere'])\n"
        "print(os.environ['OMP_NUM_THREADS'], 'numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "1 True", done.stderr


def test_one_s_own_modules_are_found_in_the_working_directory_and_hide_nothing(config_file, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != os.getcwd()])
    before = list(sys.path)
    cli.main(["status", "nowhere"])
    assert sys.path == [*before, os.getcwd()]
