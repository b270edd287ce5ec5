"""The cap on private memory, and open files, in processes of their own."""

import subprocess
import sys

CAP = """
import mmap, tempfile
from headrace.common.limits import cap_memory
cap_memory(64 << 20)
with tempfile.TemporaryFile() as file:
    file.truncate(1 << 30)
    shared = mmap.mmap(file.fileno(), 1 << 30)  # a pool
    shared[:4] = b"pool"
    taken = bytearray(16 << 20)
    try:
        bytearray(256 << 20)
    except MemoryError:
        print("capped")
"""
FILES = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from headrace.common.limits import raise_open_files
print(raise_open_files() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.split()


def test_private_memory_ends_at_the_cap_and_a_mapped_pool_does_not_count():
    assert run(CAP) == ["capped"]


def test_open_files_are_raised_to_what_is_allowed():
    assert run(FILES) == ["True"]
