"""What a learner tells of itself: rates, waiting, the age of its data, and the spread of its values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.common.batch import PINNED
from headrace.common.weights import Version
from headrace.learner.report import Report

SPEC = make_spec()
OURS, OTHERS = Version("me", 1, 0).learner_hash, Version("you", 1, 0).learner_hash


@pytest.fixture
def sac():
    return make_sac(SPEC)


def test_rates_and_waiting_are_of_the_time_since_the_last_report(sac):
    report = Report("me", 100.0, 0)
    assert not report.due(101.9, 2.0)
    assert report.due(102.0, 2.0)
    sac.step = 30
    report.waited(0.25)
    report.waited(0.25)
    values = report.values(102.0, sac, {}, None)
    assert values == {"learner/updates": 30, "learner/updates_s": 15.0, "learner/waiting": 0.25}
    assert not report.due(103.0, 2.0)
    sac.step = 40
    assert report.values(104.0, sac, {}, None) == {"learner/updates": 40, "learner/updates_s": 5.0, "learner/waiting": 0.0}
    assert report.values(104.0, sac, {}, None)["learner/updates_s"] == 0.0  # twice in an instant
    sac.step = 90
    values = Report("me", 100.0, 40, roofline=40.0).values(105.0, sac, {}, None)
    assert (values["learner/updates_s"], values["learner/roofline_share"]) == (10.0, 0.25)


def test_what_the_last_update_gave(sac):
    batch = make_batch(SPEC)
    values = Report("me", 0.0, 0).values(1.0, sac, sac.update(batch), batch)
    q = sac.q.numpy()
    assert q.shape == (8, 2)
    assert values["critic/qvalue_min"] == q.min() < values["critic/qvalue_mean"] < q.max() == values["critic/qvalue_max"]
    assert values["critic/qvalue_std"] == pytest.approx(q.std())
    assert values["actor/entropy"] == -values["actor/logprob_mean"]
    assert math.isfinite(values["critic/loss"])
    assert not [name for name in values if "age" in name]  # nobody acted by weights


def test_the_age_of_data_is_counted_in_updates_of_this_learner(sac):
    sac.step = 1000
    n = 100
    learner = np.where(np.arange(2 * n) < n, np.uint64(OURS), np.uint64(OTHERS))
    batch = make_batch(SPEC, size=2 * n, learner=learner, learner_epoch=1, learner_step=np.arange(2 * n) * 10)
    batch.rows["learner_epoch"][0] = 0  # the oldest: before there were weights
    values = Report("me", 0.0, 0).values(1.0, sac, {}, batch)
    ages = 1000 - np.arange(1, n) * 10
    assert values["data/age_updates_p50"] == np.percentile(ages, 50) == 500.0
    assert values["data/age_updates_p99"] == pytest.approx(np.percentile(ages, 99))


def told(sac, batch, **more):
    return Report("me", 0.0, 0).values(1.0, sac, {}, batch, **more)


def test_the_age_of_data_in_seconds_and_env_steps_is_that_of_the_rings_rows(sac):
    report = Report("me", 0.0, 0)
    report.values(1000.0, sac, {}, None, 400)
    batch = make_batch(SPEC, size=101)
    batch.ids[:] = 400 + np.arange(101)
    values = report.values(1100.0, sac, {}, batch, 501)  # 101 rows in 100 s, the last of them just now
    assert (values["data/age_env_steps_p50"], values["data/age_env_steps_p99"]) == (50.0, 99.0)
    assert values["data/age_s_p50"] == pytest.approx(50, abs=0.01)
    assert values["data/age_s_p99"] == pytest.approx(99, abs=1)
    batch.ids[1:] = PINNED + np.arange(100)  # demonstrations have no age
    values = report.values(1100.0, sac, {}, batch, 501)
    assert values["data/age_env_steps_p50"] == values["data/age_env_steps_p99"] == 100.0
    assert "data/age_s_p50" not in told(sac, batch)  # nobody has said yet how many rows there are


def test_rows_of_chunks_are_as_many_env_steps_old_as_they_executed():
    spec = make_spec(action=(4, 2), window=4, kind="chunk")
    batch = make_batch(spec, size=5, steps=[4, 4, 2, 4, 4])
    values = told(make_sac(spec), batch, rows_accepted=5)
    assert (batch.ids[2], values["data/age_env_steps_p50"]) == (2, pytest.approx(2 * 3.6))


def test_values_of_success_failure_and_each_task_are_told_apart(sac):
    outcome = np.array([0, 1, 1, 2, 2, 2, 0, 0])
    batch = make_batch(SPEC, outcome=outcome, task=[0, 0, 7, 7, 7, 3, 3, 3])
    sac.q = torch.arange(16.0).reshape(8, 2)
    values = told(sac, batch)
    assert {name: value for name, value in values.items() if "qvalue" in name or "share" in name} == {
        "critic/qvalue_mean": 7.5,
        "critic/qvalue_min": 0.0,
        "critic/qvalue_max": 15.0,
        "critic/qvalue_std": pytest.approx(np.arange(16).std()),
        "data/success_share": 0.25,
        "critic/qvalue_success_mean": 3.5,
        "critic/qvalue_success_min": 2.0,
        "critic/qvalue_success_max": 5.0,
        "critic/qvalue_success_std": pytest.approx(np.arange(4).std()),
        "data/failure_share": 0.375,
        "critic/qvalue_failure_mean": 8.5,
        "critic/qvalue_failure_min": 6.0,
        "critic/qvalue_failure_max": 11.0,
        "critic/qvalue_failure_std": pytest.approx(np.arange(6).std()),
        "critic/qvalue_task_0_mean": 1.5,
        "critic/qvalue_task_3_mean": 12.5,
        "critic/qvalue_task_7_mean": 6.5,
    }


def test_without_outcomes_and_tasks_nothing_is_said_of_them(sac):
    batch = make_batch(SPEC)
    values = Report("me", 0.0, 0).values(1.0, sac, sac.update(batch), batch)
    assert not [name for name in values if "success" in name or "failure" in name or "task" in name]


def test_of_many_tasks_those_with_most_rows_are_told(sac):
    batch = make_batch(SPEC, size=100, task=[*range(1, 61), *([70] * 40)])
    sac.q = torch.zeros(100, 2)
    names = [name for name in told(sac, batch) if "task" in name]
    assert len(names) == 16
    assert "critic/qvalue_task_70_mean" in names
