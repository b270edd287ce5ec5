"""One direction of a ZMTP connection, cut into what belongs together, however its bytes come."""

from __future__ import annotations

import pytest

from headrace.common.errors import WireError
from headrace.launch.chaos.zmtp import COMMAND, LONG, MORE, Splitter, Unit


def greeting(mechanism=b"NULL"):
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


def frame(body, flags=0):
    if len(body) > 255:
        return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


READY = frame(b"\x05READY", COMMAND)
BIG = bytes(range(256)) * 2
STREAM = greeting() + READY + frame(b"header", MORE) + frame(BIG) + frame(b"") + frame(b"a", MORE) + frame(b"b")


def bodies(unit):
    return [unit.data[start:stop] for start, stop in unit.bodies]


@pytest.mark.parametrize("step", [1, 2, 3, 9, 63, 64, 65, len(STREAM)])
def test_every_message_comes_whole_and_no_byte_is_lost_whatever_the_pieces(step):
    splitter, units = Splitter(), []
    for at in range(0, len(STREAM), step):
        units += splitter.feed(STREAM[at : at + step])
    assert b"".join(unit.data for unit in units) == STREAM
    behind = [unit for unit in units if unit.bodies]
    assert [bodies(unit) for unit in behind] == [[b"header", BIG], [b""], [b"a", b"b"]]
    assert Unit(READY) in units
    assert not any(unit.sealed for unit in units)


def test_the_greeting_passes_as_it_comes_since_each_side_waits_for_the_others_beginning():
    splitter, whole = Splitter(), greeting()
    assert splitter.feed(whole[:10]) == [Unit(whole[:10])]
    assert splitter.feed(whole[10:12]) == [Unit(whole[10:12])]


def test_an_encrypted_connection_is_known_by_its_greeting():
    units = Splitter().feed(greeting(b"CURVE") + READY + frame(b"secret"))
    assert [unit.sealed for unit in units if unit.bodies] == [True]


def test_a_message_that_nobody_could_hold_is_refused_by_its_length():
    with pytest.raises(WireError, match="too-large"):
        Splitter().feed(greeting() + bytes([LONG]) + (1 << 62).to_bytes(8, "big"))
