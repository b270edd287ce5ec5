"""The set-up script with a Python that only pretends: a cut one is begun anew, and Ctrl-C is one line."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Its environments have pip when a file says so; with HOLD in the environment it makes one without, and waits.
FAKE = """#!/bin/sh
case "$*" in
  "--version") echo "Python 3.99" ;;
  "-m venv "*)
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"
    if [ -n "$HOLD" ]; then
      trap 'echo "Traceback (most recent call last): KeyboardInterrupt" >&2; exit 1' INT
      : >"$HOLD"; sleep 20
    fi
    : >"$3/pip" ;;
  "-m pip "*) [ -e "${0%/bin/python}/pip" ] || { echo "No module named pip" >&2; exit 1; } ;;
esac
"""
WITH_CTRL_C = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "launch").mkdir()
    for name in ("launch/setup.sh", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    fake = tmp_path / "fake-python"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    return tmp_path


def start(tree, **more):
    words = [sys.executable, "-c", WITH_CTRL_C, "bash", str(tree / "launch" / "setup.sh")]
    environment = {**os.environ, "HEADRACE_PYTHON": str(tree / "fake-python"), "HOLD": "", **more}
    return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(process):
    err = process.communicate(timeout=60)[1]
    return process.returncode, err


def test_a_set_up_that_was_cut_short_is_done_anew_with_one_line(tree):
    hold = tree / "made"
    process = start(tree, HOLD=str(hold))
    end = time.monotonic() + 30
    while not hold.exists():
        assert time.monotonic() < end, "no environment was begun"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    code, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "setup.sh: interrupted; start it again to go on"
    assert not (tree / ".venv" / "pip").exists()

    (tree / ".venv" / "pip").touch()  # even one that looks whole: the copy of pip may be half of it
    code, err = finish(start(tree))
    assert code == 0, err
    assert err.count("making it anew") == 1
    assert finish(start(tree)) == (0, "")


def test_an_environment_without_pip_is_made_anew(tree):
    assert finish(start(tree))[0] == 0
    (tree / ".venv" / "pip").unlink()
    (tree / ".venv" / ".headrace-train").unlink()
    code, err = finish(start(tree))
    assert code == 0, err
    assert err.count("making it anew") == 1


def test_an_environment_that_is_whole_is_kept(tree):
    assert finish(start(tree))[0] == 0
    (tree / ".venv" / "mine").touch()
    (tree / "constraints.txt").write_text("# other packages\n")
    code, err = finish(start(tree))
    assert code == 0, err
    assert "anew" not in err
    assert (tree / ".venv" / "mine").exists()
