"""The planted faults, by name: what is replaced by what, and the narrowest tests that must notice."""

from __future__ import annotations

from campaign.learner_faults import LEARNER
from campaign.pixel_faults import PIXELS
from campaign.planting import Mutant
from campaign.role_faults import ROLES
from campaign.wire_faults import WIRE

UNIT, PROTOCOL = "tests/unit/buffer", "tests/protocol"
KILL = f"{UNIT}/test_pool_kill.py"
DEMANDS, INTAKE = f"{PROTOCOL}/test_demands.py", f"{PROTOCOL}/test_intake.py"


def _mutant(name: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    paths = (t if "/" in t else f"{UNIT}/test_{t}.py" for t in tests)
    return Mutant(name, f"buffer/{module}.py", old, new, tuple(paths))


_ALL = (
    # rows and frames in the rings
    _mutant(
        "next-is-row-plus-one",
        "segment",
        'column["next_obs"][slots] += frame_head',
        'column["next_obs"][slots] = column["obs"][slots] + 1',
        "row_pool",
    ),
    _mutant(
        "view-ignores-tail",
        "view",
        "bad: Array = (ids < self.tail) | (ids >= head)",
        "bad: Array = ids >= head",
        "view",
    ),
    _mutant(
        "view-ignores-amends",
        "view",
        "changing = amends != self._header[Field.AMENDS] or (amends & 1 and amends != self._stuck)",
        "changing = False",
        "view",
    ),
    _mutant(
        "view-ignores-head", "view", "bad: Array = (ids < self.tail) | (ids >= head)", "bad: Array = ids < self.tail", "view"
    ),
    _mutant("view-ignores-new-owner", "view", "if changing or not self.is_current:", "if changing:", "view"),
    _mutant(
        "head-before-data",
        "segment",
        "self._fence()  # the tail is where it is, and then slots below it are written over",
        "self._header[Field.HEAD] = head + block.n_rows",
        f"{KILL}::test_a_kill_at_any_line_of_an_insert_loses_nothing",
    ),
    _mutant(
        "priority-of-the-slots-last-row",
        "segment",
        "if name in self._fields else 0",
        'if name in self._fields else (mutable[slots] if name == "priority" else 0)',
        "prioritised_pool",
    ),
    _mutant(
        "tombstone-of-the-slots-last-row",
        "segment",
        "if name in self._fields else 0",
        'if name in self._fields else (mutable[slots] if name == "discarded" else 0)',
        "labels",
    ),
    _mutant(
        "discarded-rows-are-retired-again",
        "segment",
        'lost = tail - self.tail - np.count_nonzero(self.column("discarded", self.tail, tail))',
        "lost = tail - self.tail",
        "labels",
    ),
    _mutant("rows-outlive-their-frames", "store", "            segment.retire(floor)\n", "            pass\n", "row_pool"),
    _mutant(
        "next-frames-are-the-first",
        "reader",
        'next_obs = self._gather_frames(rows["next_obs"],',
        'next_obs = self._gather_frames(rows["obs"],',
        "row_pool",
    ),
    _mutant(
        "wrapped-span-repeats-its-beginning",
        "ring",
        "Span(0, first, count - first)",
        "Span(0, 0, count - first)",
        "ring",
    ),
    _mutant(
        "ring-without-slack",
        "ring",
        "max_frames, config.capacity + max_rows, frame_slots)",
        "max_frames, config.capacity, frame_slots)",
        "ring",
    ),
    _mutant(
        "slots-of-live-frames-are-free",
        "segment",
        "n = min(most, slots - slot, self._frame_floor + slots - head)",
        "n = min(most, slots - slot)",
        "staging",
    ),
    _mutant(
        "next-states-stay-where-they-wait",
        "staging",
        "frames[n:] = self._frames[self._most : self._most + n]",
        "pass",
        "staging",
    ),
    _mutant(
        "waiting-numbers-not-checked",
        "staging",
        "if not target.is_flag and not target.is_finite(start, stop):",
        "if False:",
        "staging",
    ),
    _mutant(
        "statistics-cancel",
        "statistics",
        "if np.count_nonzero(cancelled > _MOST_CANCELLED * m2):",
        "if False:",
        "statistics",
    ),
    # ledger and stamps
    _mutant(
        "interrupted-change-not-mended",
        "store",
        "            self._mend()\n            raise\n\n    def _insert",
        "            raise\n\n    def _insert",
        "pool_interrupt",
    ),
    _mutant("duplicates-accepted", "store", "known = min(n, max(0, last + 1 - first_seq))", "known = 0", "row_pool"),
    _mutant(
        "table-changes-without-a-stamp",
        "store",
        "index = self.ledger.open(actor, stream)\n            self._stamp()",
        "index = self.ledger.open(actor, stream)",
        f"{KILL}::test_a_kill_at_any_line_of_an_insert_loses_nothing",
    ),
    _mutant(
        "tail-passes-the-older-stamp",
        "books",
        "while tail > self._stamps.older:",
        "while tail > self._stamps.newest:",
        "books",
    ),
    _mutant(
        "newer-stamp-overwritten",
        "stamps",
        "copy = self._serial.index(min(self._serial))",
        "copy = self._serial.index(max(self._serial))",
        "stamps",
    ),
    _mutant(
        "stamp-digest-not-checked",
        "stamps",
        "valid = hashlib.sha256(body).digest() == digest and tail <= stamp <= head",
        "valid = tail <= stamp <= head",
        "stamps",
    ),
    _mutant(
        "closed-stream-opens-again",
        "ledger",
        "if len(streams) == STREAMS_PER_ACTOR and stream < min(streams):",
        "if stream < 0:",
        "ledger",
    ),
    _mutant(
        "gaps-not-counted",
        "ledger",
        "self.lost_before += seq - streams[stream] - rows",
        "self.lost_before += 0",
        "ledger",
    ),
    # late labels
    _mutant(
        "label-without-journal",
        "labels",
        "            self._files.journal.write(serial, _encode(actor, label, counts))\n",
        "",
        f"{KILL}::test_a_kill_at_any_line_of_a_label_leaves_it_whole_or_absent",
    ),
    _mutant(
        "amends-never-odd",
        "labels",
        "header[Field.AMENDS] = serial\n",
        "header[Field.AMENDS] = serial + 1\n",
        "labels",
    ),
    _mutant(
        "journal-digest-not-checked",
        "journal",
        "return body[_HEAD.size :] if hashlib.sha256(body).digest() == self._buffer[:_DIGEST] else None",
        "return body[_HEAD.size :]",
        "journal",
    ),
    _mutant("outcome-column-not-read", "reader", 'rows["outcome"] = self._outcome.take(slots)', "pass", "labels"),
    # indexes and samplers
    _mutant("indexes-not-told-of-evictions", "store", "            self.indexes.retired(tail)\n", "", "set_sampler"),
    _mutant("tombstones-not-told-of-evictions", "store", "            self.tombstones.retired(tail)\n", "", "labels"),
    _mutant(
        "tombstones-ignored",
        "sampler",
        "self._tombstones.step_over(places + tail)",
        "places + tail",
        "labels",
    ),
    _mutant(
        "step-onto-the-tombstone",
        "tombstones",
        'ids - self._gone, side="right")',
        'ids - self._gone, side="left")',
        "tombstones",
    ),
    _mutant("rows-twice-in-a-batch", "sampler", "if repeated.any():", "if False:", "sampler"),
    _mutant("actors-batches-behind-all-critics", "sampler", "part.reshape(batches, -1)", "part.reshape(1, -1)", "sampler"),
    _mutant("leaf-of-zero-found", "sum_tree", "child = (sums > rest[:, None])", "child = (sums >= rest[:, None])", "sum_tree"),
    _mutant(
        "sums-in-single-precision",
        "sum_tree",
        "above[nodes] = np.add.reduce(level.take(nodes, axis=0), axis=1, dtype=np.float64)",
        "above[nodes] = np.add.reduce(level.take(nodes, axis=0), axis=1)",
        "sum_tree",
    ),
    _mutant(
        "stale-priority-accepted",
        "priorities",
        "fresh = (ids >= self._tail) & (self._tree.get(slots) > 0)",
        "fresh = self._tree.get(slots) > 0",
        "priorities",
    ),
    _mutant(
        "priority-of-another-epoch-accepted",
        "priorities",
        "if epoch != self._header[Field.EPOCH]:",
        "if epoch < 0:",
        "priorities",
    ),
    _mutant(
        "weights-not-normalised",
        "priorities",
        "weights = (np.minimum.reduce(leaves) / leaves) ** ",
        "weights = (np.float32(self._tree.total / self._live) / leaves) ** ",
        "priorities",
    ),
    _mutant("new-rows-not-at-the-maximum", "priorities", "values[:] = self.maximum", "values[:] = 1.0", "priorities"),
    _mutant("half-human-is-human", "row_set", '2 * human > rows["steps"]', '2 * human >= rows["steps"]', "row_set"),
    _mutant(
        "one-row-too-many-is-newest",
        "row_set",
        "self._shrink(self._head - self.config.newest_rows)",
        "self._shrink(self._head - self.config.newest_rows - 1)",
        "row_set",
    ),
    _mutant("sets-share-a-row", "mix", "self._taken = np.union1d(self._taken, ids)", "pass", "mix"),
    _mutant(
        "remainder-not-carried",
        "apportion",
        "self._carry = [c + s * total - n for c, s, n in zip(self._carry, self.shares, counts, strict=True)]",
        "pass",
        "apportion",
    ),
    _mutant("first-task-favoured", "apportion", "start = bisect_right(keys, self._last)", "start = 0", "apportion"),
    _mutant(
        "weights-left-out-of-messages",
        "sampler",
        "(d.ids, d.weights, d.sets) for d in draws",
        "(d.ids, None, d.sets) for d in draws",
        DEMANDS,
    ),
    # pinned demonstrations
    _mutant("demos-read-from-the-ring", "handles", "(self._pinned, pinned, PINNED)", "(self._online, pinned, 0)", "handles"),
    _mutant("demos-keep-their-source", "pinned", "np.where(executed, SOURCE_DEMO, 0)", 'rows["source"]', "pinned"),
    _mutant("frames-of-demos-not-renumbered", "pinned", "rows[name] -= self._first_frame", "pass", "pinned"),
    _mutant("discarded-rows-pinned", "pinned", 'piece.arrays[column_file("discarded")] == 0', "slice(None)", "pinned"),
    _mutant("other-demos-accepted", "pinned", "if has is None or has.digest != asked.digest:", "if has is None:", "pinned"),
    _mutant("demos-of-another-pool-found", "pinned", "if mine.origin.digest != has.digest:", "if False:", "pinned"),
    _mutant("demos-are-bad-in-a-view", "view", "bad &= ~self._pinned.holds(ids)", "pass", "pinned"),
    _mutant("demos-beyond-the-last-are-good", "pinned", "& (handles < PINNED + len(self))", "", "pinned"),
    _mutant("first-demo-never-drawn", "sampler", "behind = places >= online", "behind = places > online", "pinned"),
    _mutant("sets-draw-demos-twice", "joined_rows", "+ len(self._online.group(key))", "", "joined_rows"),
    _mutant("label-of-demos-not-named", "row_pool", "self._pinned.refuse_label(actor)", "pass", "pinned"),
    _mutant(
        "demos-not-in-the-statistics",
        "row_pool",
        "(own if self._pinned is None else own.merged(self._pinned.statistics))",
        "own",
        "pinned",
    ),
    _mutant(
        "demos-among-the-newest",
        "set_sampler",
        "if not (definition.newest_rows or definition.newest_versions):",
        "if True:",
        "pinned",
    ),
    # snapshots, generations, power cuts
    _mutant("snapshot-digest-not-checked", "snapshot", "verify and digest.hexdigest() != expected", "not expected", "snapshot"),
    _mutant(
        "snapshot-named-before-it-is-whole",
        "snapshot",
        "    hidden.mkdir()\n    try:\n",
        "    hidden = final\n    hidden.mkdir()\n    try:\n",
        f"{KILL}::test_a_kill_at_any_line_of_a_save_leaves_the_old_snapshot_or_the_new",
    ),
    _mutant(
        "copy-ignores-evictions",
        "capture",
        "return same and (row == self._head or header.tail <= row)",
        "return same",
        "capture",
    ),
    _mutant(
        "labels-leak-into-a-snapshot",
        "capture",
        "        self._undo_labels(arrays, low, high)\n",
        "",
        "capture",
    ),
    _mutant(
        "generation-named-before-it-is-whole",
        "store",
        "        store.restore(Contents.of_store(self))\n",
        '        body = {"spec": self.spec.to_dict(), "config": dump(config), **extra}\n'
        "        generations.publish(folder, files.pool_id, body)\n"
        "        store.restore(Contents.of_store(self))\n",
        f"{KILL}::test_a_kill_at_any_line_of_a_capacity_change_loses_nothing",
    ),
    _mutant(
        "record-before-its-data",
        "durable",
        "            for fd in self._data:\n                os.fdatasync(fd)\n",
        "",
        "durable",
    ),
    _mutant(
        "durable-slots-written-over",
        "durable",
        "return head - self._row_slots <= self._tail and frame_head - self._frame_slots <= self._first_frame",
        "return True",
        "durable",
    ),
    _mutant(
        "acknowledged-without-a-sync",
        "worker",
        "            self._pool.sync()  # once for all of the round, before any of it is acknowledged\n",
        "            pass\n",
        "worker",
    ),
    _mutant(
        "failed-sync-forgotten",
        "durable",
        "        files.header[Field.BOOT] = -boot.boot_number()\n",
        "",
        "durable",
    ),
    _mutant("pages-of-a-failed-sync-stay-clean", "durable", "        files.dirty()\n", "        pass\n", "durable"),
    _mutant(
        "torn-pool-trusted",
        "durable",
        "return fields[Field.OWNER] != 0 and abs(fields[Field.BOOT]) not in (0, boot.boot_number())",
        "return False",
        "durable",
    ),
    _mutant(
        "closed-before-it-is-on-disk",
        "store",
        "            if self._durable is None:\n                self.files.sync()\n            self.header[Field.OWNER] = 0\n",
        "            self.header[Field.OWNER] = 0\n            if self._durable is None:\n                self.files.sync()\n",
        "durable",
    ),
    _mutant(
        "empty-pool-hides-the-snapshot",
        "server",
        "if pool is None or pool.head == 0:\n        pool = _restored",
        "if pool is None:\n        pool = _restored",
        "durable",
    ),
    _mutant(
        "epoch-given-out-before-its-name-is-on-disk",
        "epochs",
        "    sync_directory(path.parent)  # an epoch that was given out must never be given out again\n",
        "",
        f"{PROTOCOL}/test_session.py",
    ),
    # shards
    _mutant(
        "imported-numbers-not-compared",
        "transfer",
        "return all(pool.last_seq(actor,",
        "return any(pool.last_seq(actor,",
        "transfer",
    ),
    _mutant("seqs-of-shards-may-fall", "transfer", "last[(actor, stream)] = end - 1", "last[(actor, stream)] = 0", "transfer"),
    _mutant("shard-digest-not-checked", "shards", "if found != shard.sha256:", "if not found:", "transfer"),
    # pacing and the protocol
    _mutant(
        "minimum-fill-owes-updates",
        "pacing",
        "math.floor(self.config.ratio * (self.env_steps - self.config.min_fill))",
        "math.floor(self.config.ratio * self.env_steps)",
        f"{PROTOCOL}/test_pacing.py",
    ),
    _mutant(
        "learner-that-left-is-forgotten", "service", "self._board.work.append(Settle())", "pass", f"{PROTOCOL}/test_restart.py"
    ),
    _mutant(
        "a-run-that-goes-on-is-done",
        "files",
        "return self._fields[Field.SETTLED] == self.updates + 1",
        "return self._fields[Field.SETTLED] > 0",
        f"{PROTOCOL}/test_restart.py",
    ),
    _mutant(
        "updates-refunded",
        "demands",
        "allowed, offline = self._pacing.updates_allowed(), self._pacing.offline",
        'allowed = self._pacing.owed - sum(c.demand.get_state()["delivered"] for c in clients)\n'
        "        offline = self._pacing.offline",
        f"{PROTOCOL}/test_restart.py",
    ),
    _mutant(
        "dead-actor-keeps-its-allowance",
        "pacing",
        "        self._accounts.pop(actor, None)\n",
        "",
        f"{PROTOCOL}/test_pacing.py",
    ),
    _mutant(
        "quota-saved-up-for-a-burst",
        "quota",
        "self._credit = min(self._cap, self._credit + steps * (1 - self._share) / self._share)",
        "self._credit += steps * (1 - self._share) / self._share",
        f"{PROTOCOL}/test_quota.py",
    ),
    _mutant("credit-for-bytes-that-wait", "client", "free = self.taken - self.queued", "free = self.taken", "client"),
    _mutant(
        "demand-without-bound",
        "demand",
        "or draw.wanted > self._delivered + MAX_WANTED",
        "",
        DEMANDS,
    ),
    _mutant(
        "acknowledged-before-commit",
        "intake",
        "head, frames)\n        client.queued += work.nbytes\n        self._board.work.append(work)\n        return []",
        "head, frames)\n        client.queued += work.nbytes\n        self._board.work.append(work)\n"
        "        return [(client.session.peer, [encode(m.Ack(head.stream, head.seq + head.rows - 1))])]",
        INTAKE,
    ),
    _mutant(
        "fenced-learner-publishes",
        "weight_exchange",
        "if publish.epoch != session.epoch:",
        "if publish.epoch < 0:",
        f"{PROTOCOL}/test_weight_exchange.py",
    ),
)
MUTANTS = {mutant.name: mutant for mutant in (*_ALL, *LEARNER, *PIXELS, *ROLES, *WIRE)}
