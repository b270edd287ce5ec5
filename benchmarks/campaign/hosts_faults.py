"""Planted faults of how a run on many hosts is judged: what is lost or doubled over its shards, and when rates are back."""

from __future__ import annotations

from campaign.planting import Mutant

JUDGE, TROUBLES = (f"benchmarks/campaign/{name}.py" for name in ("hosts_judge", "troubles"))
TEST = ("tests/unit/benchmarks/test_many_hosts.py",)

HOSTS = (
    Mutant("each-shard-may-hold-a-row", JUDGE, "sum(there.values()) - len(there)", "0", TEST),
    Mutant(
        "shards-balance-together-alone",
        JUDGE,
        "in enumerate(shards):\n        problems +=",
        "in ():\n        problems +=",
        TEST,
    ),
    Mutant("a-burst-is-a-return", TROUBLES, "np.minimum(soon, lasting)", "soon", TEST),
    Mutant("half-the-rate-is-back", TROUBLES, "SHARE = 0.9", "SHARE = 0.5", TEST),
    Mutant("rates-are-back-before-the-trouble", TROUBLES, "times[(times >= since) & (", "times[(", TEST),
)
