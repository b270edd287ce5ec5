"""Demonstrations of other projects become right transitions; what is malformed is refused by name and nothing is loaded."""

import json

import h5py
import numpy as np
import pytest
from helpers.demo_files import HIGH, LOW, TAKES, Take, write_d4rl, write_minari, write_robomimic

from headrace.buffer import SACReplayPool, manifest
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.launch import cli

BOUNDS = ("--low", *map(str, LOW), "--high", *map(str, HIGH))
LENGTHS = [take.length for take in TAKES]


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def fails(capsys, *words):
    assert cli.main([str(word) for word in words]) == 1
    err = capsys.readouterr().err
    assert "internal error" not in err
    return err


def rows_of(place):
    """All rows as a batch, and the pool's spec."""
    with SACReplayPool(int(manifest.read(place)["config"]["capacity"]), path=place) as pool:
        assert pool.check_valid() == (True, "")
        return pool.gather(np.arange(pool.tail, pool.head)), pool.spec


def prove(batch, pose="pose", window=1, lengths=LENGTHS, ends=None):
    """Every step of every take is a row whose window, observations, rewards and flags are those of the script."""
    rows, i = batch.rows, 0
    for episode, length in enumerate(lengths):
        end = TAKES[episode].end if ends is None else ends[episode]
        for t in range(length):
            row, m = rows[i], min(window, length - t)
            assert (row["episode"], row["t"], row["steps"], row["seq"]) == (episode, t, m, i + 1)
            obs, after = batch.obs[pose][i], batch.next_obs[pose][i]
            stack = obs.reshape(-1, 2)
            h = len(stack)
            np.testing.assert_array_equal(stack, [(episode, max(0, t - k)) for k in reversed(range(h))])
            np.testing.assert_array_equal(after.reshape(-1, 2), [(episode, max(0, t + m - k)) for k in reversed(range(h))])
            np.testing.assert_allclose(row["action"], (episode / 10, t / 10), rtol=1e-6)
            wanted = [100 * episode + t + k if k < m else 0 for k in range(window)]
            np.testing.assert_array_equal(row["rewards"], wanted)
            last = t + m == length
            assert (row["terminated"], row["truncated"]) == (last and end == "terminated", last and end == "truncated")
            assert row["source"].tolist() == [2] * m + [0] * (window - m)
            i += 1
    assert i == len(rows)


def prove_outcomes(rows):
    for episode, take in enumerate(TAKES):
        assert set(rows["outcome"][rows["episode"] == episode]) == {1 if take.success else 2}


# robomimic


def test_robomimic(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5")
    said = run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *BOUNDS)
    assert "22 rows of 5 episodes, 2 successes, 3 failures entered as actor demo, 22 are live" in said
    assert "a done is read as terminated" in said
    batch, spec = rows_of(tmp_path / "pool")
    prove(batch)
    prove_outcomes(batch.rows)
    assert [(o.key, o.shape, o.dtype) for o in spec.obs] == [
        ("agentview_image", (4, 4, 3), "|u1"),
        ("pose", (2,), "<f4"),
    ]
    assert (spec.action.low, spec.action.high) == (LOW, HIGH)
    assert (batch.next_obs["agentview_image"] == batch.rows["episode"][:, None, None, None]).all()


def test_robomimic_dones_may_be_the_end_of_the_recording(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5", success=False)
    words = ("--dones", "truncated", "--obs", "pose=state", *BOUNDS)
    run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *words)
    batch, _ = rows_of(tmp_path / "pool")
    prove(batch, "state", ends=["truncated"] * 5)
    assert not batch.rows["outcome"].any()
    assert list(batch.obs) == ["state"]


def test_demos_are_read_in_the_order_of_their_numbers(tmp_path, capsys):
    takes = (Take(2),) * 12
    write_robomimic(tmp_path / "demo.hdf5", takes)
    run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *BOUNDS)
    batch, _ = rows_of(tmp_path / "pool")
    prove(batch, lengths=[2] * 12, ends=["terminated"] * 12)


def test_a_done_in_the_middle_ends_an_episode_and_begins_the_next(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5", (Take(6, "truncated"),))
    with h5py.File(tmp_path / "demo.hdf5", "a") as file:
        file["data/demo_0/dones"][2] = 1
    run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *BOUNDS, "--n-step", 4)
    rows = rows_of(tmp_path / "pool")[0].rows
    assert rows["episode"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rows["steps"].tolist() == [3, 2, 1] * 2
    assert rows["terminated"].tolist() == [1] * 3 + [0] * 3
    assert rows["truncated"].tolist() == [0] * 3 + [1] * 3


# D4RL


@pytest.mark.parametrize("window", [1, 3])
def test_d4rl_with_next_observations(window, tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5", tail=4)
    words = ("--n-step", window, "--stack", 2, "--success", "infos/goal", "--actor", "expert", *BOUNDS)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *words)
    assert "26 rows of 6 episodes, 2 successes, 4 failures entered as actor expert" in said
    batch, spec = rows_of(tmp_path / "pool")
    assert (spec.window, spec.stack, spec.kind) == (window, 2, "steps")
    prove(batch, "obs", window, [*LENGTHS, 4], [*(take.end for take in TAKES), "truncated"])


def test_d4rl_without_next_observations_invents_none(tmp_path, capsys):
    """The last step of a truncated episode has no next observation, so it is left out and the one before it is truncated."""
    write_d4rl(tmp_path / "d.hdf5", next_observations=False, tail=4)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *BOUNDS)
    assert "3 steps were left out" in said
    assert "3 terminated steps keep their own observation" in said
    batch, _ = rows_of(tmp_path / "pool")
    rows = batch.rows
    last = rows["terminated"] == 1
    np.testing.assert_array_equal(batch.next_obs["obs"][last], batch.obs["obs"][last])
    batch.next_obs["obs"][last] += (0, 1)
    prove(
        batch, "obs", 1, [5, 1, 8, 4, 2, 3], ["terminated", "terminated", "truncated", "terminated", "truncated", "truncated"]
    )


def test_a_step_that_is_not_followed_by_its_next_observation_cuts_the_episode(tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5", (Take(6),))
    with h5py.File(tmp_path / "d.hdf5", "a") as file:
        file["next_observations"][2] = (9, 9)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *BOUNDS, "--n-step", 3, "--stack", 2)
    assert "6 rows of 2 episodes" in said
    assert "1 episodes were cut" in said
    batch, _ = rows_of(tmp_path / "pool")
    assert batch.rows["truncated"].tolist() == [1, 1, 1, 0, 0, 0]
    assert batch.next_obs["obs"][:3, 1].tolist() == [[9, 9]] * 3
    assert batch.obs["obs"][3].tolist() == [[0, 3], [0, 3]]


def test_long_episodes_are_read_slice_by_slice(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headrace.launch.demos.SLICE_BYTES", 64)
    monkeypatch.setattr("headrace.launch.demo_load.BLOCK_ROWS", 7)
    write_d4rl(tmp_path / "d.hdf5", (Take(50), Take(41, "truncated")))
    words = ("--n-step", 3, "--success", "infos/goal", *BOUNDS)
    run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *words)
    batch, _ = rows_of(tmp_path / "pool")
    prove(batch, "obs", 3, [50, 41], ["terminated", "truncated"])
    assert set(batch.rows["outcome"]) == {2}


# Minari


def test_minari(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch)
    said = run(capsys, "pool", "import", place, tmp_path / "pool", "--n-step", 2)
    assert "22 rows of 5 episodes, 2 successes, 3 failures entered as actor arm-v0" in said
    batch, spec = rows_of(tmp_path / "pool")
    prove(batch, "agent.pose", 2)
    prove_outcomes(batch.rows)
    assert (spec.action.low, spec.action.high) == (LOW, HIGH)  # they are in the file


def test_minari_renames_and_flat_spaces(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path / "a", monkeypatch)
    run(capsys, "pool", "import", place / "data", tmp_path / "pool", "--obs", "agent/pose=obs")
    prove(rows_of(tmp_path / "pool")[0], "obs")
    run(capsys, "pool", "import", write_minari(tmp_path / "b", monkeypatch, nested=False), tmp_path / "flat")
    prove(rows_of(tmp_path / "flat")[0], "obs")


@pytest.mark.parametrize("jpeg", [False, True])
def test_minari_images(jpeg, tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, image=32, jpeg=jpeg)
    run(capsys, "pool", "import", place, tmp_path / "pool")
    batch, spec = rows_of(tmp_path / "pool")
    assert spec.obs[1].shape == (32, 32, 3)
    shades = batch.rows["episode"][:, None, None, None] * 20.0
    assert np.abs(batch.next_obs["camera"] - shades).max() <= (2 if jpeg else 0)


def test_minari_without_finite_bounds_needs_them(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, low=(-np.inf, -1.0))
    assert "--low, --high: Minari files do not say" in fails(capsys, "pool", "import", place, tmp_path / "pool")
    run(capsys, "pool", "import", place, tmp_path / "pool", *BOUNDS)


# Pools that are there


@pytest.fixture
def pool_of(tmp_path):
    def make(obs=((2,), "<f4"), dim=2, window=1, kind="steps", low=LOW):
        action = ActionSpec((dim,), low[:1] * dim if dim != 2 else low, HIGH[:1] * dim if dim != 2 else HIGH)
        spec = TransitionSpec((ObsSpec("obs", obs[0], obs[1], "critic"),), action, window, kind)
        SACReplayPool(100, path=tmp_path / "there", spec=spec).close()
        return tmp_path / "there"

    return make


def test_rows_are_appended_in_the_form_of_the_pool(tmp_path, capsys, pool_of):
    write_d4rl(tmp_path / "d.hdf5")
    place = pool_of(window=3)
    run(capsys, "pool", "import", tmp_path / "d.hdf5", place)  # the pool says the bounds
    batch, _ = rows_of(place)
    prove(batch, "obs", 3)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", place)
    assert "entered as actor d@2, 44 are live" in said


@pytest.mark.parametrize(
    ("pool", "words", "said"),
    [
        ({"obs": ((3,), "<f4")}, (), "obs.obs: (3,) <f4 != (2,) <f4"),
        ({"obs": ((2,), "|u1")}, (), "obs.obs: (2,) |u1 != (2,) <f4"),
        ({"dim": 3}, BOUNDS, "spec.action.shape[0]: 3 != 2"),
        ({"low": (-3.0, -1.0)}, BOUNDS, "spec.action.low[0]: -3.0 != -2.0"),
        ({}, ("--obs", "=x"), "obs.obs: (2,) <f4 != missing; obs.x: missing != (2,) <f4"),
        ({"kind": "chunk", "window": 2}, (), "kind 'steps'"),
        ({}, ("--n-step", "3"), "--n-step: not here"),
    ],
)
def test_what_does_not_fit_the_pool_is_refused_by_field(pool, words, said, tmp_path, capsys, pool_of):
    write_d4rl(tmp_path / "d.hdf5")
    place = pool_of(**pool)
    assert said in fails(capsys, "pool", "import", tmp_path / "d.hdf5", place, *words)
    assert len(rows_of(place)[0]) == 0


def test_bounds_are_never_guessed(tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5")
    said = fails(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool")
    assert "D4RL files do not say the bounds" in said
    assert "2 dimensions" in said
    words = ("--low", "-1", "--high", "1", "2", "3")
    assert "--high: 3 numbers, expected 1 or 2" in fails(
        capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *words
    )
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", "--low", "-0.35", "--high", "0.35")
    assert "9 steps have an action outside the bounds" in said


# What is malformed


def drop(name):
    def change(file):
        del file[name]

    return change


def put(name, data, **options):
    def change(file):
        if name in file:
            del file[name]
        file.create_dataset(name, data=data, **options)

    return change


def declare(name, shape, **options):
    def change(file):
        del file[name]
        file.create_dataset(name, shape=shape, **options)

    return change


def link(name, target):
    def change(file):
        del file[name]
        file[name] = target

    return change


def external_storage(file):
    del file["rewards"]
    file.create_dataset("rewards", (22,), "f4", external=[("/etc/hostname", 0, 88)])


def virtual(file):
    del file["rewards"]
    layout = h5py.VirtualLayout((22,), "f4")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "rewards", (22,))
    file.create_virtual_dataset("rewards", layout)


def spoil(name, row, value):
    def change(file):
        file[name][row] = value

    return change


D4RL_FAULTS = {
    "no actions": (drop("actions"), "actions: missing"),
    "no rewards": (drop("rewards"), "rewards: missing"),
    "no terminals": (drop("terminals"), "terminals: missing"),
    "no timeouts": (drop("timeouts"), "timeouts: missing"),
    "no observations": (drop("observations"), "observations: missing"),
    "short": (put("rewards", np.zeros(21, "f4")), "rewards: 21 rows, expected 22"),
    "empty": (put("actions", np.zeros((0, 2), "f4")), "actions: no rows"),
    "scalar": (put("rewards", 1.0), "rewards: shape (), expected rows"),
    "next of another shape": (
        put("next_observations", np.zeros((22, 3), "f4")),
        "next_observations: (3,) a row, expected (2,)",
    ),
    "nan": (spoil("observations", 7, np.nan), "observations: row 7 holds NaN"),
    "infinite action": (spoil("actions", 21, np.inf), "actions: row 21 holds NaN"),
    "nan reward": (spoil("rewards", 0, np.nan), "rewards: row 0 holds NaN"),
    "too large for float32": (put("rewards", np.full(22, 1e200)), "rewards: row 0 holds NaN, infinity, or what float32"),
    "flag": (put("terminals", np.full(22, 2)), "terminals: (22,) of int64, expected one 0 or 1 a row"),
    "text": (put("rewards", np.array([b"x"] * 22)), "rewards: dtype |S1"),
    "objects": (put("rewards", ["x"] * 22, dtype=h5py.string_dtype()), "rewards: dtype object"),
    "ragged": (declare("rewards", (22,), dtype=h5py.vlen_dtype("f4")), "rewards: dtype object"),
    "complex": (put("rewards", np.zeros(22, "c8")), "rewards: dtype complex64"),
    "compound": (put("rewards", np.zeros(22, [("a", "f4")])), "rewards: dtype [('a', '<f4')]"),
    "huge": (
        declare("observations", (1 << 40, 2), dtype="f4", chunks=(64, 2)),
        "declares 8796093022208 bytes, but the file has",
    ),
    "huge chunk": (declare("rewards", (22,), dtype="f4", chunks=(1 << 28,), maxshape=(None,)), "chunks of (268435456,)"),
    "soft link": (link("rewards", h5py.SoftLink("/actions")), "rewards: a link to '/actions'; links are not followed"),
    "external link": (
        link("rewards", h5py.ExternalLink("/etc/passwd", "/x")),
        "rewards: a link to '/x'; links are not followed",
    ),
    "linked obs": (link("observations", h5py.SoftLink("/actions")), "observations: a link to '/actions'"),
    "external storage": (external_storage, "rewards: its data lie in other files"),
    "virtual": (virtual, "rewards: its data lie in other files"),
}


@pytest.mark.parametrize("case", D4RL_FAULTS)
def test_a_malformed_d4rl_file_is_refused_by_field_and_loads_nothing(case, tmp_path, capsys, pool_of):
    change, said = D4RL_FAULTS[case]
    write_d4rl(tmp_path / "d.hdf5")
    with h5py.File(tmp_path / "d.hdf5", "a") as file:
        change(file)
    there = pool_of()
    before = sorted(tmp_path.iterdir())
    assert said in fails(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "new", *BOUNDS)
    assert said in fails(capsys, "pool", "import", tmp_path / "d.hdf5", there)
    assert sorted(tmp_path.iterdir()) == before
    with SACReplayPool(100, path=there) as pool:
        assert (pool.size, pool.actors()) == (0, [])


ROBOMIMIC_FAULTS = {
    "no obs": (drop("data/demo_3/obs"), "data/demo_3/obs/agentview_image: missing"),
    "no dones": (drop("data/demo_3/dones"), "data/demo_3/dones: missing"),
    "short obs": (put("data/demo_3/obs/pose", np.zeros((3, 2))), "data/demo_3/obs/pose: 3 rows, expected 4"),
    "other shape": (put("data/demo_3/obs/pose", np.zeros((4, 3))), "data/demo_3/obs/pose: (3,) a row, expected (2,)"),
    "actions": (put("data/demo_4/actions", np.zeros((3, 5))), "data/demo_4/actions: (5,) a row, expected (2,)"),
    "nan in the last demo": (spoil("data/demo_4/next_obs/pose", 2, np.nan), "data/demo_4/next_obs/pose: row 2 holds NaN"),
    "linked demo": (link("data/demo_2", h5py.SoftLink("/data/demo_1")), "data/demo_2/actions: a link to '/data/demo_1'"),
}


@pytest.mark.parametrize("case", ROBOMIMIC_FAULTS)
def test_a_malformed_robomimic_file_is_refused_by_field_and_loads_nothing(case, tmp_path, capsys):
    change, said = ROBOMIMIC_FAULTS[case]
    write_robomimic(tmp_path / "demo.hdf5")
    with h5py.File(tmp_path / "demo.hdf5", "a") as file:
        change(file)
    assert said in fails(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "new", *BOUNDS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo.hdf5"]


def test_a_cut_file_is_refused(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5")
    data = (tmp_path / "demo.hdf5").read_bytes()
    for size in (len(data) - 1, len(data) // 2, 600, 9):
        (tmp_path / "cut.hdf5").write_bytes(data[:size])
        assert "cut.hdf5: not a whole HDF5 file" in fails(
            capsys, "pool", "import", tmp_path / "cut.hdf5", tmp_path / "new", *BOUNDS
        )
    (tmp_path / "cut.hdf5").write_bytes(data[:4])
    assert "none of what is read" in fails(capsys, "pool", "import", tmp_path / "cut.hdf5", tmp_path / "new", *BOUNDS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda meta: meta.update(data_format="arrow"), "data_format 'arrow'; only Minari's hdf5 form is read"),
        (lambda meta: meta.update(action_space='{"type": "Discrete", "n": 3, "start": 0}'), "action_space is a Discrete"),
        (lambda meta: meta.update(action_space="{"), "action_space: not a space"),
        (lambda meta: meta.update(observation_space='{"type": "Text"}'), "observation_space: it is a Text"),
        (lambda meta: meta.update(observation_space='{"type": "Dict", "subspaces": 3}'), "observation_space: not a space"),
    ],
)
def test_a_minari_data_set_whose_metadata_do_not_fit_is_refused(change, said, tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch)
    meta = json.loads((place / "data" / "metadata.json").read_text())
    change(meta)
    (place / "data" / "metadata.json").write_text(json.dumps(meta))
    assert said in fails(capsys, "pool", "import", place, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("episode_2/truncations"), "episode_2/truncations: missing"),
        (put("episode_2/observations/agent/pose", np.zeros((9, 2))), "episode_2/observations/agent/pose: 9 rows, expected 10"),
        (put("episode_2/infos/success", np.zeros(4, bool)), "episode_2/infos/success: 4 rows, expected 9 or 10"),
        (put("episode_0/observations/camera", np.zeros((6, 30), "u1")), "camera: row 0 is no whole JPEG"),
    ],
)
def test_a_malformed_minari_episode_is_refused_by_field(change, said, tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, image=32)
    with h5py.File(place / "data" / "main_data.hdf5", "a") as file:
        change(file)
    assert said in fails(capsys, "pool", "import", place, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_image_of_another_size_than_its_space_is_not_unpacked(tmp_path, capsys, monkeypatch):
    small, large = (write_minari(tmp_path / n, monkeypatch, image=size) for n, size in (("a", 32), ("b", 64)))
    (small / "data" / "main_data.hdf5").write_bytes((large / "data" / "main_data.hdf5").read_bytes())
    assert "row 0 is an image of (64, 64, 3), expected (32, 32, 3)" in fails(capsys, "pool", "import", small, tmp_path / "new")


def test_what_is_none_of_the_formats_is_refused(tmp_path, capsys, monkeypatch):
    (tmp_path / "notes.txt").write_text("hello")
    assert "none of what is read" in fails(capsys, "pool", "import", tmp_path / "notes.txt", tmp_path / "new")
    assert "does not exist" in fails(capsys, "pool", "import", tmp_path / "nowhere", tmp_path / "new")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    assert "HDF5 of an unknown layout: x at its root" in fails(
        capsys, "pool", "import", tmp_path / "other.h5", tmp_path / "new"
    )
    place = write_minari(tmp_path, monkeypatch) / "data" / "main_data.hdf5"
    assert "name the directory" in fails(capsys, "pool", "import", place, tmp_path / "new")
    assert "--obs nothing=x: not in" in fails(capsys, "pool", "import", place.parent, tmp_path / "new", "--obs", "nothing=x")
