"""Two live actors with one id, as real processes: exactly one works, whoever came first and whatever the other was doing."""

from __future__ import annotations

import signal
import time

import pytest
from helpers.roles import roles, scripted

REFUSED = 3  # must not be started again


def start(run, name):
    return run.start(name, "actor", str(run.config), "--connect", run.endpoint, "--id", "arm")


def wait_one_ended(processes, deadline_s):
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        ended = [name for name, process in processes.items() if process.poll() is not None]
        if ended:
            return ended[0]
        time.sleep(0.05)
    raise AssertionError(f"both of {sorted(processes)} still live after {deadline_s} s")


@pytest.mark.parametrize("turn", [1, 2])  # a race: once proves little
def test_of_two_that_start_at_once_one_works_and_the_other_names_it(tmp_path, turn):
    with roles(tmp_path, scripted(pacing={"env_steps": 0})) as run:
        run.buffer()
        run.canary(64, 50, 60)
        both = {name: start(run, name) for name in ("left", "right")}
        loser = wait_one_ended(both, 40)
        winner = both["right" if loser == "left" else "left"]
        assert both[loser].returncode == REFUSED, run.log(loser)
        assert f"held by pid {winner.pid}" in run.log(loser)
        before = run.status()["env_steps"]
        last = run.wait(lambda s: s["env_steps"] > before + 200, 60)
        assert [a["pid"] for a in last["actors"]] == [winner.pid]
        assert winner.poll() is None
        run.stop()


def test_one_that_slept_through_its_lease_is_replaced_and_leaves_when_it_wakes(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 0})) as run:
        run.buffer()
        run.canary(64, 50, 60)
        sleeper = start(run, "sleeper")
        run.wait(lambda s: s["env_steps"] > 300, 60)
        sleeper.send_signal(signal.SIGSTOP)
        heir = start(run, "heir")
        run.wait(lambda s: [a["pid"] for a in s["actors"]] == [heir.pid], 30)
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(20) == REFUSED, run.log("sleeper")
        before = run.status()["env_steps"]
        last = run.wait(lambda s: s["env_steps"] > before + 200, 60, watch=("heir",))
        assert [a["pid"] for a in last["actors"]] == [heir.pid]
        run.stop()
