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
        step = [begun + 2, "step", 0, int(begun), 0, "00", 0, 0, 0]
        write(tmp_path, f"steps-{actor}", begun + 1, {"actor": int(begun)}, step)
    write(tmp_path, "faults-0", 0.0, {}, [5.0, "hit", "usurp", "learner", PID], [20.0, "hit", "kill", "actor", PID])
    found = evidence.load(tmp_path, {})
    first, second = found.clients
    assert [(c.id, [s.number for s in c.steps]) for c in (first, second)] == [("actor-0", [10]), ("actor-1", [500])]
    assert found.hits == {(PID, 0.0): {"usurp"}, (PID, 10.0): {"kill"}}
    assert (found.may_abandon(first), found.may_abandon(second)) == (True, False)


def test_what_a_spool_keeps_and_which_labels_were_taken(tmp_path):
    lines = [
        [11.0, "kept", [[0, 0, 3]]],
        [12.0, "said", 1, 4, 1, 3, 2, 0],
        [12.0, "said", 2, 4, 4, 9, 1, 1],
        [13.0, "labelled", 1, ""],
        [13.0, "labelled", 2, "no-rows"],
    ]
    write(tmp_path, "client-arm", 10.0, {"role": "actor", "id": "arm", "spooled": True}, *lines)
    write(tmp_path, "rows-0", 0.0, {}, [20.0, "left", 800, 40])
    write(tmp_path, "intruder-0", 0.0, {}, [5.0, "tried", "arm without a key", "silent"])
    found = evidence.load(tmp_path, {})
    (client,) = found.clients
    assert (client.spooled, client.kept, client.said) == (True, [[[0, 0, 3]]], [(4, 1, 3, 2, 0)])
    assert (found.left, found.tail, found.tried) == (800, 40, [("arm without a key", "silent")])
