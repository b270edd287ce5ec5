"""Power cuts: what a disk keeps, and one real cut of a buffer on a real file system."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from campaign import machine, target
from campaign.cuts import summarise
from campaign.disk import SECTOR, Disk
from campaign.process import ProcessFailed

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "powercut.py"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/fuse") or shutil.which("mkfs.ext4") is None,
    reason="mounts, loop devices and FUSE are root's",
)


def numbered_sectors(first, n):
    return np.repeat(np.arange(first, first + n, dtype=np.uint8), SECTOR).tobytes()


def sectors(image):
    """The number in each sector, which must be one."""
    parts = np.frombuffer(image, np.uint8).reshape(-1, SECTOR)
    assert (parts == parts[:, :1]).all(), "a sector is torn"
    return parts[:, 0].tolist()


def test_what_was_flushed_stays_and_of_the_rest_each_sector_may():
    disk = Disk(bytes(8 * SECTOR))
    disk.write(0, numbered_sectors(1, 4))
    disk.flush()
    disk.write(2 * SECTOR, numbered_sectors(11, 4))
    disk.write(3 * SECTOR, numbered_sectors(21, 1))
    assert sectors(disk.read(0, 8 * SECTOR)) == [1, 2, 11, 21, 13, 14, 0, 0]
    rng = np.random.default_rng(0)
    assert sectors(disk.cut(0.0, rng)) == [1, 2, 3, 4, 0, 0, 0, 0]
    assert sectors(disk.cut(1.0, rng)) == [1, 2, 11, 21, 13, 14, 0, 0]
    seen = {tuple(sectors(disk.cut(0.5, rng))) for _ in range(400)}
    choices = [{1}, {2}, {3, 11}, {4, 12, 21}, {0, 13}, {0, 14}, {0}, {0}]
    assert [set(values) for values in zip(*seen, strict=True)] == choices
    assert len(seen) == 2 * 3 * 2 * 2  # by themselves
    disk.flush()
    assert sectors(disk.cut(0.0, rng)) == [1, 2, 11, 21, 13, 14, 0, 0]
    assert (disk.cached, disk.flushes) == (0, 2)


def test_a_write_that_begins_inside_a_sector_is_cut_at_the_disks_own():
    disk = Disk(bytes(3 * SECTOR))
    disk.write(SECTOR // 2, b"\1" * (2 * SECTOR))
    rng = np.random.default_rng(1)
    ends = {tuple(np.flatnonzero(np.diff(np.frombuffer(disk.cut(0.5, rng), np.int8))) + 1) for _ in range(200)}
    places = {place for cut in ends for place in cut}
    assert places == {SECTOR // 2, SECTOR, 2 * SECTOR, 2 * SECTOR + SECTOR // 2}


def test_a_disk_that_lies_keeps_nothing_and_one_that_is_full_takes_nothing():
    disk = Disk(bytes(2 * SECTOR), honest=False)
    disk.write(0, numbered_sectors(1, 2))
    disk.flush()
    assert sectors(disk.cut(0.0, np.random.default_rng(0))) == [0, 0]
    with pytest.raises(ValueError, match="of a disk of 8192"):
        disk.write(SECTOR, numbered_sectors(1, 2))


def test_records_are_summed_by_the_newest_of_each_cut():
    counts = {"acked": 10, "labels": 1, "rated": 0, "cached": 2, "restart_s": 1.0, "passed": True}
    faults = dict.fromkeys(("lost", "duplicated", "corrupted", "phantom", "unlabelled"), 0)
    old = {"kind": "load", "trial": 0, **counts, **faults, "lost": 4, "passed": False}
    new = {"kind": "load", "trial": 0, **counts, **faults}
    said = summarise(["load"], [old, new, {**new, "trial": 1, "restart_s": 3.0}])
    assert (said["cuts"], said["failures"], said["lost"], said["acked"], said["restart_max_s"]) == (2, 0, 0, 20, 3.0)
    assert summarise(["load"], [old])["failures"] == 1


def run_script(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=100, check=False)


@needs_root
def test_a_real_cut_loses_nothing_acknowledged_and_planted_faults_are_found():
    ended = run_script("--quick", "--only", "load")
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    said = json.loads(ended.stdout.splitlines()[-1])
    assert (said["cuts"], said["failures"]) == (1, 0)
    assert said["acked"] > 5_000
    assert said["labels"] > 5


def test_a_disk_that_does_not_answer_is_ended_with_its_machine(tmp_path, monkeypatch):
    (tmp_path / "deaf.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(machine, "SCRIPT", tmp_path / "deaf.py")
    monkeypatch.setattr(machine, "TOOL_S", 0.2)
    made, popen = [], machine.subprocess.Popen
    monkeypatch.setattr(machine.subprocess, "Popen", lambda *words, **how: made.append(popen(*words, **how)) or made[-1])
    with pytest.raises(ProcessFailed, match=r"the disk did not answer within 0\.2 s"):
        machine.Machine(tmp_path / "machine", tmp_path / "image")
    assert made[0].returncode == -signal.SIGKILL


def test_a_wait_in_vain_says_what_was_seen(tmp_path, monkeypatch):
    (tmp_path / "deaf.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(target, "SCRIPT", tmp_path / "deaf.py")
    aim = target.Target(tmp_path, 1.0, 0)
    try:
        with pytest.raises(
            ProcessFailed, match=r"no x within 0 s: nobody wrote to the log; there is no buffer; no pool yet; 0 rows"
        ):
            aim.wait(lambda: False, "x", 0.0)
        aim.start(100)
        (tmp_path / "log").write_text(f"one\ntwo\n{tmp_path}/three\nfour")
        seen = r"no x within 0 s: two / /three / four; buffer and writers run; no pool yet; 0 rows offered, 0 acknowledged"
        with pytest.raises(ProcessFailed, match=seen):
            aim.wait(lambda: False, "x", 0.0)
    finally:
        aim.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="somebody else than root")
def test_without_root_it_says_what_it_needs():
    ended = run_script("--quick")
    assert (ended.returncode, "run it as root" in ended.stderr) == (2, True)
