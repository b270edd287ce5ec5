"""Keys with real processes: roles with keys work together, others are kept out, and a revoked actor leaves at once."""

from __future__ import annotations

import signal

import pytest
from helpers.roles import roles, scripted

from headrace.common.wire.key_files import KeyFiles

MUST_NOT_RESTART = 3
FREE = {"env_steps": 0, "hold_actors": False, "random_steps": 1 << 30}
NAMES = {"arm": "actor", "leg": "actor", "operator": "operator"}


@pytest.fixture
def files(tmp_path):
    made = KeyFiles(tmp_path / "keys")
    for name, role in NAMES.items():
        made.new(name, role)
    return made


def keyed(files, **network):
    """A config that needs no learner, since it holds nobody."""
    times = {"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60}
    return scripted(network={**times, "keys": str(files.path), **network}, pacing=FREE)


def ids(status):
    return sorted(a["id"] for a in status["actors"])


def test_a_revoked_actor_leaves_at_once_and_the_other_goes_on_with_its_next_key(tmp_path, files):
    with roles(tmp_path, keyed(files)) as run:
        run.buffer()
        run.actor("arm")
        leg = run.actor("leg")
        status = run.wait(lambda s: ids(s) == ["arm", "leg"] and s["env_steps"] > 500, 60, watch=("arm", "leg", "buffer"))
        assert status["security"]["mode"] == "keys"
        files.revoke("leg")
        assert leg.wait(20) == MUST_NOT_RESTART, run.log("leg")
        assert "its key was revoked" in run.log("leg")
        files.new("arm", "actor")  # its next key, beside the one that it uses
        status = run.wait(lambda s: ids(s) == ["arm"] and s["counters"].get("refused_key-revoked"), 20, watch=("arm",))
        assert "actor/leg has not come back: its key was revoked" in status["warnings"]
        run.processes["arm"].send_signal(signal.SIGTERM)
        assert run.processes["arm"].wait(20) == 0
        files.revoke("arm", old=True)
        run.actor("arm")
        before = run.status()["env_steps"]
        run.wait(lambda s: ids(s) == ["arm"] and s["env_steps"] > before + 200, 60, watch=("arm", "buffer"))
        wrong = run.start("wrong", "actor", str(run.config), "--connect", run.endpoint, "--id", "nobody")
        assert wrong.wait(30) == MUST_NOT_RESTART
        assert f"headrace keys new {files.path} nobody --role actor" in run.log("wrong")
        assert run.stop()["buffer"] == 0
