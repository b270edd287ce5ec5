"""A power cut at ``pool.ack: synced``, by image: each page on the disk is as it was synced last, or by chance newer."""

import errno
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec, prove_pool, seqs

from headrace.buffer import PoolConfig, SACReplayPool, durable, journal
from headrace.buffer.durable import Durable
from headrace.buffer.header import Field, Header
from headrace.buffer.opening import existing
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.settings import BufferSettings
from headrace.buffer.space import filesystem
from headrace.buffer.view import PoolView
from headrace.common import boot
from headrace.common.errors import PoolDamaged, PoolTorn, SyncFailed
from headrace.common.wire.network import NetworkConfig

PAGE = 4096
SPEC = lane_spec(stack=2, image=24)


class Disk:
    """The medium below one pool directory, which sees what is synced and loses the rest at a cut."""

    def __init__(self, pool_dir, monkeypatch, seed):
        self.pool_dir, self.synced, self.images, self.draw = pool_dir, {}, [], np.random.default_rng(seed)
        self.acked = 0
        self.outcomes = [{}, {}]  # by seq: those that are certain, and with those of the label that is under way
        self.cut_at = -1  # counts fdatasync calls
        fdatasync, flush = os.fdatasync, Header.flush

        def note(fd):
            if self.cut_at == 0:
                self.cut()
            self.cut_at -= 1
            fdatasync(fd)
            path = os.readlink(f"/proc/self/fd/{fd}")
            self.synced[path.removesuffix(".tmp")] = Path(path).read_bytes()

        def note_header(header):
            flush(header)
            for path in pool_dir.glob("generation-*/header.bin"):
                self.synced[str(path)] = path.read_bytes()

        write = journal.Journal.write

        def note_journal(record, serial, data):
            write(record, serial, data)
            for path in pool_dir.glob("generation-*/journal.bin"):
                self.synced[str(path)] = path.read_bytes()
            if self.draw.random() < 0.2:
                self.cut()

        monkeypatch.setattr(journal.Journal, "write", note_journal)
        monkeypatch.setattr(durable.os, "fdatasync", note)
        monkeypatch.setattr(Header, "flush", note_header)

    def cut(self):
        """Keep an image of what a cut at this instant would leave, beside what was acknowledged before it."""
        image = self.pool_dir.with_name(f"image-{len(self.images)}")
        shutil.copytree(self.pool_dir, image, ignore=shutil.ignore_patterns("lock", "*.tmp"))
        for path in self.pool_dir.glob("generation-*/*"):
            if path.suffix not in (".npy", ".bin"):
                continue
            now = np.frombuffer(path.read_bytes(), np.uint8)
            old = np.frombuffer(self.synced.get(str(path), bytes(len(now))), np.uint8)
            newer = self.draw.random(-(-len(now) // PAGE)) < self.draw.choice((0.0, 0.3, 1.0))
            if path.suffix == ".npy" and str(path) not in self.synced:
                newer[0] = True
            np.where(newer.repeat(PAGE)[: len(now)], now, old).tofile(image / path.relative_to(self.pool_dir))
        self.images.append((image, self.acked, tuple(map(dict, self.outcomes))))


def open_pool(path, capacity=40, **config):
    options = {"max_block_rows": 8, "ack": "synced", **config}
    return SACReplayPool(capacity, path=path, spec=SPEC, config=PoolConfig(**options), rng=np.random.default_rng(0))


@pytest.fixture
def another_boot(monkeypatch, tmp_path):
    """Call it, and the machine was started anew."""

    def reboot():
        (tmp_path / "boot_id").write_text(str(random.random()))
        monkeypatch.setattr(boot, "BOOT_ID", tmp_path / "boot_id")

    return reboot


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("config", [{}, {"min_block_rows": 8}], ids=["roomy", "retiring"])
def test_a_power_cut_loses_no_acknowledged_row(tmp_path, monkeypatch, another_boot, seed, config):
    disk = Disk(tmp_path / "pool", monkeypatch, seed)
    draw = random.Random(seed)
    lane = Lane(SPEC, 1)
    pool = open_pool(tmp_path / "pool", **config)
    for _ in range(10):
        for _ in range(draw.randrange(1, 9)):  # a round
            first, n = lane.seq, draw.choice((1, 1, 1, 2, 3, 13))
            disk.cut_at = draw.choice((-1, -1, 0, 3, 5))
            pool.insert(lane.block(n), "a", 1, first)
            if draw.random() < 0.05:
                disk.cut()
        disk.cut_at = draw.choice((-1, 0, 2, 4, 6))
        pool.sync()
        disk.acked = lane.seq - 1
        for _ in range(2):
            low, outcome = draw.randrange(max(1, lane.seq - 20), lane.seq), draw.randrange(3)
            disk.cut_at = draw.choice((-1, 0, 1, 4, 6))
            disk.outcomes[1] = disk.outcomes[0] | dict.fromkeys(range(low, lane.seq), outcome)
            pool.label("a", 1, low, lane.seq - 1, outcome)
            disk.outcomes[0] = disk.outcomes[1]
        if draw.random() < 0.2:
            disk.cut()
    die(pool)
    monkeypatch.undo()
    another_boot()
    assert len(disk.images) > 8
    for image, acked, outcomes in disk.images:
        again = open_pool(image, **config)
        prove_pool(again)
        found = {row["seq"]: row["outcome"] for row in again.dump()}
        assert found in [{seq: known.get(seq, 0) for seq in found} for known in outcomes]
        last = again.last_seq("a", 1)
        assert acked <= last
        assert seqs(again, "a") == list(range(last - again.size + 1, last + 1))
        assert again.counters()["env_steps"] == again.statistics().count == last
        assert again.size == min(40, last) or again.counters()["rows_retired"] > 0
        more = Lane(SPEC, 2)
        for _ in range(5):
            again.insert(more.block(5), "b", 1, more.seq - 5)
        prove_pool(again)
        again.close()


def test_a_discarded_row_that_a_cut_took_and_its_writer_sent_again_is_counted_once(tmp_path, monkeypatch, another_boot):
    disk = Disk(tmp_path / "pool", monkeypatch, 1)
    lane = Lane(SPEC, 1)
    blocks = [lane.block(5) for _ in range(3)]
    pool = open_pool(tmp_path / "pool")
    pool.insert(blocks[0], "a", 1, 1)
    pool.insert(blocks[1], "a", 1, 6)
    pool.sync()
    pool.insert(blocks[2], "a", 1, 11)
    disk.images.clear()
    write = journal.Journal.write

    def cut_after(record, serial, data):
        write(record, serial, data)
        for _ in range(4):
            disk.cut()

    monkeypatch.setattr(journal.Journal, "write", cut_after)
    pool.discard("a", 1, 6, 15)
    die(pool)
    monkeypatch.undo()
    another_boot()
    assert len(disk.images) >= 4
    for image, *_ in disk.images:
        with open_pool(image) as again:
            again.insert(blocks[2], "a", 1, 11)
            again.discard("a", 1, 6, 15)
            counters = again.counters()
            assert (counters["rows_discarded"], counters["rows_live"], counters["rows_accepted"]) == (10, 5, 15)
            prove_pool(again)


def test_a_cut_while_a_snapshot_is_loaded_leaves_an_empty_pool(tmp_path, monkeypatch, another_boot):
    source = SACReplayPool(40, spec=SPEC)
    source.insert(Lane(SPEC, 1).block(30), "a", 1, 1)
    source.save(tmp_path / "s")
    pool = open_pool(tmp_path / "pool")
    pool.insert(Lane(SPEC, 2).block(30), "b", 1, 1)
    pool.sync()
    disk = Disk(tmp_path / "pool", monkeypatch, 1)
    disk.synced = {str(p): p.read_bytes() for p in (tmp_path / "pool").rglob("*") if p.is_file()}
    for k in range(12):
        disk.cut_at = k
        pool.load(tmp_path / "s")
    die(pool)
    monkeypatch.undo()
    another_boot()
    found = set()
    for image, *_ in disk.images:
        with open_pool(image) as again:
            prove_pool(again)
            found.add((tuple(again.actors()), again.size))
    assert found <= {(("b",), 30), ((), 0), (("a",), 30)}
    assert ((), 0) in found


def test_without_another_boot_the_mapped_header_is_believed(tmp_path):
    pool = open_pool(tmp_path)
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    die(pool)
    with open_pool(tmp_path) as pool:
        assert pool.size == 5


def test_level_memory_is_refused_after_another_boot_unless_it_was_closed_in_order(tmp_path, another_boot):
    pool = open_pool(tmp_path / "pool", ack="memory")
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    assert not list(tmp_path.rglob(durable.NAME))
    die(pool)
    open_pool(tmp_path / "pool", ack="memory").close()  # the death of a process loses nothing
    another_boot()
    with open_pool(tmp_path / "pool", ack="memory") as pool:
        assert pool.size == 5
        die(pool)
    another_boot()
    for _ in range(2):
        with pytest.raises(PoolTorn, match=r"pool: the machine stopped .* pool\.ack: memory.* load the newest snapshot"):
            open_pool(tmp_path / "pool", ack="memory")


def test_a_pool_that_says_it_was_closed_has_everything_on_disk(tmp_path, monkeypatch):
    pool = open_pool(tmp_path / "pool", ack="memory")
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    header, owners, fdatasync = pool._store.header, {}, os.fdatasync

    def note(fd):
        fdatasync(fd)
        owners[Path(os.readlink(f"/proc/self/fd/{fd}")).name] = header[Field.OWNER]

    monkeypatch.setattr(durable.os, "fdatasync", note)
    pool.close()
    assert {path.name for path in tmp_path.rglob("generation-*/*")} == set(owners)
    assert set(owners.values()) == {os.getpid()}
    assert header[Field.OWNER] == 0


def failing(monkeypatch, k):
    """Let the k-th sync of data from now on fail, and no other."""
    left, fdatasync = [k], os.fdatasync

    def sync(fd):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fdatasync(fd)

    monkeypatch.setattr(durable.os, "fdatasync", sync)


def dirty_kb(path):
    """KB of the file's mappings that the kernel has still to write."""
    ours, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            ours = line.endswith(str(path))
        elif ours and "_Dirty:" in line:
            found += int(line.split()[1])
    return found


SYNCS = 6  # five arrays of SPEC, and the record


@pytest.mark.parametrize("k", range(SYNCS))
def test_after_a_failed_sync_nothing_is_acknowledged_until_the_pool_is_opened_again(tmp_path, monkeypatch, k):
    lane = Lane(SPEC, 1)
    pool = open_pool(tmp_path / "pool")
    pool.insert(lane.block(5), "a", 1, 1)
    pool.sync()
    second = lane.block(5)
    pool.insert(second, "a", 1, 6)
    failing(monkeypatch, k)
    with pytest.raises(SyncFailed, match="Input/output error"):
        pool.sync()
    with pytest.raises(SyncFailed, match="before"):  # although the disk would take it now
        pool.sync()
    with pytest.raises(SyncFailed, match="before"):
        pool.label("a", 1, 1, 5, 1)
    pool.close()
    with open_pool(tmp_path / "pool") as pool:
        prove_pool(pool)
        assert pool.last_seq("a", 1) == (5 if k < SYNCS - 1 else 10)  # what the last record on disk says
        pool.insert(second, "a", 1, 6)
        pool.sync()
        assert seqs(pool, "a") == list(range(1, 11))


def test_after_a_failed_sync_every_page_is_written_again(tmp_path, monkeypatch):
    if filesystem(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("nothing is ever written to this disk")
    pool = open_pool(tmp_path / "pool", capacity=2000)
    pool.sync()
    failing(monkeypatch, 0)
    with pytest.raises(SyncFailed):
        pool.sync()
    pool.close()
    monkeypatch.setattr(Durable, "save", lambda *_: None)  # it would write them
    pool = open_pool(tmp_path / "pool", capacity=2000)
    for path in tmp_path.rglob("*.npy"):
        assert dirty_kb(path) >= path.stat().st_size // 1024, path.name
    die(pool)


def test_a_journal_that_cannot_be_synced_changes_nothing(tmp_path, monkeypatch):
    pool = open_pool(tmp_path / "pool")
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    pool.sync()

    def fail(record, serial, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "write", fail)
        with pytest.raises(SyncFailed, match="No space left"):
            pool.label("a", 1, 1, 5, 1)
    assert {row["outcome"] for row in pool.dump()} == {0}
    with pytest.raises(SyncFailed, match="before"):
        pool.label("a", 1, 1, 5, 1)
    pool.close()
    with open_pool(tmp_path / "pool") as pool:
        assert pool.label("a", 1, 1, 5, 1).rows == 5


def test_a_pool_that_cannot_be_put_on_disk_at_its_end_says_so_and_is_whole_in_this_boot(tmp_path, monkeypatch):
    pool = open_pool(tmp_path / "pool", ack="memory")
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    failing(monkeypatch, 2)
    with pytest.raises(SyncFailed):
        pool.close()
    monkeypatch.undo()
    with open_pool(tmp_path / "pool", ack="memory") as pool:
        prove_pool(pool)
        assert pool.size == 5
    pool = open_pool(tmp_path / "pool", ack="memory")
    failing(monkeypatch, 2)
    with pytest.raises(SyncFailed):
        pool.close()
    monkeypatch.undo()
    (tmp_path / "boot_id").write_text("another")
    monkeypatch.setattr(boot, "BOOT_ID", tmp_path / "boot_id")
    with pytest.raises(PoolTorn):
        open_pool(tmp_path / "pool", ack="memory")


def test_a_buffer_begins_with_the_newest_snapshot_where_its_pool_cannot_be_trusted(tmp_path, another_boot, caplog):
    settings = BufferSettings(
        NetworkConfig(), PoolConfig(capacity=40), tmp_path / "pool", PacingConfig(), "run", 0, snapshot_dir=tmp_path / "s"
    )
    lane = Lane(SPEC, 1)
    pool = open_pool(tmp_path / "pool", ack="memory", max_block_rows=40)
    pool.insert(lane.block(5), "a", 1, 1)
    die(pool)
    another_boot()
    with pytest.raises(PoolTorn):  # with nothing to take its place
        existing(settings)
    pool = SACReplayPool(40, spec=SPEC)
    pool.insert(Lane(SPEC, 1).block(3), "a", 1, 1)
    pool.save(tmp_path / "s")
    for ends in (False, True):  # a kill while the snapshot is loaded leaves an empty pool, which begins again
        pool = existing(settings)
        prove_pool(pool)
        assert seqs(pool, "a") == [1, 2, 3]
        pool._store.header[Field.RESTORING] = 0 if ends else 1
        die(pool)
    assert "snapshot 1 take their place" in caplog.text
    pool = existing(settings)
    assert seqs(pool, "a") == [1, 2, 3]
    assert caplog.text.count("take their place") == 2
    pool.close()


@pytest.mark.parametrize("ack", ["memory", "synced"])
def test_nobody_looks_at_what_is_left_of_a_pool_before_its_owner_has(tmp_path, another_boot, ack):
    pool = open_pool(tmp_path / "pool", ack=ack)
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    die(pool)
    assert PoolView(tmp_path / "pool").size == 5
    another_boot()
    with pytest.raises(PoolTorn, match="the machine stopped"):
        PoolView(tmp_path / "pool")
    if ack == "synced":
        open_pool(tmp_path / "pool").close()
        another_boot()
        assert PoolView(tmp_path / "pool").size == 0


def test_the_level_may_change_at_any_open(tmp_path, another_boot):
    lane = Lane(SPEC, 1)
    for ack in ("memory", "synced", "memory", "synced"):
        with open_pool(tmp_path / "pool", ack=ack) as pool:
            pool.insert(lane.block(5), "a", 1, lane.seq - 5)
            assert bool(list(tmp_path.rglob(durable.NAME))) == (ack == "synced")
        another_boot()
    with open_pool(tmp_path / "pool", capacity=15) as pool:
        assert seqs(pool, "a") == list(range(6, 21))
        die(pool)
        another_boot()
        pool = open_pool(tmp_path / "pool", capacity=15)
        assert seqs(pool, "a") == list(range(6, 21))
        pool.close()


def test_after_a_cut_the_record_takes_the_place_of_damaged_words(tmp_path, another_boot):
    pool = open_pool(tmp_path / "pool")
    lane = Lane(SPEC, 1)
    pool.insert(lane.block(5), "a", 1, 1)
    pool.sync()
    pool.insert(lane.block(5), "a", 1, 6)
    die(pool)
    for field in Field:
        image = shutil.copytree(tmp_path / "pool", tmp_path / field.name)
        flip(image, field)
        if field is Field.BOOT:
            with pytest.raises(PoolDamaged, match=r"BOOT \("):  # it may be of this boot, whose rows are all there
                open_pool(image)
    another_boot()
    for field in set(Field) - {Field.BOOT}:
        with open_pool(tmp_path / field.name) as pool:
            assert seqs(pool, "a") == [1, 2, 3, 4, 5]
            prove_pool(pool)


def flip(place, field):
    (path,) = place.rglob("header.bin")
    data = bytearray(path.read_bytes())
    data[8 * field + 1] ^= 8
    path.write_bytes(data)


def test_one_damaged_record_is_passed_over_and_two_are_named(tmp_path, another_boot):
    pool = open_pool(tmp_path / "pool")
    pool.insert(Lane(SPEC, 1).block(5), "a", 1, 1)
    pool.sync()
    pool.sync()
    die(pool)
    another_boot()
    (path,) = tmp_path.rglob(durable.NAME)
    whole = path.read_bytes()
    for copy in (0, 1):
        bad = bytearray(whole)
        bad[copy * len(whole) // 2 + 100] ^= 1
        path.write_bytes(bad)
        pool = open_pool(tmp_path / "pool")
        assert pool.size == 5
        die(pool)
        another_boot()
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(PoolDamaged, match=r"durable\.bin"):
        open_pool(tmp_path / "pool")
