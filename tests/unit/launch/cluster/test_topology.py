"""The topology: what cannot work is refused by the field, both values and what would be right."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from headrace.common.errors import ConfigError
from headrace.launch.cluster.plan import make_plan
from headrace.launch.cluster.shown import key_commands
from headrace.launch.cluster.topology import is_topology, read_topology

RUN = {"env": {"id": "Pendulum-v1"}, "pool": {"max_actors": 8}}
LAB = {
    "config": "run.yaml",
    "name": "swing",
    "keys": "keys",
    "hosts": {"near": {"address": "10.0.0.1"}, "far": {"address": "10.0.0.2"}},
    "buffers": [{"host": "near"}],
    "ranks": [{"host": "near"}],
    "actors": [{"host": "far", "count": 2, "id": "arm"}],
    "evaluator": "near",
}
ADDRESSES = {"near": {"address": "127.0.0.1"}}


def read(directory, lab, run=None):
    (directory / "run.yaml").write_text(yaml.safe_dump(RUN | (run or {})))
    (directory / "cluster.yaml").write_text(yaml.safe_dump(LAB | lab, sort_keys=False))
    return read_topology(directory / "cluster.yaml")


def hosts(address):
    return {"hosts": {"near": {"address": address}, "far": {"address": "10.0.0.2"}}}


@pytest.mark.parametrize(
    ("lab", "run", "said"),
    [
        ({"hots": {}}, {}, "hots: unknown key; did you mean 'hosts'?"),
        ({"buffers": [{"hosts": "near"}]}, {}, "buffers[0].hosts: unknown key; did you mean 'host'?"),
        ({"buffers": [{"host": "nea"}]}, {}, "buffers[0].host: 'nea' is none of hosts near, far"),
        ({"evaluator": "nobody"}, {}, "evaluator: 'nobody' is none of hosts"),
        ({"buffers": []}, {}, "buffers: empty, but a run has at least one buffer"),
        ({"ranks": []}, {}, "ranks: empty"),
        ({"ranks": [{"host": "near"}, {"host": "near"}]}, {}, "ranks: host 'near' is given twice"),
        ({"buffers": [{"host": "near", "port": 65536}]}, {}, "buffers[0].port: 65536 is above the largest allowed value"),
        (hosts("0.0.0.0"), {}, "hosts.near.address: 0.0.0.0 is where to listen, and nobody can dial it"),
        (hosts("[fd00::1]"), {}, "hosts.near.address: '[fd00::1]' is no address or name; give it without brackets"),
        (hosts("10.0.0.1:5555"), {}, "hosts.near.address: '10.0.0.1:5555' is no address or name"),
        (hosts("10.0.0"), {}, "hosts.near.address: '10.0.0' is neither an address, such as 10.0.0.2, nor a name"),
        (hosts("a b"), {}, "hosts.near.address: 'a b' is neither an address"),
        (hosts("10.0.0.2"), {}, "hosts.far.address: 10.0.0.2 is that of hosts.near too; give each host its own"),
        (
            {"hosts": {"near": {"address": "A.b"}, "far": {"address": "a.B."}}},
            {},
            "far.address: a.B. is that of hosts.near",
        ),
        ({"hosts": {"near": {"address": "fd::1"}, "far": {"address": "fd:0::01"}}}, {}, "fd:0::01 is that of hosts.near too"),
        (hosts("127.0.0.1"), {}, "hosts.near.address: 127.0.0.1 is loopback, but far dial it"),
        ({"hosts": {"Near": {"address": "a"}}}, {}, "hosts.Near: a host's name has small letters"),
        ({"name": "a/b"}, {}, "name: 'a/b' has to name files, units and jobs"),
        ({"config": "conf/run.yaml"}, {}, "config: 'conf/run.yaml' is a path"),
        ({"config": "none.yaml"}, {}, "config: 'none.yaml', but "),
        ({"actors": [{"host": "far", "id": "a"}, {"host": "near", "id": "a"}]}, {}, "'a-0' is that of actors[0] too"),
        ({"actors": [{"host": "far", "count": 9}]}, {}, "actors: 9 in all, above pool.max_actors 8 of run.yaml"),
        ({"actors": [{"host": "far", "id": "an arm"}]}, {}, "cannot name a key"),
        (
            {"ranks": [{"host": "near"}, {"host": "far"}], "meeting_port": 5555},
            {},
            "meeting_port: 5555 on near is that of buffers[0].port too",
        ),
        ({"buffers": [{"host": "near", "bind": "ipc://x"}]}, {}, "buffers[0].bind: 'ipc://x' reaches no other host"),
        ({"keys": ""}, {}, "keys: empty, but tcp://10.0.0.1:5555 is not loopback"),
        ({}, {"network": {"insecure": True}}, "keys: keys with network.insecure true in run.yaml"),
        ({}, {"eval": {"every": 0}}, "evaluator: near with eval.every 0 in run.yaml"),
        ({}, {"run": {"mode": "sync"}}, "run.mode: sync in run.yaml"),
        (
            {"ranks": [{"host": "near", "count": 2}]},
            {"learner": {"rank_timeout_s": 5}},
            "ranks: 2 with learner.rank_timeout_s 5",
        ),
        ({}, {"learner": {"lr": 1}}, "learner.lr: unknown key"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_work_is_refused_by_name(tmp_path, lab, run, said):
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, lab, run)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("10.0.0.1", "tcp://10.0.0.1:5555"),
        ("2001:db8::1", "tcp://[2001:db8::1]:5555"),
        ("buffer-0.lab", "tcp://buffer-0.lab:5555"),
    ],
)
def test_a_buffer_is_dialled_by_address_or_name(tmp_path, address, endpoint):
    topology, run = read(tmp_path, hosts(address))
    assert topology.endpoints == (endpoint,)
    assert (topology.rank_count, topology.meeting, run.env.id) == (1, "", "Pendulum-v1")


def test_without_keys_a_run_is_on_loopback_or_says_that_nobody_else_is_there(tmp_path):
    alone = {"hosts": {"near": {"address": "127.0.0.1"}}, "actors": [{"host": "near"}], "keys": ""}
    assert read(tmp_path, alone)[0].endpoints == ("tcp://127.0.0.1:5555",)
    assert read(tmp_path, {"keys": ""}, {"network": {"insecure": True}})[0].endpoints == ("tcp://10.0.0.1:5555",)


def test_a_topology_is_told_from_a_runs_config():
    assert is_topology(LAB)
    assert not is_topology(RUN)


def test_the_example_is_one(tmp_path):
    examples = Path(__file__).resolve().parents[4] / "examples"
    for path in (examples / "hosts" / "cluster.yaml", examples / "pendulum.yaml"):
        shutil.copy(path, tmp_path)
    topology, run = read_topology(tmp_path / "cluster.yaml")
    assert topology.endpoints == ("tcp://10.77.0.1:5555",)
    page = (examples.parent / "docs" / "many-hosts.md").read_text()
    topology.require_fits(run)
    for start in make_plan(topology):
        assert shlex.join(start.words) in page  # the page's lines are those that it prints
    for line in key_commands(topology):
        assert line in page
