"""A robot program with a loop of its own, for kills: every step goes to a log before it is recorded."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor import ActorConfig, NetworkConfig, TransitionSpec, connect

LENGTH = 7
PERIOD_MS, CLOSE_S = 5, 10
SPEC = TransitionSpec.like({"obs": np.zeros(3, np.float32)}, [-1.0], [1.0])
NETWORK = NetworkConfig(lease_s=1.0, heartbeat_s=0.1, connect_s=60)


def observed(episode: int, t: int, wide: int) -> dict[str, np.ndarray]:
    """What the robot sees: its place, and where it has a camera a picture of ``wide`` bytes that nothing makes smaller."""
    out = {"obs": np.array([0, episode, t], np.float32)}
    if wide:
        out["image"] = np.random.default_rng([episode, t]).integers(0, 256, wide, np.uint8)
    return out


def run(endpoint: str, spool: str, log: str, steps: int, wait_s: float, options: dict[str, Any]) -> None:
    """Record ``steps`` steps in episodes of 7, one in ``period_ms``, and print what became of them and the longest call."""
    period_s, wide = options.pop("period_ms", PERIOD_MS) / 1e3, options.pop("wide", 0)
    close_s, network = options.pop("close_s", CLOSE_S), replace(NETWORK, insecure=bool(options.pop("insecure", 0)))
    actor = ActorConfig(spool=spool, **{"spool_bytes": 1 << 22, **options})
    out = Path(log).open("a", buffering=1)  # noqa: SIM115 - as long as the process lives
    spec, longest = TransitionSpec.like(observed(0, 0, wide), [-1.0], [1.0]), 0.0
    with connect(endpoint, "arm-0", spec, actor=actor, network=network, wait_s=wait_s) as session:
        for n in range(steps):
            episode, t = divmod(n, LENGTH)
            if t == 0:
                session.begin(observed(episode, 0, wide))
            out.write(f"{episode} {t}\n")
            seen = observed(episode, t + 1, wide)
            begun = time.perf_counter()
            session.record(seen, [0.0], t, t == LENGTH - 1, False)
            longest = max(longest, time.perf_counter() - begun)
            if t == LENGTH - 1 and episode % 2:
                session.success()
            time.sleep(period_s)
        session.close(close_s)
    print(session.counts, f"longest_ms={1e3 * longest:.0f}", flush=True)


if __name__ == "__main__":
    said = dict(word.split("=") for word in sys.argv[6:])
    words = {key: int(value) if value.isdigit() else value for key, value in said.items()}
    run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), words)
