"""Checkpoints that prove themselves, processes that die or fail while they write them, and the audit of what that leaves.

Every number in a checkpoint is that of the write, and the policy beside the state says it too: a mixture of two is found.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from campaign.process import Unable
from headrace.common.errors import HeadraceError
from headrace.common.policy_files import POLICY
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.learner import checkpoint
from headrace.learner.saver import Saver

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((2,), (-1.0,) * 2, (1.0,) * 2))
KEEP = 2
NUMBERS = 100_000
SAVE_S, START_S, END_S = 30.0, 30.0, 60.0
CALLS = {"write": "ENOSPC", "fsync": "EIO", "rename": "EIO", "unlinkat": "EIO", "mkdir": "ENOSPC", "openat": "EMFILE"}
MOST_CALLS = 200
WRITTEN, NOT_SAVED = 0, 3  # exit codes of a process that writes one checkpoint
_REPORT = struct.Struct("<q")


@dataclass(frozen=True)
class Verdict:
    """What the next learner finds: the number of the newest whole checkpoint (-1: none), and what is wrong with that."""

    loaded: int
    problems: tuple[str, ...] = ()


def state(number: int) -> dict[str, Any]:
    """A learner's state whose every number is ``number``."""
    tensors = {
        "wide": torch.full((NUMBERS,), float(number)),
        "deep": torch.full((NUMBERS // 100, 10), number),
        "one": torch.tensor(number),
    }
    return {"tensors": tensors, "scalars": {"number": number}}


def weights(number: int) -> WeightSet:
    """A policy whose every number is ``number``."""
    return WeightSet(Version("learner", 1, number), {"type": "none"}, {"w": np.full(1000, number, "<f4")})


def audit(directory: Path, least: int) -> Verdict:
    """Look for a checkpoint as the next learner does.

    Args:
        directory: of the checkpoints.
        least: number of the last write that was said to have been successful.
    """
    problems: list[str] = []
    try:
        newest = checkpoint.newest(directory)
        if newest is None:
            return Verdict(-1, ("there is no checkpoint",))
        found = checkpoint.read(newest)
    except HeadraceError as error:
        return Verdict(-1, (str(error).replace(str(directory), ""),))
    number = int(found.state["scalars"]["number"])
    tensors = found.state["tensors"]
    policy = WeightSet.unpack((found.path / POLICY).read_bytes())
    if set(tensors) != set(state(0)["tensors"]) or any(bool((t != number).any()) for t in tensors.values()):
        problems.append(f"the tensors of {newest.name} are not all of write {number}")
    if policy.version.step != number or (policy.tensors["w"] != number).any():
        problems.append(f"the policy of {newest.name} is not that of write {number}")
    if number < least:
        problems.append(f"write {number} is loaded, but {least} was said to be on disk")
    for path in directory.glob("step_*"):
        try:
            checkpoint.read(path)
        except HeadraceError as error:
            problems.append(f"can be seen and is not whole: {str(error).replace(str(directory), '')}")
    return Verdict(number, tuple(problems))


def killed(directory: Path, first: int, delay_s: float) -> tuple[int, bool]:
    """Let a process write checkpoints from ``first`` on, and kill it ``delay_s`` after the first is written.

    Returns:
        The last write that it said was successful, and whether it left one half done.
    """
    reading, writing = os.pipe()
    pid = _fork(lambda: _write_on(directory, first, writing), closing=reading)
    os.close(writing)
    try:
        if not select.select([reading], [], [], START_S)[0]:
            raise Unable(f"no checkpoint was written within {START_S:.0f} s")
        time.sleep(delay_s)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    if len(said) < _REPORT.size:
        raise Unable("the process that writes checkpoints ended by itself")
    return _REPORT.unpack_from(said, len(said) // _REPORT.size * _REPORT.size - _REPORT.size)[0], any(
        directory.glob(".writing-*")
    )


def failing(directory: Path, name: str, log: Path) -> tuple[int, tuple[str, ...]]:
    """Fail the k-th system call of one kind while a checkpoint is written, for every k until none is left to fail.

    Args:
        directory: scratch.
        name: see :func:`fault_names`.
        log: what strace writes.

    Returns:
        How many calls were failed, and the problems of all of these writes.
    """
    call, step, lasting = name.split("/")
    problems: list[str] = []
    for k in range(1, MOST_CALLS):
        place = directory / f"{call}-{k}"
        checkpoint.write(place, 1, state(1), files={POLICY: weights(1).pack()}, keep=1)
        inject = f"inject={call}:error={CALLS[call]}:when={k}{'+' if lasting == 'lasting' else ''}"
        code = _traced(partial(_write_one, place, 1 if step == "again" else 2, 2), call, inject, log)
        verdict = audit(place, 2 if code == WRITTEN else 1)
        found = list(verdict.problems)
        if code not in (WRITTEN, NOT_SAVED):
            found.append(f"the process ended with exit code {code}")
        checkpoint.write(place, 3, state(3), files={POLICY: weights(3).pack()}, keep=1)
        left = sorted(path.name for path in place.iterdir())
        if left != ["step_000000000003"]:
            found.append(f"the next write leaves {', '.join(left)}")
        problems += [f"{call} {k}: {text}" for text in found]
        shutil.rmtree(place)
        if "(INJECTED)" not in log.read_text(errors="replace"):
            return k - 1, tuple(problems)
    return MOST_CALLS, (*problems, f"{MOST_CALLS} calls failed, and no end of them")


def fault_names() -> list[str]:
    """``call/step/how long``: of a new step or of one that is written again; one call, or all from one on."""
    return [f"{call}/{step}/{how}" for call in CALLS for step in ("new", "again") for how in ("once", "lasting")]


def _write_on(directory: Path, first: int, report: int) -> int:
    saver = Saver(directory, KEEP, SPEC)
    for number in count(first):
        saver.save(number, state(number), weights(number))
        saver.wait(SAVE_S)
        if saver.not_saved:
            return NOT_SAVED
        os.write(report, _REPORT.pack(number))
    return WRITTEN


def _write_one(directory: Path, step: int, number: int) -> int:
    saver = Saver(directory, 1, SPEC)
    saver.save(step, state(number), weights(number))
    saver.wait(SAVE_S)
    return NOT_SAVED if saver.not_saved else WRITTEN


def _traced(body: Callable[[], int], call: str, inject: str, log: Path) -> int:
    """Run ``body`` in a process whose calls fail as ``inject`` says; its exit code."""
    reading, writing = os.pipe()

    def wait_and_run() -> int:
        os.read(reading, 1)
        return body()

    pid = _fork(wait_and_run, closing=writing)
    words = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={call}", "-e", inject, "-p", str(pid)]
    try:
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
            try:
                _wait_attached(pid, tracer)
                os.write(writing, b"x")
                code = os.waitstatus_to_exitcode(_wait(pid))
                pid = 0
                tracer.wait(END_S)
            except BaseException:
                tracer.kill()  # it lives as long as what it traces
                raise
            return code
    finally:
        os.close(reading)
        os.close(writing)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _wait_attached(pid: int, tracer: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    status = Path(f"/proc/{pid}/status")
    while "TracerPid:\t0\n" in status.read_text():
        if tracer.poll() is not None or time.monotonic() > end:
            raise Unable("strace cannot attach to a process here")
        time.sleep(0.005)


def _wait(pid: int) -> int:
    end = time.monotonic() + END_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    raise Unable(f"a checkpoint took longer than {END_S:.0f} s under strace")


def _fork(body: Callable[[], int], *, closing: int) -> int:
    """A child that ends with what ``body`` returns; torch is loaded already, so it begins at once."""
    pid = os.fork()
    if pid:
        return pid
    _run(body, closing)


def _run(body: Callable[[], int], closing: int) -> NoReturn:
    code = 1
    with contextlib.suppress(BaseException):
        os.close(closing)
        code = body()
    os._exit(code)
