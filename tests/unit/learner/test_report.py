"""What a learner tells of itself: rates, waiting, the age of its data, and the spread of its values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.learner import make_batch, make_sac, make_spec

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


def test_what_the_last_update_gave(sac):
    batch = make_batch(SPEC)
    values = Report("me", 0.0, 0).values(1.0, sac, sac.update(batch), batch.rows)
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
    values = Report("me", 0.0, 0).values(1.0, sac, {}, batch.rows)
    ages = 1000 - np.arange(1, n) * 10
    assert values["data/age_updates_p50"] == np.percentile(ages, 50) == 500.0
    assert values["data/age_updates_p99"] == pytest.approx(np.percentile(ages, 99))
