"""The fake arm moves as arms do, its cameras fail as cameras do, and it writes down what it was told."""

import json
import math

import numpy as np
import pytest

from headrace.actor.fake_arm import LINKS, FakeArm, hand_of
from headrace.actor.fake_camera import FakeCamera
from headrace.actor.robot import Command
from headrace.common.clock import ManualClock
from headrace.common.errors import ConfigError
from headrace.common.specs import OUTCOME_SUCCESS, ActionSpec, ObsSpec, TransitionSpec


def make(**options):
    clock = ManualClock(100.0)
    arm = FakeArm(clock=clock, **{"noise": 0.0, "size": 16, **options})
    arm.connect()
    return arm, clock


def go(action, deadline=math.inf, kind="policy"):
    return Command(np.array(action, np.float32), kind, 4, 2, deadline)


def test_joints_follow_with_a_lag_and_no_faster_than_they_can():
    arm, clock = make(lag_s=0.1, max_speed=2.0)
    assert arm.act(go([0.1, -0.1, 1.0, 0, 0, 0]))
    clock.advance(0.1)
    arm.observe()
    expected = 0.1 * (1 - math.exp(-1))
    assert np.allclose(arm.state().position, [expected, -expected, 0.2, 0, 0, 0], atol=1e-6)
    for _ in range(30):
        clock.advance(0.1)
        arm.observe()
    assert np.allclose(arm.state().position, [0.1, -0.1, 1.0, 0, 0, 0], atol=1e-3)


def test_joints_stay_in_their_reach_and_a_stop_stays_where_the_arm_is():
    arm, clock = make(reach=0.5, joints=2)
    arm.act(go([9.0, -9.0]))
    clock.advance(5.0)
    assert np.allclose(arm.observe().values["arm.position"], [0.5, -0.5])
    arm.act(go([0.0, 0.0]))
    clock.advance(0.02)
    arm.stop()
    where = arm.state().position
    clock.advance(5.0)
    arm.observe()
    assert np.allclose(arm.state().position, where)
    assert 0 < where[0] < 0.5


def test_a_hand_stands_straight_at_zero_and_turns_about_the_axes():
    assert np.allclose(hand_of(np.zeros(6)), [0, 0, sum(LINKS)])
    bent = hand_of(np.array([math.pi / 2, math.pi / 2, 0, 0, 0, 0]))  # the first turns the way in which the second bends
    assert np.allclose(bent, [0, sum(LINKS[1:]), LINKS[0]])


def test_reaching_the_goal_ends_the_episode_with_success():
    arm, clock = make()
    arm.reset(1, seed=3)
    far = arm.observe()
    assert not far.terminated
    bounds = np.full(6, 1.5) / 2
    arm.act(go(np.random.default_rng(3).uniform(-bounds, bounds)))
    clock.advance(3.0)
    near = arm.observe()
    assert near.reward > far.reward
    assert (near.terminated, near.outcome) == (True, OUTCOME_SUCCESS)


def test_pictures_show_hand_and_goal_and_differ_from_one_to_the_next():
    arm, clock = make(size=32, camera_hz=10.0)
    arm.reset(1, seed=3)
    first = arm.observe()
    clock.advance(0.05)
    same = arm.observe()
    clock.advance(0.06)
    other = arm.observe()
    for key in ("camera.front", "camera.top"):
        picture = first.values[key]
        assert picture.shape == (32, 32, 3)
        assert (picture[..., 0] > 200).any()
        assert (picture[..., 1] > 200).any()
        assert not (picture[..., 2] > 200).any()
        assert same.stamps[key] == first.stamps[key] == 100.0
        assert other.stamps[key] == pytest.approx(100.1)
        assert (same.values[key] == picture).all()
        assert (other.values[key] != picture).any()


def test_a_camera_freezes_and_stutters_as_told():
    camera = FakeCamera((8, 8, 3), 10.0, np.random.default_rng(0), freeze=[(0.25, 0.55)])
    stamps = [round(camera.take(5 + n * 0.103, [])[1] - 5, 3) for n in range(8)]
    assert stamps == [0.0, 0.1, 0.2, 0.2, 0.2, 0.2, 0.6, 0.7]
    camera = FakeCamera((8, 8, 3), 10.0, np.random.default_rng(0), stutter=0.5)
    stamps = {camera.take(5 + n * 0.103, [])[1] for n in range(100)}
    assert 30 < len(stamps) < 70


def test_every_command_stop_and_reset_is_written_down_and_late_commands_are_not_carried_out(tmp_path):
    arm, clock = make(record=str(tmp_path / "log"), joints=1)
    arm.reset(4, seed=0)
    assert arm.act(go([0.5], deadline=100.5))
    clock.advance(1.0)
    assert not arm.act(go([-0.5], deadline=100.5))
    arm.observe()
    assert arm.state().position[0] > 0.4
    arm.stop()
    arm.close()
    reset, done, late, stop = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert reset == {"at": 100.0, "what": "reset", "episode": 4}
    about = {"what": "act", "kind": "policy", "episode": 4, "tick": 2, "deadline": 100.5}
    assert done == {**about, "at": 100.0, "done": True, "action": [0.5]}
    assert late == {**about, "at": 101.0, "done": False, "action": [-0.5]}
    assert stop == {"at": 101.0, "what": "stop"}


def test_commands_may_be_steps_of_the_target_which_stays_within_the_joints_bounds():
    arm, clock = make(step=0.2, reach=0.5, lag_s=1e-3, max_speed=100.0)
    assert arm.action == ActionSpec((6,), (-0.2,) * 6, (0.2,) * 6)
    for expected in (0.2, 0.4, 0.5):
        arm.act(go([0.2, -0.2, 0, 0, 0, 0]))
        clock.advance(0.1)
        arm.observe()
        assert np.allclose(arm.joints, [expected, -expected, 0, 0, 0, 0], atol=1e-6)
    arm.act(go([-0.2, 0.2, 0, 0, 0, 0]))
    clock.advance(0.1)
    arm.observe()
    assert np.allclose(arm.joints[:2], [0.3, -0.3], atol=1e-6)


def test_a_reset_brings_it_to_its_start_and_the_goal_is_not_far_from_there():
    start = [0.0, 0.5, 0.8, 0.0, 0.6, 0.0]
    arm, clock = make(start=start, goals=0.1, within=0.2)
    arm.act(go([1.0] * 6))
    for seed in range(20):
        clock.advance(0.3)
        arm.reset(seed, seed)
        seen = arm.observe()
        assert np.allclose(arm.joints, start, atol=1e-9)
        assert 0 < np.linalg.norm(arm.goal - hand_of(np.array(start))) < 0.2
        assert seen.terminated
    assert set(seen.values) == {"arm.position", "arm.velocity", "camera.front", "camera.top"}
    near, _ = make(start=start, goals=0.0)
    near.reset(0, 0)
    assert np.allclose(near.goal, hand_of(np.array(start)))


def test_an_arm_stands_for_a_robot_of_another_spec():
    obs = (ObsSpec("eye", (8, 6, 3), "|u1"), ObsSpec("touch", (3,), "|b1"), ObsSpec("wrench", (2, 2), "<f4"))
    spec = TransitionSpec(obs, ActionSpec((4,), (-1.0,) * 4, (2.0,) * 4))
    arm = FakeArm.like(spec, noise=0.0)
    arm.connect()
    seen = arm.observe().values
    assert {key: (value.shape, value.dtype.str) for key, value in seen.items()} == {o.key: (o.shape, o.dtype) for o in obs}
    with pytest.raises(ConfigError, match="one command a period"):
        FakeArm.like(TransitionSpec(obs, ActionSpec((2, 4), (-1.0,) * 4, (2.0,) * 4), window=2, kind="chunk"))
