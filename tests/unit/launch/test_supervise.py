"""The supervisor with real processes: small scripts stand in for the roles, a fake buffer connection for the status."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import psutil
import pytest
from helpers.roles import TESTS

from headrace.common.errors import DeadlineExceeded
from headrace.launch.children import Child, role_environment, thread_variables
from headrace.launch.rundir import RunDir
from headrace.launch.supervise import Supervisor
from headrace.launch.supervision import DONE, FAILED, INTERRUPTED, PATIENCE_S, RolePlan, SupervisorConfig

CONFIG = SupervisorConfig(restarts=2, restart_window_s=60, pause_s=0.05, pause_max_s=0.1, stop_s=3.0)
LOYAL = """
    import signal, sys, time
    def end(*_):
        print("asked at", time.monotonic(), flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("up", flush=True)
    while True: time.sleep(0.02)
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
BROKEN = "import sys; print('headrace actor-0: error: env.id: no such env', file=sys.stderr); sys.exit(3)"
CRASHING = "import sys; [print('line', n) for n in range(40)]; sys.exit(1)"


class FakeObserver:
    """Answers with ``phase``; raises while it is empty."""

    def __init__(self):
        self.phase = ""
        self.rows = 0  # of actor-0, more with each answer
        self.closed = False

    def status(self, deadline_s):
        if not self.phase:
            raise DeadlineExceeded("nobody listens")
        self.rows += 1
        return {"phase": self.phase, "actors": [{"id": "actor-0", "acked": {"1": self.rows}}]}

    def close(self):
        self.closed = True


class Notes:
    def __init__(self):
        self.notices = []
        self.statuses = []

    def notice(self, text):
        self.notices.append(text)

    def update(self, status):
        self.statuses.append(status)


class Stage:
    """One supervisor over scripts, run in a thread (or in the test's own, to receive signals)."""

    def __init__(self, tmp_path, scripts, config=CONFIG):
        self.run_dir = RunDir.create(tmp_path / "run", {})
        self.observer, self.notes = FakeObserver(), Notes()
        kinds = {"buffer": "buffer", "learner": "learner", "learner-1": "rank", "evaluator": "evaluator"}
        plans = [RolePlan(name, kinds.get(name, "actor")) for name in scripts]
        self.supervisor = Supervisor(
            plans,
            self.run_dir,
            config,
            command=lambda plan, again: [sys.executable, "-S", "-c", textwrap.dedent(scripts[plan.name])],
            environment=lambda plan: thread_variables(1),
            observe=lambda endpoint: self.observer,
            watcher=self.notes,
        )
        self.thread = threading.Thread(target=self.supervisor.run)

    def start(self):
        self.thread.start()
        wait_for(lambda: all("up" in self.log(name) for name in self.supervisor._plans))
        self.run_dir.write_endpoint("tcp://127.0.0.1:1")

    def log(self, name):
        path = self.run_dir.log(name)
        return path.read_text() if path.exists() else ""

    def pids(self):
        return {name: child.pid for name, child in self.supervisor._children.items()}

    def join(self, timeout=20):
        self.thread.join(timeout)
        assert not self.thread.is_alive()
        assert not [p for p in self.pids().values() if psutil.pid_exists(p)]


def wait_for(condition, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def stage(tmp_path):
    made = []

    def make(config=CONFIG, **scripts):
        made.append(Stage(tmp_path, {name.replace("_", "-"): text for name, text in scripts.items()}, config))
        return made[-1]

    yield make
    for s in made:
        s.supervisor._asked = 2  # of a test that failed half-way: it would go on, and so would pytest
        if s.thread.is_alive():
            s.thread.join(20)
        s.supervisor._kill_all()


def test_a_killed_role_is_started_again_and_the_run_ends_when_the_job_is_done(stage):
    s = stage(buffer=LOYAL, learner=LOYAL, actor_0=LOYAL, actor_1=LOYAL, evaluator=LOYAL)
    s.start()
    first = s.pids()
    os.kill(first["actor-0"], signal.SIGKILL)
    wait_for(lambda: s.pids()["actor-0"] != first["actor-0"])
    assert {n: p for n, p in s.pids().items() if n != "actor-0"} == {n: p for n, p in first.items() if n != "actor-0"}
    wait_for(lambda: s.log("actor-0").count("up") == 2)
    s.observer.phase = DONE
    s.join()
    assert s.supervisor.decisions.outcome == DONE
    assert s.supervisor.status["phase"] == DONE
    assert s.observer.closed
    assert not s.run_dir.endpoint.exists()
    asked = {name: float(s.log(name).split()[-1]) for name in s.pids()}
    assert max(asked["actor-0"], asked["actor-1"], asked["evaluator"]) < asked["learner"] < asked["buffer"]
    assert "actor-0 died (signal 9)" in s.notes.notices[0]


def test_ranks_are_started_again_together_and_meet_anew(stage, monkeypatch):
    monkeypatch.setitem(PATIENCE_S, "learner", 0.2)
    s = stage(buffer=LOYAL, learner=LOYAL, learner_1=LOYAL)
    s.start()
    first = s.pids()
    s.run_dir.meeting.write_text("of those who met before")
    os.kill(first["learner-1"], signal.SIGKILL)
    wait_for(lambda: s.log("learner").count("up") == s.log("learner-1").count("up") == 2)
    assert not s.run_dir.meeting.exists()
    assert [name for name, pid in s.pids().items() if pid == first[name]] == ["buffer"]
    assert _gone(first["learner"])
    s.run_dir.meeting.touch()
    s.observer.phase = DONE
    s.join()
    assert s.notes.notices == ["learner-1 died (signal 9); starting all 2 ranks again in 0.1 s; it said: up"]
    assert not s.run_dir.meeting.exists()


def test_a_role_that_does_not_end_is_killed_in_its_time(stage):
    s = stage(buffer=LOYAL, learner=STUBBORN, actor_0=STUBBORN)
    s.start()
    begun = time.monotonic()
    s.supervisor._asked = 1
    s.join()
    assert time.monotonic() - begun < CONFIG.stop_s + 1
    assert s.supervisor.decisions.outcome == INTERRUPTED
    assert "asked at" in s.log("buffer")


def test_asked_twice_everything_is_gone_at_once(stage):
    s = stage(buffer=STUBBORN, learner=STUBBORN, actor_0=STUBBORN)
    s.start()
    s.supervisor._asked = 2
    begun = time.monotonic()
    s.join()
    assert time.monotonic() - begun < 2.0


def test_signals_count_as_requests_and_old_handlers_come_back(stage):
    s = stage(buffer=LOYAL, learner=LOYAL, actor_0=LOYAL)
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    decisions = s.supervisor.run()
    timer.join()
    assert decisions.outcome == INTERRUPTED
    assert not decisions.hurried
    assert signal.getsignal(signal.SIGINT) is before
    assert "once more ends at once" in s.notes.notices[0]


def test_a_role_that_cannot_go_on_ends_the_run_with_its_one_line(stage, monkeypatch):
    monkeypatch.setattr("headrace.launch.supervise.GATHER_S", 60.0)  # however far apart the two die on a busy machine
    s = stage(buffer=LOYAL, learner=LOYAL, actor_0=BROKEN, actor_1=BROKEN.replace("actor-0", "actor-1"))
    s.thread.start()
    s.join()
    assert s.supervisor.decisions.outcome == FAILED
    assert s.supervisor.last_words() == [("actor-0", ["env.id: no such env"])]
    assert s.notes.notices == []


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.3), (0.3, 0.0)], ids=["in order", "the other way round"])
def test_roles_that_one_cause_takes_away_are_named_once_in_their_order(stage, first, second):
    wait = "import time; time.sleep({}); "
    s = stage(
        buffer=LOYAL,
        learner=LOYAL,
        actor_0=wait.format(first) + BROKEN,
        actor_1=wait.format(second) + BROKEN.replace("actor-0", "actor-1"),
        actor_2=LOYAL,
    )
    s.thread.start()
    wait_for(lambda: s.notes.notices)
    s.supervisor._asked = 1
    s.join()
    said = "actor-0 cannot go on (env.id: no such env); the run goes on without actor-0, actor-1"
    assert s.notes.notices[0] == said
    assert not [n for n in s.notes.notices[1:] if "cannot go on" in n]


def test_the_line_that_tells_why_a_role_died_is_bounded_and_no_routine(tmp_path):
    script = (
        "print('2026-01-01 10:00:00,000 ERROR learner ' + 'x' * 500); print('2026-01-01 10:00:01,000 INFO learner up'); print()"
    )
    child = Child("learner", [sys.executable, "-S", "-c", script], tmp_path / "log", role_environment({}))
    wait_for(lambda: child.poll() is not None)
    line = child.last_line()
    assert "ERROR learner xxx" in line
    assert (len(line), line[-3:]) == (300, "...")


def test_a_role_that_keeps_dying_ends_the_run_with_its_last_lines(stage):
    s = stage(buffer=LOYAL, learner=CRASHING, actor_0=LOYAL)
    s.thread.start()
    s.join()
    assert "supervisor.restarts 2" in s.supervisor.decisions.reason
    [(name, lines)] = s.supervisor.last_words()
    assert (name, lines) == ("learner", [f"line {n}" for n in range(25, 40)])


def test_of_two_that_keep_dying_slowly_the_one_that_gets_nothing_done_is_given_up(stage, monkeypatch):
    monkeypatch.setattr("headrace.launch.supervise.STATUS_S", 0.0)
    slowly = replace(CONFIG, restart_window_s=0.01)
    s = stage(slowly, buffer=LOYAL, learner=LOYAL, actor_0=CRASHING, actor_1=CRASHING)
    s.observer.phase = "training"
    s.thread.start()
    wait_for(s.run_dir.log("learner").exists)
    s.run_dir.write_endpoint("tcp://127.0.0.1:1")
    wait_for(lambda: s.supervisor.decisions.given_up and s.log("actor-0").count("line 39") > 5)
    s.supervisor._asked = 1
    s.join()
    [(name, reason)] = s.supervisor.decisions.given_up.items()
    assert name == "actor-1"
    assert "3 times without one acknowledged row" in reason


def test_what_a_dead_role_left_in_its_group_is_killed(tmp_path):
    script = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True)"
    log = tmp_path / "log"
    child = Child("parent", [sys.executable, "-S", "-c", script], log, role_environment({}))
    wait_for(lambda: child.poll() is not None)
    wait_for(lambda: _gone(int(log.read_text())))


SUPERVISED = """
import subprocess, sys
from headrace.launch.children import role_environment
options = {"env": role_environment({}), "start_new_session": True}
roles = [subprocess.Popen([sys.executable, "-c", code], **options) for code in sys.argv[1:]]
sys.stdin.read()
"""
FOLLOWER = """
import os, signal, time
from headrace.launch.leash import follow_parent
{before}
follow_parent(grace_s={grace_s})
os.write(1, b"%d\\n" % os.getpid())  # in one piece: two followers share the pipe
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("before", "grace_s"),
    [("", 600.0), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0.2)],
    ids=["the kernel asks it to end", "its leash kills it when it does not"],
)
def test_no_role_outlives_a_killed_supervisor(before, grace_s):
    follower = FOLLOWER.format(before=before, grace_s=grace_s)
    with subprocess.Popen([sys.executable, "-c", SUPERVISED, follower, follower], stdin=-1, stdout=-1, text=True) as parent:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        assert not any(_gone(pid) for pid in pids)
        parent.kill()
    try:
        wait_for(lambda: all(_gone(pid) for pid in pids))
    finally:
        for pid in (p for p in pids if not _gone(p)):
            os.kill(pid, signal.SIGKILL)


LEASHED = """
import sys, tempfile
from pathlib import Path
from helpers.roles import Roles
run = Roles(Path(tempfile.mkdtemp(dir=sys.argv[1])), {})
print(run.start_words("sleeper", ["sleep", "600"]).pid, flush=True)
sys.stdin.read()
"""


def test_no_process_of_a_test_outlives_a_test_run_that_is_killed(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", LEASHED, str(tmp_path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=environment) as parent:
        pid = int(parent.stdout.readline())
        assert not _gone(pid)
        parent.kill()
    try:
        wait_for(lambda: _gone(pid))
    finally:
        if not _gone(pid):
            os.kill(pid, signal.SIGKILL)


def _gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
