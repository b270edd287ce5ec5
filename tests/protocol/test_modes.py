"""Every admitted way to pace a run really ends, by its own rules: service, pool, actors and learner on a virtual clock."""

from __future__ import annotations

import re
from math import floor

import pytest
from helpers.simulated import Actor, Learner, Run
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.common.errors import ConfigError
from headrace.launch.config import make_config

ROUNDS = 4000
BASE = {
    "env": {"id": "none", "lanes": 1},
    "pool": {"capacity": 1000},
    "learner": {"batch_size": 8},
    "pacing": {"min_fill": 20, "env_steps": 200, "random_steps": 0, "lead_steps": 16},
}


def config_of(*changes):
    merged = {key: dict(value) for key, value in BASE.items()}
    for key, value in (pair for change in changes for pair in change.items()):
        merged[key] = {**merged.get(key, {}), **value}
    return make_config(merged)


def drive(config, directory, actors=1, robots=0, actor_speed=8.0, learner_speed=8.0, past_rows=0):
    run = Run(config, directory, past_rows)
    for number in range(actors + robots):
        run.add(Actor(f"actor-{number}", number, config, actor_speed, robot=number < robots))
    run.add(Learner(config, learner_speed))
    phase = run.finish(ROUNDS)
    assert phase == "done", f"{phase}: {run.service.watch.status(run.service, run.now)}"
    check_end(run, actors, robots)
    run.worker.close()
    return run


def check_end(run, actors, robots):
    pacing, config = run.pacing, run.config
    goal, lanes = config.pacing.env_steps, config.env.lanes
    slack = (actors + robots) * (lanes - 1) + robots * 64
    assert goal <= pacing.env_steps <= goal + slack
    assert pacing.check_valid() == (True, "")
    assert pacing.offline_updates == config.pacing.offline_updates
    owed = max(0, floor(config.pacing.ratio * (pacing.env_steps - config.pacing.min_fill)))
    if not pacing.drawable:
        assert config.pool.min_block_rows > 1 or not config.pacing.ratio
    elif config.pacing.hold_learner:
        assert pacing.updates == owed
    elif config.pacing.hold_actors:
        assert pacing.updates >= owed
    assert run.service.refused.by_reason == {}
    assert run.service.rejected.by_reason == {}


@pytest.mark.parametrize("slow", ["learner", "actors", "none"])
@pytest.mark.parametrize("ratio", [0, 0.3, 1, 4])
@pytest.mark.parametrize("hold_learner", [True, False])
@pytest.mark.parametrize("hold_actors", [True, False])
def test_all_modes_end_by_their_rule(tmp_path, hold_learner, hold_actors, ratio, slow):
    if ratio == 0 and not hold_learner:
        return
    config = config_of({"pacing": {"ratio": ratio, "hold_learner": hold_learner, "hold_actors": hold_actors}})
    speeds = {"actor_speed": 0.5 if slow == "actors" else 8, "learner_speed": 0.5 if slow == "learner" else 8}
    run = drive(config, tmp_path, actors=2, **speeds)
    if hold_learner and ratio:
        assert run.pacing.achieved_ratio == pytest.approx(ratio, rel=0.02)
    if not hold_learner and slow == "actors" and ratio <= 1:
        assert run.pacing.achieved_ratio > 2 * ratio  # as fast as it can
    if not hold_learner and not hold_actors and slow == "learner":
        assert run.pacing.achieved_ratio < ratio  # and nobody waits for it


EDGES = {
    "min_fill = capacity": {"pool": {"capacity": 20}},
    "min_fill = capacity = batch": {"pool": {"capacity": 20}, "learner": {"batch_size": 20}},
    "capacity of one row": {"pool": {"capacity": 1}, "learner": {"batch_size": 1}, "pacing": {"min_fill": 1}},
    "ratio 0": {"pacing": {"ratio": 0}},
    "tiny ratio": {"pacing": {"ratio": 0.006}},
    "high ratio": {"pacing": {"ratio": 30, "env_steps": 40}},
    "tiny lead": {"pacing": {"lead_steps": 1}},
    "tiny lead, n-step and stack": {"pacing": {"lead_steps": 1}, "window": {"n_step": 3, "stack": 3}},
    "tiny lead, tiny ratio, n-step, lanes": {
        "pacing": {"lead_steps": 1, "ratio": 0.02},
        "window": {"n_step": 3},
        "env": {"lanes": 8},
    },
    "capacity below lead": {"pool": {"capacity": 25}, "pacing": {"lead_steps": 150}},
    "lanes do not divide the steps": {"env": {"lanes": 8}, "pacing": {"env_steps": 201}},
    "one row a block": {"actor": {"block_rows": 1}},
    "everything is the last step": {"pacing": {"min_fill": 199}},
    "short blocks in a ring for long ones": {"pool": {"capacity": 24, "min_block_rows": 64}, "learner": {"batch_size": 20}},
    "the same, so that a batch never comes": {
        "pool": {"capacity": 200, "min_block_rows": 32, "max_block_rows": 32},
        "learner": {"batch_size": 195},
        "pacing": {"min_fill": 200, "env_steps": 600},
        "actor": {"block_rows": 1},
        "window": {"stack": 3},
    },
}


@pytest.mark.parametrize("actors", [1, 20])
@pytest.mark.parametrize("edge", EDGES)
def test_edges_run_to_their_end(tmp_path, edge, actors):
    drive(config_of(EDGES[edge]), tmp_path, actors=actors, learner_speed=30)


@pytest.mark.parametrize("hold_actors", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_runs_with_robots_end(tmp_path, share, hold_actors):
    config = config_of({"pacing": {"robot_share": share, "hold_actors": hold_actors}})
    run = drive(config, tmp_path, actors=3, robots=1, actor_speed=1)
    robot = run.clients[b"actor-0"].executed
    assert robot >= share * run.pacing.env_steps - 64


@pytest.mark.parametrize("env_steps", [0, 200])
def test_the_offline_phase_comes_first_and_no_burst_follows(tmp_path, env_steps):
    config = config_of({"pacing": {"offline_updates": 300, "env_steps": env_steps}, "run": {"pool_from": "somewhere"}})
    run = Run(config, tmp_path, past_rows=50)
    run.add(Learner(config, 4))
    for _ in range(40):
        run.round()
    assert run.service.phase == "offline"
    assert 0 < run.pacing.offline_updates < 300
    run.add(Actor("actor-0", 0, config))
    while run.pacing.offline:
        assert run.pacing.env_steps == 0
        run.round()
    assert run.finish(ROUNDS) == "done"
    assert (run.pacing.offline_updates, run.pacing.updates) == (300, 180 if env_steps else 0)
    assert run.pacing.env_steps == env_steps


REFUSED = [
    ({"pacing": {"min_fill": 2000}, "pool": {"capacity": 1000}}, "pacing.min_fill", "2000", "199"),
    ({"pacing": {"min_fill": 150}, "pool": {"capacity": 100}}, "pacing.min_fill", "150", "100"),
    ({"learner": {"batch_size": 1001}, "pacing": {"env_steps": 5000}}, "learner.batch_size", "1001", "1000"),
    ({"learner": {"batch_size": 64}}, "pacing.min_fill", "20", "64"),
    ({"learner": {"batch_size": 256}}, "learner.batch_size", "256", "199"),
    ({"pacing": {"ratio": 0, "hold_learner": False}}, "pacing.hold_learner", "0", "true"),
    ({"pacing": {"ratio": 0.001}}, "pacing.ratio", "0.001", "0.005556"),
    ({"pacing": {"offline_updates": 5}}, "pacing.offline_updates", "5", "0"),
    ({"pacing": {"env_steps": 1, "min_fill": 1}, "learner": {"batch_size": 1}}, "pacing.env_steps", "1", "2"),
]


@pytest.mark.parametrize(("change", "key", "value", "nearest"), REFUSED)
def test_what_could_never_end_is_refused_by_key_values_and_nearest(change, key, value, nearest):
    with pytest.raises(ConfigError) as error:
        config_of(change)
    said = str(error.value)
    assert said.startswith(f"{key}: ")
    assert value in said
    assert f"nearest valid: {nearest}" in said


def test_a_killed_actor_and_a_killed_learner_stop_nobody(tmp_path):
    config = config_of({"pacing": {"env_steps": 600}})
    run = Run(config, tmp_path)
    for number in range(3):
        run.add(Actor(f"actor-{number}", number, config, 4))
    run.add(Learner(config, 6))
    for kill in (b"actor-0", b"learner", b"actor-1"):
        for _ in range(10):
            run.round()
        run.clients[kill].heard = False
        for _ in range(60):  # its lease runs out
            run.round()
        assert run.pacing.check_valid() == (True, "")
        if kill == b"learner":
            held = run.pacing.env_steps
            for _ in range(60):
                run.round()
            assert run.pacing.env_steps == held  # idle time earns nothing
            updates = run.pacing.updates
            run.add(Learner(config, 50))
            run.round()
            run.round()
            run.round()
            assert run.pacing.updates - updates <= 16 + 4  # what it was behind: the lead, and no more
        else:
            run.add(Actor(kill.decode(), int(kill[-1:]), config, 4))
    assert run.finish(ROUNDS) == "done"
    assert (run.pacing.env_steps, run.pacing.updates) == (600, 580)


COUNTS = st.integers(1, 64)
OPTIONS = st.fixed_dictionaries(
    {
        "env": st.fixed_dictionaries({"lanes": st.sampled_from([1, 1, 3, 8])}),
        "window": st.fixed_dictionaries({"n_step": st.sampled_from([1, 3]), "stack": st.sampled_from([1, 3])}),
        "actor": st.fixed_dictionaries({"block_rows": st.sampled_from([1, 5, 32])}),
        "pool": st.fixed_dictionaries({"capacity": COUNTS, "min_block_rows": st.sampled_from([1, 1, 16])}),
        "learner": st.fixed_dictionaries({"batch_size": COUNTS}),
        "run": st.fixed_dictionaries({"pool_from": st.sampled_from(["", "past"])}),
        "pacing": st.fixed_dictionaries(
            {
                "ratio": st.sampled_from([0, 0.01, 0.3, 1, 2.5, 20]),
                "min_fill": COUNTS,
                "env_steps": st.integers(1, 90),
                "random_steps": st.integers(0, 100),
                "offline_updates": st.sampled_from([0, 0, 30]),
                "lead_steps": st.integers(1, 100),
                "hold_learner": st.booleans(),
                "hold_actors": st.booleans(),
                "robot_share": st.sampled_from([0.0, 0.5, 0.9, 1.0]),
            }
        ),
    }
)


def nearest(options):
    """The config after at most a few of the corrections that refusals propose."""
    for _ in range(8):
        try:
            return config_of(options)
        except ConfigError as error:
            key, value = re.match(r"(\S+): .*nearest valid: ([^,;]+)", str(error)).groups()
            section, _, name = key.partition(".")
            options = {**options, section: {**options[section], name: {"true": True}.get(value) or float(value)}}
            if isinstance(BASE.get(section, {}).get(name, 0), int) and value != "true" and name != "ratio":
                options[section][name] = int(float(value))
    raise AssertionError(f"corrections lead nowhere: {options}")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(OPTIONS, st.integers(1, 4), st.integers(0, 1), st.sampled_from([0.5, 8]), st.sampled_from([0.5, 40]))
def test_whatever_is_admitted_ends_and_what_is_refused_names_a_way_that_does(
    tmp_path_factory, options, actors, robots, actor_speed, learner_speed
):
    config = nearest(options)
    past = 70 if config.run.pool_from else 0
    drive(config, tmp_path_factory.mktemp("run"), actors, robots, actor_speed, learner_speed, past)
