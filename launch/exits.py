"""Exit codes of every command, and the line in which ``headrace train --help`` and the README tell what they mean."""

from __future__ import annotations

FAILED, USAGE, MUST_NOT_RESTART, GROUP_LOST, STOPPED = 1, 2, 3, 4, 130
MEANINGS = {
    0: "done",
    FAILED: "failed, and the last line says why",
    USAGE: "the command line cannot be read",
    MUST_NOT_RESTART: "a role started by hand would fail in the same way again",
    GROUP_LOST: "a rank of a learner has lost another one",
    STOPPED: "stopped by Ctrl-C, and a run goes on with --resume",
}
TEXT = f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}."
