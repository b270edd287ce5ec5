"""Planted faults of what travels: compression, and priorities that come with rows."""

from __future__ import annotations

from campaign.planting import Mutant

COMPRESSION, INTAKE = ("tests/protocol/test_compression.py",), ("tests/protocol/test_intake.py",)
BLOCK = ("tests/unit/common/test_block.py",)

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
        "            priorities = block.priorities if priorities is None else priorities\n",
        "",
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
)
