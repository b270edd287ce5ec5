"""Checkpoints that somebody made on purpose, with every digest right: refused by name, before a tensor's bytes are read."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save

from headrace.common.errors import CheckpointError, SpecError
from headrace.common.policy_files import parse_spec
from headrace.learner import checkpoint


class Opens:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture
def whole(tmp_path):
    state = {"tensors": {"a": torch.arange(3.0)}, "scalars": {"step": 1}}
    return checkpoint.write(tmp_path / "checkpoints", 1, state, files={"policy.hrw": b"policy"}, keep=1)


def entry(data):
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def forge(path, changes=None, **body):
    """Write ``changes`` (name -> content) and a manifest whose digests are right for them; ``body`` goes over it."""
    files = dict(json.loads((path / "manifest.json").read_bytes())["files"])
    for name, data in (changes or {}).items():
        if not (path / name).is_symlink() and not name.startswith(("/", "..")) and len(name) < 256:
            (path / name).write_bytes(data)
        files[name] = entry(data)
    text = {"format": 1, "step": 1, "files": files, **body}
    text["sha256"] = hashlib.sha256(json.dumps(text, sort_keys=True, indent=1).encode()).hexdigest()
    (path / "manifest.json").write_bytes(json.dumps(text, sort_keys=True, indent=1).encode())
    return path


def refused(path, words, monkeypatch=None):
    if monkeypatch is not None:  # nothing else is read
        monkeypatch.setattr(checkpoint, "_digest", lambda file: pytest.fail(f"{file} was read"))
    with pytest.raises(CheckpointError, match=words):
        checkpoint.read(path)


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "a/../../x", "./state.json", "", "n" * 300, "manifest.json"])
def test_a_name_that_leads_out_of_its_directory_is_refused_before_anything_is_read(tmp_path, whole, name, monkeypatch):
    (tmp_path / "checkpoints" / "x").write_bytes(b"foreign")
    forge(whole)
    files = {**json.loads((whole / "manifest.json").read_bytes())["files"], name: entry(b"foreign")}
    refused(forge(whole, files=files), "is no file of this checkpoint", monkeypatch)


def test_a_link_to_a_foreign_file_or_directory_is_refused_though_its_digest_is_right(tmp_path, whole, monkeypatch):
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"secret")
    (whole / "extra").symlink_to(foreign)
    refused(forge(whole, {"extra": b"secret"}), "'extra' is no file", monkeypatch)
    (whole / "extra").unlink()
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "rows.npy").write_bytes(b"rows")
    (whole / "pool").symlink_to(tmp_path / "place")
    files = {**json.loads((whole / "manifest.json").read_bytes())["files"], "pool/rows.npy": entry(b"rows")}
    files.pop("extra")
    refused(forge(whole, files=files), "'pool/rows.npy' is no file", monkeypatch)


def test_tensors_without_a_digest_are_refused(whole, monkeypatch):
    refused(forge(whole, files={}), "has no digest of state.json, state.safetensors", monkeypatch)


@pytest.mark.parametrize("said", ["none", 7, None, [], {"bytes": "many"}])
def test_a_digest_that_is_none_is_refused(whole, said):
    files = {**json.loads((whole / "manifest.json").read_bytes())["files"], "policy.hrw": said}
    refused(forge(whole, files=files), "policy.hrw")


def test_a_later_format_is_named(whole, monkeypatch):
    refused(forge(whole, format=2), "format 2, this build reads 1", monkeypatch)


def test_a_file_of_another_size_is_not_read(whole, monkeypatch):
    (whole / "state.safetensors").write_bytes(b"\0" * (1 << 20))
    seen = []
    monkeypatch.setattr(checkpoint, "_digest", lambda file: seen.append(file.name) or entry(file.read_bytes()))
    refused(whole, "state.safetensors: does not match its digest")
    assert "state.safetensors" not in seen


def tensors(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def deflated(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", b"\0" * (64 << 20))
    return path.read_bytes()


@pytest.mark.parametrize("name", ["pickle", "an expanding archive", "10^10 elements", "a view past the end", "a long header"])
def test_tensors_that_are_none_are_refused_and_run_nothing(tmp_path, whole, name):
    marker = tmp_path / "marker"
    torch_file = tmp_path / "file.pt"
    torch.save({"a": torch.zeros(1).expand(10_000_000_000)}, torch_file)
    data = {
        "pickle": pickle.dumps(Opens(marker)),
        "an expanding archive": deflated(tmp_path / "archive.zip"),
        "10^10 elements": torch_file.read_bytes(),
        "a view past the end": tensors({"a": {"dtype": "F32", "shape": [10**10], "data_offsets": [0, 4 * 10**10]}}, b"\0" * 4),
        "a long header": struct.pack("<Q", 1 << 60) + b"{}",
    }[name]
    assert len(data) < 100_000  # an archive of 63 KB may hold 64 MB
    refused(forge(whole, {"state.safetensors": data}), "not the state of a learner")
    assert not marker.exists()


@pytest.mark.parametrize("data", [pickle.dumps({"step": 1}), b"[" * 100_000, b'{"step": '])
def test_scalars_that_are_no_json_are_refused(whole, data):
    refused(forge(whole, {"state.json": data}), "not the state of a learner")


def test_the_forger_makes_checkpoints_that_are_read_but_for_what_is_forged(whole):
    found = checkpoint.read(forge(whole, {"state.safetensors": save({"a": torch.ones(2)})}))
    assert found.state["tensors"]["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b"null", b'{"spec": {"version": 1, "window": 1e999}, "sha256": ""}', b"\x80\x04."]
)
def test_a_spec_beside_a_policy_that_is_none_is_refused(data):
    with pytest.raises(SpecError):
        parse_spec(data)
