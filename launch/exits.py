"""Exit codes of every command, the line in which ``headrace train --help`` and the README tell them, and how a role leaves."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import NoReturn

from headrace.common.ending import BUFFER_LEFT as BUFFER_LEFT

FAILED, USAGE, MUST_NOT_RESTART, GROUP_LOST, STOPPED = 1, 2, 3, 4, 130
MEANINGS = {
    0: "done",
    FAILED: "failed, and the last line says why",
    USAGE: "the command line cannot be read",
    MUST_NOT_RESTART: "a role started by hand would fail in the same way again",
    GROUP_LOST: "a rank of a learner has lost another one",
    BUFFER_LEFT: "a role left with its buffer, before the run's goal, and may be started again to wait for it",
    STOPPED: "stopped by Ctrl-C, and a run goes on with --resume",
}
TEXT = f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}."


def leave(code: int) -> NoReturn:
    """End this process: what asks to be run at the end is, and then the interpreter is not torn down.

    With torch that takes 0.4 s of processor time, which on a busy machine are many seconds. A role that was replaced is to be
    gone by then, and has put everything in order before.
    """
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # a full disk, or a reader that left
                stream.flush()
    finally:
        os._exit(code)
