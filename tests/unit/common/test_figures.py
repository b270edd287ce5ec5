"""Figures: which number of a status is which metric, and that what is none of them does no harm."""

from __future__ import annotations

import math

import pytest

from headrace.common import figures
from headrace.common.figures import BUFFER, UPLINK, Figure, families, learner_families


@pytest.mark.parametrize(
    ("path", "label", "samples"),
    [
        ("n", "", [("", 3.0)]),
        ("in.n", "", [("", 4.5)]),
        ("in.gone", "", []),
        ("gone.n", "", []),
        ("n.n", "", []),
        ("who.#", "", [("", 3.0)]),
        ("in.#", "", []),
        ("last.-1.n", "", [("", 8.0)]),
        ("none.-1.n", "", []),
        ("in.*", "what", [("n", 4.5), ("refused_size", 1.0), ("refused_arity", 2.0)]),
        ("in.refused_*", "reason", [("size", 1.0), ("arity", 2.0)]),
        ("who.*.n", "who", [("arm-0", 1.0), ("arm-2", 0.0)]),
        ("none.*.n", "who", []),
        ("said.*", "what", []),
        ("odd.*", "what", [("d", 1e300)]),
    ],
)
def test_a_path_leads_to_every_number_and_to_nothing_else(path, label, samples):
    status = {
        "n": 3,
        "in": {"n": 4.5, "refused_size": 1, "refused_arity": 2},
        "who": [{"id": "arm-0", "n": 1}, {"n": 7}, {"id": "arm-2", "n": 0}],
        "last": [{"n": 7}, {"n": 8}],
        "none": [],
        "said": "words",
        "odd": {"a": math.nan, "b": "1", "c": None, "d": 1e300, "e": [1], "f": True, "g": math.inf},
    }
    found = list(families([Figure("x", path, "help", label)], status))
    assert [(family.name, family.label, list(family.samples)) for family in found] == (
        [("headrace_x", label, samples)] if samples or label else []
    )


def test_every_table_has_each_name_once_a_help_and_a_label_exactly_where_its_path_has_many():
    for table in (BUFFER, UPLINK):
        assert len({figure.name for figure in table}) == len(table)
        for figure in table:
            assert figure.help
            assert bool(figure.label) == ("*" in figure.path)
    assert [f.counts for f in families(BUFFER, {"updates": 1, "target_ratio": 1.0}) if f.samples] == [True, False]


def test_a_learners_metrics_have_the_names_of_its_run_and_leave_out_what_the_buffer_tells():
    values = {
        "critic/qvalue_mean": 2.0,
        "learner/updates": 7,
        "run/env_steps": 9,
        "sac/alpha": math.nan,
        "learner/rss_bytes": 5,
    }
    found = {family.name: family.samples for family in learner_families(values)}
    assert found == {
        f"{figures.PREFIX}critic_qvalue_mean": (("", 2.0),),
        f"{figures.PREFIX}learner_updates": (("", 7.0),),
        f"{figures.PREFIX}learner_rss_bytes": (("", 5.0),),
    }
