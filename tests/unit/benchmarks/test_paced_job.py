"""The account of a job in real time, and what windows of tick files say."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
from campaign.paced_job import PacedJob, Window, account
from helpers.paced import PacedEnv, read_ticks
from promised import p04_once, p06_partition


def test_the_controls_of_cut_off_robots_and_of_rows_that_come_again_fire(tmp_path):
    assert all(p06_partition.control(tmp_path).values())
    assert all(p04_once.control(tmp_path).values())


def test_rows_of_two_streams_and_of_a_robot_that_made_none():
    rows = [{"actor": "a", "stream": 1, "seq": n + 1, "episode": 0, "t": n} for n in range(3)]
    later = [{"actor": "a", "stream": 2, "seq": 1, "episode": 1, "t": 0}]
    assert set(account([*rows, *later], {"a": 4, "b": 0}, 0).values()) == {0}
    assert account(rows, {"a": 3, "b": 2}, 7) == {
        "lost": 2,
        "duplicated": 0,
        "reordered": 0,
        "corrupted": 7,
        "phantom": 0,
    }


def test_rates_and_periods_of_a_window(tmp_path):
    steps = np.concatenate([np.arange(0, 10, 0.02), np.arange(10, 20, 0.04)])
    (tmp_path / "ticks-7").write_bytes(steps.tobytes() + b"cut")
    job = PacedJob(SimpleNamespace(processes={"a": SimpleNamespace(pid=7)}), tmp_path)
    before, during = Window(0.0, 10.0), Window(10.0, 20.0)
    assert job.slowest(["a"], before, during) == pytest.approx(0.5)
    assert job.fastest(["a"], during, before) == pytest.approx(2.0)
    assert job.period_p99_ms(["a"], during) == pytest.approx(40.0)


def test_a_paced_env_notes_each_step_and_is_in_time(tmp_path, monkeypatch):
    now, slept = [100.0], []
    monkeypatch.setattr("helpers.paced.time", SimpleNamespace(monotonic=lambda: now[0], sleep=slept.append))
    env = PacedEnv(period_s=0.5, ticks=str(tmp_path / "ticks"), lengths=(99,))
    env.reset()
    for at in (100.0, 100.1, 100.9, 103.0, 103.1):
        now[0] = at
        env.step(np.zeros(1, np.float32))
    env.close()
    assert read_ticks(tmp_path / "ticks")[os.getpid()].tolist() == [100.0, 100.1, 100.9, 103.0, 103.1]
    assert [s for s in slept if s] == pytest.approx([0.4, 0.1, 0.4])
