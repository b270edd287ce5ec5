"""Export and import at the command line: every kind of target, and nothing left behind by what fails."""

import signal

import numpy as np
import pytest
import yaml
from helpers.lane_rows import Lane, die, lane_spec

from headrace.buffer import PoolConfig, SACReplayPool, manifest
from headrace.buffer.shards import ShardReader, ShardWriter
from headrace.launch import cli, exits


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
    before = rows_of(new)
    said = "30 rows are to enter a pool with a capacity of 30 that holds 30: 30 rows will be evicted, the oldest first. --evict"
    assert said in fails(capsys, "pool", "import", tmp_path / "out", new)
    assert rows_of(new) == before
    said = run(capsys, "pool", "import", tmp_path / "out", new, "--evict")
    assert "actor arm is arm@2 here" in said
    assert "30 rows made room" in said


def test_what_will_be_evicted_is_said_before_the_first_row_enters(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    words = ("pool", "import", tmp_path / "out", tmp_path / "new", "--capacity", 12)
    said = "18 rows will be evicted, the oldest first, 18 of them of the import itself. --evict permits it; to keep all"
    assert f"{said}, import into a new pool with a --capacity of 30 or more" in fails(capsys, *words)
    assert not (tmp_path / "new").exists()
    assert cli.main([str(word) for word in (*words, "--evict")]) == 0
    assert "18 rows will be evicted, the oldest first" in capsys.readouterr().err
    assert [row["seq"] for row in rows_of(tmp_path / "new")] == list(range(19, 31))
    small = tmp_path / "small"
    with SACReplayPool(40, path=small, spec=lane_spec()) as pool:
        pool.insert(Lane(lane_spec(), 2).block(15), "leg", 1, 1)
    assert "holds 15: 5 rows will be evicted, the oldest first. --evict" in fails(
        capsys, "pool", "import", tmp_path / "out", small
    )
    assert len(rows_of(small)) == 15


def test_where_every_row_is_discarded_there_is_nothing_to_export(pool_dir, tmp_path, capsys):
    with SACReplayPool(64, path=pool_dir) as pool:
        pool.discard("arm", 1, 1, 30)
    before = sorted(tmp_path.iterdir())
    assert "out: all 30 rows were discarded" in fails(capsys, "pool", "export", pool_dir, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("flat", [[], ["--flat"]])
def test_a_new_pool_holds_all_rows_also_of_one_whose_blocks_were_short(tmp_path, capsys, flat):
    lane = Lane(lane_spec(), 1, (1,))  # each row ends an episode and has two frames
    config = PoolConfig(min_block_rows=32, max_block_rows=32)
    with SACReplayPool(1000, path=tmp_path / "pool", spec=lane_spec(), config=config) as pool:
        for _ in range(200):
            pool.insert(lane.block(1), "arm", 1, lane.seq - 1)
    run(capsys, "pool", "export", tmp_path / "pool", tmp_path / "out", *flat)
    assert "200 rows entered, 200 are live\n" in run(capsys, "pool", "import", tmp_path / "out", tmp_path / "new")
    assert rows_of(tmp_path / "new") == rows_of(tmp_path / "pool")


def cut(monkeypatch, capsys, rows, *words):
    """An import that dies once so many rows are in, as by a kill; what it said."""
    insert = SACReplayPool.insert

    def dying(pool, block, actor, stream, first_seq, priorities=None):
        left = rows - pool.last_seq(actor, stream)
        if block.n_rows > left:
            insert(pool, block.part(0, left), actor, stream, first_seq)
            raise KeyboardInterrupt
        return insert(pool, block, actor, stream, first_seq, priorities)

    with monkeypatch.context() as patch:
        patch.setattr(SACReplayPool, "insert", dying)
        return stopped(capsys, *words)


def test_what_was_cut_is_finished_by_the_same_import_under_the_same_names(pool_dir, tmp_path, capsys, monkeypatch):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    pool = tmp_path / "both"
    run(capsys, "pool", "import", tmp_path / "out", pool, "--capacity", 80)
    words = ("pool", "import", tmp_path / "out", pool)
    assert "stopped: 13 rows have entered" in cut(monkeypatch, capsys, 13, *words)
    assert f"{tmp_path / 'out'}': ['arm@2']" in run(capsys, "pool", "info", pool)
    with SACReplayPool(60, path=pool) as smaller:  # whoever had it meanwhile; the room is counted without what is in
        smaller.insert(Lane(lane_spec(), 2).block(1), "leg", 1, 1)
    assert "17 rows are to enter a pool with a capacity of 60 that holds 44: 1 row will" in fails(capsys, *words)
    said = run(capsys, *words, "--evict")
    assert "13 of them were in since an earlier import of the same, which did not end" in said
    assert [(row["actor"], row["seq"]) for row in rows_of(pool)] == [
        *(("arm", seq) for seq in range(2, 31)),
        *(("arm@2", seq) for seq in range(1, 14)),
        ("leg", 1),
        *(("arm@2", seq) for seq in range(14, 31)),
    ]
    assert "unfinished" not in run(capsys, "pool", "info", pool)
    assert "'arm@3' is one actor more than max_actors 3" in fails(capsys, *words)  # what has ended would be imported anew


def test_an_import_has_ended_when_somebody_was_told(pool_dir, tmp_path, capsys, monkeypatch):
    """Who saw it die after its last row imports once more, and is not to have the rows twice."""
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    pool = tmp_path / "both"
    words = ("pool", "import", tmp_path / "out", pool)
    run(capsys, *words, "--capacity", 80)

    def dying(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headrace.launch.transfer._report_room", dying)
        stopped(capsys, *words)
    assert "30 of them were in since an earlier import" in run(capsys, *words)
    assert "unfinished" not in run(capsys, "pool", "info", pool)


def test_a_run_and_a_snapshot_are_exported_too(pool_dir, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"run": {}}))
    run(capsys, "pool", "export", tmp_path, tmp_path / "a")
    with SACReplayPool(64, path=pool_dir) as pool:
        pool.save(tmp_path / "snapshot")
    run(capsys, "pool", "export", tmp_path / "snapshot", tmp_path / "b", "--flat")
    for name in ("a", "b"):
        run(capsys, "pool", "import", tmp_path / name, tmp_path / f"{name}-pool", "--capacity", "100")
        assert rows_of(tmp_path / f"{name}-pool") == rows_of(pool_dir)


def test_rows_are_appended_to_a_pool_but_not_to_that_of_a_run(pool_dir, tmp_path, capsys):
    """Updates would be owed for steps that the run never executed."""
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    other = tmp_path / "run"
    with SACReplayPool(64, path=other / "pool", spec=lane_spec()) as pool:
        pool.insert(Lane(lane_spec(), 2).block(3), "leg", 1, 1)
    run(capsys, "pool", "import", tmp_path / "out", other / "pool")
    assert [row["actor"] for row in rows_of(other / "pool")] == ["leg"] * 3 + ["arm"] * 30
    (other / "config.yaml").write_text(yaml.safe_dump({"run": {}}))
    for target in (other, other / "pool"):
        assert "pool.demos or run.pool_from" in fails(capsys, "pool", "import", tmp_path / "out", target)
    assert len(rows_of(other / "pool")) == 33


def test_a_pool_that_is_in_use_is_refused_with_its_owner(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    with SACReplayPool(64, path=pool_dir):
        assert "pid" in fails(capsys, "pool", "import", tmp_path / "out", pool_dir)


def test_what_is_no_pool_to_append_to_is_refused(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    assert "not the manifest of a pool" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "out")
    assert f"exported first (headrace pool export {pool_dir} S" in fails(capsys, "pool", "import", pool_dir, tmp_path / "new")
    with SACReplayPool(64, path=pool_dir) as pool:
        pool.save(tmp_path / "snapshot")
    assert "no pool; to make one: headrace pool export" in fails(
        capsys, "pool", "import", tmp_path / "out", tmp_path / "snapshot"
    )
    for source in (tmp_path / "snapshot", tmp_path / "snapshot" / "snapshot-000001"):
        said = f"exported first (headrace pool export {tmp_path / 'snapshot'} SHARDS)"
        assert said in fails(capsys, "pool", "import", source, tmp_path / "new")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place, what in (("full/notes.txt", "file"), ("link", "link")):
        said = f"{tmp_path / place}: is a {what}; name a directory where nothing is yet"
        assert said in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / place)
    assert said in fails(capsys, "pool", "export", pool_dir, tmp_path / "link")
    assert "no pool here" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "full")
    assert "--capacity: not here" in fails(capsys, "pool", "import", tmp_path / "out", pool_dir, "--capacity", "5")
    assert "--capacity: not here" in fails(capsys, "pool", "import", tmp_path / "out", pool_dir, "--capacity", "0")


def test_a_refused_import_leaves_no_pool(pool_dir, tmp_path, capsys):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    assert "pool.capacity: 0" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "new", "--capacity", "0")
    shard = tmp_path / "out" / "rows-00000.npz"
    shard.write_bytes(shard.read_bytes()[:-3])
    before = sorted(tmp_path.iterdir())
    assert "rows-00000.npz: its digest" in fails(capsys, "pool", "import", tmp_path / "out", tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before


def test_what_killed_commands_left_is_removed_by_the_next_ones(pool_dir, tmp_path, capsys):
    for name in ("out", "new"):
        (tmp_path / f".{name}.partial-0123").mkdir()
        (tmp_path / f".{name}.partial-0123" / "rows.npy").write_bytes(bytes(99))
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    run(capsys, "pool", "import", tmp_path / "out", tmp_path / "new")
    assert not list(tmp_path.glob(".*"))


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


def stopped(capsys, *words):
    """What is said when somebody stops a command."""
    assert cli.main([str(word) for word in words]) == exits.STOPPED
    return capsys.readouterr().err


def interrupt(monkeypatch, place, times=1):
    """Ctrl-C, ``times`` over, whenever ``module.Class.method`` is called."""
    owner, name = place
    method = getattr(owner, name)

    def pressed(*args, **kwargs):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, pressed)


def test_ctrl_c_leaves_no_export_and_no_new_pool(pool_dir, tmp_path, capsys, monkeypatch):
    run(capsys, "pool", "export", pool_dir, tmp_path / "whole")
    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        interrupt(patch, (ShardWriter, "add"))
        assert f"stopped: {tmp_path / 'out'} was not made" in stopped(capsys, "pool", "export", pool_dir, tmp_path / "out")
    with monkeypatch.context() as patch:
        interrupt(patch, (SACReplayPool, "insert"))
        assert f"stopped: {tmp_path / 'new'} was not made" in stopped(
            capsys, "pool", "import", tmp_path / "whole", tmp_path / "new"
        )
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def legs(tmp_path):
    """A pool with rows of its own to import into."""
    with SACReplayPool(64, path=tmp_path / "legs", spec=lane_spec()) as pool:
        pool.insert(Lane(lane_spec(), 2).block(3), "leg", 1, 1)
    return tmp_path / "legs"


def test_ctrl_c_before_the_first_row_enters_leaves_a_pool_as_it_was(pool_dir, legs, tmp_path, capsys, monkeypatch):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    with monkeypatch.context() as patch:
        interrupt(patch, (ShardReader, "verify"))
        assert f"stopped: 0 rows have entered {legs}" in stopped(capsys, "pool", "import", tmp_path / "out", legs)
    assert [row["actor"] for row in rows_of(legs)] == ["leg"] * 3


def test_ctrl_c_while_rows_enter_lets_all_of_them_in(pool_dir, legs, tmp_path, capsys, monkeypatch):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    with monkeypatch.context() as patch:
        interrupt(patch, (SACReplayPool, "insert"))
        assert cli.main(["pool", "import", str(tmp_path / "out"), str(legs)]) == 0
    said = capsys.readouterr()
    assert "rows are entering: this ends when all of them are in" in said.err
    assert "30 rows entered, 33 are live" in said.out
    assert [row["actor"] for row in rows_of(legs)] == ["leg"] * 3 + ["arm"] * 30


def test_ctrl_c_twice_ends_at_once_with_a_sound_pool(pool_dir, legs, tmp_path, capsys, monkeypatch):
    run(capsys, "pool", "export", pool_dir, tmp_path / "out")
    with monkeypatch.context() as patch:
        interrupt(patch, (SACReplayPool, "insert"), times=2)
        assert "stopped: 0 rows have entered" in stopped(capsys, "pool", "import", tmp_path / "out", legs)
    assert [row["actor"] for row in rows_of(legs)] == ["leg"] * 3
