"""Keys of a run: where they are looked for, and which of them train makes."""

from __future__ import annotations

import pytest
import yaml

from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.network import NetworkConfig
from headrace.launch.config import make_config
from headrace.launch.credentials import absolute, keyed, make_keys, network_of
from headrace.launch.lineup import Lineup
from headrace.launch.rundir import RunDir
from headrace.launch.targets import load_target

OPEN = "tcp://0.0.0.0:5555"


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    made.path.mkdir()
    made.config.write_text(yaml.safe_dump({"env": {"id": "Pendulum-v1"}}))
    return made


def plans(run, **sections):
    return Lineup(make_config({"env": {"id": "Pendulum-v1"}, **sections}), run, None).plans()


def names(files):
    return sorted((key.name, key.role) for key in files.public()[0].values())


def test_train_makes_a_key_for_each_role_that_it_starts_where_others_could_come_in(run):
    network = make_keys(NetworkConfig(OPEN), run, plans(run, actor={"count": 2}, learner={"ranks": 2}))
    assert network.keys == str(run.keys)
    roles = [("actor-0", "actor"), ("actor-1", "actor"), ("buffer", "buffer"), ("evaluator", "evaluator")]
    assert names(KeyFiles(run.keys)) == [*roles, ("learner", "learner"), ("operator", "operator")]
    asks = {"actor": {"policy": "server"}, "policy_server": {"endpoint": "tcp://127.0.0.1:7"}}
    make_keys(NetworkConfig(OPEN), run, plans(run, **asks))
    assert ("policy-server", "policy-server") in names(KeyFiles(run.keys))


def test_train_makes_keys_where_it_is_told_and_only_those_that_are_missing(run, tmp_path):
    files = KeyFiles(tmp_path / "mine")
    files.new("actor-0", "actor")
    before = files.secret("actor-0", "actor")
    network = NetworkConfig(keys=str(files.path))
    assert make_keys(network, run, plans(run, eval={"every": 0}, actor={"count": 1})) == network
    assert files.secret("actor-0", "actor") == before
    assert names(files) == [("actor-0", "actor"), ("buffer", "buffer"), ("learner", "learner"), ("operator", "operator")]
    assert not run.keys.exists()


@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig("ipc:///tmp/x"), NetworkConfig(OPEN, insecure=True)])
def test_without_need_there_are_no_keys(run, network):
    assert make_keys(network, run, plans(run)) == network
    assert not run.keys.exists()


def test_the_roles_of_a_run_use_its_keys_and_a_path_of_keys_means_the_same_anywhere(run, tmp_path, monkeypatch):
    assert load_target(run.path)[0].network.keys == ""
    KeyFiles(run.keys).new("arm", "actor")
    assert load_target(run.path)[0].network.keys == str(run.keys)
    assert keyed(NetworkConfig(keys="mine"), run).keys == "mine"
    monkeypatch.chdir(tmp_path)
    assert absolute(NetworkConfig(keys="mine")).keys == str(tmp_path / "mine")
    assert absolute(NetworkConfig()).keys == ""


def test_who_looks_at_a_run_takes_its_network_and_may_lay_words_over_it(run):
    assert network_of("tcp://h:1") == NetworkConfig()
    assert network_of("tcp://h:1", ["--network.keys", "mine"]).keys == "mine"
    run.config.write_text(yaml.safe_dump({"env": {"id": "x"}, "network": {"lease_s": 9}}))
    KeyFiles(run.keys).new("arm", "actor")
    assert network_of(str(run.path)) == NetworkConfig(lease_s=9, keys=str(run.keys))
    assert network_of(str(run.path), ["--network.keys", "mine"]).keys == "mine"
    with pytest.raises(ConfigError, match="keys of network alone"):
        network_of("tcp://h:1", ["--learner.lr", "1"])


def test_keys_and_insecure_are_not_both_meant():
    with pytest.raises(ConfigError, match="which say the opposite"):
        NetworkConfig(keys="mine", insecure=True).check()
