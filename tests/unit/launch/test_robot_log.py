"""What is judged of a fake arm's record, by records that are written by hand."""

import json

import pytest

from headrace.launch.chaos.robot_log import RobotLog


def act(at, kind="policy", episode=0, deadline=9.0, done=True):
    return {"what": "act", "at": at, "kind": kind, "episode": episode, "tick": 0, "deadline": deadline, "done": done}


def reset(at, episode):
    return {"what": "reset", "at": at, "episode": episode}


def test_commands_after_their_deadline_count_and_those_that_the_arm_refused_do_not():
    log = RobotLog(
        [act(1.0, deadline=1.0), act(2.0, deadline=1.9), act(3.0, deadline=1.9, done=False), act(4.0, deadline=None)]
    )
    assert (log.stale_commands, log.refused, log.count("policy")) == (1, 1, 3)


def test_commands_of_another_episode_than_the_last_reset_count():
    lines = [act(0.5), reset(1.0, 0), act(1.1), reset(2.0, 1), act(2.1, episode=0), act(2.2, episode=1), act(2.3, "hold", -1)]
    assert RobotLog(lines).crossed_resets == 2


@pytest.mark.parametrize(
    ("kinds", "allowed_s", "safe"),
    [
        ("pphhs", 0.0, 1.5),
        ("pphhs", 1.0, 0.5),
        ("pphhs", 9.0, 0.0),
        ("phpph", 0.0, 3.5),  # the first hold did not last
        ("hh", 0.0, 0.0),  # it was safe already
        ("pp", 0.0, None),
        ("", 0.0, None),
    ],
)
def test_safe_is_who_follows_the_policy_no_more(kinds, allowed_s, safe):
    lines = [{"what": "stop", "at": i} if k == "s" else act(i, "policy" if k == "p" else "hold") for i, k in enumerate(kinds)]
    later = act(99.0)  # after the fault was mended
    assert RobotLog([*lines, later]).safe_s(0.5, 50.0, allowed_s) == safe


def test_time_between_episodes_is_idle():
    lines = [*(act(n / 10) for n in range(1, 6)), *(act(n / 10, "hold", -1) for n in range(6, 10)), act(1.0)]
    assert RobotLog(lines).idle_s(0.0, 5.0, 10.0) == pytest.approx(0.4)
    assert RobotLog([]).idle_s(0.0, 5.0, 10.0) == 0


def test_periods_are_those_within_episodes():
    lines = [act(0.0), act(0.1), act(0.2), act(5.0, episode=1), act(5.1, episode=1), act(6.0, "hold", -1)]
    assert RobotLog(lines).period_ms == (100.0, 100.0)


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    assert RobotLog.read(tmp_path / "none").lines == []
    (tmp_path / "log").write_text(json.dumps(act(1.0)) + "\n" + json.dumps(act(2.0))[:-3])
    assert len(RobotLog.read(tmp_path / "log").lines) == 1
