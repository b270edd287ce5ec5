"""A role's end as an exit code and one line; signals before and after its own time."""

import os
import signal
import subprocess
import sys
import time

import pytest

from headrace.launch import roles
from headrace.launch.config import make_config

GUARDED = """
import os, signal, sys, time
from headrace.common.errors import *
from headrace.launch import roles
def body():
    {body}
sys.exit(roles.guarded("actor-7", body))
"""


def run(body, *, send=None, environment=None):
    words = [sys.executable, "-c", GUARDED.replace("{body}", body)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    if send is not None:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(send)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ("ConfigError('env.id: two\\nlines')", 3),
        ("EnvError('env.id: two\\nlines')", 3),
        ("SessionRefused('held', 'env.id: two\\nlines')", 3),
        ("PoolLocked('env.id: two\\nlines')", 3),
        ("NoSpace('env.id: two\\nlines')", 3),
        ("DeadlineExceeded('env.id: two\\nlines')", 1),
        ("CheckpointError('env.id: two\\nlines')", 3),
        ("GroupLost('env.id: two\\nlines')", 4),
    ],
)
def test_an_understood_error_is_one_line_and_says_whether_to_start_again(raised, code):
    assert run(f"raise {raised}") == (code, "", "headrace actor-7: error: env.id: two lines\n")


def test_a_defect_leaves_its_traceback_in_the_log():
    code, _, err = run("return 1 // 0")
    assert code == 1
    assert "ZeroDivisionError" in err
    assert "Traceback" in err


def test_what_the_system_refuses_ends_with_the_file_and_its_words():
    code, _, err = run("open('/no/such/place')")
    assert code == 1
    assert err.splitlines()[-1] == "headrace actor-7: error: /no/such/place: No such file or directory"


def test_what_the_body_returns_is_the_exit_code():
    assert run("return 0")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_end_before_the_role_runs_ends_the_process(number):
    assert run("print('ready', flush=True); time.sleep(20)", send=number)[0] == 0


@pytest.mark.parametrize(("acts", "judges"), [(False, True), (True, False)])
def test_actors_and_evaluators_are_told_which_policy_is_theirs(monkeypatch, acts, judges):
    learner = {"ema_decay": 0.9}
    config = make_config({"env": {"id": "Pendulum-v1"}, "learner": learner, "actor": {"ema": acts}, "eval": {"ema": judges}})
    told = []
    monkeypatch.setattr(roles, "_leave_signals_to_the_role", lambda: None)
    monkeypatch.setattr("headrace.actor.loop.run", lambda settings: told.append(settings.actor.ema))
    monkeypatch.setattr("headrace.actor.evaluator.run_evaluator", lambda settings: told.append(settings.player.actor.ema))
    roles.run_actor(config, None, "tcp://127.0.0.1:9", "a")
    roles.run_evaluator(config, None, "tcp://127.0.0.1:9", "e")
    assert told == [acts, judges]


def test_a_request_to_end_before_the_role_runs_is_no_exception_that_a_library_could_meet():
    """Such as torch while it is imported: its C++ answers one with SIGABRT."""
    body = "print('ready', flush=True)\n    try: time.sleep(20)\n    except BaseException: os._exit(9)"
    assert run(body, send=signal.SIGTERM)[0] == 0


SLOW_END = """
import atexit, os, sys, time
from headrace.launch import roles
from headrace.launch.exits import leave
class Slow:
    def __del__(self, write=os.write):
        write(1, b"torn down\\n")
def slow_end():
    os.write(1, b"ready\\n")
    time.sleep(0.5)
    print("said last", end="")
def body():
    roles._leave_signals_to_the_role()
    return 4
slow = Slow()  # ends with its module, when the interpreter is torn down
atexit.register(slow_end)
leave(roles.guarded("learner", body))
"""


def test_a_role_that_has_ended_runs_what_asks_for_it_and_leaves_at_once_whatever_signal_comes():
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with subprocess.Popen([sys.executable, "-c", SLOW_END], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.stdout.read() == b"said last"
        assert process.wait(30) == 4


def test_a_role_whose_supervisor_is_gone_ends():
    begun = time.monotonic()
    assert run("time.sleep(20); return 5", environment={"HEADRACE_PARENT": "1"})[0] == 0
    assert time.monotonic() - begun < 10
