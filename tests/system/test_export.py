"""A pool is exported while another process writes into it flat out: every exported row proves itself."""

import subprocess
import sys
import time

import numpy as np
from helpers.lane_rows import cpu_only, lane_spec, prove_pool

from headrace.buffer import SACReplayPool, export_pool, import_pool, manifest, transfer
from headrace.buffer.view import PoolView
from headrace.common.errors import PoolError

WRITER = """
import sys
from pathlib import Path
from headrace.buffer import SACReplayPool
from helpers.lane_rows import Lane, lane_spec
spec = lane_spec(stack=2, image=8)
lane = Lane(spec, 5)
with SACReplayPool(4000, path=Path(sys.argv[1]), spec=spec) as pool:
    while True:
        pool.insert(lane.block(32), "fast", 1, lane.seq - 32)
        if lane.seq == 4001:
            print("full", flush=True)
"""


def wait_for_more(view):
    """Until the writer has committed some more rows."""
    head, deadline = view.head, time.monotonic() + 20
    while view.head < head + 128:
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def exported(view, out):
    """An export; one that the writer has overtaken from its first row to its last, on a machine without time for it, again."""
    for _ in range(20):
        try:
            return export_pool(view, out, progress=lambda *_: wait_for_more(view))
        except PoolError as error:
            if "all 4000 rows were discarded, or evicted before they could be read" not in str(error) or out.exists():
                raise
    raise AssertionError("overtaken 20 times")


def test_export_beside_a_writer_at_full_rate(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "SHARD_BYTES", 1)  # many small gathers, so that rows go in between
    words = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{WRITER}", str(tmp_path / "pool")]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE, env=cpu_only())
    try:
        assert writer.stdout.readline() == b"full\n"
        gone = 0
        for i in range(3):
            out = tmp_path / f"out-{i}"
            with PoolView(tmp_path / "pool") as view:
                done = exported(view, out)
            again = SACReplayPool.like(manifest.read(out))
            assert import_pool(out, again).rows == done.rows
            prove_pool(again)
            assert done.rows + done.gone == 4000
            gone += done.gone
        assert gone > 0
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait(10)
        writer.stdout.close()
    with SACReplayPool(4000, path=tmp_path / "pool") as pool:
        prove_pool(pool)
        assert pool.spec == lane_spec(stack=2, image=8)
        assert np.array_equal(np.diff([row["seq"] for row in pool.dump()]), np.ones(pool.size - 1))
