"""``headrace pool``: looks into a pool whoever owns it, and leaves it as it was."""

import json

import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool, export_pool
from headrace.common.errors import ConfigError
from headrace.launch import cli
from headrace.launch.config import make_config
from headrace.launch.pools import find_past

SPEC = lane_spec()


@pytest.fixture
def pool(tmp_path):
    with SACReplayPool(64, path=tmp_path / "pool", spec=SPEC) as pool:
        pool.insert(Lane(SPEC, 1).block(20), "arm", 1, 1)
        yield pool


def test_info_and_dump_of_a_pool_that_is_owned_now(pool, tmp_path, capsys):
    assert cli.main(["pool", "info", str(tmp_path / "pool"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["size"], facts["rows_accepted"], facts["epoch"], facts["env_steps"]) == (20, 20, 1, 20)
    assert cli.main(["pool", "dump", str(tmp_path / "pool"), "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == list(pool.dump())
    assert pool.epoch == 1


def test_of_a_snapshot_with_demonstrations_the_ring_is_read(tmp_path, capsys):
    with SACReplayPool(64, spec=SPEC) as teacher:
        teacher.insert(Lane(SPEC, 2).block(5), "teacher", 1, 1)
        with SACReplayPool(64, spec=SPEC, demos=teacher) as pool:
            pool.insert(Lane(SPEC, 1).block(20), "arm", 1, 1)
            pool.save(tmp_path / "snapshot")
    assert cli.main(["pool", "info", str(tmp_path / "snapshot"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["size"], facts["demo_rows"]) == (20, 0)


@pytest.mark.parametrize(
    ("config", "said"),
    [("run: 3", "run.pool_dir: expected a path, got 3"), ("run: {pool_dir: [x]}", "run.pool_dir: expected a path, got ['x']")],
)
def test_a_run_that_does_not_say_where_its_pool_is_is_named(config, said, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(config)
    assert cli.main(["pool", "info", str(tmp_path)]) == 1
    assert f"config.yaml: {said}" in capsys.readouterr().err


def test_a_run_that_begins_with_no_pool_is_refused_by_option(pool, tmp_path):
    pool.save(tmp_path / "snapshots")
    export_pool(pool, tmp_path / "out")
    for place, said in (
        ("out", r"an export; make a pool of it \(headrace pool import .*out POOL\)"),
        ("snapshots/snapshot-000001", "one snapshot; name the directory that they are in, .*snapshots"),
        ("nowhere", r"no pool here \(it does not exist\)"),
    ):
        config = make_config({"env": {"id": "x"}, "run": {"pool_from": str(tmp_path / place)}})
        with pytest.raises(ConfigError, match=f"run.pool_from: {tmp_path / place}.*{said}"):
            find_past(config)


def test_info_and_dump_of_a_snapshot(pool, tmp_path, capsys):
    pool.save(tmp_path / "snapshot")
    assert cli.main(["pool", "info", str(tmp_path / "snapshot"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size"] == 20
    pool.discard("arm", 1, 3, 4)
    pool.save(tmp_path / "snapshot")
    assert cli.main(["pool", "dump", str(tmp_path / "snapshot")]) == 0
    head, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert [line[head.index("discarded")] for line in lines] == ["False"] * 2 + ["True"] * 2 + ["False"] * 16
