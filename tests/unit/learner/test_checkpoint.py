"""Checkpoints: complete or invisible, and told apart from damaged ones."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.common.errors import CheckpointError
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.common.weights import Version, WeightSet
from headrace.learner import checkpoint

SPEC = make_spec()


def state(value=0):
    return {"tensors": {"a": torch.full((3,), float(value)), "n": torch.tensor(value)}, "scalars": {"step": value}}


def write(directory, step, keep=9, **more):
    return checkpoint.write(directory, step, state(step), keep=keep, **more)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def newest_of_whole(directory):
    """The newest checkpoint, where everything that can be seen is whole."""
    for path in directory.glob("step_*"):
        checkpoint.read(path)
    return checkpoint.read(checkpoint.newest(directory))


def test_what_is_written_is_read(tmp_path):
    def snapshot(directory):
        (directory / "pool").mkdir()
        (directory / "pool" / "rows.npy").write_bytes(b"rows")

    path = write(tmp_path / "new", 7, files={"policy.hrw": b"policy"}, add=snapshot)
    assert path.name == "step_000000000007"
    found = checkpoint.read(path)
    assert found.step == 7
    assert torch.equal(found.state["tensors"]["a"], torch.full((3,), 7.0))
    assert found.state["scalars"] == {"step": 7}
    assert (found.path / "policy.hrw").read_bytes() == b"policy"
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest["files"]) == {"state.safetensors", "state.json", "policy.hrw", "pool/rows.npy"}


NORMALISED = {"normalise_obs": True, "normalise_rewards": True}


@pytest.mark.parametrize("options", [{}, {"temperature": "auto_softplus", "actor_update_interval": 2, **NORMALISED}])
def test_resuming_is_exact_to_the_bit(tmp_path, options):
    def train(sac, start, statistics=None):
        for i in range(start, start + 50):
            sac.update(make_batch(SPEC, seed=i), statistics)
        return sac

    mean, var = {"obs": np.array([0.5, -1, 2], "<f4")}, {"obs": np.array([4, 0.1, 1], "<f4")}
    seen = ObsStatistics(9, mean, var, ReturnStatistics(9, 7.0))
    straight = train(train(make_sac(SPEC, **options), 0, seen), 50)
    before = train(make_sac(SPEC, **options), 0, seen)
    path = checkpoint.write(tmp_path, before.step, before.get_state(), keep=1)
    resumed = make_sac(SPEC, seed=99, **options)  # other weights, other noise: all of it must come from the file
    resumed.set_state(checkpoint.read(path).state)
    train(resumed, 50)
    ours, theirs = resumed.get_state(), straight.get_state()
    assert ours["scalars"] == theirs["scalars"] == {"step": 100}
    assert ours["tensors"].keys() == theirs["tensors"].keys()
    assert [name for name in ours["tensors"] if not torch.equal(ours["tensors"][name], theirs["tensors"][name])] == []


def test_the_policy_lies_beside_the_state(tmp_path):
    sac = make_sac(SPEC)
    files = {"policy.hrw": sac.weights(Version("learner", 1, 0)).pack()}
    path = checkpoint.write(tmp_path, 0, sac.get_state(), files=files, keep=1)
    assert WeightSet.unpack((path / "policy.hrw").read_bytes()).policy["type"] == "mlp"


def test_the_newest_are_kept(tmp_path):
    for step in (1, 2, 10, 3):
        write(tmp_path, step, keep=2)
    assert names(tmp_path) == ["step_000000000002", "step_000000000003", "step_000000000010"]
    assert checkpoint.newest(tmp_path).name == "step_000000000010"
    assert checkpoint.newest(tmp_path / "nothing") is None


def files_of(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_any_flipped_bit_is_found_and_named(tmp_path, caplog):
    good = write(tmp_path, 1)
    bad = write(tmp_path, 2, files={"policy.hrw": b"policy"}, add=lambda d: (d / "extra").write_bytes(b"x" * 500))
    rng = random.Random(0)
    for file in files_of(bad):
        data = file.read_bytes()
        for _ in range(60):
            bit = rng.randrange(8 * len(data))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << (bit % 8)
            file.write_bytes(flipped)
            caplog.clear()
            assert checkpoint.newest(tmp_path) == good
            assert str(file) in caplog.text
            with pytest.raises(CheckpointError, match=file.name):
                checkpoint.read(bad)
        file.write_bytes(data)
    assert checkpoint.newest(tmp_path) == bad


@pytest.mark.parametrize("harm", ["truncate", "delete", "swap"])
def test_any_file_cut_missing_or_of_another_checkpoint_is_found(tmp_path, harm):
    other, path = write(tmp_path, 1), write(tmp_path, 2)
    for file in files_of(path):
        data = file.read_bytes()
        if harm == "truncate":
            file.write_bytes(data[:-1])
        elif harm == "delete":
            file.unlink()
        else:
            file.write_bytes((other / file.name).read_bytes())
        with pytest.raises(CheckpointError, match=file.name):
            checkpoint.read(path)
        file.write_bytes(data)
    checkpoint.read(path)


def test_all_damaged_is_an_error_that_names_each(tmp_path):
    for step in (1, 2):
        (write(tmp_path, step) / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"step_000000000002/state\.json.*step_000000000001/state\.json"):
        checkpoint.newest(tmp_path)


def test_a_file_where_the_directory_should_be_is_named(tmp_path):
    place = tmp_path / "checkpoints"
    assert checkpoint.newest(place) is None
    place.write_text("")
    for look in (checkpoint.newest, checkpoint.resume):
        with pytest.raises(CheckpointError, match=f"{place}: a file lies where"):
            look(place)


@pytest.mark.parametrize("step", [1, 2])
def test_a_failure_of_any_call_leaves_a_whole_checkpoint(tmp_path, monkeypatch, step):
    """Fail the k-th fsync, rename, delete or write, for every k until the write is through."""
    reached = 0
    for k in range(200):
        directory = tmp_path / str(k)
        write(directory, 1, keep=1)
        calls = [0]

        def failing(real, calls=calls, k=k):
            def call(*args, **kwargs):
                calls[0] += 1
                if calls[0] == k + 1:
                    raise OSError(28, "No space left on device")
                return real(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing(os.fsync))
            patch.setattr(Path, "rename", failing(Path.rename))
            patch.setattr(Path, "write_bytes", failing(Path.write_bytes))
            patch.setattr(Path, "mkdir", failing(Path.mkdir))
            patch.setattr(shutil, "rmtree", failing(shutil.rmtree))
            try:
                checkpoint.write(directory, step, state(5), files={"policy.hrw": b"p"}, keep=1)
                written = True
            except CheckpointError:
                written = False
        found = newest_of_whole(directory)
        assert found.state["scalars"]["step"] in ((5,) if written else (1, 5))
        write(directory, 3, keep=1)  # and the next one is written as if nothing had been
        assert names(directory) == ["step_000000000003"]
        if calls[0] <= k:
            break
        reached = k + 1
    assert reached > 10
    assert written


KILL = """
import os, pathlib, sys, torch
from headrace.learner import checkpoint

root = pathlib.Path(sys.argv[1])

def state(value):
    return {"tensors": {"a": torch.full((3,), float(value))}, "scalars": {"step": value}}

def die_at(directory, k):
    count = 0
    def hook(event, args):
        nonlocal count
        if event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "open") and str(directory) in str(args[0]):
            count += 1
            if count == k:
                os._exit(9)
    return hook

for step in (1, 2):
    for k in range(1, 200):
        directory = root / f"{k}-{step}"
        checkpoint.write(directory, 1, state(1), keep=1)
        child = os.fork()
        if child == 0:
            sys.addaudithook(die_at(directory, k))
            checkpoint.write(directory, step, state(2), keep=1)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
"""


def test_a_process_killed_at_any_call_leaves_a_whole_checkpoint(tmp_path):
    """Exit without a word at the k-th open, rename, mkdir or unlink, for every k until the write is through."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", KILL, str(tmp_path)], check=True, timeout=120, env=environment)
    directories = list(tmp_path.iterdir())
    assert len(directories) > 30
    for directory in directories:
        newest_of_whole(directory)
        write(directory, 3, keep=1)
        assert names(directory) == ["step_000000000003"]


def test_leftovers_of_the_living_stay(tmp_path):
    other = tmp_path / f".writing-{os.getppid()}-step_000000000009"
    other.mkdir()
    (tmp_path / ".writing-999999999-step_000000000009").mkdir()
    write(tmp_path, 1)
    assert names(tmp_path) == [other.name, "step_000000000001"]


def test_a_step_written_again_replaces_the_old(tmp_path):
    write(tmp_path, 4)
    path = checkpoint.write(tmp_path, 4, state(8), keep=2)
    assert names(tmp_path) == ["step_000000000004"]
    assert checkpoint.read(path).state["scalars"] == {"step": 8}
    path.rename(tmp_path / "step_000000000004.old")  # as a kill between two renames leaves it
    assert checkpoint.read(checkpoint.newest(tmp_path)).state["scalars"] == {"step": 8}


def test_a_resumed_run_is_not_hidden_behind_a_damaged_newer_checkpoint(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step)
    (tmp_path / "step_000000000003" / "state.safetensors").write_bytes(b"cut")
    assert checkpoint.resume(tmp_path).step == 2
    assert names(tmp_path) == ["damaged-step_000000000003", "step_000000000001", "step_000000000002"]
    write(tmp_path, 3)
    assert checkpoint.resume(tmp_path).step == 3


def test_when_all_are_damaged_they_stay_as_they_are(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "step_000000000001" / "state.json").unlink()
    with pytest.raises(CheckpointError, match="step_000000000001"):
        checkpoint.resume(tmp_path)
    assert names(tmp_path) == ["step_000000000001"]
    assert checkpoint.resume(tmp_path / "none") is None


def test_old_checkpoints_that_cannot_be_looked_for_do_not_spoil_the_new_one(tmp_path, monkeypatch, caplog):
    write(tmp_path, 1, keep=1)

    def broken(directory):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_found", broken)
        path = write(tmp_path, 2, keep=1)
    assert checkpoint.newest(tmp_path) == path
    assert "old checkpoints not deleted: [Errno 24] Too many open files" in caplog.text
    write(tmp_path, 3, keep=1)
    assert names(tmp_path) == ["step_000000000003"]


def test_tensors_in_any_layout_are_written(tmp_path):
    turned = torch.arange(6.0).reshape(2, 3).t()
    path = checkpoint.write(tmp_path, 1, {"tensors": {"t": turned}, "scalars": {}}, keep=1)
    assert torch.equal(checkpoint.read(path).state["tensors"]["t"], turned)


def test_all_files_are_for_the_same_people(tmp_path):
    path = write(tmp_path, 1, files={"policy.hrw": b"policy"})
    assert len({file.stat().st_mode for file in path.iterdir()}) == 1
