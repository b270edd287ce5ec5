"""A robot program with a loop of its own, for kills: every step goes to a log before it is recorded."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from headrace.actor import ActorConfig, NetworkConfig, TransitionSpec, connect

LENGTH = 7
SPEC = TransitionSpec.like({"obs": np.zeros(3, np.float32)}, [-1.0], [1.0])
NETWORK = NetworkConfig(lease_s=1.0, heartbeat_s=0.1, connect_s=60)


def run(endpoint: str, spool: str, log: str, steps: int, wait_s: float, options: dict[str, object]) -> None:
    """Record ``steps`` steps at 200 Hz in episodes of 7, and print what became of them."""
    actor = ActorConfig(spool=spool, **{"spool_bytes": 1 << 22, **options})  # type: ignore[arg-type]  # of a test
    out = Path(log).open("a", buffering=1)  # noqa: SIM115 - as long as the process lives
    with connect(endpoint, "arm-0", SPEC, actor=actor, network=NETWORK, wait_s=wait_s) as session:
        for n in range(steps):
            episode, t = divmod(n, LENGTH)
            if t == 0:
                session.begin({"obs": np.array([0, episode, 0], np.float32)})
            out.write(f"{episode} {t}\n")
            session.record({"obs": np.array([0, episode, t + 1], np.float32)}, [0.0], t, t == LENGTH - 1, False)
            if t == LENGTH - 1 and episode % 2:
                session.success()
            time.sleep(0.005)
    print(session.counts, flush=True)


if __name__ == "__main__":
    said = dict(word.split("=") for word in sys.argv[6:])
    words = {key: int(value) if value.isdigit() else value for key, value in said.items()}
    run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), words)
