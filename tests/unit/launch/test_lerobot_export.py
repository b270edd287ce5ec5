"""A pool's steps as a LeRobotDataset: every frame is there once, in order, and what the format cannot say is told."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.demo_import import fails, rows_of, run
from helpers.lerobot_files import DATA, LENGTH, TASKS

from headrace.actor.assembler import Assembler
from headrace.buffer import SACReplayPool
from headrace.buffer.view import PoolView
from headrace.common.errors import ConfigError, PoolError, SpecError
from headrace.common.specs import OUTCOME_SUCCESS, SOURCE_HUMAN, ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import NO_VERSION
from headrace.launch import cli
from headrace.launch.demo_lerobot import LeRobot
from headrace.launch.demos import ReadOptions
from headrace.launch.lerobot_export import export_lerobot
from headrace.launch.lerobot_options import LeRobotOptions

BOUNDS = ("--low", -1, "--high", 1)
IMAGES = LeRobotOptions("image", 20.0, ("push",))


def frame(actor, episode, t):
    """What is seen: numbers that say where, and a picture that does."""
    return {
        "camera": np.full((8, 6, 3), 40 * actor + 20 * episode + t, np.uint8),
        "grid": np.full((2, 2), t, np.int32),
        "pose": np.array([actor, episode, t], np.float32),
        "speed": np.float32(t),
    }


def spec(window=1, stack=1, chunk=False, side=8):
    obs = (
        ObsSpec("camera", (side, 6, 3), "|u1"),
        ObsSpec("grid", (2, 2), "<i4"),
        ObsSpec("pose", (3,), "<f4"),
        ObsSpec("speed", (), "<f4"),
    )
    shape = (window, 2) if chunk else (2,)
    return TransitionSpec(obs, ActionSpec(shape, (-9.0, -9.0), (9.0, 9.0)), window, "chunk" if chunk else "steps", stack)


def pool_of(form, lengths=(7, 5, 6, 4), capacity=100, path=None):
    """Two actors by turns, a block of three rows each time; the last episode of each runs still."""
    pool = SACReplayPool(capacity, spec=form, path=path)
    assemblers, seqs = [Assembler(form), Assembler(form)], [1, 1]
    todo = [[(a, e, t) for e, n in enumerate(lengths) for t in range(n)] for a in range(2)]
    while any(todo):
        for actor, assembler in enumerate(assemblers):
            for _ in range(min(3, len(todo[actor]))):
                _, e, t = todo[actor].pop(0)
                if t == 0:
                    assembler.begin(e, frame(actor, e, 0))
                ends = t == lengths[e] - 1 and e < len(lengths) - 1
                flags = ends and e != 1, ends and e == 1
                source = SOURCE_HUMAN if t == 2 else 0
                assembler.step([e, t], 10 * e + t, *flags, frame(actor, e, t + 1), version=NO_VERSION, source=source)
            block = assembler.take(100)
            if block is not None:
                block.rows["outcome"][block.rows["episode"] == 0] = OUTCOME_SUCCESS
                pool.insert(block, f"arm-{actor}", 1, seqs[actor])
                seqs[actor] += block.n_rows
    return pool


def frames_of(place):
    """Column -> values of every frame, as the reader of data sets gives the cameras and Parquet the rest."""
    table = pq.read_table(place / "data")
    out = {name: table.column(name).to_pylist() for name in table.column_names if "images" not in name}
    demos = LeRobot(place, ReadOptions())
    out["camera"] = np.concatenate([e["images.camera"].read(0, len(e["images.camera"])) for e in demos.whole_episodes()])
    demos.close()
    return out


@pytest.mark.parametrize(("window", "stack"), [(1, 1), (3, 2)])
def test_steps_of_two_actors_are_the_frames_of_whole_episodes(window, stack, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.buffer.trails.MIN_SHARD_ROWS", 16)  # two rows at once
    monkeypatch.setattr("headrace.buffer.trails.SLICE_BYTES", 0)
    with pool_of(spec(window, stack)) as pool:
        given = export_lerobot(pool, tmp_path / "out", IMAGES)
    length = 4 - window  # of the running ones: rows whose windows are not full yet wait
    assert (given.episodes, given.frames, given.late, given.open, given.unknown) == (8, 36 + 2 * length, 0, 2, 6)
    found = frames_of(tmp_path / "out")
    i = 0
    for number in range(8):
        actor, e = int(found["observation.pose"][i][0]), int(found["observation.pose"][i][1])
        n = (7, 5, 6, length)[e]
        for t in range(n):
            last = t == n - 1 and e < 3
            assert found["observation.pose"][i] == [actor, e, t]
            assert (found["observation.grid"][i], found["observation.speed"][i]) == ([[t, t], [t, t]], t)
            assert (found["camera"][i] == 40 * actor + 20 * e + t).all()
            assert (found["action"][i], found["next.reward"][i]) == ([e, t], 10 * e + t)
            assert (found["next.done"][i], found["next.truncated"][i]) == (last, last and e == 1)
            assert found["next.success"][i] == (last and e == 0)
            assert found["complementary_info.is_intervention"][i] == (t == 2)
            assert (found["episode_index"][i], found["frame_index"][i], found["index"][i]) == (number, t, i)
            assert found["timestamp"][i] == pytest.approx(t / 20)
            i += 1
    assert i == given.frames


def test_videos_of_several_episodes_in_one_file(tmp_path):
    with pool_of(spec()) as pool:
        given = export_lerobot(pool, tmp_path / "out", LeRobotOptions("video", 20.0))
    found = frames_of(tmp_path / "out")
    mean, worst = given.error["observation.images.camera"]
    assert 0 <= mean <= worst < 4
    pose = np.array(found["observation.pose"]).astype(int)
    shades = 40 * pose[:, 0] + 20 * pose[:, 1] + pose[:, 2]
    assert np.abs(found["camera"].astype(int) - shades[:, None, None, None]).max() <= 5


def test_an_episode_that_lost_a_row_is_two(tmp_path):
    with pool_of(spec()) as pool:
        pool.discard("arm-0", 1, 3, 3)
        given = export_lerobot(pool, tmp_path / "out", IMAGES)
    assert (given.episodes, given.frames, given.late, given.open) == (9, 41, 1, 3)


def test_an_episode_whose_first_rows_are_gone_begins_late(tmp_path):
    with pool_of(spec(), capacity=24) as pool:
        given = export_lerobot(pool, tmp_path / "out", IMAGES)
        assert (given.frames, given.late) == (24, 2)


@pytest.mark.parametrize(
    ("through", "dones", "layout"),
    [
        ("pool", "terminated", "3.0"),
        ("pool", "truncated", "2.1"),
        ("shards", "terminated", "2.1"),
        ("shards", "truncated", "3.0"),
    ],
)
def test_a_data_set_comes_back_with_every_frame_rate_task_and_outcome(through, dones, layout, tmp_path, capsys):
    theirs_at = DATA / f"v{layout}"
    run(capsys, "pool", "import", theirs_at, tmp_path / "pool", *BOUNDS, "--dones", dones)
    source = tmp_path / through
    if through == "shards":
        run(capsys, "pool", "export", tmp_path / "pool", source)
    words = ("--format", "lerobot", "--cameras", "image", "--layout", layout)
    said = run(capsys, "pool", "export", source, tmp_path / "out", *words)
    assert "24 frames in 2 episodes" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted({"pool", through, "out"})
    ours, theirs = (pq.read_table(place / "data") for place in (tmp_path / "out", theirs_at))
    for name in theirs.column_names:
        if name not in ("task_index", "observation.images.wrist"):
            assert ours.column(name).to_pylist() == theirs.column(name).to_pylist()
    first, second = (LeRobot(place, ReadOptions()) for place in (tmp_path / "out", theirs_at))
    assert (first.fps, first.tasks) == (10, dict(enumerate(TASKS)))
    for a, b in zip(first.whole_episodes(), second.whole_episodes(), strict=True):
        for key in ("images.front", "images.wrist"):
            np.testing.assert_array_equal(a[key].read(0, LENGTH), b[key].read(0, LENGTH))
    first.close()
    second.close()
    run(capsys, "pool", "import", tmp_path / "out", tmp_path / "again", *BOUNDS)
    again, before = (rows_of(tmp_path / name)[0].rows for name in ("again", "pool"))
    for name in ("episode", "t", "task", "action", "rewards", "terminated", "truncated", "outcome"):
        np.testing.assert_array_equal(again[name], before[name])


def test_layout_2_1_is_told_as_lerobot_told_it_an_episode_a_file_with_figures_of_its_own(tmp_path, capsys):
    run(capsys, "pool", "import", DATA / "v2.1", tmp_path / "pool", *BOUNDS)
    words = ("--format", "lerobot", "--layout", "2.1", "--robot-type", "toy")
    run(capsys, "pool", "export", tmp_path / "pool", tmp_path / "out", *words)
    ours, theirs = ({p.relative_to(at) for p in at.rglob("*") if p.is_file()} for at in (tmp_path / "out", DATA / "v2.1"))
    wrist = {
        f"videos/chunk-000/observation.images.wrist/episode_00000{i}.mp4" for i in (0, 1)
    }  # pictures there, and videos here
    assert {str(p) for p in ours} == {str(p) for p in theirs} | wrist
    read = [
        {name: (at / "meta" / name).read_text() for name in ("info.json", "episodes.jsonl", "tasks.jsonl")}
        for at in (tmp_path / "out", DATA / "v2.1")
    ]
    assert read[0]["episodes.jsonl"] == read[1]["episodes.jsonl"]
    assert read[0]["tasks.jsonl"] == read[1]["tasks.jsonl"]
    told, wanted = (json.loads(each["info.json"]) for each in read)
    assert told.pop("total_videos") == 4
    assert wanted.pop("total_videos") == 2
    features = told.pop("features"), wanted.pop("features")
    assert told == wanted
    assert all(features[0][name]["shape"] == f["shape"] for name, f in features[1].items())
    figures = [
        [json.loads(line)["stats"] for line in (at / "meta" / "episodes_stats.jsonl").read_text().splitlines()]
        for at in (tmp_path / "out", DATA / "v2.1")
    ]
    for mine, known in zip(*figures, strict=True):
        for name in ("observation.state", "action", "next.reward", "next.done", "index", "task_index"):
            assert mine[name]["count"] == known[name]["count"]
            for figure in ("min", "max", "mean", "std"):
                np.testing.assert_allclose(mine[name][figure], np.array(known[name][figure], float), atol=1e-6)


def test_an_episode_of_one_frame_comes_back(tmp_path, capsys):
    with pool_of(spec(), (1, 2, 1, 3), path=tmp_path / "pool") as pool:
        export_lerobot(pool, tmp_path / "out", IMAGES)
    assert cli.main([str(w) for w in ("pool", "import", tmp_path / "out", tmp_path / "back", *BOUNDS)]) == 0
    assert "entered as actor out" in capsys.readouterr().out


def test_files_that_are_full_are_followed_by_others(tmp_path, capsys, monkeypatch):
    for name in ("DATA_MB", "VIDEO_MB"):
        monkeypatch.setattr(f"headrace.launch.lerobot_writer.{name}", -1)
    run(capsys, "pool", "import", DATA / "v3.0", tmp_path / "pool", *BOUNDS)
    said = run(capsys, "pool", "export", tmp_path / "pool", tmp_path / "out", "--format", "lerobot")
    assert "observation.images.front: the video is off by" in said
    names = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("file-*"))
    files = ["data/chunk-000/file-00", *(f"videos/observation.images.{c}/chunk-000/file-00" for c in ("front", "wrist"))]
    kinds = (".parquet", ".mp4", ".mp4")
    wanted = [f"{f}{i}{kind}" for f, kind in zip(files, kinds, strict=True) for i in (0, 1)]
    assert names == sorted([*wanted, "meta/episodes/chunk-000/file-000.parquet"])
    run(capsys, "pool", "import", tmp_path / "out", tmp_path / "again", *BOUNDS)
    again, before = (rows_of(tmp_path / name)[0] for name in ("again", "pool"))
    np.testing.assert_array_equal(again.rows["action"], before.rows["action"])
    assert np.abs(again.obs["images.front"].astype(int) - before.obs["images.front"]).mean() < 2


def test_statistics_are_those_of_all_frames(tmp_path):
    with pool_of(spec()) as pool:
        export_lerobot(pool, tmp_path / "out", IMAGES)
    stats = json.loads((tmp_path / "out" / "meta" / "stats.json").read_text())
    found = frames_of(tmp_path / "out")
    for name in ("observation.pose", "next.reward", "observation.grid"):
        values = np.array(found[name], float)
        values = values if values.ndim > 1 else values[:, None]
        for figure in ("min", "max", "mean", "std"):
            np.testing.assert_allclose(stats[name][figure], getattr(values, figure)(axis=0), atol=1e-9)
        assert stats[name]["count"] == [len(values)]
    pictures = found["camera"] / 255
    np.testing.assert_allclose(np.ravel(stats["observation.images.camera"]["std"]), pictures.std(axis=(0, 1, 2)), atol=1e-9)


def test_what_a_data_set_cannot_hold_is_refused_and_leaves_nothing(tmp_path):
    noise = np.random.default_rng(0)

    def noisy(form):
        pool, assembler = SACReplayPool(9, spec=form), Assembler(form)
        assembler.begin(0, frame(0, 0, 0))
        for t in range(4):
            seen = {**frame(0, 0, t), "camera": noise.integers(0, 256, (8, 6, 3)).astype(np.uint8)}
            assembler.step([0, t], 0, t == 3, False, seen, version=NO_VERSION)
        pool.insert(assembler.take(9), "arm", 1, 1)
        return pool

    def plain():
        pool, seen = SACReplayPool(9), np.zeros((4, 2), np.float32)
        pool.add_batch({"state": seen, "action": seen, "reward": seen[:, 0], "next_state": seen, "done": seen[:, 0] > 0})
        return pool

    cases = (
        (lambda: pool_of(spec()), LeRobotOptions("image"), ConfigError, "--fps: the pool does not say"),
        *(
            (lambda: pool_of(spec()), LeRobotOptions("image", fps), ConfigError, "--fps: ")
            for fps in (0.0, -1.0, 1e300, np.nan)
        ),
        (plain, IMAGES, SpecError, "plain dictionaries do not say of which episode"),
        (lambda: SACReplayPool(9, spec=spec()), IMAGES, PoolError, "holds no rows"),
        (lambda: SACReplayPool(9, spec=spec(4, chunk=True)), IMAGES, SpecError, "rows of chunks"),
        (lambda: SACReplayPool(9), IMAGES, PoolError, "holds no rows"),
        (lambda: noisy(spec()), LeRobotOptions("video", 20.0), PoolError, "frame 1 of episode 0 would be off by"),
    )
    for make, options, kind, said in cases:
        with make() as pool, pytest.raises(kind, match=said):
            export_lerobot(pool, tmp_path / "out", options)
        assert list(tmp_path.iterdir()) == []
    odd = TransitionSpec((ObsSpec("camera", (7, 6, 3), "|u1"),), ActionSpec((2,), (-9.0, -9.0), (9.0, 9.0)))
    assembler = Assembler(odd)
    assembler.begin(0, {"camera": np.zeros((7, 6, 3), np.uint8)})
    assembler.step([0, 0], 0, True, False, {"camera": np.zeros((7, 6, 3), np.uint8)}, version=NO_VERSION)
    with SACReplayPool(9, spec=odd) as pool:
        pool.insert(assembler.take(9), "arm", 1, 1)
        with pytest.raises(PoolError, match="a video needs even sides"):
            export_lerobot(pool, tmp_path / "out", LeRobotOptions("video", 20.0))
    assert list(tmp_path.iterdir()) == []


def test_rows_that_go_meanwhile_and_places_that_are_taken(tmp_path, capsys):
    pool_of(spec(), path=tmp_path / "pool").close()
    (tmp_path / "out").mkdir()
    words = ("pool", "export", tmp_path / "pool", tmp_path / "out", "--format", "lerobot", "--fps", 20)
    assert "exists already" in fails(capsys, *words)
    (tmp_path / "out").rmdir()
    with PoolView(tmp_path / "pool") as view:
        seen = []

        class Going:
            spec, tail, head = view.spec, view.tail, view.head
            actors, info, made_of = view.actors, view.info, view.made_of

            def live(self, start, stop):
                seen.append(start)
                batch = view.live(start, stop)
                return batch if len(seen) == 1 else batch[:-1]

        with pytest.raises(PoolError, match="went while they were read"):
            export_lerobot(Going(), tmp_path / "out", IMAGES)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pool"]
