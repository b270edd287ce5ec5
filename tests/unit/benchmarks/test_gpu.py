"""The check of a GPU, run where there is none: it says so, and its code runs on a CPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from headrace.learner.precision import is_native

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu(monkeypatch):
    found = importlib.util.spec_from_file_location("benchmarks_gpu", FILE)
    module = importlib.util.module_from_spec(found)
    monkeypatch.syspath_prepend(str(FILE.parents[1] / "src"))
    found.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so(gpu, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "torch sees none here" in capsys.readouterr().err


def test_the_same_code_runs_on_a_cpu(gpu, capsys):
    assert gpu.main(["--device", "cpu", "--quick"]) == 0
    out = json.loads(capsys.readouterr().out.splitlines()[-1])
    native = is_native(torch.device("cpu"))
    assert set(out["updates_s"]) == {"eager", "copied", "ahead", *(["bf16"] if native else [])}
    assert min(out["updates_s"].values()) > 0
    assert (out["parity"], out["checkpoint"], out["passed"]) == (0.0, 0.0, True)
    assert out["graph_difference"] is None
    assert 0 < out["bf16_difference"] < 0.2 if native else out["bf16_difference"] is None


def test_numbers_that_differ_are_no_pass(gpu, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "parity", lambda *a: 2e-4)
    assert gpu.main(["--device", "cpu", "--quick"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["passed"] is False
