"""Measured processes: their end is seen, an error is told with their last lines, and none outlives its deadline."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from campaign.process import ProcessFailed, Unable, guarded, run

PATIENT = "import signal, time; signal.signal(signal.SIGINT, lambda *_: exit(0)); print('up', flush=True); time.sleep(60)"


def python(code):
    return [sys.executable, "-c", code]


def test_a_process_is_run_to_its_end_and_its_output_kept(tmp_path):
    seen = []
    before = time.time()
    ended = run(
        python("import os, time; print(os.environ['MARK']); time.sleep(0.2)"),
        tmp_path / "deep" / "a.log",
        deadline_s=20,
        environment={"MARK": "here"},
        watch=seen.append,
    )
    assert ended.output() == ["here"]
    assert before <= ended.started <= time.time()
    assert 0.2 <= ended.seconds < 20
    assert seen


def test_an_error_is_told_with_the_last_lines(tmp_path):
    with pytest.raises(ProcessFailed, match=r"exit code 3.*a\.log.*\n  it broke"):
        run(python("print('it broke'); exit(3)"), tmp_path / "a.log", deadline_s=20)


def test_what_runs_past_its_deadline_is_ended(tmp_path):
    pids = []
    with pytest.raises(ProcessFailed, match=r"still running after 0 s"):
        run(python(PATIENT), tmp_path / "a.log", deadline_s=0.3, watch=pids.append)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_ctrl_c_ends_the_process_in_order_and_stays_an_interrupt(tmp_path):
    pids = []

    def interrupt(pid):
        pids.append(pid)
        if (tmp_path / "a.log").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(PATIENT), tmp_path / "a.log", deadline_s=20, watch=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_script_that_is_asked_to_end_says_so_without_a_traceback(capsys):
    def main():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert guarded(main) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    assert guarded(lambda: 4) == 4


@pytest.mark.parametrize(("error", "code"), [(ProcessFailed("no answer\nat all"), 1), (Unable("no answer  at all"), 2)])
def test_what_a_process_did_wrong_ends_a_script_with_one_line(error, code, monkeypatch, capsys):
    def main():
        raise error

    monkeypatch.setattr(sys, "argv", ["/somewhere/kills.py"])
    assert guarded(main) == code
    assert capsys.readouterr().err == "kills.py: no answer at all\n"
