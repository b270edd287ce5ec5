"""Evidence: whose steps and whose faults, where the system has given one pid to two processes."""

from __future__ import annotations

import json

from headrace.launch.chaos import evidence

PID = 4711


def write(directory, name, begun, about, *lines):
    told = [[begun, "begin", {**about, "pid": PID}], *lines]
    (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))


def test_a_pid_that_is_given_again_is_another_process(tmp_path):
    for begun, actor in ((10.0, "actor-0"), (500.0, "actor-1")):
        write(tmp_path, f"client-{actor}", begun, {"role": "actor", "id": actor})
        step = [begun + 2, "step", 0, int(begun), 0, "00", 0, 0]
        write(tmp_path, f"steps-{actor}", begun + 1, {"actor": int(begun)}, step)
    write(tmp_path, "faults-0", 0.0, {}, [5.0, "hit", "usurp", "learner", PID], [20.0, "hit", "kill", "actor", PID])
    found = evidence.load(tmp_path, {})
    first, second = found.clients
    assert [(c.id, [s.number for s in c.steps]) for c in (first, second)] == [("actor-0", [10]), ("actor-1", [500])]
    assert found.hits == {(PID, 0.0): {"usurp"}, (PID, 10.0): {"kill"}}
    assert (found.may_abandon(first), found.may_abandon(second)) == (True, False)
