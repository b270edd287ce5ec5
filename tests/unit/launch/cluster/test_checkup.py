"""The doctor of a topology without its processes: which host this is, keys, who is to call, and who came."""

from __future__ import annotations

import pytest
import yaml

from headrace.buffer.admission import NO_SPEC
from headrace.common.config import load
from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.network import NetworkConfig
from headrace.launch.cluster import checkup
from headrace.launch.cluster.plan import make_plan
from headrace.launch.cluster.topology import Topology
from headrace.launch.doctor import findings
from headrace.launch.finding import Finding

LAB = {
    "config": "run.yaml",
    "name": "swing",
    "keys": "keys",
    "hosts": {"near": {"address": "192.0.2.6"}, "far": {"address": "192.0.2.7"}},
    "buffers": [{"host": "near"}],
    "ranks": [{"host": "near"}],
    "actors": [{"host": "far", "count": 2, "id": "arm"}],
    "evaluator": "far",
}


def lab(near="192.0.2.6", far="192.0.2.7"):
    return load(Topology, LAB | {"hosts": {"near": {"address": near}, "far": {"address": far}}})


def on(host, topology):
    return [start for start in make_plan(topology) if start.host == host]


def test_a_host_is_known_by_its_address(monkeypatch):
    assert checkup.find_host(lab(far="127.0.0.1")) == "far"
    assert checkup.find_host(lab(far="::1")) == "far"
    monkeypatch.setattr(checkup, "own_addresses", lambda: ("192.0.2.9", "::1"))
    with pytest.raises(ConfigError, match=r"hosts\.far\.address 192\.0\.2\.7 is of this machine, which has 192\.0\.2\.9, ::1;"):
        checkup.find_host(lab())
    monkeypatch.setattr(checkup, "_is_ours", lambda address: True)
    with pytest.raises(ConfigError, match=r"hosts\.far\.address 192\.0\.2\.7 are all of this machine"):
        checkup.find_host(lab())


def test_what_cannot_be_reached_is_told_by_the_keys_that_say_where_it_is():
    buffers = [{"host": "near"}, {"host": "far", "port": 7000, "bind": "tcp://0.0.0.0:7001"}]
    topology = load(Topology, LAB | {"buffers": buffers, "ranks": [{"host": "near"}, {"host": "far"}]})
    fields = {
        "tcp://192.0.2.6:5555": "hosts.near.address and buffers[0].port",
        "tcp://192.0.2.7:7000": "hosts.far.address and buffers[1].port",
        "tcp://0.0.0.0:7001": "buffers[1].bind",
        topology.meeting: "hosts.near.address and meeting_port",
    }
    assert {endpoint: checkup.field_of(topology, endpoint) for endpoint in fields} == fields
    found = checkup._placed(Finding("arm-0 network", "bad", "refused"), topology, topology.endpoints[0])
    assert found.seen == "refused (hosts.near.address and buffers[0].port of the topology)"
    assert checkup._placed(Finding("arm-0 network", "ok", "fine"), topology, topology.endpoints[0]).seen == "fine"


@pytest.fixture
def files(tmp_path):
    made = KeyFiles(tmp_path / "keys")
    for name, role in (("learner", "learner"), ("operator", "operator"), ("evaluator", "evaluator")):
        made.new(name, role)
    for name in ("arm-0", "arm-1"):
        made.new(name, "actor")
    return made


@pytest.mark.parametrize(
    ("host", "spoil", "said"),
    [
        ("near", lambda files: None, ""),
        ("far", lambda files: None, ""),
        ("far", lambda files: files.secret_path("arm-1").unlink(), "arm-1.secret is missing"),
        ("far", lambda files: files.secret_path("arm-0").chmod(0o644), "is open to others"),
        ("far", lambda files: files.secret_path("arm-0").rename(files.secret_path("evaluator")), "is a key of role actor"),
        ("near", lambda files: files.revoke("arm-0"), "lacks the public halves of arm-0"),
        ("near", lambda files: files.path.chmod(0o777), "others may add keys"),
    ],
)
def test_a_host_needs_the_secrets_of_its_roles_and_a_buffer_everybodys_public_half(files, host, spoil, said):
    spoil(files)
    topology = lab()
    found = list(checkup._keys(topology, on(host, topology), NetworkConfig(keys=str(files.path))))
    assert [one.verdict for one in found if said in one.seen] == ["bad" if said else "ok"] * (len(found) if not said else 1)


def test_every_role_calls_by_its_own_key_and_a_learner_as_a_reader_that_is_granted_nothing():
    called = [(call.start.host, call.role, call.identity) for call in checkup.calls(make_plan(lab()))]
    actors = [("far", "actor", name) for name in ("arm-0", "arm-1")]
    assert called == [("near", "rank", "doctor-near"), *actors, ("far", "evaluator", "evaluator")]


def test_of_several_buffers_each_is_called_by_who_dials_it_and_none_by_another_buffer():
    buffers = [{"host": "near"}, {"host": "near", "port": 7000}]
    actors = [{"host": "far", "shard": 0}, {"host": "far", "id": "b", "shard": 1}]
    topology = load(Topology, LAB | {"buffers": buffers, "actors": actors})
    called = {call.identity: call.start.dials for call in checkup.calls(make_plan(topology))}
    assert called == {
        "doctor-near": topology.endpoints,
        "far-0": topology.endpoints[:1],
        "b-0": topology.endpoints[1:],
        "evaluator": topology.endpoints[:1],
    }
    books = [Book(["far-0", "evaluator"], endpoint=topology.endpoints[0]), Book(["b-0"], endpoint=topology.endpoints[1])]
    found = list(checkup._guests(books, on("far", topology), 60))
    assert [one.verdict for one in found] == ["ok"] * 3


class Book:
    """Guests of a stand-in."""

    def __init__(self, came, there=(), failure="", endpoint="tcp://192.0.2.6:5555"):
        self.endpoint = endpoint
        self.came, self.there, self.failure = set(came), set(there), failure

    are_done = checkup.Guests.are_done


def test_who_has_come_is_told_and_who_is_still_there_is_waited_for():
    topology = lab()
    others, all_of_them = on("far", topology), ["arm-0", "arm-1", "evaluator"]
    found = list(checkup._guests([Book([*all_of_them, "x"])], others, 60))  # at once
    assert [(one.verdict, one.seen) for one in found] == [
        ("ok", f"{name} of far was let in at tcp://192.0.2.6:5555") for name in all_of_them
    ]
    for came, there in ((["arm-0", "evaluator"], []), (all_of_them, ["evaluator"])):
        assert not Book(came, there).are_done(all_of_them)
    found = list(checkup._guests([Book(["arm-0", "evaluator"])], others, 0.01))
    assert [(one.verdict, one.seen) for one in found][1] == (
        "look",
        "arm-1 of far did not come to tcp://192.0.2.6:5555 within 0.01 s",
    )
    assert "headrace doctor CLUSTER --host far" in found[1].advice
    assert next(checkup._guests([Book([], failure="gone")], others, 60)).verdict == "bad"
    assert list(checkup._guests([Book([])], others, 0)) == []


def test_a_buffer_that_has_no_spec_yet_is_no_fault_of_the_link():
    told = checkup._softened(Finding("session", "bad", f"no session within 10 s: {NO_SPEC.detail}"))
    assert (told.verdict, "actor" in told.advice) == ("look", True)
    for other in (Finding("session", "bad", "its key was revoked"), Finding("network", "bad", NO_SPEC.detail)):
        assert checkup._softened(other) == other


def test_what_is_wrong_with_a_topology_is_a_finding_and_keys_of_a_run_are_refused(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(LAB | {"evaluator": "nobody"}))
    for words, said in (
        ([], "evaluator: 'nobody' is none of"),
        (["--seed", "1"], "--seed: the doctor of a topology takes none"),
    ):
        assert said in [one for one in findings(path, words) if one.verdict == "bad"][-1].seen
