"""What a Ray task does with its process, without Ray: ended in order, repeated, given up, or interrupted."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.common.errors import ConfigError
from headrace.launch.cluster import ray_job
from headrace.launch.cluster.plan import Start
from headrace.launch.exits import FAILED, MUST_NOT_RESTART, USAGE


def start(tmp_path, code, kind="actor", name="arm-0"):
    return Start(name, kind, "near", str(tmp_path), (sys.executable, "-c", code), (("WHO", "it"),))


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (0, None),
        (FAILED, ray_job.RoleDied),
        (5, ray_job.RoleDied),
        (USAGE, ray_job.RoleRefused),
        (MUST_NOT_RESTART, ray_job.RoleRefused),
    ],
)
def test_a_process_that_would_end_so_again_is_not_repeated(tmp_path, code, raised):
    one = start(tmp_path, f"import os; assert os.environ['WHO'] == 'it'; os._exit({code})")
    if raised is None:
        assert ray_job.play(one) == "arm-0"
        return
    with pytest.raises(raised, match=f"arm-0 ended with {code}"):
        ray_job.play(one)


def test_a_task_that_is_cancelled_ends_its_process_in_order(tmp_path, monkeypatch):
    """Ray raises in the thread of the task, without a signal that would end a wait."""
    code = "import signal, sys, time\nsignal.signal(15, lambda *_: (open('ended', 'w').close(), sys.exit(0)))\n"
    code += "open('ready', 'w').close()\ntime.sleep(60)"
    wait = ray_job._wait

    def interrupted(child):
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(ray_job, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ray_job.play(start(tmp_path, code))
    assert (tmp_path / "ended").exists()
    monkeypatch.setattr(ray_job, "LOOK_S", 0.01)
    looks = []

    class Child:
        def wait(self, timeout):
            looks.append(timeout)
            if len(looks) < 3:
                raise ray_job.subprocess.TimeoutExpired("it", timeout)
            return 0

    assert wait(Child()) == 0
    assert looks == [0.01] * 3


def test_what_a_process_leaves_behind_is_ended_with_it(tmp_path):
    code = "import subprocess, sys\np = subprocess.Popen(['sleep', '60'])\nopen('left', 'w').write(str(p.pid))"
    ray_job.play(start(tmp_path, code))
    pid = int((tmp_path / "left").read_text())
    for _ in range(500):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.01)
    raise AssertionError("it lives")


class FakeRay:
    """Tasks that end as the test says; cancelled ones end at once."""

    class exceptions:  # noqa: N801 - as in ray
        class RayError(Exception):
            pass

        class TaskCancelledError(RayError):
            pass

    def __init__(self, ends):
        self.ends, self.cancelled, self.options = dict(ends), [], {}

    def remote(self, function):
        def options(**words):
            self.options[words["name"]] = words
            return SimpleNamespace(remote=lambda one: one.name)

        return SimpleNamespace(options=options)

    def wait(self, refs, timeout):
        return [ref for ref in refs if ref in self.ends], []

    def get(self, ref):
        if self.ends[ref]:
            raise self.ends[ref]
        return ref

    def cancel(self, ref):
        self.cancelled.append(ref)
        self.ends[ref] = self.exceptions.TaskCancelledError()


KINDS = {"buffer": "buffer", "learner": "learner", "arm-0": "actor", "arm-1": "actor", "evaluator": "evaluator"}
STARTS = [Start(name, kind, "near", ".", ("headrace", kind)) for name, kind in KINDS.items()]
LOST = FakeRay.exceptions.RayError("it died")


@pytest.mark.parametrize(
    ("ends", "code", "cancelled"),
    [
        ({"learner": None, "arm-0": None, "arm-1": None, "evaluator": None}, 0, ["buffer"]),
        ({"learner": None, "arm-0": LOST, "arm-1": None}, 0, ["evaluator", "buffer"]),
        ({"learner": LOST}, FAILED, ["arm-0", "arm-1", "evaluator", "buffer"]),
        ({"buffer": LOST}, FAILED, ["arm-0", "arm-1", "evaluator", "learner"]),
    ],
)
def test_a_run_ends_in_turns_and_fails_with_its_buffer_or_learner(ends, code, cancelled, monkeypatch):
    monkeypatch.setattr(ray_job, "SOON_S", 0.05)
    ray = FakeRay(ends)
    assert ray_job._Job(ray, STARTS, gpu=False).run() == code
    assert ray.cancelled == cancelled
    wanted = ray.options["learner"]
    assert (wanted["num_cpus"], wanted["num_gpus"], wanted["resources"]) == (1, 0, {"near": ray_job.SHARE})
    assert (wanted["max_retries"], wanted["retry_exceptions"]) == (ray_job.DEATHS, [ray_job.RoleDied])
    assert ray.options["buffer"]["num_cpus"] == 0


def test_ctrl_c_ends_in_turns(monkeypatch):
    ray = FakeRay({})
    job, seen = ray_job._Job(ray, STARTS, gpu=True), threading.Event()

    def wait(refs, timeout):
        if not seen.is_set():
            seen.set()
            raise KeyboardInterrupt
        return [ref for ref in refs if ref in ray.ends], []

    monkeypatch.setattr(ray, "wait", wait)
    assert job.run() == 130
    assert ray.cancelled == ["arm-0", "arm-1", "evaluator", "learner", "buffer"]
    assert ray.options["learner"]["num_gpus"] == 1


def test_a_host_without_a_node_is_named(tmp_path):
    with pytest.raises(ConfigError, match="hosts.near: no node of the Ray cluster has a resource of this name"):
        ray_job._require_nodes(None, STARTS, {"CPU": 4.0, "far": 1.0})
    ray_job._require_nodes(None, STARTS, {"near": 1.0})
