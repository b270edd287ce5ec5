"""All planted faults by name, and those of how the pool keeps its rows: what is replaced by what, and the narrowest tests."""

from __future__ import annotations

from campaign.bound_faults import BOUNDS
from campaign.chaos_faults import CHAOS
from campaign.checkpoint_faults import CHECKPOINTS
from campaign.client_faults import CLIENT
from campaign.data_faults import DATA
from campaign.drawing_faults import DRAWING
from campaign.flow_faults import PATHS
from campaign.hostile_faults import INPUT
from campaign.judging_faults import JUDGING
from campaign.key_faults import KEYS
from campaign.learner_faults import LEARNER
from campaign.link_faults import LINKS
from campaign.offline_faults import FROM_DATA
from campaign.pixel_faults import PIXELS
from campaign.planting import planted
from campaign.promise_faults import PROMISES
from campaign.robot_faults import ROBOTS
from campaign.role_faults import ROLES
from campaign.wire_faults import WIRE

UNIT, PROTOCOL = "tests/unit/buffer", "tests/protocol"
KILL = f"{UNIT}/test_pool_kill.py"
DEMANDS, INTAKE = f"{PROTOCOL}/test_demands.py", f"{PROTOCOL}/test_intake.py"

_ALL = (
    # rows and frames in the rings
    planted(
        "next-is-row-plus-one",
        "segment",
        'column["next_obs"][slots] += frame_head',
        'column["next_obs"][slots] = column["obs"][slots] + 1',
        "row_pool",
    ),
    planted(
        "view-ignores-tail",
        "view",
        "bad: Array = (ids < self.tail) | (ids >= head)",
        "bad: Array = ids >= head",
        "view",
    ),
    planted(
        "view-ignores-amends",
        "view",
        "changing = amends != self._header[Field.AMENDS] or (amends & 1 and amends != self._stuck)",
        "changing = False",
        "view",
    ),
    planted(
        "view-ignores-head", "view", "bad: Array = (ids < self.tail) | (ids >= head)", "bad: Array = ids < self.tail", "view"
    ),
    planted(
        "any-number-is-a-cut-load",
        "store",
        "if files.header[Field.RESTORING] not in (0, LOADING):",
        "if False:",
        "damaged_pool",
    ),
    planted("a-cut-load-is-one-bit", "files", 'int.from_bytes(b"loading!", "little", signed=True)', "1", "damaged_pool"),
    planted("view-ignores-new-owner", "view", "if changing or not self.is_current:", "if changing:", "view"),
    planted(
        "head-before-data",
        "segment",
        "self._fence()  # the tail is where it is, and then slots below it are written over",
        "self._header[Field.HEAD] = head + block.n_rows",
        f"{KILL}::test_a_kill_at_any_line_of_an_insert_loses_nothing",
    ),
    planted(
        "priority-of-the-slots-last-row",
        "segment",
        "if name in self._fields else 0",
        'if name in self._fields else (mutable[slots] if name == "priority" else 0)',
        "prioritised_pool",
    ),
    planted(
        "tombstone-of-the-slots-last-row",
        "segment",
        "if name in self._fields else 0",
        'if name in self._fields else (mutable[slots] if name == "discarded" else 0)',
        "labels",
    ),
    planted(
        "discarded-rows-are-retired-again",
        "segment",
        'lost = tail - self.tail - np.count_nonzero(self.column("discarded", self.tail, tail))',
        "lost = tail - self.tail",
        "labels",
    ),
    planted("rows-outlive-their-frames", "store", "            segment.retire(floor)\n", "            pass\n", "row_pool"),
    planted(
        "next-frames-are-the-first",
        "reader",
        'next_obs = self._gather_frames(rows["next_obs"],',
        'next_obs = self._gather_frames(rows["obs"],',
        "row_pool",
    ),
    planted(
        "wrapped-span-repeats-its-beginning",
        "ring",
        "Span(0, first, count - first)",
        "Span(0, 0, count - first)",
        "ring",
    ),
    planted(
        "ring-without-slack",
        "ring",
        "max_frames, config.capacity + max_rows, frame_slots)",
        "max_frames, config.capacity, frame_slots)",
        "ring",
    ),
    planted(
        "slots-of-live-frames-are-free",
        "segment",
        "n = min(most, slots - slot, self._frame_floor + slots - head)",
        "n = min(most, slots - slot)",
        "staging",
    ),
    planted("next-states-stay-where-they-wait", "staging", "            frames[n:] = self._after\n", "", "staging"),
    planted(
        "next-states-moved-twice",
        "staging",
        "            if self._after is None:  # the next",
        "            if True:  # the next",
        "pool_interrupt",
    ),
    planted(
        "waiting-numbers-not-checked",
        "staging",
        "if not target.is_flag and not target.is_finite(start, stop):",
        "if False:",
        "staging",
    ),
    planted(
        "waiting-rows-gone-with-an-interrupt",
        "store",
        "                self._append(staging, index, stream, seq)\n",
        "",
        "pool_interrupt",
    ),
    planted(
        "waiting-rows-twice",
        "store",
        "            if self.segment.head == head:\n",
        "            if True:\n",
        "pool_interrupt",
    ),
    planted(
        "statistics-cancel",
        "statistics",
        "if np.count_nonzero(cancelled > _MOST_CANCELLED * m2):",
        "if False:",
        "statistics",
    ),
    # ledger and stamps
    planted(
        "interrupted-change-not-mended",
        "store",
        "            self._mend()\n            raise\n",
        "            raise\n",
        "pool_interrupt",
    ),
    planted("duplicates-accepted", "store", "known = min(n, max(0, last + 1 - first_seq))", "known = 0", "row_pool"),
    planted(
        "table-changes-without-a-stamp",
        "store",
        "index = self.ledger.open(actor, stream)\n            self._stamp()",
        "index = self.ledger.open(actor, stream)",
        f"{KILL}::test_a_kill_at_any_line_of_an_insert_loses_nothing",
    ),
    planted(
        "tail-passes-the-older-stamp",
        "books",
        "while tail > self._stamps.older:",
        "while tail > self._stamps.newest:",
        "books",
    ),
    planted(
        "newer-stamp-overwritten",
        "stamps",
        "copy = self._serial.index(min(self._serial))",
        "copy = self._serial.index(max(self._serial))",
        "stamps",
    ),
    planted(
        "stamp-digest-not-checked",
        "stamps",
        "valid = hashlib.sha256(body).digest() == digest and tail <= stamp <= head",
        "valid = tail <= stamp <= head",
        "stamps",
    ),
    planted(
        "closed-stream-opens-again",
        "ledger",
        "if len(streams) == STREAMS_PER_ACTOR and stream < min(streams):",
        "if stream < 0:",
        "ledger",
    ),
    planted(
        "gaps-not-counted",
        "ledger",
        "self.lost_before += seq - streams[stream] - rows",
        "self.lost_before += 0",
        "ledger",
    ),
    # late labels
    planted(
        "label-without-journal",
        "labels",
        "            self._files.journal.write(serial, _encode(actor, label, counts))\n",
        "",
        f"{KILL}::test_a_kill_at_any_line_of_a_label_leaves_it_whole_or_absent",
    ),
    planted(
        "amends-never-odd",
        "labels",
        "header[Field.AMENDS] = serial\n",
        "header[Field.AMENDS] = serial + 1\n",
        "labels",
    ),
    planted(
        "journal-digest-not-checked",
        "journal",
        "return body[_HEAD.size :] if hashlib.sha256(body).digest() == self._buffer[:_DIGEST] else None",
        "return body[_HEAD.size :]",
        "journal",
    ),
    planted("outcome-column-not-read", "reader", 'rows["outcome"] = self._outcome.take(slots)', "pass", "labels"),
    # snapshots, generations, power cuts
    planted("snapshot-digest-not-checked", "snapshot", "verify and digest.hexdigest() != expected", "not expected", "snapshot"),
    planted(
        "snapshot-named-before-it-is-whole",
        "snapshot",
        "    hidden.mkdir()\n    try:\n",
        "    hidden = final\n    hidden.mkdir()\n    try:\n",
        f"{KILL}::test_a_kill_at_any_line_of_a_save_leaves_the_old_snapshot_or_the_new",
    ),
    planted(
        "copy-ignores-evictions",
        "capture",
        "return same and (row == self._head or header.tail <= row)",
        "return same",
        "capture",
    ),
    planted(
        "labels-leak-into-a-snapshot",
        "capture",
        "        self._undo_labels(arrays, low, high)\n",
        "",
        "capture",
    ),
    planted(
        "generation-named-before-it-is-whole",
        "store",
        "        store.restore(Contents.of_store(self))\n",
        '        body = {"spec": self.spec.to_dict(), "config": dump(config), **extra}\n'
        "        generations.publish(folder, files.pool_id, body)\n"
        "        store.restore(Contents.of_store(self))\n",
        f"{KILL}::test_a_kill_at_any_line_of_a_capacity_change_loses_nothing",
    ),
    planted("partial-of-the-living-removed", "partial", "        fcntl.flock(fd, fcntl.LOCK_EX |", "        print(", "partial"),
    planted(
        "frames-run-from-the-oldest-on",
        "segment",
        "if first_frame < frame_head - self.sizes",
        "if 0 > self.sizes",
        "plain",
    ),
    planted("too-many-rows-packed", "packing", "np.sort(last)[-slots - 1]) + 1", "np.sort(last)[-slots - 1])", "packing"),
    planted("packed-frames-in-another-order", "packing", "return rows, used[order]", "return rows, used", "packing"),
    planted("partial-of-the-dead-stays", "partial", "            _sweep(other)\n", "            continue\n", "partial"),
    planted("forked-child-writes", "lock", "        if not self.is_ours:\n", "        if False:\n", "home"),
    planted("forked-child-shares-the-header", "files", "mmap.mmap(-1, size, alone)", "mmap.mmap(-1, size)", "home"),
    planted("forked-child-ends-the-pool", "pool", " and self._home.is_ours:", ":", "home"),
    planted("rows-without-a-manifest-begin-anew", "generations", "if any(file.read(8)):", "if False:", "generations"),
    planted("removed-pool-is-in-the-way", "generations", "file.write(bytes(8))", "pass", "generations"),
    planted(
        "record-before-its-data",
        "durable",
        "            for fd in self._data:\n                os.fdatasync(fd)\n",
        "",
        "durable",
    ),
    planted(
        "durable-slots-written-over",
        "durable",
        "return head - self._row_slots <= self._tail and frame_head - self._frame_slots <= self._first_frame",
        "return True",
        "durable",
    ),
    planted(
        "acknowledged-without-a-sync",
        "worker",
        "            self._pool.sync()  # once for all of the round, before any of it is acknowledged\n",
        "            pass\n",
        "worker",
    ),
    planted(
        "failed-sync-forgotten",
        "durable",
        "        files.header[Field.BOOT] = -boot.boot_number()\n",
        "",
        "durable",
    ),
    planted("pages-of-a-failed-sync-stay-clean", "durable", "        files.dirty()\n", "        pass\n", "durable"),
    planted(
        "torn-pool-trusted",
        "durable",
        "return fields[Field.OWNER] != 0 and abs(fields[Field.BOOT]) not in (0, boot.boot_number())",
        "return False",
        "durable",
    ),
    planted(
        "closed-before-it-is-on-disk",
        "store",
        "            if self._durable is None:\n                self.files.sync()\n            self.header[Field.OWNER] = 0\n",
        "            self.header[Field.OWNER] = 0\n            if self._durable is None:\n                self.files.sync()\n",
        "durable",
    ),
    planted(
        "empty-pool-hides-the-snapshot",
        "server",
        "if pool is None or pool.head == 0:\n        pool = _restored",
        "if pool is None:\n        pool = _restored",
        "durable",
    ),
    planted(
        "epoch-given-out-before-its-name-is-on-disk",
        "epochs",
        "    sync_directory(path.parent)  # an epoch that was given out must never be given out again\n",
        "",
        f"{PROTOCOL}/test_session.py",
    ),
    # shards
    planted(
        "imported-numbers-not-compared",
        "transfer",
        "return all(pool.last_seq(actor,",
        "return any(pool.last_seq(actor,",
        "transfer",
    ),
    planted("seqs-of-shards-may-fall", "transfer", "last[(actor, stream)] = end - 1", "last[(actor, stream)] = 0", "transfer"),
    planted("shard-digest-not-checked", "shards", "if found != shard.sha256:", "if not found:", "transfer"),
    # pacing and the protocol
    planted(
        "minimum-fill-owes-updates",
        "pacing",
        "math.floor(self.config.ratio * (self.env_steps - self.config.min_fill))",
        "math.floor(self.config.ratio * self.env_steps)",
        f"{PROTOCOL}/test_pacing.py",
    ),
    planted(
        "learner-that-left-is-forgotten", "service", "self._board.work.append(Settle())", "pass", f"{PROTOCOL}/test_restart.py"
    ),
    planted(
        "a-run-that-goes-on-is-done",
        "files",
        "return self._fields[Field.SETTLED] == self.updates + 1",
        "return self._fields[Field.SETTLED] > 0",
        f"{PROTOCOL}/test_restart.py",
    ),
    planted(
        "updates-refunded",
        "demands",
        "allowed, offline = self._pacing.updates_allowed(), self._pacing.offline",
        'allowed = self._pacing.owed - sum(c.demand.get_state()["delivered"] for c in clients)\n'
        "        offline = self._pacing.offline",
        f"{PROTOCOL}/test_restart.py",
    ),
    planted(
        "dead-actor-keeps-its-allowance",
        "pacing",
        "        self._accounts.pop(actor, None)\n",
        "",
        f"{PROTOCOL}/test_pacing.py",
    ),
    planted(
        "quota-saved-up-for-a-burst",
        "quota",
        "self._credit = min(self._cap, self._credit + steps * (1 - self._share) / self._share)",
        "self._credit += steps * (1 - self._share) / self._share",
        f"{PROTOCOL}/test_quota.py",
    ),
    planted("credit-for-bytes-that-wait", "client", "free = self.taken - self.queued", "free = self.taken", "client"),
    planted(
        "demand-without-bound",
        "demand",
        "or draw.wanted > self._delivered + MOST_AHEAD",
        "",
        DEMANDS,
    ),
    planted(
        "acknowledged-before-commit",
        "intake",
        "head, frames)\n        client.queued += work.nbytes\n        self._board.work.append(work)\n        return []",
        "head, frames)\n        client.queued += work.nbytes\n        self._board.work.append(work)\n"
        "        return [(client.session.peer, [encode(m.Ack(head.stream, head.seq + head.rows - 1))])]",
        INTAKE,
    ),
    planted(
        "fenced-learner-publishes",
        "weight_exchange",
        "if publish.epoch != session.epoch:",
        "if publish.epoch < 0:",
        f"{PROTOCOL}/test_weight_exchange.py",
    ),
)
MUTANTS = {
    mutant.name: mutant
    for mutant in (
        *_ALL,
        *BOUNDS,
        *CHAOS,
        *CHECKPOINTS,
        *CLIENT,
        *DATA,
        *DRAWING,
        *FROM_DATA,
        *INPUT,
        *JUDGING,
        *KEYS,
        *LEARNER,
        *LINKS,
        *PATHS,
        *PIXELS,
        *PROMISES,
        *ROBOTS,
        *ROLES,
        *WIRE,
    )
}
