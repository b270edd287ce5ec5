"""Groups of ranks as real processes over gloo, each of which runs ``helpers.rank``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from helpers.rank import learn

from headrace.launch.leash import leash
from headrace.learner.group import Group
from headrace.learner.place import Place

TESTS = Path(__file__).parents[1]
WAIT_S = 150
Lines = list[dict[str, Any]]


def start(
    size: int, meeting: Path | None = None, *, timeout_s: float = 30.0, **cases: dict[str, Any]
) -> list[subprocess.Popen[str]]:
    """The processes of one group, who meet in a file or at a port and go through the same cases one after another."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    common = {**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [sys.executable, "-m", "helpers.rank", json.dumps({"timeout_s": timeout_s, "cases": cases})]
    pipe = subprocess.PIPE
    places = [Place.of_one_host(rank, size, str(meeting or "")).environment() for rank in range(size)]
    options = {"stdout": pipe, "stderr": pipe, "text": True, "preexec_fn": leash()}
    return [subprocess.Popen(words, env={**common, **place}, **options) for place in places]


def finish(ranks: list[subprocess.Popen[str]]) -> list[dict[str, Lines]]:
    """What each rank printed for each case; all must have ended well."""
    with ThreadPoolExecutor(len(ranks)) as readers:  # at once: who cannot print holds up all others
        printed = list(readers.map(lambda process: process.communicate(timeout=WAIT_S), ranks))
    said = []
    for process, (out, err) in zip(ranks, printed, strict=True):
        assert process.returncode == 0, err
        cases: dict[str, Lines] = {}
        for line in map(json.loads, out.splitlines()):
            cases.setdefault(line.pop("case"), []).append(line)
        said.append(cases)
    return said


def alone(**cases: dict[str, Any]) -> dict[str, Lines]:
    """What this process makes of the cases by itself."""
    return {case: list(learn(Group(), **how)) for case, how in cases.items()}


def require_close(ours: Lines, theirs: Lines) -> None:
    """Refuse lines whose numbers differ by more than 1e-6, or that of the largest one of their tensor, or 1e-5 of themselves.

    A sum of float32 numbers is rounded by the size of what is added: where an entry of a gradient is what large ones leave of
    each other, its last digits depend on the order, and so on the processor.
    """
    assert [line.get("policy") for line in ours] == [line.get("policy") for line in theirs]
    _require_close(ours, theirs, "")


def _require_close(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for name in set(theirs) - {"digest", "policy"}:
            _require_close(ours[name], theirs[name], f"{where} {name}")
    elif isinstance(theirs, list) and isinstance(theirs[0], dict):
        assert len(ours) == len(theirs), where
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            _require_close(our, their, f"{where} [{number}]")
    else:
        wanted, found = (_without_keys(torch.tensor(numbers, dtype=torch.float64), where) for numbers in (theirs, ours))
        largest = float(wanted.abs().max())
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6 * max(1.0, largest), msg=lambda text: f"{where}: {text}")


def _without_keys(numbers: torch.Tensor, where: str) -> torch.Tensor:
    """Leave out the bias of an attention's keys: nothing depends on it, and Adam makes steps of its gradient's rounding."""
    return torch.cat([numbers.chunk(3)[i] for i in (0, 2)]) if where.endswith("in_proj_bias") else numbers
