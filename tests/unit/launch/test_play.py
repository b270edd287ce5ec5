"""Finding and judging a policy; what the doctor and the machine's record say."""

import json

import numpy as np
import pytest
import yaml

from headrace.actor.envs import make_spec
from headrace.actor.evaluate import EvalResult
from headrace.common.clock import ManualClock
from headrace.common.errors import CheckpointError, ConfigError
from headrace.common.weights import Version, WeightSet
from headrace.launch import cli, play
from headrace.launch import doctor as clinic
from headrace.launch.config import make_config
from headrace.launch.machine import commit, environment_text, memory_limit, version_of
from headrace.launch.play import find_config, find_policy, find_values, read_policy, share_interval, verdict_lines
from headrace.launch.reporting import Reporter
from headrace.launch.rundir import RunDir


@pytest.fixture
def run(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    for name in ("step_000000000009", "step_000000000010", "step_000000000010.old", ".writing-1-step_000000000011"):
        (run.checkpoints / name).mkdir(parents=True)
        (run.checkpoints / name / "policy.hrw").write_text(name)
    return run


def test_the_newest_whole_checkpoint_is_taken(run):
    newest = run.checkpoints / "step_000000000010" / "policy.hrw"
    assert find_policy(run.path) == find_policy(newest.parent) == find_policy(newest) == newest
    assert find_config(newest) == run.config


def test_the_best_of_a_run_is_taken_where_it_is_asked_for(run):
    with pytest.raises(CheckpointError, match=r"run: no best policy here; .*eval\.every"):
        find_policy(run.path, best=True)
    (run.checkpoints / "best.1").mkdir()
    (run.checkpoints / "best.1" / "policy.hrw").write_text("best")
    (run.checkpoints / "best").symlink_to("best.1")
    assert find_policy(run.path, best=True).read_text() == "best"
    assert find_policy(run.path).parent.name == "step_000000000010"


def test_no_policy_and_a_damaged_one_are_named(run, tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere: no policy here"):
        find_policy(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"policy\.hrw: not a policy: weights"):
        read_policy(find_policy(run.path))
    (tmp_path / "loose.hrw").write_text("")
    with pytest.raises(ConfigError, match="--config"):
        find_config(tmp_path / "loose.hrw")


def test_the_verdict_has_intervals():
    lines = dict(verdict_lines(EvalResult(np.arange(20.0), np.full(20, 7), np.arange(20) < 15)))
    assert lines["return"].startswith("9.50 ± 5.77 (mean: 95 % interval ")
    assert lines["length"] == "7.0 (mean: 95 % interval 7.0 to 7.0)"
    assert lines["success"] == "75% (15 of 20; 95 % interval 53% to 89%)"
    assert dict(verdict_lines(EvalResult(np.zeros(1), np.ones(1, int), None)))["success"] == "the env does not say"


def test_the_verdict_of_one_or_two_episodes_has_none():
    lines = dict(verdict_lines(EvalResult(np.array([-9.0, 3.0]), np.array([4, 9]), np.array([True, False]))))
    assert lines["return"] == "-3.00 (too few for an interval)"
    assert lines["length"] == "6.5 (too few for an interval)"
    assert lines["success"] == "50% (1 of 2; 95 % interval 9% to 91%)"  # Wilson's holds for any number of episodes


@pytest.mark.parametrize("there", [True, False], ids=["into a directory that is there", "into a new one"])
def test_a_video_that_cannot_be_made_is_an_error_and_leaves_nothing(run, tmp_path, monkeypatch, capsys, there):
    """The episodes are shown all the same."""
    video = tmp_path / "films" / "one"
    if there:
        video.mkdir(parents=True)

    def film(policy, env, window, seed, directory, values, told):
        directory.mkdir(parents=True, exist_ok=True)
        return None, "no video: EnvError: env x does not\nrender"

    monkeypatch.setattr(play, "judge", lambda *args: EvalResult(np.ones(2), np.ones(2, int), None))
    monkeypatch.setattr(play, "read_policy", lambda path, ema: WeightSet(Version("learner", 1, 5), {}, {}))
    monkeypatch.setattr(play, "make_policy", lambda *args: None)
    monkeypatch.setattr(play, "film", film)
    run.config.write_text(yaml.safe_dump({"env": {"id": "Pendulum-v1"}}))
    assert cli.main(["eval", str(run.path), "--video", str(video)]) == 1
    out, err = capsys.readouterr()
    assert "return    1.00" in out
    assert err == f"headrace: error: --video {video}: no video: EnvError: env x does not render\n"
    assert video.exists() == (tmp_path / "films").exists() == there


def test_a_film_of_a_policy_without_critics_shows_no_values_and_says_why_others_do_not(run, capsys):
    config = make_config({"env": {"id": "Pendulum-v1"}})
    policy = run.checkpoints / "step_000000000010" / "policy.hrw"
    assert find_values(policy, config, make_spec(config.env, config.window)) is None
    assert capsys.readouterr().err == ""
    (policy.parent / "manifest.json").write_text("{}")
    assert find_values(policy, config, make_spec(config.env, config.window)) is None
    assert "the film shows no values: " in (said := capsys.readouterr().err)
    assert "manifest.json: damaged" in said


@pytest.mark.parametrize(
    ("wins", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0)],
)
def test_shares_have_wilson_intervals(wins, trials, low, high):
    assert share_interval(wins, trials) == pytest.approx((low, high), abs=2e-4)


def findings(tmp_path, *words, **changes):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"env": {"id": "Pendulum-v1"}, "pool": {"capacity": 5000}, **changes}))
    return {f.what: f for f in clinic.findings(path, ["--run.dir", str(tmp_path), *words])}


def test_the_doctor_finds_a_fit_machine_fit(tmp_path, capsys):
    found = findings(tmp_path)
    assert {f.verdict for name, f in found.items() if name in ("python", "numpy", "config", "env", "pool", "endpoint")} == {
        "ok"
    }
    assert "(3,)" in found["env"].seen
    assert clinic.doctor(None, []) == 0
    assert "python" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "what", "said"),
    [
        (["--env.id", "Nope-v0"], "env", "unknown to gymnasium"),
        (["--pool.capacity", str(10**12)], "pool", "free are"),
        (["--network.endpoint", "tcp://192.0.2.1:5555"], "endpoint", "cannot listen on"),
        (["--learner.batch_size", "0"], "config", "nearest valid: 1"),
    ],
)
def test_the_doctor_names_what_keeps_a_run_from_working(tmp_path, words, what, said, capsys):
    finding = findings(tmp_path, *words)[what]
    assert finding.verdict == "bad"
    assert said in finding.seen
    assert clinic.doctor(tmp_path / "c.yaml", ["--run.dir", str(tmp_path), *words]) == 1
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("bad")]) == 1


def test_the_doctor_lists_mujoco_when_it_is_there_and_misses_it_when_the_env_needs_it(tmp_path, monkeypatch):
    versions = {"mujoco": "3.9"}
    monkeypatch.setattr(clinic, "version_of", lambda name: versions.get(name, "1"))
    assert str(findings(tmp_path)["mujoco"]).split() == ["ok", "mujoco", "3.9"]
    assert findings(tmp_path)["PyYAML"].verdict == "ok"
    versions["mujoco"] = "-"
    assert "mujoco" not in findings(tmp_path)
    finding = findings(tmp_path, "--env.id", "Hopper-v5")["mujoco"]
    assert finding.verdict == "bad"
    assert "Hopper-v5 needs it" in finding.seen
    assert "headrace[mujoco]" in finding.advice


def test_more_actors_than_cores_is_only_looked_at(tmp_path):
    finding = findings(tmp_path, "--actor.count", "64")["processes"]
    assert finding.verdict == "look"
    assert "--actor.count" in finding.advice


def test_more_ranks_than_cores_are_only_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(clinic, "usable_cores", lambda: 4)
    finding = findings(tmp_path, "--learner.ranks", "5")["processes"]
    assert finding.verdict == "look"
    assert "5 ranks of the learner" in finding.seen
    assert "--learner.ranks 4" in finding.advice
    finding = findings(tmp_path, "--learner.ranks", "3", "--actor.count", "3")["processes"]
    assert "--actor.count 1" in finding.advice
    assert findings(tmp_path, "--learner.ranks", "3", "--actor.count", "2")["processes"].verdict == "ok"


def test_the_environment_says_what_a_result_depends_on():
    text = environment_text()
    for word in ("python", "numpy", "torch", "cores", "memory", "commit"):
        assert f"\n{word}" in f"\n{text}"
    assert memory_limit() > 1 << 20
    assert version_of("no-such-package") == "-"
    assert commit() == "" or len(commit()) >= 7


class Screen:
    def __init__(self):
        self.lines, self.times = [], []

    def notice(self, text):
        self.lines.append(text)

    def update(self, status):
        self.times.append(status["uptime_s"])

    def close(self):
        pass


def test_the_curve_is_drawn_from_time_to_time_and_at_the_end(tmp_path):
    run, screen, clock = RunDir.create(tmp_path / "run", {}), Screen(), ManualClock()
    run.metrics.write_text(json.dumps({"run/env_steps": 5, "run/return_mean": 1.0}) + "\n")
    reporter = Reporter(screen, run, 10.0, clock)
    reporter.update({"uptime_s": 70.0})
    assert not run.curve.exists()
    assert run.environment.exists()
    clock.advance(10.0)
    reporter.update({})
    first = run.curve.stat().st_mtime_ns
    reporter.update({})
    assert run.curve.stat().st_mtime_ns == first
    reporter.close(hurried=False)
    assert run.curve.stat().st_mtime_ns > first
    reporter.notice("a line")
    assert run.log("supervisor").read_text() == "a line\n"
    assert screen.times == [0.0, 10.0, 10.0]  # its own, whatever the buffer says of itself


def test_a_picture_is_never_worth_a_run(tmp_path, monkeypatch):
    def broken(*words):
        raise RuntimeError("no fonts")

    monkeypatch.setattr("headrace.launch.reporting.draw_run", broken)
    run, screen, clock = RunDir.create(tmp_path / "run", {}), Screen(), ManualClock()
    reporter = Reporter(screen, run, 1.0, clock)
    for _ in range(3):
        clock.advance(2.0)
        reporter.update({})
    assert screen.lines == ["the learning curve cannot be drawn: RuntimeError: no fonts"]
    Reporter(screen, run, 1.0, clock).close(hurried=True)
    assert len(screen.lines) == 1
