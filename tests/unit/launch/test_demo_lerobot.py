"""LeRobotDatasets become right transitions, in both layouts; a malformed one is refused by field and loads nothing."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.demo_import import fails, rows_of, run
from helpers.lerobot_files import DATA, LENGTH, TASKS, VIDEO, change_data, change_info, copy, picture, without

from headrace.buffer import SACReplayPool

BOUNDS = ("--low", -1, "--high", 1)


def prove(batch, spec, episodes=(0, 1), lengths=(LENGTH, LENGTH)):
    """Each frame is a row with what was seen before and after it, what was done and what came of it."""
    rows, i = batch.rows, 0
    for number, (episode, length) in enumerate(zip(episodes, lengths, strict=True)):
        for t in range(length):
            row, after = rows[i], min(t + 1, LENGTH - 1)
            assert (row["episode"], row["t"], row["task"]) == (number, t, episode)
            for where, frame in ((batch.obs, t), (batch.next_obs, after)):
                np.testing.assert_array_equal(where["state"][i], np.float32([episode, frame, np.sin(frame)]))
                np.testing.assert_array_equal(where["images.wrist"][i], picture(episode, frame))
                far = np.abs(where["images.front"][i].astype(int) - picture(episode, frame))
                assert far.mean() < 3  # a video: another frame differs by 13 or more
            np.testing.assert_array_equal(row["action"], np.float32([episode - 0.5, t / LENGTH - 0.5]))
            i += 1
    assert i == len(rows)


@pytest.mark.parametrize("layout", ["v2.1", "v3.0"])
def test_what_lerobot_wrote(layout, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headrace.launch.demos.SLICE_BYTES", 40_000)  # six frames of both cameras at once
    said = run(capsys, "pool", "import", DATA / layout, tmp_path / "pool", *BOUNDS)
    assert f"24 rows of 2 episodes, 1 successes, 1 failures entered as actor {layout}" in said
    assert "next.done is read as terminated" in said
    batch, spec = rows_of(tmp_path / "pool")
    prove(batch, spec)
    ends = np.tile(np.arange(LENGTH) == LENGTH - 1, 2)
    np.testing.assert_array_equal(batch.rows["terminated"], ends)
    np.testing.assert_array_equal(batch.rows["rewards"][:, 0], np.tile(np.arange(LENGTH) / 8, 2).astype("f4"))
    assert batch.rows["outcome"].tolist() == [1] * LENGTH + [2] * LENGTH
    assert not batch.rows["truncated"].any()


def test_a_done_that_is_a_time_limit_leaves_its_step_out(tmp_path, capsys):
    said = run(capsys, "pool", "import", DATA / "v3.0", tmp_path / "pool", *BOUNDS, "--dones", "truncated")
    assert "2 steps were left out" in said
    batch, spec = rows_of(tmp_path / "pool")
    prove(batch, spec, lengths=(LENGTH - 1, LENGTH - 1))
    assert batch.rows["truncated"].nonzero()[0].tolist() == [10, 21]
    assert not batch.rows["terminated"].any()


def test_without_flags_a_success_is_terminated_and_pays_one(tmp_path, capsys):
    place = copy(tmp_path / "data")
    info, data = without("next.done", "next.reward")
    change_info(place, info)
    change_data(place, data)
    said = run(capsys, "pool", "import", place, tmp_path / "pool", *BOUNDS, "--obs", "state=pose")
    assert "rewards are 1 where a success ends, else 0" in said
    batch, spec = rows_of(tmp_path / "pool")
    assert [o.key for o in spec.obs] == ["pose"]
    assert batch.rows["terminated"].nonzero()[0].tolist() == [LENGTH - 1]
    assert batch.rows["truncated"].nonzero()[0].tolist() == [2 * LENGTH - 2]  # the failure's last frame has no next one
    assert batch.rows["rewards"].nonzero()[0].tolist() == [LENGTH - 1]


def test_an_outcome_that_nobody_says_is_said_by_hand(tmp_path, capsys):
    place = copy(tmp_path / "data")
    change_info(place, without("next.done", "next.reward", "next.success")[0])
    run(capsys, "pool", "import", place, tmp_path / "pool", *BOUNDS, "--obs", "state", "--outcome", "success")
    rows = rows_of(tmp_path / "pool")[0].rows
    assert rows["outcome"].tolist() == [1] * 24
    assert rows["rewards"].nonzero()[0].tolist() == [LENGTH - 1, 2 * LENGTH - 1]


def test_truncated_is_a_flag_of_its_own(tmp_path, capsys):
    place = copy(tmp_path / "data")
    change_info(place, lambda info: info["features"].update({"next.truncated": {"dtype": "bool", "shape": [1]}}))
    for episode in (0, 1):
        path = place / f"data/chunk-000/episode_{episode:06d}.parquet"
        table = pq.read_table(path)
        flags = np.arange(LENGTH) == LENGTH - 1
        pq.write_table(table.append_column("next.truncated", pa.array(flags & (episode == 1))), path)
    run(capsys, "pool", "import", place, tmp_path / "pool", *BOUNDS)
    rows = rows_of(tmp_path / "pool")[0].rows
    assert (rows["terminated"].nonzero()[0].tolist(), rows["truncated"].nonzero()[0].tolist()) == ([11], [22])


def test_tasks_of_two_data_sets_are_told_apart_by_their_words(tmp_path, capsys):
    run(capsys, "pool", "import", DATA / "v3.0", tmp_path / "pool", *BOUNDS, "--capacity", 48)
    place = copy(tmp_path / "data")
    lines = [json.dumps({"task_index": i, "task": text}) for i, text in enumerate((TASKS[1], "wave"))]
    (place / "meta" / "tasks.jsonl").write_text("\n".join(lines))
    run(capsys, "pool", "import", place, tmp_path / "pool")
    assert rows_of(tmp_path / "pool")[0].rows["task"].tolist() == [0] * 12 + [1] * 24 + [2] * 12
    change_info(place, lambda info: info.update(fps=9.9))
    assert "9.9 steps a second, the pool's rows are of 10" in fails(capsys, "pool", "import", place, tmp_path / "pool")
    with SACReplayPool(48, path=tmp_path / "pool") as pool:
        assert (pool.size, pool.actors()) == (48, ["v3.0", "data"])


def test_an_episode_whose_task_changes_is_cut_there(tmp_path, capsys):
    place = copy(tmp_path / "data")
    change_data(place, lambda columns: columns.update(task_index=pa.array(np.repeat([0, 1], [5, 7]))))
    run(capsys, "pool", "import", place, tmp_path / "pool", *BOUNDS)
    batch, _ = rows_of(tmp_path / "pool")
    assert batch.rows["task"].tolist() == [0] * 5 + [1] * 19
    assert batch.rows["t"].tolist() == [*range(5), *range(7), *range(12)]
    assert batch.rows["truncated"].nonzero()[0].tolist() == [4]
    assert batch.next_obs["state"][4][1] == 5  # what came after it is known


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda info: info.update(codebase_version="v1.6"), "codebase_version 'v1.6'; read are v2.1, v3.0"),
        (lambda info: info.update(fps=0), "fps 0.0"),
        (lambda info: info.pop("fps"), "KeyError 'fps'"),
        (lambda info: info.update(data_path="/etc/{episode_index}"), "data_path and video_path are"),
        (lambda info: info["features"].update({"observation.../x": {"dtype": "video", "shape": [1, 1, 3]}}), "no name"),
        (lambda info: info["features"].pop("action"), "features.action: None"),
        (lambda info: info["features"]["action"].update(shape=[3]), "action: row 0 is not of shape (3,)"),
        (lambda info: info["features"]["action"].update(dtype="float64"), "expected float64 of shape (2,)"),
        (lambda info: info["features"]["observation.state"].update(dtype="int64"), "expected int64 of shape (3,)"),
        (lambda info: info["features"]["observation.images.front"].update(shape=[64, 32, 3]), "expected one of (64, 32, 3)"),
        (lambda info: info["features"]["observation.images.wrist"].update(shape=[64, 32, 3]), "is an image of (32, 32, 3)"),
        (lambda info: info["features"]["observation.state"].update(shape=[-3]), "observation.state.shape: (-3,)"),
    ],
)
def test_what_info_says_wrongly_is_refused(change, said, tmp_path, capsys):
    place = copy(tmp_path / "data")
    change_info(place, change)
    assert said in fails(capsys, "pool", "import", place, tmp_path / "new", *BOUNDS)
    assert not (tmp_path / "new").exists()


def nothing(columns):
    columns["next.reward"] = pa.array([None] * LENGTH, pa.float32())


def ragged(columns):
    columns["observation.state"] = pa.array([[0, 1, 2]] * 11 + [[0, 1, 2, 3]], pa.list_(pa.float32()))


def elsewhere(columns):
    columns["observation.images.wrist"] = pa.array(
        [{"bytes": None, "path": "/etc/hostname"}] + [{"bytes": b"x", "path": ""}] * (LENGTH - 1)
    )


def other(columns):
    columns["observation.images.wrist"] = pa.array([{"bytes": b"GIF89a", "path": ""}] * LENGTH)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda columns: columns.pop("action"), "action: missing; there are observation.state"),
        (lambda columns: columns.pop("task_index"), "task_index: missing"),
        (lambda columns: columns.update(task_index=pa.array([7] * LENGTH)), "task_index 7 of episode 0 is none of"),
        (lambda columns: columns.update(frame_index=pa.array(range(1, 13))), "are not the 12 frames of episode 0"),
        (lambda columns: columns.update(episode_index=pa.array([1] * LENGTH)), "are not the 12 frames of episode 0"),
        (
            lambda columns: columns.update(timestamp=pa.array(np.arange(12, dtype="f4"))),
            "timestamp 1.0 of frame 1 of episode 0",
        ),
        (nothing, "next.reward: 12 values are missing"),
        (ragged, "observation.state: row 11 is not of shape (3,)"),
        (elsewhere, "row 0 names a file in place of holding it"),
        (other, "row 0 is no whole PNG or JPEG"),
        (lambda columns: columns.update({k: v[:5] for k, v in columns.items()}), "5 rows, expected"),
    ],
)
def test_what_data_hold_wrongly_is_refused(change, said, tmp_path, capsys):
    place = copy(tmp_path / "data")
    change_data(place, change)
    assert said in fails(capsys, "pool", "import", place, tmp_path / "new", *BOUNDS)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("layout", ["v2.1", "v3.0"])
def test_files_that_are_cut_or_gone_are_named(layout, tmp_path, capsys):
    for name in (VIDEO[layout], "meta/tasks.jsonl" if layout == "v2.1" else "meta/tasks.parquet"):
        place = copy(tmp_path / name.replace("/", "-"), layout)
        data = (place / name).read_bytes()
        for size in (len(data) // 2, 10):
            (place / name).write_bytes(data[:size])
            assert str(place) in fails(capsys, "pool", "import", place, tmp_path / "new", *BOUNDS)
        (place / name).unlink()
        assert name in fails(capsys, "pool", "import", place, tmp_path / "new", *BOUNDS)


def test_a_video_with_too_few_frames_is_refused_by_frame(tmp_path, capsys):
    place = copy(tmp_path / "data", "v3.0")
    (place / VIDEO["v3.0"]).write_bytes((DATA / "v2.1" / VIDEO["v2.1"]).read_bytes())  # one episode's in place of two
    assert "frame 12 is missing, the video ends before it" in fails(capsys, "pool", "import", place, tmp_path / "new", *BOUNDS)


def test_a_video_that_is_a_list_of_other_files_is_not_followed(tmp_path, capsys):
    place = copy(tmp_path / "data")
    (place / VIDEO["v2.1"]).write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.mp4\n")
    assert "not a whole MP4 file" in fails(capsys, "pool", "import", place, tmp_path / "new", *BOUNDS)


def test_a_group_of_rows_that_would_fill_the_memory_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headrace.launch.parquet.MAX_GROUP_BYTES", 50)
    assert "at most 50 are unpacked" in fails(capsys, "pool", "import", DATA / "v2.1", tmp_path / "new", *BOUNDS)


def test_who_lacks_the_packages_is_told_the_extra(tmp_path, capsys, monkeypatch):
    for name in ("pyarrow", "av"):
        with monkeypatch.context() as patch:
            for module in [m for m in sys.modules if m.startswith(("headrace.launch.parquet", "headrace.launch.videos"))]:
                patch.delitem(sys.modules, module)
            patch.delitem(sys.modules, "headrace.launch.demo_lerobot", raising=False)
            patch.setitem(sys.modules, name, None)
            assert "headrace[lerobot-data]" in fails(capsys, "pool", "import", DATA / "v3.0", tmp_path / "new", *BOUNDS)


def test_tasks_and_rate_are_what_the_data_set_says():
    from headrace.launch.demo_lerobot import LeRobot
    from headrace.launch.demos import ReadOptions

    for layout in ("v2.1", "v3.0"):
        demos = LeRobot(DATA / layout, ReadOptions())
        assert (demos.fps, demos.tasks, demos.steps) == (10, dict(enumerate(TASKS)), 24)
        demos.close()
    assert json.loads((DATA / "v3.0" / "meta" / "info.json").read_text())["robot_type"] == "toy"
