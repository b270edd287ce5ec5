"""Whole runs of real processes through the command line, on a task of seconds."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

import headrace.launch
from headrace.actor.evaluate import EvalResult
from headrace.buffer import SACReplayPool
from headrace.buffer.query import LOCAL, Observer
from headrace.common.errors import DeadlineExceeded, EnvError, HeadraceError, PoolLocked
from headrace.common.weights import AVERAGE, Version, WeightSet
from headrace.common.wire.network import NetworkConfig
from headrace.launch import cli, exits, runner
from headrace.launch.children import headrace_command
from headrace.launch.config import make_config
from headrace.launch.credentials import network_of
from headrace.launch.play import find_policy, read_policy
from headrace.launch.rundir import RunDir, read_json
from headrace.launch.train_command import print_result

TINY = {
    "env": {"id": "Pendulum-v1", "max_episode_steps": 40},
    "actor": {"count": 2},
    "pool": {"capacity": 2000},
    "pacing": {"env_steps": 240, "min_fill": 32, "random_steps": 32, "lead_steps": 16},
    "learner": {"batch_size": 16},
    "model": {"options": {"hidden": [16, 16]}},
    "eval": {"every": 100, "episodes": 1, "final_episodes": 2},
    "sinks": {"period_s": 0.2, "tensorboard": False},
    "network": {"heartbeat_s": 0.1, "lease_s": 2},
}
MINUTE = 60.0


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    yield tmp_path
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
    for process in left:
        process.kill()
    assert not left, "a role outlived its run"


def start(*words):
    return subprocess.Popen(headrace_command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, timeout=MINUTE):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def status_of(endpoint, network=LOCAL):
    observer = Observer(endpoint, network)
    try:
        return observer.status(10.0)
    finally:
        observer.close()


def wait_until(condition, timeout=MINUTE):
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def test_a_run_from_its_config_to_its_result_and_on(place, capsys):
    """Train where others could reach the buffer, look while it runs, resume, refuse, play, dump: all of a run."""
    run = RunDir(place / "runs" / "one")
    words = ("--run.name", "one", "--run.dir", str(place / "runs"), "--network.endpoint", "tcp://0.0.0.0:0")
    process = start("train", "tiny.yaml", *words)
    wait_until(run.endpoint.exists)
    wait_until(lambda: cli.main(["status", str(run.path), "--json", "--deadline", "5"]) == 0)
    status = json.loads(capsys.readouterr().out)
    assert status["run"] == run.run_id
    assert status["security"]["mode"] == "keys"
    stranger = Observer(run.endpoint.read_text().strip(), NetworkConfig(insecure=True))
    with pytest.raises(DeadlineExceeded, match="want no keys"):
        stranger.ask("status", 0.1)
    stranger.close()
    wait_until(lambda: status_of(run.endpoint.read_text().strip(), network_of(str(run.path)))["pool"]["rows"])
    assert cli.main(["pool", "snapshot", str(run.path)]) == 0
    assert capsys.readouterr().out.strip() == str(run.snapshots)
    assert SACReplayPool.from_path(run.snapshots).check_valid() == (True, "")
    assert {"phase", "env_steps", "updates", "rates", "achieved_ratio", "pool", "actors", "counters", "memory"} <= set(status)
    code, out, err = finish(process)
    assert code == 0, err
    assert out.splitlines()[-1] == str(run.result)
    result = read_json(run.result)
    assert (result["env_steps"], result["updates"], result["episodes"]) == (240, 208, 2)
    assert (result["updates_granted"], result["updates_lost"], result["achieved_ratio"]) == (208, 0, 1.0)
    assert result["counters"]["rows_accepted"] == result["counters"]["rows_live"]
    assert isinstance(result["eval_return_mean"], float)
    for path in (run.config, run.metrics, run.curve, run.environment, run.checkpoints, run.pool):
        assert path.exists(), path
    assert "numpy" in run.environment.read_text()
    assert {p.stem for p in run.logs.iterdir()} >= {"buffer", "learner", "actor-0", "actor-1", "evaluator"}
    assert not run.endpoint.exists()

    assert cli.main(["train", "--resume", str(run.path), "--learner.batch_size", "9"]) == 1
    assert "learner.batch_size: " in capsys.readouterr().err
    words = ("--pacing.env_steps", "300", "--pool.capacity", "900", "--sampling.sets.all.share", "1")
    code, out, err = finish(start("train", "--resume", str(run.path), *words))
    assert code == 0, err
    assert read_json(run.result)["counters"]["rows_live"] == 300
    assert (read_json(run.result)["env_steps"], read_json(run.result)["updates"]) == (300, 268)
    code, out, err = finish(start("train", "--resume", str(run.path), "--eval.final_episodes", "3"))  # nothing is left to do
    assert code == 0, err
    assert (read_json(run.result)["updates"], read_json(run.result)["episodes"]) == (268, 3)

    assert cli.main(["eval", str(run.path), "--episodes", "3"]) == 0
    assert "95 % interval" in capsys.readouterr().out
    assert cli.main(["pool", "dump", str(run.path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len({(r["actor"], r["stream"], r["seq"]) for r in rows}) == 300
    assert cli.main(["pool", "snapshot", str(run.path)]) == 0
    assert capsys.readouterr().out.strip() == str(run.snapshots)
    assert SACReplayPool.from_path(run.snapshots).size == 300
    shutil.rmtree(run.pool)  # as when it was on a memory disk of a machine that was restarted
    code, out, err = finish(start("train", "--resume", str(run.path), "--pacing.env_steps", "330"))
    assert code == 0, err
    assert read_json(run.result)["counters"]["rows_accepted"] == read_json(run.result)["counters"]["rows_live"] == 330
    assert cli.main(["pool", "info", str(run.path)]) == 0
    assert "capacity          900" in capsys.readouterr().out
    assert cli.main(["plot", str(run.path), "--out", "all.png"]) == 0
    assert (
        cli.main(["train", "--init-from", str(run.path), "tiny.yaml", "--run.name", "one", "--run.dir", str(place / "runs")])
        == 1
    )
    assert "holds a run already" in capsys.readouterr().err


def test_ctrl_c_ends_in_order_with_a_checkpoint_and_no_orphan(place):
    run = RunDir(place / "runs" / "two")
    words = [
        "--run.name",
        "two",
        "--run.dir",
        str(place / "runs"),
        "--pacing.env_steps",
        "100000",
        "--run.pool_dir",
        str(place / "ram"),
    ]
    process = start("train", "tiny.yaml", *words)
    wait_until(lambda: run.metrics.exists() and '"run/updates": 1' in run.metrics.read_text())
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert time.monotonic() - begun < 12
    assert code == exits.STOPPED
    assert out == ""
    assert f"continue with: headrace train --resume {run.path}" in err
    assert "copying the pool" in err
    assert list(run.checkpoints.glob("step_*"))
    assert (run.pool / "manifest.json").exists()
    assert not any((place / "ram").iterdir())
    assert not run.result.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env.kwargs.gravity", "3"], "could not be made: TypeError"),
        (["--pool.capacity", str(10**12)], "the pool needs"),
    ],
)
def test_what_only_a_role_can_know_ends_the_run_with_one_line(place, words, said):
    code, out, err = finish(start("train", "tiny.yaml", "--run.dir", str(place / "runs"), *words))
    assert code == 1
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("headrace: error: ")
    assert said in last
    assert "Traceback" not in err
    assert [p.name for p in place.iterdir()] == ["tiny.yaml"]


def test_roles_started_by_hand_find_each_other(place):
    """A buffer from the config, an actor that is told where it listens, in any terminal."""
    words = ["--run.dir", str(place / "runs"), "--run.name", "by-hand"]
    run = RunDir(place / "runs" / "by-hand")
    buffer = start("buffer", "tiny.yaml", *words)
    actor = None
    try:
        wait_until(run.endpoint.exists)
        endpoint = run.endpoint.read_text().strip()
        actor = start("actor", "tiny.yaml", "--connect", endpoint, "--id", "arm")
        wait_until(lambda: [a["pid"] for a in status_of(endpoint)["actors"]] == [actor.pid])
        code, _, err = finish(start("actor", str(run.path), "--id", "arm"))
        assert code == 3
        assert f"'arm' is held by pid {actor.pid}" in err
    finally:
        for process in filter(None, (actor, buffer)):
            process.terminate()
            finish(process)
    assert (actor.returncode, buffer.returncode) == (0, 0)


def test_train_from_python(place, capsys):
    run = {"mode": "sync", "name": "python", "dir": str(place / "runs")}
    result = headrace.launch.train({**TINY, "pacing": {**TINY["pacing"], "env_steps": 80}, "run": run})
    assert (result.env_steps, result.updates) == (80, 48)
    assert read_json(Path(result.run_dir) / "result.json")["config_digest"] == result.config_digest
    assert result.best["policy"] == "checkpoints/best"
    assert read_policy(find_policy(Path(result.run_dir), best=True)).version.step == result.best["step"]
    print_result(result)
    assert f"best in training  {result.best['return_mean']:.2f} over 1 episodes, at update" in capsys.readouterr().out
    again = runner.resume(Path(result.run_dir))
    print_result(again)
    assert (result.resumed, again.resumed) == (False, True)
    assert "wall clock (since resumed)  " in capsys.readouterr().out
    assert cli.main(["eval", result.run_dir, "--best", "--episodes", "1"]) == 0
    assert f"best/policy.hrw (update {result.best['step']})" in capsys.readouterr().out


@pytest.mark.parametrize(("files", "copied"), [(["buffer.lock"], False), (["manifest.json", "rows.npy"], True)])
def test_only_what_is_a_pool_is_brought_home(place, capsys, files, copied):
    """A buffer that finds no room leaves its lock behind: no line about copying, and nothing in the other place."""
    config = make_config(SHORT, ["--run.pool_dir", str(place / "ram")])
    run = RunDir.create(place / "runs" / "home", {})
    pool = run.pool_dir(config.run.pool_dir)
    pool.mkdir(parents=True)
    for name in files:
        (pool / name).write_text("7")
    runner._Job(config, run, None)._bring_home(pool, run.pool, False)
    assert not pool.exists()
    assert run.pool.exists() == ("copying the pool" in capsys.readouterr().err) == copied


HOLD = """
import pathlib, sys
from headrace.buffer.lock import BUFFER_LOCK, PoolLock
lock = PoolLock(pathlib.Path(sys.argv[1]), BUFFER_LOCK)
print(7)
input()
"""


def test_a_buffer_that_was_started_by_hand_keeps_what_it_wrote(place):
    run = RunDir.create(place / "runs" / "hand", {})
    run.pool.mkdir(parents=True)
    run.write_endpoint("tcp://127.0.0.1:9")
    holder = subprocess.Popen(
        [sys.executable, "-u", "-c", HOLD, str(run.pool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "7\n"
        with pytest.raises(PoolLocked, match=f"is owned by pid {holder.pid} on "):
            runner._Job(make_config(SHORT), run, None).run()
    finally:
        holder.kill()
        holder.communicate(timeout=20)
    assert run.endpoint.read_text() == "tcp://127.0.0.1:9\n"


SHORT = {**TINY, "pacing": {**TINY["pacing"], "env_steps": 60}}


def test_successes_of_the_final_evaluation_are_told(place, capsys, monkeypatch):
    verdict = EvalResult(np.ones(4), np.ones(4, int), np.array([True, True, False, True]))
    monkeypatch.setattr(runner, "judge", lambda *words: verdict)
    run = {"mode": "sync", "name": "wins", "dir": str(place / "runs")}
    result = headrace.launch.train({**SHORT, "run": run})
    assert (result.eval_return_mean, result.eval_success_rate) == (1.0, 0.75)
    assert read_json(place / "runs" / "wins" / "result.json")["eval_success_rate"] == 0.75
    print_result(result)
    assert re.search(r"^success +75%$", capsys.readouterr().out, re.MULTILINE)


def test_a_final_evaluation_that_is_not_finite_is_null_and_an_error(place, capsys, monkeypatch):
    verdict = EvalResult(np.array([1.0, np.nan]), np.ones(2, int), None)
    monkeypatch.setattr(runner, "judge", lambda *words: verdict)
    (place / "short.yaml").write_text(yaml.safe_dump(SHORT))
    words = ["train", "short.yaml", "--mode", "sync", "--run.dir", str(place / "runs")]
    assert cli.main([*words, "--run.name", "nan"]) == 1
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert last.startswith("headrace: error: the final evaluation over 2 episodes is not finite")
    assert out == ""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    result = json.loads((place / "runs" / "nan" / "result.json").read_text(), parse_constant=refuse)
    assert (result["eval_return_mean"], result["eval_return_std"], result["updates"]) == (None, None, 28)
    assert result["eval_success_rate"] is None


def test_a_final_evaluation_that_fails_leaves_the_result_of_the_training(place, capsys, monkeypatch):
    def judge(*words):
        raise EnvError("evaluation: the env crashed in episode 3")

    monkeypatch.setattr(runner, "judge", judge)
    (place / "short.yaml").write_text(yaml.safe_dump(SHORT))
    assert cli.main(["train", "short.yaml", "--mode", "sync", "--run.dir", "runs", "--run.name", "crash"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "the run is trained, but its final evaluation failed: evaluation: the env crashed in episode 3;" in last
    assert last.endswith("to evaluate again: headrace eval runs/crash")
    result = json.loads((place / "runs" / "crash" / "result.json").read_text())
    assert (result["eval_return_mean"], result["episodes"], result["updates"]) == (None, 0, 28)


@pytest.mark.parametrize("ema", [False, True])
def test_the_final_evaluation_is_of_the_policy_or_its_average(place, monkeypatch, ema):
    run = RunDir.create(place / "runs" / "ema", {})
    policy = run.checkpoints / "step_000000000012" / "policy.hrw"
    policy.parent.mkdir(parents=True)
    tensors = {"w": np.zeros(1, "<f4"), f"{AVERAGE}w": np.ones(1, "<f4")}
    policy.write_bytes(WeightSet(Version("learner", 2, 12), {}, tensors).pack())
    words = ["--learner.ema_decay", "0.9", "--eval.ema", str(ema).lower()]
    judged = runner._Job(make_config(SHORT, words), run, None)._policy()
    assert {name: t.tolist() for name, t in judged.tensors.items()} == {"w": [float(ema)]}


def test_a_run_without_the_rows_for_its_updates_did_not_do_its_job(place, capsys):
    sets = {"demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"}, "own": {"share": 0.5, "source": ["policy"]}}
    (place / "short.yaml").write_text(yaml.safe_dump({**SHORT, "sampling": {"sets": sets}}))
    assert cli.main(["train", "short.yaml", "--mode", "sync", "--run.dir", "runs", "--run.name", "none"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "only 0 of 28 updates were made: the pool never had enough rows" in last
    assert last.endswith("or for sampling.sets demo, own")
    assert json.loads((place / "runs" / "none" / "result.json").read_text())["updates"] == 0


def test_updates_are_those_that_the_final_policy_has_had(place, capsys):
    """A learner that died took 28 of 40 granted updates with it: the policy on disk has had 12."""
    config = make_config(SHORT, ["--eval.final_episodes", "0"])
    run = RunDir.create(place / "runs" / "lost", {})
    job = runner._Job(config, run, None)
    policy = run.checkpoints / "step_000000000012" / "policy.hrw"
    policy.parent.mkdir(parents=True)
    policy.write_bytes(WeightSet(Version("learner", 2, 12), {}, {}).pack())
    result = job._conclude({"env_steps": 72, "updates": 40, "offline_updates": 0, "achieved_ratio": 1.0, "counters": {}}, 1.0)
    assert "no evaluation was through before the run was (eval.every 100, eval.episodes 1)" in capsys.readouterr().err
    assert (result.updates, result.updates_granted, result.updates_lost, result.achieved_ratio) == (12, 40, 28, 0.3)
    assert read_json(run.result)["updates"] == 12
    print_result(result)
    table = capsys.readouterr().out
    assert "updates lost  28 of 40 granted" in table
    print_result(dataclasses.replace(result, updates_lost=0))
    assert "lost" not in capsys.readouterr().out.replace(str(run.path), "")


@pytest.mark.parametrize(
    ("ratio", "updates", "said"),
    [(0, 0, ""), (1, 0, "only 0 of 28 updates were made"), (1, 28, "none of the 28 updates was saved")],
)
def test_a_run_without_a_saved_update_has_no_policy_to_judge(place, capsys, monkeypatch, ratio, updates, said):
    """One that only collects has done its job all the same."""
    monkeypatch.setattr(runner, "judge", None)
    run = RunDir.create(place / "runs" / "none", {})
    job = runner._Job(make_config(SHORT, ["--pacing.ratio", str(ratio)]), run, None)
    status = {"env_steps": 60, "updates": updates, "offline_updates": 0, "counters": {}}
    if said:
        with pytest.raises(HeadraceError, match=said):
            job._conclude(status, 1.0)
    else:
        print_result(job._conclude(status, 1.0))
        assert "not evaluated" in capsys.readouterr().out
    result = read_json(run.result)
    assert (result["updates"], result["updates_granted"], result["episodes"]) == (0, updates, 0)


def test_a_run_that_skipped_every_update_did_not_do_its_job(place, capsys):
    words = ["short.yaml", "--mode", "sync", "--run.dir", "runs", "--run.name", "huge", "--env.reward", "helpers.playing:huge"]
    (place / "short.yaml").write_text(yaml.safe_dump(SHORT))
    assert cli.main(["train", *words]) == 1
    assert "all 28 updates were skipped, since a loss or a gradient was not finite" in capsys.readouterr().err.splitlines()[-1]
    result = read_json(place / "runs" / "huge" / "result.json")
    assert (result["updates"], result["updates_skipped"]) == (28, 28)


def test_skipped_updates_are_told_at_the_end(place, capsys):
    metrics = place / "metrics.jsonl"
    metrics.write_text('{"sac/updates_skipped": 0.0}\n{"sac/updates_skipped": 3.0}\n{"env/return_mean": 1.0}\n')
    assert runner.skipped(metrics) == 3
    assert runner.skipped(place / "none.jsonl") == 0
    (place / "damaged.jsonl").write_text("no JSON\n")
    assert runner.skipped(place / "damaged.jsonl") == 0
    run = RunDir.create(place / "runs" / "some", {})
    job = runner._Job(make_config(SHORT, ["--eval.final_episodes", "0"]), run, None)
    policy = run.checkpoints / "step_000000000028" / "policy.hrw"
    policy.parent.mkdir(parents=True)
    policy.write_bytes(WeightSet(Version("learner", 2, 28), {}, {}).pack())
    run.metrics.write_bytes(metrics.read_bytes())
    print_result(job._conclude({"env_steps": 60, "updates": 28, "offline_updates": 0, "counters": {}}, 1.0))
    assert "updates skipped  3: loss or gradient not finite" in capsys.readouterr().out


def test_a_damaged_checkpoint_that_a_run_goes_on_without_is_told(place, capsys):
    (place / "short.yaml").write_text(yaml.safe_dump(SHORT))
    words = ["--run.name", "cut", "--learner.checkpoint_every_updates", "10", "--pacing.env_steps", "200"]
    assert cli.main(["train", "short.yaml", "--mode", "sync", "--run.dir", "runs", *words]) == 0
    assert "damaged" not in capsys.readouterr().err
    newest = max((place / "runs" / "cut" / "checkpoints").glob("step_*"))
    (newest / "state.safetensors").unlink()
    assert cli.main(["train", "--resume", "runs/cut", "--pacing.env_steps", "240"]) == 0
    assert f"passed over for an earlier one, and set aside: damaged-{newest.name}" in " ".join(capsys.readouterr().err.split())


def test_seeds_skip_what_is_finished(place, capsys):
    words = ["train", "tiny.yaml", "--mode", "sync", "--run.dir", str(place / "runs"), "--pacing.env_steps", "60"]
    assert cli.main([*words, "--seeds", "0,1"]) == 0
    results = sorted((place / "runs" / "tiny").glob("*/result.json"))
    assert [p.parent.name for p in results] == ["seed-0", "seed-1"]
    assert [read_json(p)["seed"] for p in results] == [0, 1]
    stamps = [os.stat(p).st_mtime_ns for p in results]
    capsys.readouterr()
    assert cli.main([*words, "--seeds", "0..1"]) == 0
    assert [os.stat(p).st_mtime_ns for p in results] == stamps
    assert capsys.readouterr().out.splitlines()[-1] == str(results[1])
    assert cli.main([*words, "--seeds", "0..1", "--learner.gamma", "0.5"]) == 1
    assert "is a finished run of another config" in capsys.readouterr().err
    assert Path(results[0]).exists()
