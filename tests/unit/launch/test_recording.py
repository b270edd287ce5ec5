"""Demonstrations are recorded: whole episodes that were wanted, each with what was executed and how it ended."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.demo_import import fails, rows_of, run

from headrace.actor.envs import LaneObs, LaneStep
from headrace.actor.rewarding import RewardedLanes, on_success
from headrace.buffer.about import About
from headrace.buffer.view import PoolView
from headrace.common.errors import ConfigError, EnvError, PoolError, SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.launch.recording import Recording, Shelf

SPEC = TransitionSpec((ObsSpec("obs", (2,), "<f4"),), ActionSpec((1,), (-9.0,), (9.0,)))
LENGTH = 4


class Lanes:
    """One lane that resets in a step of its own; ``ends`` says how each episode ends, and ``crash`` which ones break."""

    spec, count, restarts = SPEC, 1, 0

    def __init__(self, ends, crash=(), executed=None):
        self.ends, self.crash, self.executed = ends, crash, executed
        self.episode, self.t, self.over = 0, 0, False

    def see(self):
        return {"obs": np.array([[self.episode, self.t]], np.float32)}

    def reset(self):
        return LaneObs(self.see(), np.array([0]), np.array([self.task]))

    @property
    def task(self):
        return self.episode % 2

    def step(self, actions):
        no = np.array([False])
        still = LaneStep(no, np.zeros(1, "f4"), no, no, self.see(), no, self.see(), np.array([0]), np.zeros(1, "u1"))
        if self.over:
            self.episode, self.t, self.over = self.episode + 1, 0, False
            return replace(still, obs=self.see(), episode=np.array([self.episode]), task=np.array([self.task]))
        self.t += 1
        self.over = self.t == LENGTH or (self.episode in self.crash and self.t == 2)
        crashed = self.over and self.episode in self.crash
        end = self.ends[self.episode % len(self.ends)] if self.over and not crashed else ""
        return replace(
            still,
            live=np.array([not crashed]),
            crashed=np.array([crashed]),
            rewards=np.array([10 * self.episode + self.t], np.float32),
            terminated=np.array([end in ("success", "failure")]),
            truncated=np.array([end == "cut"]),
            success=np.array([{"success": 1, "failure": 2}.get(end, 0)], np.uint8),
            next_obs=self.see(),
            obs=self.see(),
            episode=np.array([self.episode]),
            task=np.array([self.task]),
            executed=self.executed,
        )


def play(place, lanes, episodes, keep="success", hear=list, stopped=bool, said=None):
    lines = [] if said is None else said
    with Shelf(place, SPEC, About(20.0, {0: "push"})) as shelf:
        recording = Recording(shelf, episodes, keep, lines.append)
        recording.run(lanes, lambda step: np.array([0.5], np.float32), hear, stopped)
    return recording.done


def kept(place):
    """Numbers of the episodes in the pool, each once, in order."""
    return rows_of(place)[0].obs["obs"][::LENGTH, 0].tolist()


def test_only_what_is_wanted_is_kept_whole(tmp_path):
    ends = ("failure", "success", "cut", "success")
    for keep, wanted in (("success", [1, 3, 5]), ("known", [0, 1, 3]), ("all", [0, 1, 2])):
        said = []
        done = play(tmp_path / keep, Lanes(ends), 3, keep, said=said)
        assert (done.episodes, done.rows) == (3, 12)
        assert kept(tmp_path / keep) == wanted
        assert said[-1].endswith("kept (3 of 3)")
    batch, _ = rows_of(tmp_path / "known")
    rows = batch.rows
    assert rows["outcome"].tolist() == [2] * 4 + [1] * 8
    assert rows["task"].tolist() == [0] * 4 + [1] * 8
    assert rows["episode"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert rows["rewards"][:4, 0].tolist() == [1, 2, 3, 4]
    assert rows["terminated"].tolist() == [0, 0, 0, 1] * 3
    assert (batch.next_obs["obs"][:, 1] == batch.obs["obs"][:, 1] + 1).all()
    assert (rows["source"] == 2).all()
    assert rows_of(tmp_path / "all")[0].rows["truncated"].tolist() == [0] * 11 + [1]


def test_what_was_executed_is_kept_and_a_broken_episode_is_not(tmp_path):
    play(tmp_path / "pool", Lanes(("success",), crash=(0, 2), executed=np.array([[0.25]], np.float32)), 2)
    assert kept(tmp_path / "pool") == [1, 3]
    assert (rows_of(tmp_path / "pool")[0].rows["action"] == 0.25).all()


def test_people_have_the_last_word_on_an_episode_until_the_next_one_moves(tmp_path):
    words = {2: ["discard"], 9: ["success"], 15: ["failure"], 20: ["success"]}  # by steps; five an episode, the last resets
    calls = iter(range(1000))

    def hear():
        return words.get(next(calls), [])

    said = []
    play(tmp_path / "pool", Lanes(("cut",)), 2, hear=hear, said=said)
    assert kept(tmp_path / "pool") == [1, 4]
    assert (rows_of(tmp_path / "pool")[0].rows["outcome"] == 1).all()
    wanted = ("0: unknown", "discarded"), ("1: success", "kept"), ("2: unknown", "not kept"), ("3: failure", "not kept")
    assert [(line[8:].split(",")[0], line.split(", ")[-1].split(" (")[0]) for line in said] == [*wanted, ("4: success", "kept")]
    calls = iter(range(1000))
    words = {2: ["discard"]}
    play(tmp_path / "other", Lanes(("success",)), 1, hear=hear)
    assert kept(tmp_path / "other") == [1]  # whatever the env says


def test_what_people_say_late_is_worth_what_the_function_says_and_nothing_without_one(tmp_path):
    words = {2: ["success"], 9: ["success"], 14: ["failure"]}  # of episode 0 while it runs, of 1 and 2 behind their ends
    for reward, wanted in ((on_success, [1.0, 1.0, 0.0]), (None, [4.0, 14.0, 24.0])):
        calls = iter(range(1000))

        def hear(calls=calls):
            return words.get(next(calls), [])

        lanes = Lanes(("cut", "cut", "success"))
        place = tmp_path / str(reward is None)
        play(place, lanes if reward is None else RewardedLanes(lanes, reward), 4, "all", hear=hear)
        rows = rows_of(place)[0].rows[: 3 * LENGTH]
        assert rows["outcome"].tolist() == [1] * 8 + [2] * 4
        assert rows["rewards"][LENGTH - 1 :: LENGTH, 0].tolist() == wanted


def test_a_second_recording_goes_on_in_the_same_pool_which_grows(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.launch.recording.FEWEST_ROWS", 10)
    assert Shelf.sessions(tmp_path / "pool") == 0
    play(tmp_path / "pool", Lanes(("success",)), 4)
    assert Shelf.sessions(tmp_path / "pool") == 1
    play(tmp_path / "pool", Lanes(("success",)), 3)
    with PoolView(tmp_path / "pool") as pool:
        assert (pool.size, pool.actors()) == (28, ["demonstrator", "demonstrator@2"])
    assert kept(tmp_path / "pool") == [0, 1, 2, 3, 0, 1, 2]
    body = json.loads((tmp_path / "pool" / "about.json").read_text())
    assert (body["fps"], body["tasks"]) == (20.0, {"0": "push"})
    for said, form, about, kind in (
        ("holds rows of another spec", replace(SPEC, window=2), About(20.0), ConfigError),
        ("30 steps a second", SPEC, About(30.0), SpecError),
        ("task 0 is 'pull'", SPEC, About(0.0, {0: "pull"}), SpecError),
    ):
        with pytest.raises(kind, match=said):
            Shelf(tmp_path / "pool", form, about)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x").write_text("x")
    with pytest.raises(PoolError, match="notes"):
        Shelf(tmp_path / "notes", SPEC, About())


def test_who_never_succeeds_is_told_and_who_stops_keeps_what_ended(tmp_path):
    with pytest.raises(EnvError, match="20 episodes were not kept, and 0 of 2 were: --keep success"):
        play(tmp_path / "never", Lanes(("failure",)), 2)
    calls = iter(range(100))
    done = play(tmp_path / "pool", Lanes(("success",)), 9, stopped=lambda: next(calls) > 11)
    assert done.episodes == 2  # the third ran still
    assert kept(tmp_path / "pool") == [0, 1]


def test_a_script_that_sees_the_env_records_chunks_that_a_run_can_begin_with(tmp_path, capsys):
    config = tmp_path / "reach.yaml"
    config.write_text(json.dumps({"env": {"id": "examples.envs.reach:Reach"}, "window": {"chunk": 4}}))
    words = ("record", config, tmp_path / "pool", "--by", "examples.envs.reach_demos:demonstrate", "--episodes", 2)
    said = run(capsys, *words, "--tasks", "touch the target")
    assert "2 episodes," in said
    batch, spec = rows_of(tmp_path / "pool")
    assert (spec.kind, spec.window) == ("chunk", 4)
    assert batch.rows["terminated"].sum() == 2
    first = batch.obs["obs"][0].copy()
    run(capsys, *words)  # other episodes than before
    again = rows_of(tmp_path / "pool")[0]
    assert len(again) > len(batch)
    assert not (again.obs["obs"][len(batch)] == first).all()
    assert "cannot be imported" in fails(capsys, *words[:3], "--by", "nowhere:nothing")
    assert "nearest valid: 1" in fails(capsys, *words, "--episodes", 0)
    arm = ("record", "examples/fake_arm.yaml", tmp_path / "arm")
    assert "is driven by its device" in fails(capsys, *arm, "--by", "examples.envs.reach_demos:demonstrate")
    assert "nobody drives" in fails(capsys, *arm)
    assert not (tmp_path / "arm").exists()


def test_a_fake_human_records_with_a_fake_arm_behind_its_guard(tmp_path, capsys):
    driven = ("--robot.teleop.device", "headrace.actor.fake_human:FakeHuman")
    human = (*driven, "--robot.teleop.kwargs", "{chance: 1.0, periods: null}")
    willing = ("--robot.operator", "headrace.actor.operator:Willing", "--env.kwargs", "{size: 8}")
    said = run(capsys, "record", "examples/fake_arm.yaml", tmp_path / "pool", "--episodes", 1, *human, *willing)
    assert "robot: running" in said
    batch, _ = rows_of(tmp_path / "pool")
    assert (batch.rows["outcome"] == 1).all()
    assert batch.rows["terminated"].tolist() == [0] * (len(batch) - 1) + [1]
    assert json.loads((tmp_path / "pool" / "about.json").read_text())["fps"] == 20
