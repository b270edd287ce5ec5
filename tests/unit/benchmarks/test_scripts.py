"""The scripts: what is still to do, and that each can be loaded by its path."""

from __future__ import annotations

import sys

import pytest
from helpers.scripts import load


@pytest.mark.parametrize(
    "name",
    [
        "chaos",
        "checkpoints",
        "curve",
        "damage",
        "gates",
        "gpu",
        "kills",
        "learner",
        "many_hosts",
        "mutants",
        "peers",
        "peer_sb3",
        "policy_server",
        "pool",
        "powercut",
        "promises",
        "report",
        "robot_jitter",
        "robot_learning",
        "sessions",
        "slow_link",
        "snapshots",
        "survival",
        "torn",
    ],
)
def test_each_script_says_what_it_measures_how_long_it_takes_and_what_its_last_line_is(name):
    text = load(name).__doc__
    assert "How long" in text
    assert "last line" in text


def runs_of(*gates):
    return [(gate, seed) for gate in gates for seed in gate.seeds]


def test_gates_are_pending_until_a_record_of_the_same_settings_is_there():
    script = load("gates")
    gate = script.GATES["pendulum-async"]
    todo = script.pending(runs_of(gate), [])
    assert todo == [(gate, seed) for seed in gate.seeds]
    settings = script.learning.settings(gate, 0)
    assert settings["pacing"]["env_steps"] == 10_000
    assert script.pending(runs_of(gate), [{"gate": gate.name, "seed": 0, "settings": settings}]) == todo[1:]
    changed = {**settings, "pacing": {**settings["pacing"], "ratio": 2.0}}
    assert script.pending(runs_of(gate), [{"gate": gate.name, "seed": 0, "settings": changed}]) == todo


@pytest.mark.parametrize(("seeds", "said"), [("1,2", "2 runs to do"), ("0..1", "2 runs to do"), ("7", "0 runs to do")])
def test_some_seeds_of_a_gate(seeds, said, tmp_path, monkeypatch, capsys):
    script = load("gates")
    monkeypatch.setattr(script, "FILE", tmp_path / "gates.jsonl")
    monkeypatch.setattr("sys.argv", ["gates.py", "--only", "hopper-async", "--seeds", seeds, "--dry"])
    assert script.main() == 0
    assert capsys.readouterr().out.startswith(said)
    monkeypatch.setattr("sys.argv", ["gates.py", "--seeds", "some"])
    with pytest.raises(SystemExit):
        script.main()
    assert "--seeds: 'some' is neither a range" in capsys.readouterr().err


def test_short_gates_come_first_and_a_run_that_broke_leaves_no_record(tmp_path, monkeypatch, capsys):
    script = load("gates")
    chosen = [script.GATES[name] for name in ("halfcheetah-sb3", "reach-sac", "pendulum-sync")]
    todo = script.pending(runs_of(*chosen), [])
    assert [gate.name for gate, _ in todo] == ["reach-sac"] * 3 + ["pendulum-sync"] * 5 + ["halfcheetah-sb3"] * 5
    monkeypatch.setattr(script, "FILE", tmp_path / "gates.jsonl")

    def run_one(gate, seed, title):
        if seed == 1:
            raise script.ProcessFailed("no success")
        return {"gate": gate.name, "seed": seed, "success_rate": 0.02, "episodes": 50, "wall_s": 1.0}

    monkeypatch.setattr(script.learning, "run_one", run_one)
    assert script.campaign([item for item in todo if item[0].name == "reach-sac"]) == 1
    assert [r["seed"] for r in script.records.read(script.FILE)] == [0, 2]
    said = capsys.readouterr().out
    assert "reach-sac seed 1: BROKE: no success" in said
    assert "reach-sac seed 2: success 2% over 50 episodes, 1 s" in said


def test_a_peer_is_asked_for_before_the_first_run(monkeypatch):
    script = load("gates")
    monkeypatch.setattr(sys, "argv", ["gates.py", "--only", "hopper-sb3"])
    monkeypatch.setattr(script.records, "read", lambda path: [])
    monkeypatch.setattr(script.learning, "run_one", lambda *run: pytest.fail("was run"))
    monkeypatch.delenv("PEERS_VENVS", raising=False)
    with pytest.raises(SystemExit, match=r"PEERS_VENVS: \(unset\) has no sb3/bin/python"):
        script.main()


def test_the_shared_settings_of_the_peers_reach_our_config():
    script = load("peers")
    for m in script.MEASURES.values():
        config = script.records.ROOT / "examples" / m.example
        resolved = script.peer.runs.resolve(config, script.peer.overrides(m, 1, 2))
        assert (resolved.learner.batch_size, resolved.learner.actor_lr, resolved.learner.threads) == (256, 1e-3, 2)
        assert (resolved.pacing.ratio, resolved.pacing.min_fill, resolved.eval.final_episodes) == (1.0, 256, 0)
        assert resolved.model.options["hidden"] == [256, 256]


def test_survival_repeats_a_failure_only_on_another_commit():
    script = load("survival")
    known = [
        {"role": "buffer", "trial": 0, "passed": True, "commit": "a"},
        {"role": "buffer", "trial": 1, "passed": False, "commit": "a"},
    ]
    assert script.pending(["buffer"], known, "a") == [("buffer", n) for n in range(2, 10)]
    assert script.pending(["buffer"], known, "b") == [("buffer", n) for n in range(1, 10)]
    assert script.pending(["actor", "buffer"], known, "a")[:2] == [("actor", 0), ("actor", 1)]


def test_a_mutant_is_not_repeated_on_the_very_commit_of_its_record():
    script = load("mutants")
    record = {"mutant": "m", "killed": True, "commit": "a", "dirty": False}
    assert script.finished([record], {"commit": "a", "dirty": False}) == {"m": record}
    assert script.finished([record], {"commit": "b", "dirty": False}) == {}
    assert script.finished([record], {"commit": "a", "dirty": True}) == {}
    assert script.finished([{**record, "dirty": True}], {"commit": "a", "dirty": False}) == {}


def test_the_peer_script_names_what_its_argument_lacks(monkeypatch, capsys):
    script = load("peer_sb3")
    monkeypatch.setattr(sys, "argv", ["peer_sb3.py", '{"library": "sb3"}'])
    assert script.main() == 2
    assert "lacks" in capsys.readouterr().err
