"""Devices of people: a keyboard on a terminal, a gamepad by the kernel's events, and a human who stands by a fake arm."""

import os
import pty
import termios

import numpy as np
import pytest

from headrace.actor.config import RobotConfig, TeleopConfig
from headrace.actor.fake_arm import FakeArm, hand_of
from headrace.actor.fake_human import FakeHuman
from headrace.actor.gamepad import AXIS, BUTTON, EVENT, FULL, INIT, Gamepad
from headrace.actor.guard import Guard, Vitals
from headrace.actor.keyboard import Kept, Keyboard, placed
from headrace.actor.limits import GuardConfig
from headrace.actor.operator import Terminal, make_operator
from headrace.actor.robot import Command, Observation
from headrace.actor.teleop import NOBODY, NoTeleop, make_teleop
from headrace.common.clock import ManualClock
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec

ACTION = ActionSpec((3,), (-1.0,) * 3, (1.0,) * 3)
SEEN = Observation({})


@pytest.fixture
def terminal():
    """The end that a person types at, and the path of the other one."""
    ours, theirs = pty.openpty()
    yield ours, os.ttyname(theirs)
    os.close(ours)
    os.close(theirs)


def keyboard(tty, **options):
    made = Keyboard(ACTION, **{"step": 0.1, "tty": tty, **options})
    made.connect(FakeArm(joints=3))
    return made


def test_keys_take_over_jog_and_say_words(terminal):
    ours, tty = terminal
    keys = keyboard(tty, step=[0.1, 0.2, 0.3], held_s=0.25)

    def press(what, now):
        os.write(ours, what)
        return keys.read(now, SEEN)

    assert press(b"q", 0.0).action is None  # nobody has taken the robot
    assert press(b" ", 1.0).action.tolist() == [0, 0, 0]
    assert np.allclose(press(b"qs", 2.0).action, [0.1, -0.2, 0])
    assert np.allclose(keys.read(2.2, SEEN).action, [0.1, -0.2, 0])
    assert np.allclose(press(b"a", 2.3).action, [-0.1, 0, 0])  # the other way; and the second key was let go
    said = press(b"\n\r10\x7fpcmX\x1b", 3.0)
    assert said.words == ("ready", "ready", "success", "failure", "discard", "pause", "resume", "arm", "quit", "halt")
    assert said.action.tolist() == [0, 0, 0]
    assert press(b"\xff\xfe~", 3.1).words == ()  # bytes that are no key mean nothing
    assert press(b"q ", 4.0).action is None
    keys.close()


def test_a_terminal_is_left_as_it_was_found(terminal):
    ours, tty = terminal
    before = termios.tcgetattr(ours)
    kept = Kept(TeleopConfig("keyboard", {"tty": tty}))
    keys = keyboard(tty)
    assert termios.tcgetattr(ours)[3] & (termios.ICANON | termios.ECHO) == 0
    assert termios.tcgetattr(ours)[3] & termios.ISIG  # Ctrl-C ends the actor as ever
    keys.close()
    keys.close()
    assert termios.tcgetattr(ours) == before
    keyboard(tty)  # and its process is killed
    kept.restore()
    assert termios.tcgetattr(ours) == before
    Kept(TeleopConfig()).restore()


def test_a_terminal_that_is_gone_is_an_error_and_so_is_none():
    ours, theirs = pty.openpty()
    keys = keyboard(os.ttyname(theirs))
    assert keys.read(0.0, SEEN) == NOBODY
    os.close(theirs)
    os.close(ours)
    with pytest.raises(EnvError, match="keyboard: .*(gone|closed)"):
        keys.read(0.1, SEEN)
    keys.close()
    with pytest.raises(EnvError, match="keyboard: no terminal: .*start the actor in a terminal"):
        keyboard("")
    with pytest.raises(ConfigError, match="standard input is no terminal"):
        placed(TeleopConfig("keyboard", {"step": 0.1}))
    with pytest.raises(ConfigError, match=r"dims: \[7\]"):
        keyboard("", dims=[7])


def test_a_terminal_that_keys_are_read_from_is_not_read_line_by_line_too():
    assert make_operator(RobotConfig(teleop=TeleopConfig("keyboard")))._hint == ""
    assert isinstance(make_operator(RobotConfig(teleop=TeleopConfig("keyboard"))), Terminal)


@pytest.fixture
def pad(tmp_path):
    """A gamepad at a pipe, and what writes events to it."""
    path = tmp_path / "js0"
    os.mkfifo(path)
    made = Gamepad(ACTION, step=[0.1, 0.2, 0.4], device=str(path), axes=[0, 1, -1], signs=[1, -1, 1], dead=0.2, hold=5)
    made.connect(FakeArm(joints=3))
    writer = os.open(path, os.O_WRONLY)

    def play(*events, cut=0):
        data = b"".join(EVENT.pack(0, value, kind, number) for value, kind, number in events)
        os.write(writer, data[: len(data) - cut])
        return made.read(0.0, SEEN)

    yield made, play, writer
    made.close()
    made.close()


def test_sticks_move_while_the_dead_mans_button_is_held(pad):
    made, play, writer = pad
    assert (
        play((FULL, AXIS | INIT, 0), (1, BUTTON | INIT, 5), (1, BUTTON | INIT, 0)) == NOBODY
    )  # how things stood is no decision
    held = play((1, BUTTON, 5), (-FULL, AXIS, 1))
    assert np.allclose(held.action, [0.1, 0.2, 0])
    assert np.allclose(play((FULL // 10, AXIS, 0), (-32768, AXIS, 1)).action, [0, 0.2, 0])  # within the dead share; at the end
    assert np.allclose(play((round(0.6 * FULL), AXIS, 0)).action, [0.05, 0.2, 0], atol=1e-5)
    assert play((1, BUTTON, 0), (0, BUTTON, 0), (1, BUTTON, 8), (1, BUTTON, 99)).words == ("success", "halt")
    assert play((0, BUTTON, 5)).action is None
    assert play((1, BUTTON, 5), cut=3).action is None  # the rest of an event comes later
    os.write(writer, EVENT.pack(0, 1, BUTTON, 5)[-3:])
    assert made.read(0.0, SEEN).action is not None


def test_a_gamepad_that_is_unplugged_or_not_there_or_says_no_word(pad, tmp_path):
    made, _, writer = pad
    os.close(writer)
    with pytest.raises(EnvError, match="gamepad: .* is gone"):
        made.read(0.0, SEEN)
    with pytest.raises(EnvError, match="none: No such file or directory; is it plugged in"):
        Gamepad(ACTION, 0.1, device=str(tmp_path / "none")).connect(FakeArm())
    with pytest.raises(ConfigError, match=r"buttons: 'jump' is none of arm"):
        Gamepad(ACTION, 0.1, buttons={0: "jump"})


def drive(human, policy, periods=400):
    """A fake arm by a policy and a human who may take it, through a guard; (who acted, distance) of each period."""
    clock, seen = ManualClock(), []
    arm = FakeArm(cameras=(), clock=clock)
    arm.connect()
    human.connect(arm)
    guard = Guard(GuardConfig(low=(-1.5,), high=(1.5,), max_delta=(0.15,), max_rate=(9.0,)), arm.obs, arm.action)
    arm.reset(0, 5)
    guard.arm(clock.now(), arm.state())
    for _ in range(periods):
        clock.advance(0.05)
        observed = arm.observe()
        seen.append(float(np.linalg.norm(hand_of(arm.joints) - arm.goal)))
        if observed.terminated:
            break
        reading = human.read(clock.now(), observed)
        wanted = policy if reading.action is None else guard.last + reading.action
        seen[-1] = reading.action is not None, seen[-1]
        verdict = guard.decide(clock.now(), wanted, arm.state(), Vitals(np.inf, 0.0))
        arm.act(Command(verdict.command, "policy", 0, 0, np.inf))
        guard.left(clock.now(), verdict.command)
    return seen


def test_a_fake_human_takes_over_where_the_policy_goes_wrong_and_brings_the_hand_to_the_goal():
    seen = drive(FakeHuman(ActionSpec((6,), (-1.5,) * 6, (1.5,) * 6), patience=10, periods=None), np.zeros(6, np.float32))
    who = [taken for taken, _ in seen[:-1]]
    assert 10 <= who.index(True) <= 14  # the policy stood still
    assert all(who[who.index(True) :])
    assert seen[-1] < 0.05


def test_a_fake_human_gives_back_and_leaves_alone_what_goes_well_or_by_chance():
    action = ActionSpec((6,), (-1.5,) * 6, (1.5,) * 6)
    who = [taken for taken, _ in drive(FakeHuman(action, patience=10, periods=5), np.full(6, 1.4, np.float32))[:100]]
    assert {len(run) for run in "".join("x" if taken else " " for taken in who).split()} == {5}
    assert not any(taken for taken, _ in drive(FakeHuman(action, patience=0), np.full(6, 1.4, np.float32), 100))
    chances = [taken for taken, _ in drive(FakeHuman(action, chance=0.2, patience=0, periods=1), np.full(6, 1.4), 100)]
    assert 10 < sum(chances) < 35
    with pytest.raises(EnvError, match="NoTeleop is no fake arm"):
        FakeHuman(action).connect(NoTeleop())


class Broken:
    gives = "displacement"

    def __init__(self, action, gives="displacement", fail=False):
        self.gives = gives
        if fail:
            raise OSError("no such thing")

    def connect(self, robot): ...
    def read(self, now, seen): ...
    def close(self): ...


def test_a_device_is_made_by_its_name_or_refused():
    assert isinstance(make_teleop(TeleopConfig(), ACTION, "position"), NoTeleop)
    assert isinstance(make_teleop(TeleopConfig("keyboard", {"step": 1}), ACTION, "position"), Keyboard)
    assert isinstance(make_teleop(TeleopConfig("gamepad", {"step": 1}), ACTION, "position"), Gamepad)
    own = f"{__name__}:Broken"
    for config, command, why in (
        (TeleopConfig("keyboard"), "position", "'keyboard': TypeError: .*step"),
        (TeleopConfig(f"{__name__}:absent"), "position", "absent"),
        (TeleopConfig(own, {"fail": True}), "position", "OSError: no such thing"),
        (TeleopConfig(own, {"gives": "velocity"}), "position", "gives that is position or displacement"),
        (TeleopConfig(own, {"gives": "position"}), "displacement", "gives positions, and robot.guard.command is displacement"),
    ):
        with pytest.raises(ConfigError, match=why):
            make_teleop(config, ACTION, command)
    assert make_teleop(TeleopConfig(own, {"gives": "position"}), ACTION, "position").gives == "position"
