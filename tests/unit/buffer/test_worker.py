"""The pool's thread: what it says is done is as safe as the config asks for, and what is not safe is never said to be done."""

from __future__ import annotations

import errno
import os

import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import PoolConfig, SACReplayPool, durable
from headrace.buffer.shelf import Shelf
from headrace.buffer.worker import Amend, Insert, PoolWorker
from headrace.common.errors import SyncFailed
from headrace.common.label import Kind, Label
from headrace.common.wire.codec import block_parts
from headrace.common.wire.messages import BlockHead

SPEC = lane_spec()


@pytest.fixture
def worker(tmp_path):
    pool = SACReplayPool(40, path=tmp_path, spec=SPEC, config=PoolConfig(ack="synced"))
    made = PoolWorker(pool, lambda _: pool, Shelf(tmp_path))
    yield made
    made.close()


def blocks(*sizes):
    lane, work = Lane(SPEC, 1), []
    for n in sizes:
        seq, block = lane.seq, lane.block(n)
        head = BlockHead(1, seq, n, block.n_frames)
        work.append(Insert(b"peer", "a", head, block_parts(head, block, SPEC)[1:]))
    return work


def test_all_blocks_of_a_round_are_synced_once_before_any_is_done(worker, monkeypatch):
    synced, fdatasync = [], os.fdatasync

    def note(fd):
        fdatasync(fd)
        synced.append((os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2], worker.pool.head))

    monkeypatch.setattr(durable.os, "fdatasync", note)
    done, _ = worker.run(blocks(3, 2, 1))
    assert len(done) == 3
    names = ["discarded.npy", "frames.obs.npy", "outcome.npy", "rows.npy", "durable.bin"]
    assert synced == [(name, 6) for name in names]  # the record last


@pytest.mark.parametrize("k", range(5))
def test_when_the_disk_fails_nothing_of_the_round_is_done(worker, monkeypatch, k):
    worker.run(blocks(3))
    left, fdatasync = [k], os.fdatasync

    def fail(fd):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fdatasync(fd)

    monkeypatch.setattr(durable.os, "fdatasync", fail)
    with pytest.raises(SyncFailed, match="Input/output error"):
        worker.run(blocks(3, 2, 1))
    with pytest.raises(SyncFailed, match="before"):
        worker.run(blocks(3, 2, 1))  # all of them are there by now, and still not on the disk
    with pytest.raises(SyncFailed, match="before"):
        worker.run([Amend(b"peer", "a", 1, Label(Kind.OUTCOME, 1, 1, 3, 1))])
