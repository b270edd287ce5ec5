"""Planted faults of what travels: compression, priorities with rows, late labels, batches that a learner gathers."""

from __future__ import annotations

from campaign.planting import Mutant

COMPRESSION, INTAKE = ("tests/protocol/test_compression.py",), ("tests/protocol/test_intake.py",)
BLOCK = ("tests/unit/common/test_block.py",)
LABEL_BOX, UPLINK = "tests/unit/actor/test_label_box.py", "tests/protocol/test_uplink.py"
BATCHES = "tests/protocol/test_batches.py"
FEED = "tests/unit/learner/test_feed.py"

WIRE = (
    Mutant(
        "inflated-without-bound",
        "common/wire/deflate.py",
        "inflater.decompress(self.data, self.size + 1)",
        "inflater.decompress(self.data)",
        COMPRESSION,
    ),
    Mutant("bytes-behind-the-stream-pass", "common/wire/deflate.py", " or inflater.unused_data", "", COMPRESSION),
    Mutant("cut-stream-passes", "common/wire/deflate.py", " or not inflater.eof", "", COMPRESSION),
    Mutant("shuffle-not-undone", "common/wire/deflate.py", "return _unshuffled(data, self.width)", "return data", COMPRESSION),
    Mutant(
        "inflated-before-its-size-is-compared",
        "common/wire/codec.py",
        "    if len(frame) != need:",
        "    if len(deflate.plain(frame)) != need:",
        COMPRESSION,
    ),
    Mutant(
        "declared-sizes-without-bound", "common/wire/compression.py", "if declared > most:", "if declared < 0:", COMPRESSION
    ),
    Mutant(
        "compressed-without-agreement",
        "buffer/service.py",
        "if client.session.compression == NONE:",
        'if client.session.compression == "":',
        COMPRESSION,
    ),
    Mutant(
        "supplied-priorities-ignored",
        "buffer/row_pool.py",
        'block.priorities if priorities is None else numbers("priorities", priorities)',
        'None if priorities is None else numbers("priorities", priorities)',
        INTAKE,
    ),
    Mutant(
        "priorities-for-a-pool-without-any",
        "buffer/worker.py",
        'return replace(block, priorities=None), "unwanted"',
        'return block, "unwanted"',
        INTAKE,
    ),
    Mutant(
        "priorities-not-parted-with-their-rows",
        "common/block.py",
        "self.priorities[start:stop]",
        "self.priorities[: stop - start]",
        BLOCK,
    ),
    Mutant(
        "priorities-lost-when-blocks-are-joined",
        "common/block.py",
        "np.concatenate(priorities) if priorities else None",
        "None",
        ("tests/protocol/test_uplink.py",),
    ),
    Mutant(
        "label-overtakes-its-rows",
        "actor/label_box.py",
        "if self._unsent == len(self._items) or self._items[self._unsent].label.last > sent_through:",
        "if self._unsent == len(self._items):",
        (LABEL_BOX, UPLINK),
    ),
    Mutant("labels-lost-with-their-session", "actor/uplink.py", "            self._labels.rewind()\n", "", (UPLINK,)),
    Mutant(
        "label-of-whatever-stream",
        "actor/uplink.py",
        "label_parts(label[0], replace(label[1], stream=self._outbox.stream, first=max(first, 1), last=last))",
        "label_parts(label[0], label[1])",
        (UPLINK,),
    ),
    Mutant(
        "label-of-every-episode-in-its-range",
        "buffer/labels.py",
        'return kept if label.episode == ANY_EPISODE else kept[reader.rows(kept)["episode"] == label.episode]',
        "return kept",
        INTAKE,
    ),
    Mutant("torn-rows-handed-on", "learner/reading.py", "        if not bad.any():\n", "        if True:\n", (FEED,)),
    Mutant(
        "redraws-lost-with-their-session",
        "learner/feed.py",
        "self._redraws = deque(torn.request(i, mapped=self._reading.mapped) for i, torn in self._torn.items())",
        "self._redraws = deque()",
        (FEED,),
    ),
    Mutant(
        "pieces-in-any-order",
        "common/wire/batches.py",
        "if len(frames) != 1 or (piece.column, piece.offset) != (self._column, self._at):",
        "if len(frames) != 1:",
        (BATCHES,),
    ),
)
