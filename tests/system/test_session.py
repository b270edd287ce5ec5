"""Robot programs with a loop of their own beside a real buffer: cuts, kills, full spools, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.own_robot import LENGTH, NETWORK, SPEC
from helpers.roles import roles, scripted

from headrace.actor import TransitionSpec, connect
from headrace.buffer import SACReplayPool
from headrace.common.errors import DeadlineExceeded, EnvError, SessionRefused
from headrace.launch.chaos.canary import canary_weights

CONFIG = scripted(pool={"capacity": 20_000}, pacing={"env_steps": 0, "random_steps": 20_000})
PICTURES = TransitionSpec.like({"obs": np.zeros(3, np.float32), "eye": np.zeros((128, 128, 3), np.uint8)}, [-1.0], [1.0])
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_loop.py"


def see(t):
    return {"obs": np.array([0, 0, t], np.float32)}


def look(t):
    return {**see(t), "eye": np.full((128, 128, 3), t, np.uint8)}


def pool_rows(run, capacity=20_000):
    with SACReplayPool(capacity, path=run.run / "pool") as pool:
        return list(pool.dump()), pool.counters()


def check_rows(rows, *, executed):
    """Each step once, in order, in one stream."""
    assert len({row["stream"] for row in rows}) == 1
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    places = [(row["episode"], row["t"]) for row in rows]
    assert places == sorted(set(places))
    assert len(rows) == executed


def robot(run, *words):
    """Start the program of ``helpers.own_robot`` beside the buffer's directory."""
    log = run.directory / "steps.log"
    return run.start_words(
        "arm-0", [sys.executable, "-P", "-m", "helpers.own_robot", run.endpoint, str(run.directory / "spool"), str(log), *words]
    )


def logged(run):
    path = run.directory / "steps.log"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_logged(run, count, deadline_s=60):
    end = time.monotonic() + deadline_s
    while logged(run) < count:
        assert time.monotonic() < end, run.log("arm-0")
        assert run.processes["arm-0"].poll() is None, run.log("arm-0")
        time.sleep(0.02)


def test_a_session_from_hello_to_goodbye_leaves_nothing_behind(tmp_path):
    config = {**CONFIG, "pool": {"capacity": 300}}
    with roles(tmp_path, config) as run:
        run.buffer()
        before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), type(asyncio.get_event_loop_policy()))
        threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
        with connect(run.endpoint, "arm-0", PICTURES, network=NETWORK) as session:
            assert session.policy(10).act is not None
            for episode in range(4):
                session.begin(look(0))
                for t in range(5):
                    action = session.act(look(t))
                    assert action.shape == (1,)
                    assert abs(action[0]) <= 1
                    session.record(look(t + 1), action, 1.0, t == 4, False)
                if episode == 1:
                    session.success()
                if episode == 2:
                    session.discard()
            session.begin(look(0))
            session.record(look(1), [0.5], 0.0, False, False)
            session.record(look(2), [0.5], 0.0, False, False)
            assert not session.ended
        assert set(threading.enumerate()) == threads
        assert len(os.listdir("/proc/self/fd")) == files
        after = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), type(asyncio.get_event_loop_policy()))
        assert after == before
        counts = session.counts
        assert (counts.executed, counts.acknowledged, counts.waiting, counts.unsent) == (22, 22, 0, 0)
        with pytest.raises(EnvError, match="closed"):
            session.begin(look(0))
        run.stop()
        rows, counters = pool_rows(run, 300)
        check_rows(rows, executed=22)
        assert counters["rows_discarded"] == 5
        assert {row["outcome"] for row in rows if row["episode"] == 1} == {1}


def test_weights_reach_the_loop_whole_between_two_decisions(tmp_path):
    config = scripted(pacing={"env_steps": 0, "random_steps": 0, "min_fill": 64})
    with roles(tmp_path, config) as run:
        run.buffer()
        with connect(run.endpoint, "arm-0", SPEC, network=NETWORK) as session:
            with pytest.raises(DeadlineExceeded, match="no weights"):
                session.act(see(0))
            run.canary(64, 20, 60)
            session.policy(30)
            versions, n = set(), 0
            end = time.monotonic() + 40
            while len(versions) < 5 and time.monotonic() < end:
                if n % LENGTH == 0:
                    session.begin({"obs": np.array([0, n // LENGTH, 0], np.float32)})
                action = session.act(see(0), deterministic=True)
                versions.add(session.version.step)
                expected = canary_weights(SPEC, "x", 1, session.version.step).tensors["head.bias"][0]
                assert np.sign(action[0]) == np.sign(expected)  # every tensor is the version
                n += 1
                last = n % LENGTH == 0
                session.record(
                    {"obs": np.array([0, (n - 1) // LENGTH, (n - 1) % LENGTH + 1], np.float32)}, action, 0.0, last, False
                )
                time.sleep(0.002)
            assert len(versions) >= 5
        run.stop()


def test_a_cut_loses_nothing_and_keeps_the_order(tmp_path):
    with roles(tmp_path, CONFIG) as run:
        run.buffer()
        robot(run, "900", "30")
        run.wait(lambda s: s["env_steps"] > 100, 60, watch=("arm-0",))
        run.kill("buffer")
        wait_logged(run, 800)
        run.buffer()
        assert run.processes["arm-0"].wait(60) == 0, run.log("arm-0")
        robot(run, "7", "60")  # what the first could not get rid of before its end, this one does
        assert run.processes["arm-0"].wait(60) == 0, run.log("arm-0")
        run.wait(lambda s: s["env_steps"] == 907, 20)
        run.stop()
        rows, counters = pool_rows(run)
        check_rows(rows, executed=907)
        assert counters["lost_before"] == 0


def test_a_killed_robot_finds_its_spool_again_and_each_row_arrives_once(tmp_path):
    with roles(tmp_path, CONFIG) as run:
        run.buffer()
        robot(run, "100000", "30")
        run.wait(lambda s: s["env_steps"] > 50, 60, watch=("arm-0",))
        run.kill("buffer")
        cut = logged(run)
        wait_logged(run, cut + 560)
        run.kill("arm-0")
        executed = logged(run)
        run.buffer()
        robot(run, "70", "60")
        assert run.processes["arm-0"].wait(60) == 0, run.log("arm-0")
        run.stop()
        rows, counters = pool_rows(run)
        check_rows(rows, executed=len(rows))
        abandoned = executed + 70 - len(rows)
        assert 0 <= abandoned <= 40  # what a killed process had not handed over: flush_s of 200 Hz, and the window held back
        assert counters["lost_before"] == 0
        assert len(rows) >= cut + 500 + 70


def test_what_was_said_of_episodes_outlives_a_kill_and_reaches_their_rows(tmp_path):
    with roles(tmp_path, CONFIG) as run:
        robot(run, "100000", "0")  # each second episode is a success, and nobody hears of it
        wait_logged(run, 42 * LENGTH)
        run.kill("arm-0")
        whole = logged(run) // LENGTH - 4  # what was said last may not be on disk
        run.buffer()
        robot(run, "100000", "60")
        done = (whole + 8) * LENGTH
        run.wait(lambda s: s["env_steps"] > done and s["actors"][0]["waiting_labels"] == 0, 60, watch=("arm-0",))
        run.kill("arm-0")
        run.stop()
        rows, _ = pool_rows(run)
        assert {row["outcome"] for row in rows if row["episode"] < whole and row["episode"] % 2} == {1}
        assert {row["outcome"] for row in rows if row["episode"] < whole and not row["episode"] % 2} == {0}


def test_without_any_buffer_a_robot_begins_and_ends_and_its_rows_wait(tmp_path):
    with roles(tmp_path, CONFIG) as run:
        robot(run, "70", "0")
        assert run.processes["arm-0"].wait(60) == 0, run.log("arm-0")
        assert "waiting=70" in run.log("arm-0")
        run.buffer()
        robot(run, "7", "60")
        assert run.processes["arm-0"].wait(60) == 0, run.log("arm-0")
        run.stop()
        rows, _ = pool_rows(run)
        check_rows(rows, executed=77)
        assert {row["outcome"] for row in rows if row["episode"] == 10} == {0}


def test_the_second_of_two_processes_with_one_name_is_told_who_is_there(tmp_path):
    with roles(tmp_path, CONFIG) as run:
        run.buffer()
        holder = connect(run.endpoint, "arm-0", SPEC, network=NETWORK)
        with holder, pytest.raises(SessionRefused, match=f"pid {os.getpid()}"):
            connect(run.endpoint, "arm-0", SPEC, network=NETWORK)
        run.stop()


def test_the_example_runs(tmp_path):
    with roles(tmp_path, CONFIG) as run:
        run.buffer()
        words = [sys.executable, str(EXAMPLE), run.endpoint, "arm-0", "1"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "acknowledged=100, rejected=0, waiting=0, dropped=0" in done.stdout
        assert len(EXAMPLE.read_text().splitlines()) <= 64  # one screen
        run.stop()
