"""The code of an ordered end: done, or to be started again since only the buffer has left."""

from __future__ import annotations

import threading

import pytest

from headrace.common.ending import BUFFER_LEFT, end_code, end_reason
from headrace.common.wire.messages import Stop
from headrace.launch.exits import MEANINGS


@pytest.mark.parametrize(
    ("told", "signalled", "code"),
    [
        (None, False, 0),
        (None, True, 0),
        (Stop(True, "done"), False, 0),
        (Stop(False, "stopping"), False, BUFFER_LEFT),
        (Stop(False, "stopping"), True, 0),
    ],
)
def test_a_role_whose_buffer_left_early_is_to_be_started_again(told, signalled, code):
    stop = threading.Event()
    if signalled:
        stop.set()
    assert end_code(told, stop) == code
    assert code in MEANINGS


def test_why_a_role_leaves_is_what_its_buffer_said_or_else_a_signal():
    assert end_reason(Stop(False, "the buffer stops: SIGTERM")) == "the buffer stops: SIGTERM"
    assert end_reason(None) == "a signal"
    assert end_reason(Stop(True, "")) == "the run is over"
