"""``headrace pool``: looks into a pool whoever owns it, and leaves it as it was."""

import json

import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool
from headrace.launch import cli

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


def test_info_and_dump_of_a_snapshot(pool, tmp_path, capsys):
    pool.save(tmp_path / "snapshot")
    assert cli.main(["pool", "info", str(tmp_path / "snapshot"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size"] == 20
    pool.discard("arm", 1, 3, 4)
    pool.save(tmp_path / "snapshot")
    assert cli.main(["pool", "dump", str(tmp_path / "snapshot")]) == 0
    head, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert [line[head.index("discarded")] for line in lines] == ["False"] * 2 + ["True"] * 2 + ["False"] * 16
