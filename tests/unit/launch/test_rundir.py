"""The run directory and the pool's move between media."""

import json
import os

import pytest
import yaml

from headrace.common.errors import ConfigError, DeadlineExceeded, HeadraceError, NoSpace
from headrace.launch import stash
from headrace.launch.rundir import RunDir, read_json, read_lines, write_whole
from headrace.launch.watch import newest_run


def test_a_new_run_has_config_identity_and_logs(tmp_path):
    run = RunDir.create(tmp_path / "a" / "run", {"seed": 3})
    assert yaml.safe_load(run.config.read_text()) == {"seed": 3}
    assert len(run.run_id) == 12
    assert run.run_id == RunDir.open(run.path).run_id
    assert run.logs.is_dir()
    assert sorted(p.name for p in run.path.iterdir()) == ["config.yaml", "logs", "run_id"]


@pytest.mark.parametrize("what", ["checkpoints", "metrics.jsonl", "pool/manifest.json"])
def test_a_run_is_never_begun_over_another(tmp_path, what):
    run = RunDir.create(tmp_path / "run", {"seed": 1})
    (run.path / what).parent.mkdir(exist_ok=True)
    (run.path / what).touch()
    with pytest.raises(ConfigError, match=r"holds a run already; continue it with --resume"):
        RunDir.create(tmp_path / "run", {"seed": 2})


def test_a_run_that_failed_before_it_had_anything_is_replaced(tmp_path):
    old = RunDir.create(tmp_path / "run", {"seed": 1}).run_id
    run = RunDir.create(tmp_path / "run", {"seed": 2})
    assert yaml.safe_load(run.config.read_text()) == {"seed": 2}
    assert run.run_id != old


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run.dir: cannot write .*/file/run"):
        RunDir.create(tmp_path / "file" / "run", {})


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not a run directory"):
        RunDir.open(tmp_path)


def test_the_endpoint_is_waited_for_with_a_deadline(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    with pytest.raises(DeadlineExceeded, match="no buffer has written .*`headrace buffer"):
        run.wait_endpoint(0.1)
    run.write_endpoint("tcp://127.0.0.1:5")
    assert run.wait_endpoint(0.0) == "tcp://127.0.0.1:5"


def test_the_pool_lies_in_the_run_or_under_its_own_name_elsewhere(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    assert run.pool_dir("") == run.path / "pool"
    assert run.pool_dir("/dev/shm").name == f"headrace-{run.run_id}"


def test_write_whole_replaces_and_leaves_nothing_behind(tmp_path):
    write_whole(tmp_path / "f", "one")
    write_whole(tmp_path / "f", "two")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["two"]


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    (tmp_path / "m.jsonl").write_text(json.dumps({"a": 1}) + "\n" + '[1]\n{"a": 2}\n{"a": 3')
    assert read_lines(tmp_path / "m.jsonl") == [{"a": 1}, {"a": 2}]
    (tmp_path / "m.jsonl").write_text('{"a": 1')
    assert read_lines(tmp_path / "m.jsonl") == []
    (tmp_path / "m.jsonl").write_text("")
    assert read_lines(tmp_path / "m.jsonl") == []
    assert read_lines(tmp_path / "none") == []


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_read_json_names_the_file_that_is_not_an_object(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(HeadraceError, match=r"r\.json"):
        read_json(tmp_path / "r.json")


@pytest.fixture
def pool(tmp_path):
    source = tmp_path / "shm" / "pool"
    (source / "sub").mkdir(parents=True)
    (source / "rows.npy").write_bytes(bytes(range(256)) * 50)
    (source / "sub" / "x").write_bytes(b"x")
    return source


def test_a_moved_pool_is_whole_and_gone_from_where_it_was(pool, tmp_path):
    target, said = tmp_path / "run" / "pool", []
    target.mkdir(parents=True)
    (target / "old").write_text("of an earlier run")
    stash.move_tree(pool, target, said.append)
    assert not pool.exists()
    assert {p.relative_to(target).as_posix() for p in target.rglob("*")} == {"rows.npy", "sub", "sub/x"}
    assert (target / "rows.npy").read_bytes() == bytes(range(256)) * 50
    assert "100 %" in said[-1]
    assert [p.name for p in target.parent.iterdir()] == ["pool"]


def test_a_pool_that_does_not_fit_stays_where_it_is(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(stash.shutil, "disk_usage", lambda path: stash.shutil._ntuple_diskusage(100, 90, 10))
    with pytest.raises(NoSpace, match=r"needs 12801 bytes, .* has 10 free; the pool is still in"):
        stash.move_tree(pool, tmp_path / "run" / "pool", print)
    assert (pool / "rows.npy").exists()
    assert not (tmp_path / "run" / "pool").exists()


def test_a_copy_that_was_cut_short_is_never_taken_for_the_pool(pool, tmp_path, monkeypatch):
    target = tmp_path / "run" / "pool"

    def tell(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stash.move_tree(pool, target, tell)
    assert (pool / "rows.npy").exists()
    assert not target.exists()
    stash.move_tree(pool, target, print)
    assert (target / "rows.npy").exists()


def test_a_run_is_supervised_once_at_a_time(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    with (
        run.claim(),
        pytest.raises(ConfigError, match=f"already running, supervised by pid {os.getpid()}"),
        RunDir(run.path).claim(),
    ):
        pass
    with run.claim():
        pass


@pytest.fixture
def refuse(tmp_path):
    def start(run, *written):
        with pytest.raises(HeadraceError), run.undone_if_refused():
            for name in written:
                (run.path / name).parent.mkdir(exist_ok=True)
                (run.path / name).touch()
            raise ConfigError("no")
        return run.path.exists()

    return start


def test_a_refused_start_leaves_nothing(tmp_path, refuse):
    assert not refuse(RunDir.create(tmp_path / "runs" / "a", {}), "logs/buffer.log", "pool/buffer.lock")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_start_leaves_what_was_there(tmp_path, refuse):
    (tmp_path / "runs" / "other").mkdir(parents=True)
    assert not refuse(RunDir.create(tmp_path / "runs" / "a", {}))
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["other"]
    (tmp_path / "mine").mkdir()
    assert refuse(RunDir.create(tmp_path / "mine", {}))


@pytest.mark.parametrize("what", ["checkpoints/x", "metrics.jsonl", "pool/manifest.json", "endpoint"])
def test_a_run_with_data_or_a_buffer_stays(tmp_path, refuse, what):
    assert refuse(RunDir.create(tmp_path / "a", {}), what)


def test_a_run_whose_logs_are_needed_stays(tmp_path, refuse):
    run = RunDir.create(tmp_path / "a", {})
    run.keep()
    assert refuse(run)


@pytest.mark.parametrize("newest", ["runs/one", "runs/q/seed-2"])
def test_the_newest_run_is_found_below_a_directory_of_seeds_too(tmp_path, newest):
    for number, name in enumerate(["runs/one", "runs/q/seed-0", "runs/q/seed-2"]):
        run = RunDir.create(tmp_path / name, {})
        os.utime(run.config, (9999, 9999) if name == newest else (number, number))
    (tmp_path / "runs" / "empty").mkdir()
    assert newest_run(tmp_path / "runs") == str(tmp_path / newest)
