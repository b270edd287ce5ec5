"""Witnesses: what leaves is written down first, and an action shows the tensors that it is by; a liar lies once."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lane_rows import Lane
from helpers.weights import small_spec

from headrace.actor.config import ActorConfig
from headrace.actor.outbox import Outbox
from headrace.actor.spool import open_outbox
from headrace.actor.store import Memory
from headrace.common.label import Kind, Label
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN, ActionSpec, ObsSpec, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, encode
from headrace.launch.chaos import history
from headrace.launch.chaos.canary import canary_weights
from headrace.launch.chaos.history import History
from headrace.launch.chaos.sabotage import BLOCK, FORGED, Saboteur
from headrace.launch.chaos.witness import WitnessPolicy, WitnessUplink, honest, runs_of

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0)))
LIMITS = {"credit_bytes": 1 << 20, "message_bytes": 1 << 20}


@pytest.fixture
def notes(tmp_path):
    made = History(tmp_path / "client-0.jsonl", {})
    yield made
    made.close()


def told(tmp_path, what):
    return [line[2:] for line in history.read(tmp_path / "client-0.jsonl").lines if line[1] == what]


class Pen:
    """A history that looks what has been sent when it is written to."""

    def __init__(self):
        self.lines = []

    def write(self, *line):
        self.lines.append(line)


def uplink(notes, meddle=honest):
    made = WitnessUplink(SPEC, Outbox(Memory(1 << 20)), 1 << 12, history=notes, meddle=meddle)
    made.welcomed(welcome())
    return made


def welcome(epoch=4, streams=()):
    return m.Welcome(epoch, 1.0, 0.1, 1 << 20, 1 << 16, 1 << 20, SPEC.to_dict(), streams)


def sent(made):
    return [decode(parts[0]) for parts in made.outgoing(1 << 20)]


def test_rows_are_told_as_they_leave_and_again_when_they_leave_again(tmp_path, notes):
    made, lane = uplink(notes), Lane(SPEC, 1, lengths=(3, 9))
    made.offer(lane.block(5), 0.0)
    assert told(tmp_path, "sent") == []
    assert [type(head) for head in sent(made)] == [m.BlockHead]
    ((stream, first, rows, runs, digest),) = told(tmp_path, "sent")
    assert (stream, first, rows, runs) == (4, 1, 5, [[0, 0, 3], [1, 0, 2]])
    made.welcomed(welcome(5, ((4, 0),)))
    sent(made)
    assert told(tmp_path, "sent") == 2 * [[stream, first, rows, runs, digest]]
    assert told(tmp_path, "welcomed") == [[4, []], [5, [[4, 0]]]]


def test_what_settles_rows_is_told_before_they_are_forgotten():
    pen = Pen()
    made, lane = uplink(pen), Lane(SPEC, 1)
    made.offer(lane.block(5), 0.0)
    sent(made)
    seen = []
    pen.write = lambda *line: seen.append((line[0], made.unacknowledged))
    made.received(m.Ack(4, 3), [])
    made.received(m.Reject(4, 4, 5, "reward", ""), [])
    assert seen == [("acked", 1), ("rejected", 1)]
    assert made.unacknowledged == 0


def test_outcomes_are_told_as_they_leave_and_so_is_their_answer(tmp_path, notes):
    made, lane = uplink(notes), Lane(SPEC, 1, lengths=(3, 9))
    made.offer(lane.block(5), 0.0)
    made.label(Label(Kind.OUTCOME, 4, 1, 3, outcome=OUTCOME_SUCCESS, episode=0))
    made.label(Label(Kind.DISCARD, 4, 4, 5, episode=1))
    assert [type(head) for head in sent(made)] == [m.BlockHead, m.LabelHead, m.LabelHead]
    ((number, *said),) = told(tmp_path, "said")
    assert said == [4, 1, 3, OUTCOME_SUCCESS, 0]
    made.received(m.Labelled(number, 3), [])
    assert told(tmp_path, "labelled") == [[number, ""]]


def test_what_a_spool_keeps_is_told_once_it_is_kept(tmp_path, notes):
    lane = Lane(SPEC, 1, lengths=(3, 9))
    gone = uplink(notes)
    gone.offer(lane.block(5), 0.0)
    gone.close()
    assert told(tmp_path, "kept") == []  # it dies with its process
    outbox = open_outbox(ActorConfig(spool=str(tmp_path / "spool"), spool_bytes=1 << 20, robot=True), "arm", SPEC)
    made = WitnessUplink(SPEC, outbox, 1 << 12, history=notes)
    made.offer(lane.block(4), 0.0)
    assert told(tmp_path, "kept") == [[[[1, 2, 4]]]]
    made.close()


def test_runs_of_rows():
    rows = np.zeros(6, SPEC.row_dtype)
    rows["episode"], rows["t"] = [0, 0, 1, 1, 1, 0], [5, 6, 0, 1, 3, 7]
    assert runs_of(rows) == [[0, 5, 2], [1, 0, 2], [1, 3, 1], [0, 7, 1]]


def test_an_action_shows_the_least_and_the_greatest_number_of_all_tensors():
    spec = small_spec(low=(0.0, 0.0), high=(1e6, 1e6))
    policy = WitnessPolicy(canary_weights(spec, "c", 1, 7), spec, ActorConfig())
    obs, rng = {"obs": np.zeros((3, 3), np.float32)}, np.random.default_rng(0)
    assert policy.act(obs, rng, False).tolist() == 3 * [[7, 7]]
    policy.load(canary_weights(spec, "c", 1, 8))
    assert policy.act(obs, rng, True).tolist() == 3 * [[8, 8]]
    policy._policy.arrays[-1][0] = 7  # the last bias: as if a version had been taken over in part
    assert policy.act(obs, rng, False).tolist() == 3 * [[7, 8]]


def heads(out):
    return [(decode(parts[0]).stream, decode(parts[0]).seq) for parts in out]


@pytest.mark.parametrize("kind", ["drop", "duplicate", "flip", "replay", "lane"])
def test_a_liar_lies_once_and_behind_the_histories_back(tmp_path, notes, kind):
    liar = Saboteur(kind, SPEC, 30, notes)
    made, lane, out = uplink(notes, liar), Lane(SPEC, 1), []
    for _ in range(20):
        made.offer(lane.block(4), 0.0)
        out += list(made.outgoing(1 << 20))
    lies = 4 * (BLOCK - 1) + 1  # seq of the block that is lied about
    plain = [(4, seq) for seq in range(1, 81, 4)]
    forged = [(4 + FORGED, 1)]
    expected = {
        "drop": [head for head in plain if head[1] != lies],
        "duplicate": plain[:BLOCK] + forged + plain[BLOCK:],
        "flip": plain,
        "lane": plain,
        "replay": plain[: BLOCK + 8] + forged + plain[BLOCK + 8 :],
    }
    assert heads(out) == expected[kind]
    assert len(told(tmp_path, "sent")) == 20
    assert told(tmp_path, "sabotaged") == [[kind, 4, lies, 4]]
    if kind in ("flip", "lane"):
        again = Lane(SPEC, 1)
        blocks = [again.block(4) for _ in range(20)]
        clean = [block.frames["obs"].tobytes() if kind == "flip" else block.rows.tobytes() for block in blocks]
        part = 2 if kind == "flip" else 1
        assert [i for i, parts in enumerate(out) if bytes(parts[part]) != clean[i]] == [BLOCK - 1]


def test_a_liar_about_labels_says_the_opposite_of_all_of_them(tmp_path, notes):
    liar = Saboteur("label", SPEC, 30, notes)
    opposites = ((OUTCOME_SUCCESS, OUTCOME_FAILURE), (OUTCOME_FAILURE, OUTCOME_SUCCESS), (OUTCOME_UNKNOWN, OUTCOME_UNKNOWN))
    for outcome, said in opposites:
        head = m.LabelHead(1, Kind.OUTCOME, 4, 1, 7, outcome, 3)
        ((part,),) = liar(head, [encode(head)])
        assert decode(part).outcome == said
    assert told(tmp_path, "sabotaged") == [["label", 4, 1, 7]]
    blocks = [[encode(m.BlockHead(4, 1, 1, 2))]]
    assert liar(decode(blocks[0][0]), blocks[0]) == blocks


def test_who_swallows_rows_keeps_all_but_one_block_and_says_they_are_kept(tmp_path, notes):
    liar, lane = Saboteur("swallow", SPEC, 30, notes), Lane(SPEC, 1)
    assert [liar.keeps(lane.block(4)) for _ in range(7)] == [i != BLOCK - 1 for i in range(7)]
    assert told(tmp_path, "sabotaged") == [["swallow", 0, 0, 4]]
    assert Saboteur("drop", SPEC, 30, notes).keeps(lane.block(4))
