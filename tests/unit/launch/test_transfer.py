"""Export and import at the command line: every kind of target, and nothing left behind by what fails."""

import io

import numpy as np
import pytest
import yaml
from helpers.lane_rows import Lane, die, lane_spec

from headrace.buffer import PoolConfig, SACReplayPool, manifest
from headrace.launch import cli
from headrace.launch.transfer import Counting


@pytest.fixture
def pool_dir(tmp_path):
    spec, lane = lane_spec(), Lane(lane_spec(), 1)
    with SACReplayPool(64, path=tmp_path / "pool", spec=spec, config=PoolConfig(max_actors=3)) as pool:
        pool.insert(lane.block(30), "arm", 1, 1)
    return tmp_path / "pool"


def rows_of(place):
    with SACReplayPool(int(manifest.read(place)["config"]["capacity"]), path=place) as pool:
        assert pool.check_valid() == (True, "")
        return [{k: v for k, v in row.items() if k != "id"} for row in pool.dump()]


def fails(capsys, *words):
    assert cli.main([str(word) for word in words]) == 1
    return capsys.readouterr().err


def run(capsys, *words):
    assert cli.main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_out_and_in_again(pool_dir, tmp_path, capsys):
    assert run(capsys, "pool", "export", pool_dir, tmp_path / "out") == f"{tmp_path / 'out'}: 30 rows in 1 file\n"
    new = tmp_path / "deeper" / "new"
    assert "30 rows entered, 30 are live" in run(capsys, "pool", "import", tmp_path / "out", new)
    assert rows_of(new) == rows_of(pool_dir)
    said = run(capsys, "pool", "import", tmp_path / "out", new)
    assert "actor arm is arm@2 here" in said
    assert "30 rows made room" in said


def test_a_run_and_a_snapshot_are_exported_too(pool_dir, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"run": {}}))
    run(capsys, "pool", "export", tmp_path, tmp_path / "a")
    with SACReplayPool(64, path=pool_dir) as pool:
        pool.save(tmp_path / "snapshot")
    run(capsys, "pool", "export", tmp_path / "snapshot", tmp_path / "b", "--flat")
    for name in ("a", "b"):
        run(capsys, "pool", "import", tmp_path / name, tmp_path / f"{name}-pool", "--capacity", "100")
        assert rows_of(tmp_path / f"{name}-pool") == rows_of(pool_dir)


def test_rows_are_appended_to_the_pool_of_a_run(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    other = tmp_path / "run"
    with SACReplayPool(64, path=other / "pool", spec=lane_spec()) as pool:
        pool.insert(Lane(lane_spec(), 2).block(3), "leg", 1, 1)
    (other / "config.yaml").write_text(yaml.safe_dump({"run": {}}))
    run(capsys, "pool", "import", tmp_path / "out", other)
    assert [row["actor"] for row in rows_of(other / "pool")] == ["leg"] * 3 + ["arm"] * 30


def test_a_pool_that_is_in_use_is_refused_with_its_owner(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    with SACReplayPool(64, path=pool_dir):
        assert "pid" in fails(capsys, "pool", "import", tmp_path / "out", pool_dir)


def test_what_is_no_pool_to_append_to_is_refused(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    assert "not the manifest of a pool" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "out")
    assert "pools are exported first" in fails(capsys, "pool", "import", pool_dir, tmp_path / "new")
    with SACReplayPool(64, path=pool_dir) as pool:
        pool.save(tmp_path / "snapshot")
    assert "no pool; to make one: headrace pool export" in fails(
        capsys, "pool", "import", tmp_path / "out", tmp_path / "snapshot"
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert "no pool here" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "full")
    assert "--capacity: not here" in fails(capsys, "pool", "import", tmp_path / "out", pool_dir, "--capacity", "5")


def test_a_refused_import_leaves_no_pool(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    shard = tmp_path / "out" / "rows-00000.npz"
    shard.write_bytes(shard.read_bytes()[:-3])
    before = sorted(tmp_path.iterdir())
    assert "rows-00000.npz: its digest" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before


def test_a_pool_is_exported_beside_its_owner(pool_dir, tmp_path, capsys):
    with SACReplayPool(64, path=pool_dir) as pool:
        epoch, nonce = pool.epoch, pool.nonce
        run(capsys, "pool", "export", pool_dir, tmp_path / "out")
        assert (pool.epoch, pool.nonce, pool.size) == (epoch, nonce, 30)
    assert (manifest.read(tmp_path / "out")["epoch"], manifest.read(tmp_path / "out")["actors"]) == (epoch, ["arm"])
    run(capsys, "pool", "import", tmp_path / "out", tmp_path / "new")
    assert rows_of(tmp_path / "new") == rows_of(pool_dir)


def test_a_pool_whose_owner_died_is_exported(tmp_path, capsys):
    pool = SACReplayPool(64, path=tmp_path / "pool", spec=lane_spec())
    pool.insert(Lane(lane_spec(), 0).block(8), "arm", 1, 1)
    die(pool)
    run(capsys, "pool", "export", tmp_path / "pool", tmp_path / "out")
    with np.load(tmp_path / "out" / "rows-00000.npz", allow_pickle=False) as shard:
        assert shard["frames/obs"][shard["obs"][:, 0], 2].tolist() == shard["t"].tolist()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_drawn_over_on_a_terminal_and_in_lines_elsewhere(monkeypatch):
    for stream, said in ((Terminal(), "\rread 1,000 of 2,000 rows\rread 2,000 of 2,000 rows\n"), (io.StringIO(), 2)):
        now = iter(range(0, 100, 6))
        monkeypatch.setattr("headrace.launch.transfer.time.monotonic", lambda: next(now))  # noqa: B023 - used in this round
        counting = Counting("read", stream)
        counting(1000, 2000)
        counting(2000, 2000)
        assert stream.getvalue() == said if isinstance(said, str) else stream.getvalue().count("\n") == said
