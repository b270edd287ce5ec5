from pathlib import Path

import pytest

from headrace.buffer import space
from headrace.common.errors import NoSpace

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A fake root with 8 GiB of available memory, on which /dev/shm is a tmpfs and all else ext4."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/self/mounts", f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path}/dev/shm tmpfs rw 0 0\n")
    write("proc/meminfo", f"MemTotal: 99 kB\nMemAvailable: {8 * GIB // 1024} kB\n")
    write("dev/shm/pool/x", "")
    write("disk/x", "")
    return tmp_path, write


def test_filesystem_is_that_of_the_deepest_mount(machine):
    root, _ = machine
    assert space.filesystem(root / "dev/shm/pool", root) == "tmpfs"
    assert space.filesystem(root / "disk", root) == "ext4"
    assert space.filesystem(Path(f"{root}/dev/shm2"), root) == "ext4"


def test_cgroup_v2_limits_of_every_level_count(machine):
    root, write = machine
    write("proc/self/cgroup", "0::/a/b\n")
    write("sys/fs/cgroup/a/b/memory.max", "max\n")
    write("sys/fs/cgroup/a/b/memory.current", "5\n")
    write("sys/fs/cgroup/a/memory.max", f"{3 * GIB}\n")
    write("sys/fs/cgroup/a/memory.current", f"{2 * GIB}\n")
    write("sys/fs/cgroup/a/memory.stat", f"anon 7\nactive_file 100\ninactive_file 200\nfile {GIB}\n")
    rooms = list(space.memory_rooms(root))
    assert [r.free for r in rooms] == [8 * GIB, GIB + 300]
    with pytest.raises(NoSpace, match=f"needs {2 * GIB} bytes .* free are {GIB + 300} bytes .*memory limit of cgroup /a"):
        space.require(2 * GIB, root / "dev/shm/pool", root)


def test_cgroup_v1_limit_counts(machine):
    root, write = machine
    write("proc/self/cgroup", "4:memory:/job\n0::/\n")
    write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", f"{GIB}\n")
    write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n")
    write("sys/fs/cgroup/memory/job/memory.stat", "total_active_file 10\ntotal_inactive_file 20\n")
    assert [r.free for r in space.memory_rooms(root)] == [8 * GIB, GIB - 1000 + 30]
    with pytest.raises(NoSpace, match="cgroup /memory/job|cgroup /job"):
        space.require(GIB, None, root)
    space.require(GIB, root / "disk", root)  # memory is no limit for a file on disk


def test_disk_room_is_checked_and_both_numbers_are_said(machine, monkeypatch):
    root, _ = machine

    class Full:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(space.os, "statvfs", lambda _: Full)
    with pytest.raises(NoSpace, match="needs 50000 bytes .* free are 40960 bytes"):
        space.require(50_000, root / "disk", root)
    space.require(40_960, root / "disk", root)
