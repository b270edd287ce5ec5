"""Fuzzing by coverage: inputs that reach new lines are kept and changed further. Needs the package atheris."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from campaign.fuzz_targets import TARGETS, Target

PARTS = ("codec", "session")
_UNITS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_PEAK = re.compile(r"stat::peak_rss_mb:\s*(\d+)")
_COVERED = re.compile(r"cov: (\d+)")
HANG_S, CAP_MB = 20, 1024
FINDINGS = ("crash-", "timeout-", "oom-", "leak-")


def worker(words: str) -> int:
    """The process of one trial; its last line is what came of it.

    The library that fuzzes ends its process itself, so that it runs in one more.
    """
    asked = json.loads(words)
    if "corpus" in asked:
        _fuzz(asked)
    with tempfile.TemporaryDirectory(prefix="headrace-guided-") as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        inner = json.dumps({**asked, "corpus": str(corpus), "found": place + "/"})
        command = [sys.executable, sys.argv[0], "--guided", "--worker", inner]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        text = done.stdout + done.stderr
        units, peaks = _UNITS.findall(text), _PEAK.findall(text)
        found = [path.name for path in Path(place).iterdir() if path.name.startswith(FINDINGS)]
        if not units and not found:
            print(text[-2000:], file=sys.stderr)
            return done.returncode or 1
        crashes = sum(not name.startswith("timeout-") for name in found)
        told = [text[-1500:]] if found else []
        covered = int((_COVERED.findall(text) or ["0"])[-1])
        kept = len(list(corpus.iterdir()))
        record = {"messages": int((units or ["0"])[-1]), "accepted": 0, "crashes": crashes, "found": told, "covered": covered}
        print(json.dumps({**record, "kept": kept, "peak_bytes": int((peaks or ["0"])[-1]) << 20}))
    return 0


def _fuzz(asked: dict[str, str]) -> None:
    """Run the fuzzer; does not return."""
    import atheris  # only here: it is no part of headrace

    target: Target = TARGETS[asked["part"]](Path(asked["corpus"]))
    for module in [name for name in sys.modules if name.startswith("headrace.") and (".wire" in name or ".actor" in name)]:
        _instrument(atheris, module)
    for number, parts in enumerate(target.honest):
        for at, part in enumerate(parts):
            (Path(asked["corpus"]) / f"{number}-{at}").write_bytes(bytes([number, at]) + part)

    def feed(data: bytes) -> None:
        if len(data) < 2:
            return
        origin = data[0] % len(target.honest)
        parts = list(target.honest[origin])
        parts[data[1] % len(parts)] = data[2:]
        target.feed(parts, origin)
        target.look()

    limits = [f"-runs={asked['messages']}", f"-seed={asked['seed']}", f"-timeout={HANG_S}", f"-rss_limit_mb={CAP_MB}"]
    options = [*limits, f"-artifact_prefix={asked['found']}", "-print_final_stats=1", "-max_len=65536", asked["corpus"]]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    atheris.Setup([sys.argv[0], *options], feed)
    atheris.Fuzz()
    os._exit(0)


def _instrument(atheris: object, module: str) -> None:
    """Count which lines of a module that is already here are reached."""
    import types

    for value in list(vars(sys.modules[module]).values()):
        if isinstance(value, types.FunctionType) and value.__module__ == module:
            atheris.instrument_func(value)  # type: ignore[attr-defined]  # of a package that need not be there
        elif isinstance(value, type) and value.__module__ == module:
            for method in vars(value).values():
                if isinstance(method, types.FunctionType):
                    atheris.instrument_func(method)  # type: ignore[attr-defined]  # as above
