"""What every test begins with."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def _signals():
    """Ctrl-C is what it is in a fresh process: roles that a test has run in this one leave handlers of their own behind."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
