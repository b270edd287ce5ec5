"""``headrace status`` of runs that no buffer tells of."""

import json
import os

import pytest

from headrace.common.errors import ConfigError
from headrace.launch import cli
from headrace.launch.rundir import RunDir
from headrace.launch.watch import endpoint_of, synchronous_status

METRICS = [
    {"run/env_steps": 250, "run/updates": 10, "run/pool_rows": 250},
    {
        "run/env_steps": 500,
        "run/updates": 120,
        "run/env_steps_s": 40.0,
        "run/pool_rows": 490,
        "run/return_mean": -7.5,
        "run/evaluation": {"return_mean": -3.25, "return_std": 1.0, "episodes": 5, "env_steps": 400},
    },
    {"host/rss": 1},
]


@pytest.fixture
def make_run(tmp_path):
    def make(mode="sync", metrics=METRICS):
        config = {"run": {"mode": mode}, "pacing": {"env_steps": 5000, "ratio": 1.0, "offline_updates": 0}}
        run = RunDir.create(tmp_path / "run", config)
        run.metrics.write_text("".join(json.dumps(line) + "\n" for line in metrics))
        return run

    return make


def test_a_synchronous_run_that_runs_is_told_from_its_metrics(make_run, capsys):
    run = make_run()
    with run.claim():
        assert cli.main(["status", str(run.path)]) == 0
        said = capsys.readouterr().out
        assert cli.main(["status", str(run.path), "--json"]) == 0
    assert f"a synchronous run, of pid {os.getpid()}" in said
    for part in ("500 of 5,000   40.0/s", "120", "490 rows", "-7.5", "-3.2", "at 400"):
        assert part in said
    status = json.loads(capsys.readouterr().out)
    assert (status["env_steps"], status["mode"], status["pid"], status["phase"]) == (500, "sync", os.getpid(), "training")


def test_a_synchronous_run_that_has_told_nothing_yet(make_run, capsys):
    run = make_run(metrics=[])
    with run.claim():
        assert cli.main(["status", str(run.path)]) == 0
    assert "env steps             0 of 5,000" in capsys.readouterr().out


def test_a_synchronous_run_that_does_not_run(make_run):
    run = make_run()
    with run.claim():
        pass
    assert synchronous_status(str(run.path)) is None
    with pytest.raises(ConfigError, match="run: a synchronous run has no buffer; it is not running now"):
        endpoint_of(str(run.path))


def test_an_asynchronous_run_without_a_buffer_says_whether_it_is_supervised(make_run):
    run = make_run("async")
    with pytest.raises(ConfigError, match="no buffer listens for this run; it is not running now"):
        endpoint_of(str(run.path))
    with run.claim():
        assert synchronous_status(str(run.path)) is None
        with pytest.raises(ConfigError, match=f"no buffer listens for this run; pid {os.getpid()} supervises it"):
            endpoint_of(str(run.path))


def test_looking_takes_no_claim(make_run):
    run = make_run()
    assert run.holder == ""
    with run.claim():
        assert run.holder == str(os.getpid())
    assert run.holder == ""
    with run.claim():
        pass
