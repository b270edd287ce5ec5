"""Real processes whose links are slow: everything large travels compressed, and is what it was; with priorities of actors."""

from __future__ import annotations

from collections import Counter

from helpers.roles import roles, scripted

from headrace.buffer import SACReplayPool, SamplingConfig


def test_rows_batches_and_weights_travel_compressed_and_priorities_stay_with_their_rows(tmp_path):
    config = scripted(
        network={"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60, "compression": "zlib"},
        sampling={"method": "prioritised"},
        actor={"priorities": "helpers.rate_rows:by_t"},
        pacing={"env_steps": 4000},
    )
    with roles(tmp_path, config) as run:
        run.buffer()
        run.actor("actor-0")
        run.actor("plain", "--network.compression", "none")
        run.canary(64, 50, 60, "socket", "zlib")
        seen = run.wait(
            lambda s: s["env_steps"] >= 1000 and s["updates"] > 200 and len(s["actors"]) == 2,
            60,
            watch=("buffer", "actor-0", "plain"),
        )
        assert {a["id"]: a["compression"] for a in seen["actors"]} == {"actor-0": "zlib", "plain": "none"}
        run.kill("buffer")
        run.buffer()
        run.wait(lambda s: s["phase"] == "done", 60, watch=("buffer", "actor-0", "plain"))
        assert run.processes["canary"].wait(20) == 0, run.log("canary")  # it has proved every row
        last = run.status()
        refused = {k for k in last["counters"] if k.startswith(("refused_", "rejected_"))}
        assert refused == set()  # what was on its way to the buffer that was killed has no session with this one: no fault
        shrunk = {what: n["wire_bytes"] / n["plain_bytes"] for what, n in last["compression"].items()}
        assert shrunk.keys() == {"rows", "batches", "weights"}
        assert max(shrunk["rows"], shrunk["batches"]) < 0.5
        assert shrunk["weights"] == 1.0  # a canary's are too small to be worth it
        run.stop()
    with SACReplayPool(3000, path=run.run / "pool", sampling=SamplingConfig("prioritised")) as pool:
        assert pool.check_valid() == (True, "")
        assert pool.env_steps == 4000
        rows = list(pool.dump())
        column = pool._store.files.columns["priority"]
        wrong = Counter(round(float(column[row["id"] % len(column)])) - row["t"] - 1 for row in rows)
    assert len(rows) == len({(r["actor"], r["stream"], r["seq"]) for r in rows}) == 3000
    assert wrong[0] > 2900  # but for those that were committed when the buffer was killed, and not rated yet
