"""Groups of ranks as real processes over gloo, each of which runs ``helpers.rank``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
WAIT_S = 60
Lines = list[dict[str, Any]]


def start(size: int, *, timeout_s: float = 30.0, **cases: dict[str, Any]) -> list[subprocess.Popen[str]]:
    """The processes of one group, who go through the same cases one after another."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    common = {**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(size)}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    words = [sys.executable, "-m", "helpers.rank", json.dumps({"timeout_s": timeout_s, "cases": cases})]
    pipe = subprocess.PIPE
    return [
        subprocess.Popen(words, env={**common, "RANK": str(rank)}, stdout=pipe, stderr=pipe, text=True) for rank in range(size)
    ]


def finish(ranks: list[subprocess.Popen[str]]) -> list[dict[str, Lines]]:
    """What each rank printed for each case; all must have ended well."""
    said = []
    for process in ranks:
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, err
        cases: dict[str, Lines] = {}
        for line in map(json.loads, out.splitlines()):
            cases.setdefault(line.pop("case"), []).append(line)
        said.append(cases)
    return said


def without(lines: Lines, *names: str) -> Lines:
    """The lines but for some of their values."""
    return [{k: v for k, v in line.items() if k not in names} for line in lines]
