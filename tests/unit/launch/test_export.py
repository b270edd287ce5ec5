"""``headrace export``: from a checkpoint to another program and back."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from helpers.learner import make_batch, make_sac, make_spec
from helpers.weights import mlp_weights, small_spec

from headrace.actor.policy import make_policy
from headrace.common.errors import CheckpointError
from headrace.common.policy_files import policy_files
from headrace.common.weights import Version
from headrace.launch import cli
from headrace.launch.play import find_policy, read_policy, read_spec
from headrace.launch.rundir import RunDir

SPEC = make_spec()


def put(directory, weights, spec):
    directory.mkdir(parents=True)
    for name, data in policy_files(weights, spec).items():
        (directory / name).write_bytes(data)


@pytest.fixture
def sac():
    made = make_sac(SPEC)
    for seed in range(3):
        made.update(make_batch(SPEC, seed=seed))
    return made


@pytest.fixture
def run(tmp_path, sac):
    run = RunDir.create(tmp_path / "run", {"env": {"id": "Pendulum-v1"}})
    put(run.checkpoints / "step_000000000003", sac.weights(Version("learner", 1, 3)), SPEC)
    put(run.checkpoints / "best", mlp_weights(SPEC, step=2), SPEC)
    return run


def test_a_policy_leaves_and_comes_back(run, sac, tmp_path, capsys):
    assert cli.main(["export", str(run.path), str(tmp_path / "out")]) == 0
    assert "policy of update 3 from " in capsys.readouterr().out
    weights = read_policy(find_policy(tmp_path / "out"))
    obs = {"obs": np.random.default_rng(0).standard_normal((9, 3)).astype("<f4")}
    ours, theirs = (
        make_policy(w, SPEC).act(obs, np.random.default_rng(0), True) for w in (sac.weights(weights.version), weights)
    )
    assert ours.tobytes() == theirs.tobytes()
    assert read_spec(find_policy(tmp_path / "out")) == SPEC
    learner = make_sac(SPEC, seed=9)  # other weights, until it begins with the export
    learner.load_policy(weights)
    same = zip(learner.model.policy_tensors().values(), sac.model.policy_tensors().values(), strict=True)
    assert all((a == b).all() for a, b in same)
    assert cli.main(["export", str(tmp_path / "out"), str(tmp_path / "again")]) == 0  # of an export
    assert read_policy(find_policy(tmp_path / "again")).fingerprint() == weights.fingerprint()


def test_the_best_policy_of_a_run(run, tmp_path):
    assert cli.main(["export", str(run.path), str(tmp_path / "out"), "--best"]) == 0
    assert read_policy(find_policy(tmp_path / "out")).version.step == 2


def test_the_average_leaves_alone_and_a_policy_without_one_says_so(tmp_path, sac, capsys):
    averaging = make_sac(SPEC, ema_decay=0.5)
    averaging.update(make_batch(SPEC))
    weights = averaging.weights(Version("learner", 1, 1))
    for name, held in (("both", weights), ("one", sac.weights(Version("learner", 1, 3)))):
        put(tmp_path / name, held, SPEC)
        words = ["export", str(tmp_path / name), str(tmp_path / f"{name}-out"), "--ema"]
        assert cli.main(words) == (0 if name == "both" else 1)
    shown = capsys.readouterr()
    assert "average of the policy of update 1 from " in shown.out
    assert "the policy of update 3 comes without an average" in shown.err
    assert not (tmp_path / "one-out").exists()
    found = read_policy(find_policy(tmp_path / "both-out"))
    assert {n: t.tolist() for n, t in found.tensors.items()} == {n: t.tolist() for n, t in averaging.average.tensors.items()}
    assert read_policy(find_policy(tmp_path / "both")).fingerprint() == found.fingerprint()


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_policy_without_its_spec_cannot_be_exported(run, tmp_path, capsys, harm):
    spec = run.checkpoints / "step_000000000003" / "spec.json"
    spec.unlink() if harm == "missing" else spec.write_text("{}")
    assert cli.main(["export", str(run.path), str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert "spec.json: what policy.hrw sees and does cannot be read" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_written_over(run, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert cli.main(["export", str(run.path), str(tmp_path / "out")]) == 1
    assert "out: exists already; name a directory that does not" in capsys.readouterr().err


def test_a_damaged_export_is_refused_before_anything_starts(run, tmp_path, capsys):
    assert cli.main(["export", str(run.path), str(tmp_path / "out")]) == 0
    (tmp_path / "out" / "policy.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="does not match its digest"):
        read_policy(find_policy(tmp_path / "out"))
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"env": {"id": "Pendulum-v1"}}))
    capsys.readouterr()
    words = ["train", str(tmp_path / "c.yaml"), "--init-from", str(tmp_path / "out"), "--run.dir", str(tmp_path / "runs")]
    assert cli.main(words) == 1
    assert "policy.safetensors: does not match its digest" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_eval_plays_an_export(tmp_path, capsys):
    spec = small_spec(3, (-2.0,), (2.0,))  # of Pendulum-v1
    run = RunDir.create(tmp_path / "run", {"env": {"id": "Pendulum-v1", "max_episode_steps": 10}})
    put(run.checkpoints / "step_000000000007", mlp_weights(spec, step=7), spec)
    assert cli.main(["export", str(run.path), str(tmp_path / "out")]) == 0
    shown = []
    for target in (run.path, tmp_path / "out"):
        capsys.readouterr()
        assert cli.main(["eval", str(target), "--episodes", "2", "--config", str(run.config)]) == 0
        shown.append(capsys.readouterr().out.split("\n", 1))
    assert shown[1][0] == f"policy    {tmp_path / 'out' / 'policy.json'} (update 7)"
    assert shown[0][1] == shown[1][1]
