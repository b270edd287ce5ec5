"""Cores that a process may use: its affinity, cut by the quota of its container."""

import pytest

from headrace.common import cores


@pytest.mark.parametrize(
    ("quota", "found"),
    [
        ("max 100000\n", 64),
        ("200000 100000\n", 2),
        ("50000 100000\n", 1),  # half a core is still one thread
        ("12800000 100000\n", 64),
        ("nonsense", 64),
        (None, 64),
    ],
)
def test_a_quota_of_the_container_cuts_the_affinity(quota, found, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.setattr(cores, "QUOTA", tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert cores.usable_cores() == found
