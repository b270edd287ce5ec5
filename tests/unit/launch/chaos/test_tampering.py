"""What becomes of a message that a rule meets, without sockets."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from headrace.common.errors import ConfigError
from headrace.common.wire.codec import encode
from headrace.common.wire.link import new_hello
from headrace.common.wire.messages import Ack, BlockHead, Pulse
from headrace.launch.chaos.tampering import Act, Faults, Passed, Rule, Tamper, Way, tag_of
from headrace.launch.chaos.zmtp import Unit


def unit(*frames, sealed=False):
    """A message of short frames."""
    data, where = b"", []
    for i, frame in enumerate(frames):
        data += bytes([int(i + 1 < len(frames)), len(frame)])
        where.append((len(data), len(data) + len(frame)))
        data += frame
    return Unit(data, tuple(where), sealed)


BLOCKS = [unit(encode(BlockHead(1, seq, 1, 2)), bytes([seq]) * 8, bytes([seq]) * 9) for seq in range(1, 21)]
ACK = unit(encode(Ack(1, 5)))
DATA = frozenset({BlockHead.TAG})


class OneConnection(Tamper):
    """A tamper with the past of one connection."""

    past = None

    def pass_on(self, way, unit, past=None):
        self.past = self.past or {}
        return super().pass_on(way, unit, self.past if past is None else past)


def tamper(*rules):
    counts = Counter()
    made = OneConnection(np.random.default_rng(3), counts)
    made.use(rules)
    return made, counts


def test_without_rules_everything_passes_as_it_is():
    made, counts = tamper()
    assert [made.pass_on(Way.UP, u) for u in BLOCKS] == [Passed((u.data,)) for u in BLOCKS]
    assert counts == {}


@pytest.mark.parametrize(
    ("act", "chunks", "end"),
    [
        (Act.DROP, (), None),
        (Act.DUPLICATE, (BLOCKS[0].data,) * 2, None),
        (Act.RESET, (), Act.RESET),
        (Act.HALF_CLOSE, (BLOCKS[0].data,), Act.HALF_CLOSE),
    ],
)
def test_each_act_does_what_it_says_and_is_counted(act, chunks, end):
    made, counts = tamper(Rule(act, Way.UP, DATA))
    assert made.pass_on(Way.UP, BLOCKS[0]) == Passed(chunks, end)
    assert counts == {act.value: 1}


def test_a_cut_message_keeps_its_beginning_and_never_all_of_it():
    made, _ = tamper(Rule(Act.CUT, Way.UP, DATA))
    for u in BLOCKS:
        passed = made.pass_on(Way.UP, u)
        assert passed.end is Act.CUT
        assert 0 < passed.size < len(u.data)
        assert u.data.startswith(passed.chunks[0])


def test_a_flip_turns_one_bit_behind_the_header():
    made, counts = tamper(Rule(Act.FLIP, Way.UP, DATA))
    for u in BLOCKS:
        (turned,) = made.pass_on(Way.UP, u).chunks
        different = [i for i, (a, b) in enumerate(zip(u.data, turned, strict=True)) if a != b]
        assert len(different) == 1
        assert (u.data[different[0]] ^ turned[different[0]]).bit_count() == 1
        assert any(start <= different[0] < stop for start, stop in u.bodies[1:])
    assert counts == {"flipped": 20}


def test_a_flip_of_a_message_without_frames_behind_its_header_is_in_the_header():
    made, _ = tamper(Rule(Act.FLIP, Way.DOWN))
    (turned,) = made.pass_on(Way.DOWN, ACK).chunks
    assert turned != ACK.data
    assert turned[:2] == ACK.data[:2]  # not the framing


def test_a_replay_sends_what_was_met_so_many_messages_ago():
    made, counts = tamper(Rule(Act.REPLAY, Way.UP, DATA, age=3))
    passed = [made.pass_on(Way.UP, u).chunks for u in BLOCKS]
    assert passed[:3] == [(u.data,) for u in BLOCKS[:3]]
    assert passed[3:] == [(u.data, old.data) for u, old in zip(BLOCKS[3:], BLOCKS, strict=False)]
    assert counts == {"replayed": 17}
    assert made.pass_on(Way.UP, BLOCKS[0], {}).size == len(BLOCKS[0].data)  # another connection has no past yet
    assert made.pass_on(Way.UP, unit(encode(new_hello("actor", "a")))).size > 0
    assert made.pass_on(Way.UP, BLOCKS[0]).size == len(BLOCKS[0].data)  # nor has another session


def test_a_rule_meets_its_direction_and_its_kinds_alone():
    made, counts = tamper(Rule(Act.DROP, Way.DOWN, frozenset({Ack.TAG})))
    assert made.pass_on(Way.UP, ACK).chunks == (ACK.data,)
    assert made.pass_on(Way.DOWN, BLOCKS[0]).chunks == (BLOCKS[0].data,)
    assert made.pass_on(Way.DOWN, unit(encode(Pulse()))).size > 0
    assert made.pass_on(Way.DOWN, ACK).chunks == ()
    assert counts == {"dropped": 1}


def test_what_is_no_message_always_passes():
    made, _ = tamper(Rule(Act.DROP, Way.UP), Rule(Act.RESET, Way.UP))
    assert made.pass_on(Way.UP, Unit(b"greeting")) == Passed((b"greeting",))


def test_rate_and_most():
    made, counts = tamper(Rule(Act.DROP, Way.UP, rate=0.3))
    passed = sum(made.pass_on(Way.UP, BLOCKS[0]).size > 0 for _ in range(2000))
    assert counts["dropped"] == 2000 - passed
    assert 500 < counts["dropped"] < 700
    made, counts = tamper(Rule(Act.DROP, Way.UP, most=2))
    assert [made.pass_on(Way.UP, u).size > 0 for u in BLOCKS[:4]] == [False, False, True, True]


def test_a_rule_that_stays_goes_on_with_what_it_remembers():
    once, dup = Rule(Act.DROP, Way.UP, most=1), Rule(Act.DUPLICATE, Way.UP)
    made, counts = tamper(once)
    made.pass_on(Way.UP, BLOCKS[0])
    made.use((once, dup))
    assert made.pass_on(Way.UP, BLOCKS[1]).chunks == (BLOCKS[1].data,) * 2
    assert counts == {"dropped": 1, "duplicated": 1}


def test_under_encryption_only_bytes_can_be_met():
    sealed = unit(b"\x07MESSAGE" + bytes(40), sealed=True)
    made, counts = tamper(Rule(Act.DROP, Way.UP), Rule(Act.DUPLICATE, Way.UP), Rule(Act.REPLAY, Way.UP))
    assert made.pass_on(Way.UP, sealed).chunks == (sealed.data,)
    made, counts = tamper(Rule(Act.RESET, Way.UP, DATA), Rule(Act.CUT, Way.UP))
    assert made.pass_on(Way.UP, sealed).end is Act.CUT
    assert counts == {"cut": 1}


@pytest.mark.parametrize(("frames", "tag"), [((encode(Ack(1, 5)),), 34), ((b"\x93\x01",), -1), ((b"GET",), -1), ((b"",), -1)])
def test_the_tag_of_a_message(frames, tag):
    assert tag_of(unit(*frames)) == tag


@pytest.mark.parametrize("wrong", [{"rate": 1.5}, {"rate": -0.1}, {"most": -1}, {"age": -1}])
def test_what_no_rule_can_mean_is_refused(wrong):
    with pytest.raises(ConfigError, match="nearest valid"):
        Rule(Act.REPLAY, Way.UP, **wrong)
    with pytest.raises(ConfigError, match="nearest valid"):
        Faults(delay_s=-1)
