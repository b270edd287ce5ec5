"""A buffer whose disk is full says so, hands out nothing that it could not write down, and goes on once there is room."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.serving import SPEC, first

from headrace.buffer.shelf import Shelf
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, encode


class Disk:
    """Refuses what writes small files while ``full``, as a file system without room does."""

    def __init__(self, monkeypatch):
        self.full = False
        write_bytes, fsync, reserve = Path.write_bytes, os.fsync, os.posix_fallocate

        def refuse():
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def writing(path, data):
            write_bytes(path, data[:10])
            refuse()
            return write_bytes(path, data)

        def syncing(fd):
            refuse()
            return fsync(fd)

        def reserving(fd, start, size):
            refuse()
            return reserve(fd, start, size)

        monkeypatch.setattr(Path, "write_bytes", writing)
        monkeypatch.setattr(os, "posix_fallocate", reserving)
        monkeypatch.setattr(os, "fsync", syncing)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def warnings(buffer):
    return [w for w in buffer.status()["warnings"] if w.startswith("not written")]


def test_a_session_that_cannot_be_written_down_waits_for_room(buffer, disk, tmp_path):
    buffer.actor()
    disk.full = True
    refused = first(buffer.actor(b"B", "b"), m.Refused)
    assert (refused.reason, refused.retry_s > 0) == ("disk", True)
    assert "No space left on device" in refused.detail
    assert warnings(buffer) == ["not written: sessions: No space left on device"]
    assert not list(tmp_path.glob("*.tmp"))
    assert first(buffer.block(b"A", 1, 0, 1), m.Ack).seq == 2  # who has a session goes on
    assert first(buffer.say(b"O", m.Hello(1, "observer", "o", b"3", "host", 9)), m.Welcome)  # and who looks is let in
    assert first(buffer.actor(b"A", "a", b"1"), m.Welcome).epoch == 1  # a reconnect needs no new epoch
    disk.full = False
    assert first(buffer.actor(b"B", "b"), m.Welcome).epoch >= 1
    assert warnings(buffer) == []


def test_of_many_who_come_at_once_those_wait_that_the_disk_does_not_take_and_the_disk_is_asked_once(buffer, disk, monkeypatch):
    synced, fsync = [], os.fsync
    buffer.actor()

    def hello(peer, identity, incarnation, role="actor"):
        spec = SPEC.to_dict() if role == "actor" else None
        return buffer.service.receive(peer, [encode(m.Hello(1, role, identity, incarnation, "host", 7, spec))], buffer.now)

    def welcomed():
        return {to: type(decode(parts[0])) for to, parts in reversed(buffer.service.reception.admit())}

    disk.full = True
    came = [hello(b"A", "a", b"1"), hello(b"B", "b", b"2"), hello(b"B", "b", b"2"), hello(b"O", "o", b"3", "observer")]
    assert came == [[]] * 4
    assert welcomed() == {b"A": m.Welcome, b"B": m.Refused, b"O": m.Welcome}
    assert [s.id for s in buffer.service.fleet.sessions("actor")] == ["a"]
    disk.full = False
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd))
    hello(b"B", "b", b"2")
    hello(b"L", "l", b"4", "learner")
    assert synced == []
    assert welcomed() == {b"B": m.Welcome, b"L": m.Welcome}
    assert len([path for path in synced if path.endswith("epochs.tmp")]) == 1
    assert buffer.service.reception.admit() == []


def weights(step):
    return WeightSet(Version("l", 1, step), {"type": "mlp"}, {"w": np.full(3, step, np.float32)}).pack()


def test_weights_that_a_full_disk_does_not_take_are_served_and_written_when_there_is_room(buffer, disk, tmp_path):
    """The very first ones: later ones have their room."""
    buffer.actor()
    buffer.learner()
    disk.full = True
    assert first(buffer.say(b"L", m.Publish(1, 8), weights(8)), m.Published) == m.Published(1, 8)
    assert buffer.service.shelf.version.step == 8
    buffer.tick(0.05)
    assert warnings(buffer) == ["not written: weights: No space left on device"]
    for _ in range(3):
        buffer.tick(0.6)
        buffer.raw(b"L", [])
    assert Shelf(tmp_path).nbytes == 0  # what the next buffer begins with
    disk.full = False
    buffer.tick(1.1)
    buffer.raw(b"L", [])
    buffer.tick(0.05)
    assert warnings(buffer) == []
    assert Shelf(tmp_path).version.step == 8


def test_later_weights_are_written_on_a_full_disk_too(buffer, disk, tmp_path):
    """So that the next buffer has none that are older than those that actors had."""
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Publish(1, 7), weights(7))
    disk.full = True
    for step in (8, 9, 10):
        assert first(buffer.say(b"L", m.Publish(1, step), weights(step)), m.Published) == m.Published(1, step)
        assert Shelf(tmp_path).version.step == step
    buffer.tick(0.05)
    assert warnings(buffer) == []


def test_a_snapshot_that_was_not_written_is_in_the_warnings(buffer, tmp_path):
    class Failed:
        failure = "No space left on device"

        def report(self):
            return {}

    buffer.service.backups = Failed()
    assert warnings(buffer) == ["not written: snapshot: No space left on device"]


def test_of_who_only_looks_nothing_is_written_down(buffer, tmp_path):
    for number in range(50):
        assert first(buffer.say(b"O", m.Hello(1, "observer", f"o{number}", b"3", "host", 9)), m.Welcome).epoch == 1
        buffer.say(b"O", m.Goodbye(False))
        buffer.say(b"E", m.Hello(1, "evaluator", f"e{number}", b"4", "host", 9))
        buffer.say(b"E", m.Goodbye(False))
    assert not (tmp_path / "epochs.json").exists()
    assert buffer.service.fleet.sessions() == []
