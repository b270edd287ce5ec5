"""Two hosts, which are two network namespaces: a topology's printed lines make its keys, its links are checked, its run goes on
with its buffer and reaches its goal."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.roles import TESTS, scripted

from headrace.common.ending import BUFFER_LEFT
from headrace.launch.leash import leash

SCRIPT = TESTS.parent / "examples" / "hosts" / "two_hosts.sh"
NAME = f"hr{os.getpid()}"
HOSTS = ("near", "far")
STEPS = 500


def tool(*words):
    return [str(SCRIPT), *words]


def environment():
    found = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": found, "HEADRACE_HOSTS": NAME, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def hosts():
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter"))):
        pytest.skip("network namespaces need root, iproute2 and util-linux")
    made = subprocess.run(tool("up"), env=environment(), capture_output=True, text=True, timeout=20, check=False)
    if made.returncode:
        subprocess.run(tool("down"), env=environment(), capture_output=True, timeout=20, check=False)
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    yield
    subprocess.run(tool("down"), env=environment(), check=True, timeout=20)


@pytest.fixture
def lab(tmp_path, hosts):
    """A directory for each host with the run's config and the topology; addresses are of IPv6."""
    config = scripted(eval={"every": 0, "final_episodes": 0})
    config |= {"model": {"options": {"hidden": [16, 16]}}, "sinks": {"period_s": 0.2}}
    config["pacing"] |= {"env_steps": STEPS, "ratio": 0.2}
    command = tmp_path / "headrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m headrace "$@"\n')
    command.chmod(0o755)
    addresses = {"near": "fd77::1", "far": "fd77::2"}
    cluster = {
        "config": "run.yaml",
        "name": "swing",
        "command": str(command),
        "keys": "keys",
        "hosts": {host: {"address": addresses[host], "directory": str(tmp_path / host)} for host in HOSTS},
        "buffers": [{"host": "near"}],
        "ranks": [{"host": "near"}],
        "actors": [{"host": "far", "id": "arm"}],
    }
    for host in HOSTS:
        (tmp_path / host).mkdir()
        (tmp_path / host / "run.yaml").write_text(yaml.safe_dump(config))
        (tmp_path / host / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    return tmp_path


def printed(lab, *words):
    words = [str(lab / "headrace"), "launch", "plan", str(lab / "near" / "cluster.yaml"), *words]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=True).stdout


def make_keys(text, lab):
    """Carry out the lines of the plan that make keys; scp is a copy here, since both hosts have one file system."""
    lines = text.partition("# 1. ")[0].splitlines()
    assert [line for line in lines if line.startswith("ssh")]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words and words[0] == "scp":
            target = Path(words[-1].removeprefix("[fd77::2]:"))
            target.mkdir(mode=0o700)
            for name in words[2:-1]:
                shutil.copy(name, target)
        elif "keys new" in line:
            subprocess.run(["bash", "-c", line], env=environment(), check=True, timeout=60, capture_output=True)


def start(host, words, out):
    options = {"env": environment(), "stdout": out, "stderr": out, "start_new_session": True, "preexec_fn": leash()}
    return subprocess.Popen(tool(host, *words), **options)


@contextlib.contextmanager
def started(plan, lab):
    """The processes of a plan by name, each on its host; none is left."""
    made = {}
    try:
        for one in plan["starts"]:
            line = f"cd {one['directory']} && exec {shlex.join(one['words'])}"
            with (lab / f"{one['name']}.log").open("ab") as out:
                made[one["name"]] = start(one["host"], ["bash", "-c", line], out)
        yield made
    finally:
        for process in made.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def doctor(host, lab, *words):
    line = f"cd {lab / host} && exec {lab / 'headrace'} doctor cluster.yaml --json {shlex.join(words)}"
    return subprocess.Popen(
        tool(host, "bash", "-c", line), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def found_by(process):
    out, err = process.communicate(timeout=120)
    return {one["what"]: (one["verdict"], one["seen"]) for one in json.loads(out)}, process.returncode, err


def status(lab, plan):
    """The status, asked for as the plan's last line does."""
    words = [str(lab / "headrace"), "status", plan["endpoints"][0], "--network.keys", "keys", "--json", "--deadline", "60"]
    line = f"cd {lab / 'near'} && exec {shlex.join(words)}"
    done = subprocess.run(tool("near", "bash", "-c", line), env=environment(), capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wait_trained(lab, learner):
    """Wait until the learner has written its first metrics."""
    while not (lab / "near" / "runs" / "swing" / "metrics.jsonl").exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"it ended with {learner.wait(0.1)}\n{logs(lab)}")


def bad(found):
    return {what: seen for what, (verdict, seen) in found.items() if verdict == "bad"}


def logs(lab):
    return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(lab.glob("*.log")))


def test_a_plans_lines_make_keys_and_a_run_that_outlives_its_buffer_in_order(lab):
    make_keys(printed(lab), lab)
    assert {path.name for path in (lab / "far" / "keys").iterdir()} == {"arm-0.secret"}
    plan = json.loads(printed(lab, "--format", "json"))
    with started(plan, lab) as roles:
        wait_trained(lab, roles["learner"])
        roles["buffer"].send_signal(signal.SIGTERM)  # its host is going to be rebooted
        assert {name: process.wait(60) for name, process in roles.items()} == {
            "buffer": 0,
            "learner": BUFFER_LEFT,
            "arm-0": BUFFER_LEFT,
        }, logs(lab)
    with started(plan, lab) as roles:
        assert [roles[name].wait(250) for name in ("arm-0", "learner")] == [0, 0], logs(lab)
        told = status(lab, plan)
        assert (told["phase"], told["env_steps"]) == ("done", STEPS)
        assert told["security"]["mode"] == "keys"
        roles["buffer"].send_signal(signal.SIGTERM)
        assert roles["buffer"].wait(30) == 0


def test_the_doctor_of_each_host_tries_its_links_before_anything_is_started(lab):
    make_keys(printed(lab), lab)
    near = doctor("near", lab, "--listen", "90")
    far, code, _ = found_by(doctor("far", lab))  # it begins as early as the other, which has somebody listen in a moment
    while far["arm-0 network"][0] == "bad":
        far, code, _ = found_by(doctor("far", lab))
    assert (code, bad(far)) == (0, {})
    assert far["host"] == ("ok", "far: arm-0")
    for what in ("network", "session", "versions", "clocks"):
        assert far[f"arm-0 {what}"][0] == "ok", far
    told, code, said = found_by(near)
    assert (code, bad(told)) == (0, {}), said
    assert told["guest"] == ("ok", "arm-0 of far was let in at tcp://[fd77::1]:5555")
    assert told["learner session"][0] == "ok"
    assert list((lab / "near").glob(".headrace-doctor-*")) == []
    assert not (lab / "near" / "runs").exists()

    (lab / "far" / "keys" / "arm-0.secret").unlink()
    far, code, _ = found_by(doctor("far", lab))
    assert (code, far["keys"][0], far["arm-0 network"][0]) == (1, "bad", "bad")
