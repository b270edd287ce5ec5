import threading
import time

import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import SACReplayPool, snapshot
from headrace.buffer.backups import Backups, wait_for
from headrace.common.errors import PoolError

SPEC = lane_spec()


def filled(rows=5):
    pool = SACReplayPool(10, spec=SPEC)
    pool.insert(Lane(SPEC, 1).block(rows), "a", 1, 1)
    return pool


def ended(backups):
    end = time.monotonic() + 20
    while backups.report()["running"]:
        assert time.monotonic() < end
        time.sleep(0.002)
    return backups.report()


def test_one_is_made_when_it_is_due_and_the_newest_stay(tmp_path):
    backups, pool = Backups(tmp_path, 10.0, 2, now=100.0), filled()
    for now, written in ((109.0, 0), (110.0, 1), (119.0, 1), (120.0, 2), (131.0, 3)):
        backups.tick(pool, now)
        assert ended(backups)["written"] == written
    assert sorted(p.name for p in tmp_path.iterdir()) == ["snapshot-000002", "snapshot-000003"]
    report = backups.report()
    assert report["done_bytes"] == report["total_bytes"] > 0
    assert (report["failed"], report["error"]) == (0, "")


def test_none_is_made_unasked_or_without_a_pool(tmp_path):
    backups = Backups(tmp_path, 0.0, 2, now=0.0)
    backups.tick(filled(), 1e9)
    backups.ask()
    backups.tick(None, 1e9)
    assert ended(backups)["written"] == 0
    assert not snapshot.is_snapshot(tmp_path)


class Slow:
    """A pool whose save waits until it is let go."""

    def __init__(self):
        self.go, self.saves = threading.Event(), 0

    def save(self, path, progress, keep):
        while not self.go.wait(0.002):
            progress(1, 2)
        self.saves += 1


def test_a_request_during_a_snapshot_is_for_the_next_one(tmp_path):
    backups, pool = Backups(tmp_path, 0.0, 2, now=0.0), Slow()
    assert backups.ask() == 1
    backups.tick(pool, 1.0)
    assert backups.ask() == backups.ask() == 2
    backups.tick(pool, 2.0)
    assert backups.report()["running"]
    pool.go.set()
    ended(backups)
    backups.tick(pool, 3.0)
    assert ended(backups)["written"] == pool.saves == 2
    backups.tick(pool, 4.0)
    assert not backups.report()["running"]


def test_the_end_of_the_buffer_gives_it_up(tmp_path):
    backups = Backups(tmp_path, 0.0, 2, now=0.0)
    backups.ask()
    backups.tick(Slow(), 1.0)
    backups.close()
    assert backups.report()["failed"] == 1
    assert "headrace-snapshot" not in {thread.name for thread in threading.enumerate()}


def test_a_failure_is_counted_told_and_tried_again_when_due(tmp_path):
    (tmp_path / "s").write_text("")
    backups, pool = Backups(tmp_path / "s", 10.0, 2, now=0.0), filled()
    backups.tick(pool, 10.0)
    report = ended(backups)
    assert report["failed"] == 1
    assert "is a file" in report["error"]
    (tmp_path / "s").unlink()
    backups.tick(pool, 20.0)
    assert ended(backups)["written"] == 1


def test_one_that_failed_is_tried_again_soon_however_rarely_they_are_due(tmp_path):
    (tmp_path / "s").write_text("")
    backups, pool = Backups(tmp_path / "s", 3600.0, 2, now=0.0), filled()
    for now, failed in ((3600.0, 1), (3604.0, 1), (3605.0, 2)):
        backups.tick(pool, now)
        assert ended(backups)["failed"] == failed
        assert "is a file" in backups.failure
    (tmp_path / "s").unlink()
    for now, written in ((3609.0, 0), (3610.0, 1), (3616.0, 1)):
        backups.tick(pool, now)
        assert ended(backups)["written"] == written
    assert backups.failure == ""


def test_waiting_ends_with_the_number_a_failure_or_the_deadline():
    told = []
    idle = {"written": 0, "failed": 0, "error": "", "done_bytes": 1, "total_bytes": 4}
    reports = iter([idle, {**idle, "done_bytes": 2}, {**idle, "written": 1}])
    assert wait_for(lambda: next(reports), 1, 5.0, lambda *p: told.append(p))["written"] == 1
    assert told == [(1, 4), (2, 4)]
    with pytest.raises(PoolError, match="no space"):
        wait_for(lambda: {**idle, "failed": 1, "error": "no space"}, 1, 5.0, print)
    with pytest.raises(PoolError, match="1 of 4 bytes"):
        wait_for(lambda: idle, 1, 0.15, lambda *p: None)
