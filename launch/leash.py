"""What a process started ends when that process is gone, however it died: no orphan is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PARENT = "HEADRACE_PARENT"  # environment variable: pid of the supervisor that a role must not outlive
GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def leash() -> Callable[[], None]:
    """A ``preexec_fn`` for a child of this process: the kernel kills it when the thread that starts it is gone.

    For tests and campaigns; roles are asked to end in order, by :func:`follow_parent`.
    """
    parent = os.getpid()

    def bind() -> None:
        if sys.platform.startswith("linux"):
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before the request above
                os._exit(1)

    return bind


def follow_parent(grace_s: float = GRACE_S) -> None:
    """Tie this process to the supervisor named in the environment, if one is.

    The kernel sends SIGTERM when the supervisor dies, which is an ordered end. A role that is still there ``grace_s``
    later, because it hangs, is killed with its whole process group by a thread that watches the parent's pid.
    """
    word = os.environ.get(PARENT, "")
    if not word.isdigit() or not sys.platform.startswith("linux"):
        return
    parent = int(word)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request above
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=_watch, args=(parent, grace_s), name="leash", daemon=True).start()


def _watch(parent: int, grace_s: float) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
