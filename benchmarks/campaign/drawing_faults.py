"""Planted faults of drawing: indexes, priorities, named sets and their mixes, and pinned demonstrations."""

from __future__ import annotations

from campaign.planting import planted

DRAWING = (
    # indexes and samplers
    planted("indexes-not-told-of-evictions", "store", "            self.indexes.retired(tail)\n", "", "set_sampler"),
    planted("tombstones-not-told-of-evictions", "store", "            self.tombstones.retired(tail)\n", "", "labels"),
    planted(
        "tombstones-ignored",
        "sampler",
        "self._tombstones.step_over(places + tail)",
        "places + tail",
        "labels",
    ),
    planted(
        "step-onto-the-tombstone",
        "tombstones",
        'ids - self._gone, side="right")',
        'ids - self._gone, side="left")',
        "tombstones",
    ),
    planted("rows-twice-in-a-batch", "sampler", "if repeated.any():", "if False:", "sampler"),
    planted("actors-batches-behind-all-critics", "sampler", "part.reshape(batches, -1)", "part.reshape(1, -1)", "sampler"),
    planted("leaf-of-zero-found", "sum_tree", "child = (sums > rest[:, None])", "child = (sums >= rest[:, None])", "sum_tree"),
    planted(
        "sums-in-single-precision",
        "sum_tree",
        "above[nodes] = np.add.reduce(level.take(nodes, axis=0), axis=1, dtype=np.float64)",
        "above[nodes] = np.add.reduce(level.take(nodes, axis=0), axis=1)",
        "sum_tree",
    ),
    planted(
        "stale-priority-accepted",
        "priorities",
        "fresh = (ids >= self._tail) & (self._tree.get(slots) > 0)",
        "fresh = self._tree.get(slots) > 0",
        "priorities",
    ),
    planted(
        "priority-of-another-epoch-accepted",
        "priorities",
        "if epoch != self._header[Field.EPOCH]:",
        "if epoch < 0:",
        "priorities",
    ),
    planted(
        "weights-not-normalised",
        "priorities",
        "weights = (np.minimum.reduce(leaves) / leaves) ** ",
        "weights = (np.float32(self._tree.total / self._live) / leaves) ** ",
        "priorities",
    ),
    planted("new-rows-not-at-the-maximum", "priorities", "values[:] = self.maximum", "values[:] = 1.0", "priorities"),
    planted("half-human-is-human", "row_set", '2 * human > rows["steps"]', '2 * human >= rows["steps"]', "row_set"),
    planted(
        "one-row-too-many-is-newest",
        "row_set",
        "self._shrink(self._head - self.config.newest_rows)",
        "self._shrink(self._head - self.config.newest_rows - 1)",
        "row_set",
    ),
    planted("sets-share-a-row", "mix", "self._taken = np.union1d(self._taken, ids)", "pass", "mix"),
    planted(
        "remainder-not-carried",
        "apportion",
        "self._carry = [c + s * total - n for c, s, n in zip(self._carry, self.shares, counts, strict=True)]",
        "pass",
        "apportion",
    ),
    planted("first-task-favoured", "apportion", "start = bisect_right(keys, self._last)", "start = 0", "apportion"),
    planted(
        "weights-left-out-of-messages",
        "sampler",
        "(d.ids, d.weights, d.sets) for d in draws",
        "(d.ids, None, d.sets) for d in draws",
        "tests/protocol/test_demands.py",
    ),
    # pinned demonstrations
    planted("demos-read-from-the-ring", "handles", "(self._pinned, pinned, PINNED)", "(self._online, pinned, 0)", "handles"),
    planted("demos-keep-their-source", "pinned", "np.where(executed, SOURCE_DEMO, 0)", 'rows["source"]', "pinned"),
    planted("frames-of-demos-not-renumbered", "pinned", "rows[name] -= self._first_frame", "pass", "pinned"),
    planted("discarded-rows-pinned", "pinned", 'piece.arrays[column_file("discarded")] == 0', "slice(None)", "pinned"),
    planted(
        "other-demos-accepted",
        "pinned",
        "if has is None or has.digest != asked.digest:",
        "if has is None:",
        "pinned_files",
    ),
    planted("demos-of-another-pool-found", "pinned", "if mine.origin.digest != has.digest:", "if False:", "pinned_files"),
    planted("demos-are-bad-in-a-view", "view", "bad &= ~self._pinned.holds(ids)", "pass", "pinned_files"),
    planted("demos-beyond-the-last-are-good", "pinned", "& (handles < PINNED + len(self))", "", "pinned"),
    planted("first-demo-never-drawn", "sampler", "behind = places >= online", "behind = places > online", "pinned"),
    planted("sets-draw-demos-twice", "joined_rows", "+ len(self._online.group(key))", "", "joined_rows"),
    planted("label-of-demos-not-named", "row_pool", "self._pinned.refuse_label(actor)", "pass", "pinned"),
    planted(
        "demos-not-in-the-statistics",
        "row_pool",
        "(own if self._pinned is None else own.merged(self._pinned.statistics))",
        "own",
        "pinned",
    ),
    planted(
        "demos-among-the-newest",
        "set_sampler",
        "if not (definition.newest_rows or definition.newest_versions):",
        "if True:",
        "pinned_sets",
    ),
)
