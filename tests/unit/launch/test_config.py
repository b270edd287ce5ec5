"""The run's config: impossible combinations are refused naming key, both values and the nearest valid one."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from headrace.common.config import describe, dump, flatten, load
from headrace.common.errors import ConfigError
from headrace.launch.config import RunConfig, digest, make_config, parse_value, read_config, resumable_keys, resume_config
from headrace.launch.targets import load_target, new_run, shared_run, slug

PENDULUM = {"env": {"id": "Pendulum-v1"}}


def make(*words):
    return make_config(PENDULUM, words)


def test_a_config_survives_being_written_and_read(tmp_path):
    config = make("--learner.batch_size", "64", "--pacing.ratio=0.5", "--env.kwargs.g", "9.8")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(dump(config)))
    assert make_config(read_config(tmp_path / "config.yaml")) == config


def test_the_env_is_the_only_thing_that_must_be_said():
    assert make_config(PENDULUM).env.id == "Pendulum-v1"
    with pytest.raises(ConfigError, match=r"^env: required"):
        make_config({})
    with pytest.raises(ConfigError, match=r"^env\.id: required"):
        make_config({"env": {}})


def test_another_schema_is_refused():
    with pytest.raises(ConfigError, match="schema: 2 is above"):
        make("--schema", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--learner.batch_size 512 --pool.capacity 300 --pacing.min_fill 300",
            "learner.batch_size: 512 is above pool.capacity 300; nearest valid: 300",
        ),
        (
            "--pool.capacity 900 --pacing.min_fill 1000",
            "pacing.min_fill: 1000 is above pool.capacity 900; nearest valid: 900",
        ),
        (
            "--pacing.min_fill 100 --learner.batch_size 256",
            "pacing.min_fill: 100 is below learner.batch_size 256; nearest valid: 256",
        ),
        ("--pacing.env_steps 1000 --pacing.min_fill 1000", "can never be met; nearest valid: 999"),
        ("--pacing.env_steps 2000 --pacing.random_steps 2001", "pacing.random_steps: 2001 is above pacing.env_steps 2000"),
        ("--actor.count 9 --pool.max_actors 8", "actor.count: 9 is above pool.max_actors 8; nearest valid: 8"),
        ("--run.mode sync --actor.count 0", "actor.count: 0 with run.mode sync"),
        ("--network.lease_s 1 --network.heartbeat_s 1", "network.lease_s: 1 s is below three heartbeats"),
        ("--run.mode asynch", "run.mode: 'asynch' is not one of async, sync; nearest: async"),
        ("--actor.priorities a:b", "actor.priorities: 'a:b' with sampling.method uniform, which has none"),
        ("--pacing.ratio -1", "pacing.ratio: -1 is below the smallest allowed value; nearest valid: 0"),
        ("--run.name ../../x", "run.name: '../../x' is a path, but names one directory in run.dir; nearest valid: x"),
        ("--run.name a/b/", "nearest valid: b"),
        ("--run.name ..", "run.name: '..' is a path"),
        ("--run.name /", "nearest valid: empty"),
        ("--seed 99999999999", "seed: 99999999999 is above the largest allowed value; nearest valid: 2147483647"),
        ("--network.endpoint tcp://127.0.0.1:22222222", "network.endpoint: port 22222222 of"),
        ("--network.endpoint tcp://127.0.0.1:65536", "nearest valid: 65535"),
        ("--network.endpoint tcp://127.0.0.1", "names no port"),
        ("--network.endpoint tcp://127.0.0.1:-1", "names no port"),
        ("--network.endpoint tcp://[::1", "network.endpoint: 'tcp://[::1' is not an endpoint"),
        ("--network.endpoint here", "network.endpoint: 'here' is not an endpoint"),
        (
            "--learner.ranks 2 --run.mode sync",
            "learner.ranks: 2 with run.mode sync, which is one process; nearest valid: 1, or run.mode async",
        ),
        (
            "--learner.ranks 2 --learner.rank_timeout_s 5",
            "learner.rank_timeout_s: 5 s is below two leases (network.lease_s 5 s)",
        ),
        ("--learner.ranks 0", "learner.ranks: 0 is below the smallest allowed value; nearest valid: 1"),
        ("--env.id 5", "env.id: expected text, got 5"),
        (
            "--learner.resample_target_action false",
            "learner.resample_target_action: false with window.next_action false, so rows hold no next action; nearest",
        ),
        (
            "--learner.normalise_obs true --model.type flow",
            "learner.normalise_obs: true with model.type flow, but actors normalise for the mlp only; nearest valid: false",
        ),
        ("--actor.ema true", "actor.ema: true with learner.ema_decay none, so there is no average; nearest valid: false"),
        ("--eval.ema true", "eval.ema: true with learner.ema_decay none, so there is no average; nearest valid: false"),
    ],
)
def test_the_impossible_is_refused_with_both_values_and_the_nearest_valid_one(words, said):
    with pytest.raises(ConfigError) as error:
        make(*words.split())
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env: [", "not valid YAML"),
        ("- a", "expected a mapping of options, got list"),
        ("", "expected a mapping of options, got NoneType"),
        ("env: {id: a}\nenv: {id: b}", "key 'env' is given twice"),
        ("env: !!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_config_is_named(tmp_path, text, said):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_config(tmp_path / "c.yaml")
    assert said in str(error.value)
    assert "c.yaml" in str(error.value)


def test_unreadable_bytes_are_one_line_too(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"c\.yaml: cannot be read"):
        read_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("true", True), ("[1, 2]", [1, 2]), ("a", "a"), ("{a: 1}", {"a": 1})])
def test_values_of_the_command_line_are_yaml(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_value_is_the_empty_text(text):
    assert make("--run.name", text).run.name == ""
    assert make("--actor.priorities=").actor.priorities == ""
    with pytest.raises(ConfigError, match=r"learner.batch_size: expected an integer, got ''"):
        make("--learner.batch_size", text)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:65535", "tcp://[::1]:5555", "tcp://*:0", "ipc:///run/x"])
def test_an_endpoint_is_taken(endpoint):
    assert make("--network.endpoint", endpoint).network.endpoint == endpoint


def test_resume_changes_what_it_may():
    old = make("--pacing.env_steps", "10000")
    new = resume_config(old, ["--pacing.env_steps", "20000"])
    assert new.pacing.env_steps == 20000
    assert new.learner == old.learner


def test_resume_may_change_the_number_of_ranks():
    assert resume_config(make("--learner.ranks", "2"), ["--learner.ranks", "3"]).learner.ranks == 3
    assert make("--run.mode", "sync", "--learner.rank_timeout_s", "1").learner.ranks == 1  # what one rank does not need


def test_resume_may_mix_batches_otherwise():
    old = make("--sampling.sets.demo.share", "0.5", "--sampling.sets.rest.share", "0.5")
    words = "--sampling.sets.demo.share 0 --sampling.sets.late.share 0.5 --sampling.sets.late.newest_rows 500"
    new = resume_config(old, [*words.split(), "--sampling.human_rows", "most"])
    assert {name: s.share for name, s in new.sampling.sets.items()} == {"demo": 0, "rest": 0.5, "late": 0.5}
    assert list(resume_config(make(), ["--sampling.sets.all.share", "1"]).sampling.sets) == ["all"]
    with pytest.raises(ConfigError, match=r"cannot change sampling.method: .*It may change: .*sampling.sets, "):
        resume_config(old, ["--sampling.method", "prioritised"])


def test_resume_refuses_the_rest_by_name_with_both_values():
    with pytest.raises(ConfigError) as error:
        resume_config(make(), ["--learner.gamma", "0.5", "--seed", "7", "--pool.capacity", "5000"])
    said = str(error.value)
    assert "learner.gamma: 0.99 in the run, 0.5 asked for" in said
    assert "seed: 0 in the run, 7 asked for" in said
    assert "pool.capacity: " not in said
    assert "It may change: " in said
    assert "pacing.env_steps" in said


def test_what_resume_may_change_is_what_the_options_say():
    assert set(resumable_keys()) == {d.key for d in describe(RunConfig) if d.resume}
    assert "run.name" not in resumable_keys()


def test_the_digest_sees_what_decides_a_result_and_nothing_else():
    base = digest(make())
    same = ["--run.name x", "--run.dir y", "--supervisor.stop_s 5", "--network.lease_s 9"]
    assert {digest(make(*words.split())) for words in same} == {base}
    other = ["--seed 1", "--learner.batch_size 64", "--env.kwargs.g 1", "--run.mode sync", "--pacing.env_steps 5000"]
    assert len({base, *(digest(make(*words.split())) for words in other)}) == len(other) + 1


def test_every_option_of_a_role_is_reachable_by_a_dotted_key():
    assert set(flatten(make())) == {d.key for d in describe(RunConfig) if ".<name>." not in d.key}
    config = make(
        "--sampling.sets.demo.share", "0.5", "--sampling.sets.demo.source=[demo]", "--sampling.sets.rest.share", "0.5"
    )
    named = {d.key.replace("<name>", name) for d in describe(RunConfig) for name in ("demo", "rest")} - {"sampling.sets"}
    assert set(flatten(config)) == named
    for f in dataclasses.fields(RunConfig):
        assert f.metadata["help"]


def test_a_target_is_a_file_or_a_run(tmp_path):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(PENDULUM))
    config, run = load_target(tmp_path / "c.yaml", ["--run.dir", str(tmp_path / "runs")])
    assert run is None
    made = new_run(config)
    again, found = load_target(made.path)
    assert again == config
    assert found.path == made.path
    with pytest.raises(ConfigError, match=r"--seed cannot change them here"):
        load_target(made.path, ["--seed", "1"])


def test_runs_begun_within_a_second_have_names_of_their_own(tmp_path):
    config = make("--run.dir", str(tmp_path))
    names = [new_run(config).path.name for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("Pendulum-v1-") for name in names)


def test_roles_started_by_hand_share_one_run_directory(tmp_path):
    config = make("--run.dir", str(tmp_path))
    assert shared_run(config, "pendulum").path == shared_run(config, "pendulum").path == tmp_path / "pendulum"
    with pytest.raises(ConfigError, match="holds a run of another config"):
        shared_run(make("--run.dir", str(tmp_path), "--seed", "5"), "pendulum")


def test_slugs_are_file_names():
    assert slug("my.envs:Factory/v1") == "my.envs-Factory-v1"
    assert slug("//") == "run"


def test_loading_leaves_the_mapping_alone():
    mapping = {"env": {"id": "Pendulum-v1", "kwargs": {"a": 1}}}
    load(RunConfig, mapping)
    assert mapping == {"env": {"id": "Pendulum-v1", "kwargs": {"a": 1}}}


EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_is_valid_and_says_what_it_measured(path):
    config = make_config(read_config(path))
    assert config.env.id in path.read_text().splitlines()[0]
    assert "# measured: " in path.read_text()
    assert config.actor.count == (1 if config.actor.robot else 2)


def test_the_examples_that_the_manual_names_are_there():
    assert {p.stem for p in EXAMPLES} >= {"pendulum", "halfcheetah_v4", "halfcheetah_v5", "hopper_v5", "reacher_v5"}
