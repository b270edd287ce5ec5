"""The heap of a learner: what is freed is kept, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from headrace.learner.heap import keep_freed

LAYERS, ROUNDS = 8, 20
PAGES = LAYERS * (4 << 20) // 4096  # of one round
CODE = f"""
import resource
import numpy as np
from headrace.learner.heap import keep_freed
print(keep_freed())
def once():
    return [np.ones(1 << 19) for _ in range({LAYERS})]  # 4 MB each
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({}, True),
        ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}, False),
    ],
    ids=str,
)
def test_what_is_freed_is_not_cleared_anew(said, kept):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", CODE], env={**clean, **said}, check=True, capture_output=True, text=True, timeout=60
    )
    changed, faults = found.stdout.split()
    assert changed == str(kept)
    assert (int(faults) < PAGES) if kept else (int(faults) > ROUNDS * PAGES // 4)


def test_what_the_user_says_of_other_things_does_not_matter():
    words = "glibc.cpu.x86_non_temporal_threshold=32768"
    assert keep_freed({"GLIBC_TUNABLES": words})
    assert not keep_freed({"GLIBC_TUNABLES": f"{words}:glibc.malloc.arena_max=2"})
