"""A learner of several ranks under ``headrace train``: started, lost, replaced, ended and resumed as one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml
from helpers.roles import TESTS, scripted

from headrace.buffer.query import status
from headrace.common.errors import DeadlineExceeded, HeadraceError
from headrace.launch import exits
from headrace.launch.children import headrace_command
from headrace.launch.leash import leash
from headrace.launch.progress import text
from headrace.launch.rundir import RunDir, read_json
from headrace.learner import checkpoint

LONG_S = 120.0
FILL = 64
GROUP = {
    "actor": {"count": 1},
    "eval": {"every": 0, "final_episodes": 0},
    "learner": {"batch_size": 32, "rank_timeout_s": 20.0, "checkpoint_every_updates": 50, "ranks": 2},
    "model": {"options": {"hidden": [16]}},
    "network": {"heartbeat_s": 0.1, "lease_s": 2.0},
    "sinks": {"period_s": 0.2, "tensorboard": False},
}


class Trained:
    """One run under ``headrace train``."""

    def __init__(self, directory: Path, **changes: object) -> None:
        self.run = RunDir(directory / "run")
        self._directory = directory
        found = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        self._environment = {**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1"}
        config = scripted(**{**GROUP, **changes}, pacing={"min_fill": FILL})
        (directory / "config.yaml").write_text(yaml.safe_dump(config))
        self.most_updates = 0

    def start(self, *words: str) -> None:
        """Begin the run, or with ``--resume`` go on."""
        self.log = self._directory / "train.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                headrace_command(["train", *words]),
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._directory,
                preexec_fn=leash(),
            )

    def begin(self, *words: str) -> None:
        self.start("config.yaml", "--run.dir", str(self._directory), "--run.name", "run", *words)

    def look(self) -> dict[str, object]:
        """The status, or nothing; updates never go back and never run ahead of the env steps."""
        with contextlib.suppress(DeadlineExceeded, HeadraceError, OSError):
            found = status(self.run.endpoint.read_text().strip(), 2.0)
            assert self.most_updates <= found["updates"] <= max(0, found["env_steps"] - FILL)
            self.most_updates = found["updates"]
            return found
        return {}

    def wait(self, what):
        """Wait until the status is as ``what`` says."""
        end = time.monotonic() + LONG_S
        while not ((found := self.look()) and what(found)):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, (found, self.log.read_text())
            time.sleep(0.05)
        return found

    def finish(self) -> int:
        """The exit code of ``train``."""
        end = time.monotonic() + LONG_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < end, self.log.read_text()
            self.look()
            time.sleep(0.1)
        return code

    def result(self) -> dict[str, object]:
        return read_json(self.run.result)

    def notices(self) -> list[str]:
        return (self.run.logs / "supervisor.log").read_text().splitlines()


@pytest.fixture
def trained(tmp_path):
    made = []

    def make(**changes):
        made.append(Trained(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.wait(10)
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path / "run") in (p.info["cmdline"] or [])]
    for process in left:
        process.kill()
    assert not left, "a role outlived its run"


def pids(found):
    return {who["id"]: who["pid"] for who in (found["learner"], *found["ranks"]) if who}


def learning(size, beyond=0):
    return lambda found: len(pids(found)) == size and found["updates"] > beyond


LOSSES = [("learner-1", signal.SIGKILL), ("learner-1", signal.SIGSTOP), ("learner", signal.SIGKILL)]


def test_a_lost_rank_is_named_and_all_go_on_from_the_last_checkpoint_to_the_end(trained):
    """Whoever it is, and whether it is gone or silent: the counts are those of a run in which nothing happened."""
    run = trained()
    run.begin("--pacing.env_steps", "1200", "--learner.rank_timeout_s", "12")
    for name, number in LOSSES:
        found = run.wait(learning(2, beyond=run.most_updates + 150))
        os.kill(pids(found)[name], number)
        before = pids(found)
        found = run.wait(lambda s, before=before: len(pids(s)) == 2 and not set(before.values()) & set(pids(s).values()))
        assert name in [who["id"] for who in found["lost_sessions"]]
        assert f"{name} (silent, pid {before[name]})" in text(found)
    assert run.finish() == 0, run.log.read_text()
    result = run.result()
    assert (result["env_steps"], result["updates_granted"]) == (1200, 1200 - FILL)
    assert result["updates"] + result["updates_lost"] == result["updates_granted"]
    assert result["counters"]["rows_accepted"] == 1200
    lost = [line for line in run.notices() if "ranks again" in line]
    assert [line.partition(";")[0] for line in lost] == [
        "learner-1 died (signal 9)",
        "learner-1 did not answer and was killed",
        "learner died (signal 9)",
    ]
    assert (run.run.logs / "learner.log").read_text().count("continued from") == 3
    assert "rank 1 of 2 could not" in (run.run.logs / "learner-1.log").read_text()
    assert not run.run.meeting.exists()


def test_ctrl_c_saves_and_any_number_of_ranks_goes_on(trained):
    run = trained()
    run.begin("--pacing.env_steps", "100000")
    run.wait(learning(2, beyond=100))
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == exits.STOPPED, run.log.read_text()
    assert not [line for line in run.notices() if "died" in line or "killed" in line]
    saved = checkpoint.resume(run.run.checkpoints)
    assert saved is not None
    assert saved.step >= 100
    for ranks in (1, 3):
        begun = saved.step
        goal = run.most_updates + FILL + 150
        run.start("--resume", str(run.run.path), "--learner.ranks", str(ranks), "--pacing.env_steps", str(goal))
        run.wait(learning(ranks))
        assert run.finish() == 0, run.log.read_text()
        saved = checkpoint.resume(run.run.checkpoints)
        assert saved.step == run.result()["updates"] > begun
        assert run.result()["updates_lost"] == run.result()["updates_granted"] - saved.step
        assert run.result()["updates_granted"] == goal - FILL
    assert sorted(p.stem for p in run.run.logs.glob("learner*")) == ["learner", "learner-1", "learner-2"]
    run.start("--resume", str(run.run.path))  # nothing is left to do, and no rank has to be there for it
    assert run.finish() == 0, run.log.read_text()


def test_a_rank_without_rows_holds_nobody_up(trained):
    run = trained(model={"type": "helpers.starved:Starved", "options": {"hidden": [16]}})
    run.begin("--pacing.env_steps", "600")
    found = run.wait(lambda s: s["ranks"] and s["ranks"][0].get("updates_without_rows") == 3)
    assert found["ranks"][0]["learner/updates"] <= found["updates"]
    assert run.finish() == 0, run.log.read_text()
    assert run.result()["updates_granted"] == 600 - FILL == run.result()["updates"] + run.result()["updates_lost"]


def test_ranks_that_are_lost_too_often_end_the_run_with_their_name(trained):
    run = trained()
    run.begin("--pacing.env_steps", "100000", "--supervisor.restarts", "0")
    os.kill(pids(run.wait(learning(2)))["learner-1"], signal.SIGKILL)
    assert run.finish() == 1
    last = run.log.read_text().splitlines()[-1]
    assert last.startswith("headrace: error: the learner's ranks were lost 1 times; learner-1 died (signal 9) last;")
