"""A crew: this process and its mates, other processes that each do one share of the same steps on memory that all map."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import mmap
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
SHARES_MEMORY = hasattr(os, "memfd_create")
STEP_S = 30.0
END_S = 5.0
LINE_FLOATS = 16


class Crew:
    """``size`` processes, the caller's among them; waiting, the others sleep and do not spin.

    Threads in one process stand in each other's way: two that each run half of an update's small operations wait some fifty
    times an update for the interpreter's lock. Torch's own threads share out single products and meet as often, so they spin
    to meet fast; on cores that others use too, each meeting then waits for a thread that was put aside. Processes meet three
    times an update. On two cores of an EPYC, updates/s alone and beside a neighbour that takes a third of a core: 191 and 140;
    with two threads in place of the mate 160 and 120, with torch's two 200 and 143; with one process 130.

    What a share writes depends only on the memory before its step, so it does not matter who does it: until a mate is there,
    and when one is lost, the caller does its share.

    Args:
        size: at least 1.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._mates = [_Mate(i) for i in range(1, size)]

    def share(self, about: Mapping[str, Any], nbytes: int) -> mmap.mmap:
        """New memory, zeros, that every mate maps as well, together with ``about`` and its ``index``."""
        fd = os.memfd_create("headrace-crew", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            for mate in self._mates:
                mate.share({**about, "index": mate.index, "nbytes": nbytes}, fd)
            return mmap.mmap(fd, nbytes)
        finally:
            os.close(fd)

    def run(self, step: int, work: Callable[[int, int], None], shares: int) -> None:
        """Do ``shares`` shares, at most ``size``, of step ``step``; ``work(step, i)`` does share i here."""
        begun = [mate for mate in self._mates[: shares - 1] if mate.begin(step)]
        try:
            work(step, 0)
            done = {mate.index for mate in begun if mate.has_done()}
        except BaseException:  # such as Ctrl-C: an answer left in a socket would be taken for that of the next step
            for mate in begun:
                mate.close()
            raise
        for i in range(1, shares):
            if i not in done:
                work(step, i)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until every mate has all that was shared; whether it has."""
        return all(mate.wait_ready(timeout_s) for mate in self._mates)

    def close(self) -> None:
        """End the mates; harmless when called twice."""
        for mate in self._mates:
            mate.close()


class _Mate:
    """One other process: ``headrace.learner.mate`` at the far end of a socket pair. It answers each message with one byte."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.here = True
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            command = [sys.executable, "-m", "headrace.learner.mate", str(far.fileno())]
            environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # what lies where the learner was started is not imported
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[far.fileno()], env=environment)
        self.pid = process.pid
        self._end = weakref.finalize(self, _end, self._socket, process)  # at the latest when nobody holds the crew any more
        self._owed = 0  # answers to messages about memory
        self._socket.settimeout(STEP_S)

    def share(self, about: Mapping[str, Any], fd: int) -> None:
        if self.here and self._try(lambda: socket.send_fds(self._socket, [json.dumps(about).encode()], [fd])):
            self._owed += 1

    def begin(self, step: int) -> bool:
        """Whether this mate does its share of the step."""
        if not self.here or (self._owed and not self.wait_ready(0.0)):
            return False
        return self._try(lambda: self._socket.send(bytes((step,))))

    def has_done(self) -> bool:
        """Wait for the end of the share; false when it has to be done again."""
        return self._try(lambda: self._socket.recv(1))

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the mate has all that was shared with it; whether it has."""
        if not self.here:
            return False
        self._socket.settimeout(timeout_s)
        try:
            while self._owed and self._socket.recv(1):
                self._owed -= 1
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            self._lose(error)
            return False
        finally:
            self._socket.settimeout(STEP_S)
        if self._owed:
            self._lose("it ended")
        return not self._owed

    def _try(self, act: Callable[[], object]) -> bool:
        try:
            if act():
                return True
            self._lose("it ended")
        except OSError as error:
            self._lose(error)
        return False

    def _lose(self, why: object) -> None:
        LOG.warning("process %d of the learner's crew is lost, its share is done by the learner itself: %s", self.index, why)
        self.close()  # it must not write any more when its share is done here

    def close(self) -> None:
        """End the process; harmless when called twice."""
        self.here = False
        self._end()


def _end(near: socket.socket, process: subprocess.Popen[bytes]) -> None:
    near.close()
    process.kill()  # it has nothing to lose
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)


def nbytes(shapes: Sequence[tuple[int, ...]]) -> int:
    """Bytes that :func:`tensors_in` needs."""
    return 4 * sum(map(_padded, shapes))


def tensors_in(memory: mmap.mmap, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Float32 tensors one behind the other in ``memory``, at the same places in every process that asks for the same."""
    out, first, floats = [], 0, torch.frombuffer(memory, dtype=torch.float32)
    for shape in shapes:
        out.append(floats[first : first + math.prod(shape)].view(shape))
        first += _padded(shape)
    return out


def _padded(shape: tuple[int, ...]) -> int:
    """Floats of a tensor, up to the next cache line."""
    return -(-math.prod(shape) // LINE_FLOATS) * LINE_FLOATS
