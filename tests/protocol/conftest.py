"""Fixtures of the protocol tests."""

from __future__ import annotations

import pytest
from helpers.serving import Buffer

from headrace.buffer.config import SamplingConfig


@pytest.fixture
def buffer(tmp_path):
    made = Buffer(tmp_path)
    yield made
    made.worker.close()


@pytest.fixture
def prioritised(tmp_path):
    """A buffer that samples by |td|, with an actor, a learner and six rows."""
    made = Buffer(tmp_path, sampling=SamplingConfig("prioritised", priority_exponent=1.0, priority_eps=1e-12))
    made.actor()
    made.learner()
    made.block(b"A", 1, *range(6))
    yield made
    made.worker.close()
