"""The guard by tables, and as a property: no command that leaves it is outside of a limit."""

import math
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.actor.guard import Deed, Guard, Vitals
from headrace.actor.limits import GuardConfig
from headrace.actor.robot import Observation, RobotState
from headrace.common.errors import ConfigError
from headrace.common.specs import ActionSpec, ObsSpec

CAMERA = ObsSpec("camera", (2, 2, 3), "|u1")
OBS = (CAMERA, ObsSpec("joints", (2,), "<f4"))
ACTION = ActionSpec((2,), (-9.0, -9.0), (9.0, 9.0))
LIMITS = {"low": (-1.0, -2.0), "high": (1.0, 2.0), "max_delta": (0.25,), "max_rate": (10.0,)}
HERE = RobotState(np.array([0.5, -0.5], np.float32))
FRESH = Vitals(math.inf, 0.0)
CALLS = []


def refuse_left(command, state):
    """A workspace: nothing left of 0.4 in the first dimension."""
    return "left of the table" if command[0] < 0.4 else None


def refuse_all(command, state):
    return "everything" if CALLS else ""


def raise_always(command, state):
    raise RuntimeError("broken")


def make(armed=True, state=HERE, **changes):
    guard = Guard(GuardConfig(**{**LIMITS, **changes}), OBS, ACTION)
    if armed:
        assert guard.arm(0.0, state), guard.why
    return guard


def leave(guard, now, wanted, state=HERE, vitals=None):
    """One period: decide, and carry out."""
    verdict = guard.decide(now, None if wanted is None else np.array(wanted, np.float32), state, vitals)
    if verdict.command is not None:
        guard.left(now, verdict.command)
    return verdict


def picture(value):
    return Observation({"camera": np.full((2, 2, 3), value, np.uint8), "joints": np.zeros(2, np.float32)}, {"camera": value})


@pytest.mark.parametrize(
    ("wanted", "command", "limited"),
    [
        ([0.5, -0.5], [0.5, -0.5], False),
        ([0.6, -0.7], [0.6, -0.7], False),
        ([0.9, -0.5], [0.75, -0.5], True),  # delta
        ([0.5, -9.0], [0.5, -0.75], True),
    ],
)
def test_what_is_wanted_leaves_as_far_as_one_step_allows(wanted, command, limited):
    verdict = leave(make(), 1.0, wanted)
    assert (verdict.deed, verdict.limited) == (Deed.GO, limited)
    assert verdict.command.dtype == np.float32
    assert np.allclose(verdict.command, command, atol=1e-6)


def test_the_box_holds_where_delta_and_rate_would_allow_more():
    guard = make(max_delta=(9.0,), max_rate=(900.0,))
    assert np.allclose(leave(guard, 1.0, [5.0, -5.0]).command, [1.0, -2.0])
    assert guard.counts == {"limited": 1}


def test_the_rate_holds_where_periods_are_short():
    guard = make()
    assert np.allclose(leave(guard, 0.01, [1.0, 1.0]).command, [0.6, -0.4], atol=1e-6)
    assert np.allclose(leave(guard, 0.01, [1.0, 1.0]).command, [0.6, -0.4], atol=1e-6)  # no time has passed


@pytest.mark.parametrize(
    ("wanted", "cause"),
    [
        (None, "late"),
        ([math.nan, 0.0], "bad"),
        ([math.inf, 0.0], "bad"),
        ([0.5], "bad"),
        ([[0.5, -0.5]], "bad"),
    ],
)
def test_a_bad_output_or_none_holds_and_is_counted(wanted, cause):
    guard = make()
    verdict = leave(guard, 1.0, wanted)
    assert (verdict.deed, verdict.causes, guard.counts) == (Deed.HOLD, (cause,), {cause: 1})
    assert (verdict.command == HERE.position).all()
    assert leave(guard, 1.1, [0.5, -0.4]).deed is Deed.GO  # and it goes on


def test_words_and_holes_for_an_action_hold_too():
    guard = make()
    for wanted in ("left", [None, 1], {}):
        assert guard.decide(1.0, wanted, HERE).causes == ("bad",)


@pytest.mark.parametrize("late", [1, 2, 4])
def test_periods_without_an_action_stop_and_disarm(late):
    guard = make(late=late, hold_s=99.0)
    deeds = [leave(guard, n / 10, None).deed for n in range(1, late + 1)]
    assert deeds == [Deed.HOLD] * (late - 1) + [Deed.STOP]
    assert not guard.armed
    assert guard.why == f"no action for {late} periods"
    assert leave(guard, 9.0, [0.5, -0.5]).deed is Deed.STOP  # an action that comes back arms nothing


def test_an_action_in_between_begins_the_count_anew():
    guard = make(late=2)
    deeds = [leave(guard, n / 10, wanted).deed for n, wanted in enumerate([None, [0.5, -0.5], None, [0.5, -0.5]], 1)]
    assert deeds == [Deed.HOLD, Deed.GO, Deed.HOLD, Deed.GO]


def test_a_hold_that_lasts_becomes_a_stop():
    guard = make(hold_s=0.3)
    deeds = [leave(guard, now, [math.nan, 0.0]).deed for now in (1.0, 1.2, 1.25, 1.4)]
    assert deeds == [Deed.HOLD, Deed.HOLD, Deed.HOLD, Deed.STOP]
    assert guard.why == "held for 0.40 s: bad"


def test_a_hold_that_ended_does_not_count_for_the_next():
    guard = make(hold_s=0.3)
    bad, good = [math.nan, 0.0], [0.5, -0.5]
    deeds = [leave(guard, now, w).deed for now, w in ((1.0, bad), (1.2, good), (1.4, bad), (1.6, bad))]
    assert deeds == [Deed.HOLD, Deed.GO, Deed.HOLD, Deed.HOLD]


def test_between_episodes_a_hold_may_last():
    guard = make(hold_s=0.1)
    assert [guard.hold(float(now), HERE).deed for now in range(1, 60)] == [Deed.GO] * 59
    assert guard.armed


@pytest.mark.parametrize(
    ("reaction", "deed"),
    [("continue", Deed.GO), ("finish_episode", Deed.GO), ("hold", Deed.HOLD), ("stop", Deed.STOP)],
)
@pytest.mark.parametrize("what", ["frames", "weights", "link"])
def test_each_reaction_to_each_age(what, reaction, deed):
    name = {"frames": "frame", "weights": "weight", "link": "link"}[what]
    guard = make(**{"frame_age_s": 99.0, f"{name}_age_s": 2.0, f"{name}_reaction": reaction})
    guard.see(10.0, picture(10))
    heard, at = 9.9 if what == "link" else 99.0, 12.5 if what == "frames" else 11.95
    new, old = (Vitals(heard, acted if what == "weights" else 0.0) for acted in (1.9, 2.1))
    young, late = leave(guard, 11.8, [0.5, -0.5], vitals=new), leave(guard, at, [0.5, -0.5], vitals=old)
    assert (young.deed, young.causes) == (Deed.GO, ())
    causes = () if reaction == "continue" else (what,)
    assert (late.deed, late.causes) == (deed, causes)
    assert late.stale == (what == "frames" and reaction != "stop")
    assert guard.too_old(at, old) == " and ".join(causes)
    assert guard.armed == (reaction != "stop")


def test_the_most_careful_reaction_wins_and_all_causes_are_named():
    guard = make(weight_age_s=1.0, weight_reaction="hold", link_age_s=1.0, link_reaction="stop")
    verdict = leave(guard, 5.0, [math.nan, 0.0], vitals=Vitals(0.0, 5.0))
    assert (verdict.deed, verdict.causes) == (Deed.STOP, ("weights and link and bad",))
    assert guard.counts == {"weights": 1, "link": 1, "bad": 1, "stops": 1}


@pytest.mark.parametrize("frozen", ["pixels", "stamp"])
def test_a_camera_that_repeats_its_picture_is_seen_whether_it_is_stamped_anew_or_not(frozen):
    guard = make(frame_repeats=2, frame_age_s=99.0, hold_s=0.5)
    deeds = []
    for now in range(1, 6):
        value = 1 if frozen == "pixels" else now
        stamp = 1 if frozen == "stamp" else now
        pixels = np.full((2, 2, 3), value, np.uint8)
        guard.see(now, Observation({"camera": pixels, "joints": np.zeros(2)}, {"camera": stamp}))
        deeds.append(leave(guard, now, [0.5, -0.5], vitals=FRESH).deed)
    assert deeds == [Deed.GO, Deed.GO, Deed.GO, Deed.HOLD, Deed.STOP]  # and held for longer than hold_s


def test_a_picture_without_a_stamp_is_as_old_as_its_arrival():
    guard = make(frame_age_s=0.5)
    values = {"camera": np.zeros((2, 2, 3), np.uint8), "joints": np.zeros(2)}
    guard.see(1.0, Observation(values))
    guard.see(1.4, Observation(values))
    assert leave(guard, 1.5, [0.5, -0.5], vitals=FRESH).deed is Deed.GO
    assert leave(guard, 1.6, [0.5, -0.5], vitals=FRESH).causes == ("frames",)
    assert guard.report(1.6)["frame_age_s"] == {"camera": 0.6}


def test_a_workspace_turns_a_command_into_a_hold_and_refused_holds_into_a_stop():
    guard = make(workspace="tests_guard:refuse_left")
    assert leave(guard, 1.0, [0.45, -0.5]).deed is Deed.GO
    verdict = leave(guard, 2.0, [0.3, -0.5])
    assert (verdict.deed, verdict.causes) == (Deed.HOLD, ("workspace",))
    assert np.allclose(verdict.command, [0.45, -0.5])
    CALLS.clear()
    guard = make(workspace="tests_guard:refuse_all")
    assert leave(guard, 1.0, [0.5, -0.5]).deed is Deed.GO
    CALLS.append(1)
    assert leave(guard, 2.0, [0.5, -0.5]).deed is Deed.STOP
    assert guard.why == "workspace: everything"


def test_a_workspace_that_raises_allows_nothing():
    guard = make(workspace="tests_guard:raise_always")
    assert leave(guard, 1.0, [0.5, -0.5]).deed is Deed.STOP
    assert guard.why == "workspace: RuntimeError: broken"


@pytest.fixture(autouse=True)
def named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tests_guard", sys.modules[__name__])


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (RobotState(HERE.position, "reflex"), "fault: reflex"),
        (RobotState(None), "says no position"),
        (RobotState(np.array([math.nan, 0.0])), "not 2 finite numbers"),
        (RobotState(np.array([0.0])), "not 2 finite numbers"),
        (RobotState(np.array([0.0, 2.5])), r"position 2.5 is outside of the box \[-2, 2\] of dimension 1"),
    ],
)
def test_arming_reads_the_state_and_refuses_what_is_no_place_to_begin(state, why):
    guard = make(armed=False)
    assert not guard.arm(1.0, state)
    assert re.search(why, guard.why)
    assert guard.decide(1.1, HERE.position, HERE).deed is Deed.STOP


def test_a_fault_stops_and_stays_until_the_robot_is_well_and_armed_again():
    guard = make()
    faulty = RobotState(HERE.position, "torque")
    assert leave(guard, 1.0, [0.5, -0.5], faulty).deed is Deed.STOP
    assert leave(guard, 1.1, [0.5, -0.5]).deed is Deed.STOP  # the fault has gone, and nobody has armed it
    assert not guard.arm(1.2, faulty)
    moved = RobotState(np.array([-0.5, 1.0], np.float32))
    assert guard.arm(1.3, moved)
    assert np.allclose(leave(guard, 1.4, [0.5, -0.5], moved).command, [-0.25, 0.75])  # from where it is now


def test_a_robot_that_moved_by_itself_is_commanded_from_where_it_is():
    guard = make()
    guard.reread(1.0, RobotState(np.array([-0.5, 1.0], np.float32)))
    assert np.allclose(leave(guard, 2.0, [1.0, 1.0]).command, [-0.25, 1.0])
    guard.reread(3.0, RobotState(np.array([-5.0, 1.0], np.float32)))
    assert not guard.armed


def test_where_commands_are_displacements_a_hold_comes_to_rest_as_fast_as_it_may():
    guard = make(command="displacement", state=RobotState(), max_rate=(900.0,), hold_s=9.0, late=9)
    for now in range(1, 4):
        leave(guard, now, [1.0, 0.1], RobotState())
    commands = [leave(guard, now, None, RobotState()).command.tolist() for now in range(4, 8)]
    assert np.allclose(commands, [[0.5, 0], [0.25, 0], [0, 0], [0, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            dict.fromkeys(LIMITS, ()),
            "robot.guard.low, robot.guard.high, robot.guard.max_delta, robot.guard.max_rate: not given",
        ),
        ({"max_rate": ()}, "robot.guard.max_rate: not given"),
        ({"low": (0.0, 0.0, 0.0)}, "robot.guard.low: 3 numbers for a robot of 2 dimensions; nearest valid: 2"),
        ({"max_delta": (0.0,)}, "robot.guard.max_delta: 0.0 is no limit"),
        ({"high": (math.inf,)}, "robot.guard.high: inf is no limit"),
        ({"low": (1.0,)}, "robot.guard.low: 1 is not below robot.guard.high 1 in dimension 0"),
        ({"low": (0.5,), "command": "displacement"}, "has no place for rest"),
        ({"workspace": "tests_guard:nothing"}, "robot.guard.workspace: 'tests_guard:nothing' cannot be imported"),
    ],
)
def test_limits_that_are_missing_or_do_not_fit_are_refused_by_name(changes, named):
    with pytest.raises(ConfigError) as error:
        make(armed=False, **changes)
    assert named in str(error.value)


NUMBERS = st.floats(-4, 4, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])
PERIODS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1e-6, 0.01, 0.05, 0.3]),
        st.none() | st.tuples(NUMBERS, NUMBERS),
        st.booleans(),
        st.integers(0, 40),
    ),
    max_size=40,
)


@given(
    periods=PERIODS, moves=st.booleans(), delta=st.sampled_from([1e-9, 0.1, 0.25, 9.0]), rate=st.sampled_from([1e-3, 10.0, 1e6])
)
def test_no_command_that_leaves_is_outside_of_a_limit(periods, moves, delta, rate):
    command = "position" if moves else "displacement"
    guard = make(command=command, max_delta=(delta,), max_rate=(rate, rate / 2), hold_s=0.5, late=3)
    now, last, last_at = 0.0, (HERE.position if moves else np.zeros(2, np.float32)).astype(np.float64), 0.0
    for dt, wanted, lost, age in periods:
        now += dt
        vitals = Vitals(now - age, float(age)) if lost else None
        verdict = guard.decide(now, None if wanted is None else np.array(wanted, np.float32), HERE, vitals)
        assert (verdict.command is None) == (verdict.deed is Deed.STOP)
        if verdict.command is None:
            assert not guard.armed
            assert guard.arm(now, HERE)
            last, last_at = (HERE.position if moves else np.zeros(2)).astype(np.float64), now
            continue
        left = verdict.command.astype(np.float64)
        assert np.isfinite(left).all()
        assert (left >= LIMITS["low"]).all()
        assert (left <= LIMITS["high"]).all()
        change, passed = np.abs(left - last), now - last_at
        assert (change <= delta * (1 + 1e-12)).all()
        assert (change <= np.array([rate, rate / 2]) * passed * (1 + 1e-12)).all()
        guard.left(now, verdict.command)
        last, last_at = left, now
