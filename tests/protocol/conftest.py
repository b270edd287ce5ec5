"""Fixtures of the protocol tests."""

from __future__ import annotations

import pytest
from helpers.serving import Buffer


@pytest.fixture
def buffer(tmp_path):
    made = Buffer(tmp_path)
    yield made
    made.worker.close()
