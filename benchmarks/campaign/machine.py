"""A machine whose power can be cut: a disk that is a process, a loop device on it, ext4 on that, and a boot of its own."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from campaign.disk import Disk
from campaign.fuse import DiskFile, mount
from campaign.process import ProcessFailed, Unable
from headrace.common import boot

SCRIPT = Path(__file__).resolve().parents[1] / "powercut.py"
TOOLS = ("mkfs.ext4", "mount", "umount")
TOOL_S, STOP_S = 300.0, 60.0  # deadlines: on a busy machine all of it is slow
NEW_MOUNTS, PRIVATE = 0x20000, 0x44000  # unshare(2): CLONE_NEWNS; mount(2): MS_REC | MS_PRIVATE
BLOCK = 4096
IDLE_MS = 300


def require() -> None:
    """Move into a mount namespace of our own, so that whatever is mounted from here on goes with the last process in it.

    Raises:
        Unable: not root, no FUSE or no tools.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0:
        raise Unable("a power cut is made with mounts and loop devices, which only root may make; run it as root")
    if missing or not os.path.exists("/dev/fuse"):
        raise Unable(f"missing: {', '.join([*missing, *([] if os.path.exists('/dev/fuse') else ['/dev/fuse'])])}")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS):
        raise Unable(f"no mount namespace of our own: {os.strerror(ctypes.get_errno())}")
    try:
        mount("none", "/", "none", PRIVATE, "")
    except OSError as error:
        raise Unable(str(error)) from error


def format_image(path: Path, size: int) -> None:
    """Make an image of ``size`` bytes with an empty ext4 on it."""
    with open(path, "wb") as file:
        file.truncate(size)
    _run("mkfs.ext4", "-q", "-F", "-b", str(BLOCK), "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", str(path))


@contextlib.contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """The file system of ``image``, mounted on the new directory ``place``; its journal is replayed into the image."""
    place.mkdir()
    _run("mount", "-t", "ext4", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        _run("umount", "-l", str(place))  # an error that is on its way up may hold maps of it
        place.rmdir()


@contextlib.contextmanager
def booted(name: Path) -> Iterator[None]:
    """This process believes meanwhile that it runs in the boot that the file ``name`` says."""
    before, boot.BOOT_ID = boot.BOOT_ID, name
    try:
        yield
    finally:
        boot.BOOT_ID = before


def new_boot(path: Path) -> Path:
    """A file that names a boot that never was."""
    path.write_text(str(uuid.uuid4()))
    return path


class Machine:
    """One boot, on a disk that holds ``image``; the image itself is left as it is.

    Args:
        root: a new directory.
        image: of a disk with ext4.
        honest: false plants a fault: the disk's flush waits for nothing.

    Attributes:
        disk: where the file system is mounted.
        boot: the file that names this boot.

    Raises:
        ProcessFailed: it did not come up.
    """

    def __init__(self, root: Path, image: Path, *, honest: bool = True) -> None:
        root.mkdir()
        self._file, self.disk, self.boot = root / "disk", root / "fs", new_boot(root / "boot")
        self._file.touch()
        self.disk.mkdir()
        options = {"image": str(image), "file": str(self._file), "honest": honest}
        command = [sys.executable, str(SCRIPT), "--disk", json.dumps(options)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._ask()
            self._file.stat()  # the kernel asks how large it is
            _run("mount", "-t", "ext4", "-o", "loop", str(self._file), str(self.disk))
        except BaseException:
            self.close()  # a disk that comes up later must not look for an image that is gone
            raise

    def cut(self, image: Path, survival: float, changes: int, seed: list[int]) -> dict[str, int]:
        """Cut the power when something is in the cache after so many more ``changes`` (writes and flushes), or none come.

        ``image`` is what is left of the disk then, and nothing reaches it any more.

        Returns:
            ``cached``: writes that were in the disk's cache at that instant; ``flushes``: since the boot.
        """
        return self._ask({"image": str(image), "survival": survival, "changes": changes, "seed": seed})

    def close(self) -> None:
        """Unmount, once nobody has a file of it open; harmless when called twice."""
        for words in ((str(self.disk),), ("-l", str(self._file))):
            with contextlib.suppress(ProcessFailed):
                _run("umount", *words)
        self._process.kill()
        self._process.wait(STOP_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, request: dict[str, Any] | None = None) -> dict[str, int]:
        """Say something to the disk and wait for its answer; nothing: wait for the first."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise ProcessFailed("the disk has no pipes")
        if request is not None:
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                raise ProcessFailed(f"the disk ended with {process.wait(STOP_S)}") from None
        if not select.select([process.stdout], [], [], TOOL_S)[0]:
            raise ProcessFailed(f"the disk did not answer within {TOOL_S:g} s")
        line = process.stdout.readline()
        if not line:
            raise ProcessFailed(f"the disk ended with {process.wait(STOP_S)}")
        answer: dict[str, int] = json.loads(line)
        return answer


def serve(options: dict[str, Any]) -> None:
    """The disk's process: the image as a file, until its power is cut; then errors, until standard input ends."""
    disk = Disk(Path(options["image"]).read_bytes(), honest=options["honest"])
    file = DiskFile(disk, options["file"])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    poll.register(sys.stdin, select.POLLIN)
    print(json.dumps({"size": len(disk)}), flush=True)
    words: dict[str, Any] = {}
    at = 0  # of the disk's changes, once there are words
    while True:
        ready = [fd for fd, _ in poll.poll(IDLE_MS)]
        if file.fileno() in ready and not file.answer():
            return
        if sys.stdin.fileno() in ready:
            line = sys.stdin.readline()
            if not line:
                return
            words, at = json.loads(line), disk.changes
            at += words["changes"]
        if words and ((disk.changes >= at and disk.cached) or not ready):
            file.dead = True
            left = disk.cut(words["survival"], np.random.default_rng(words["seed"]))
            Path(words["image"]).write_bytes(left)
            print(json.dumps({"cached": disk.cached, "flushes": disk.flushes}), flush=True)
            words = {}


def _run(*words: str) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=TOOL_S)
    except subprocess.CalledProcessError as error:
        raise ProcessFailed(f"{words[0]}: {' '.join(error.stderr.split())}", error.returncode) from error
    except subprocess.TimeoutExpired as error:
        raise ProcessFailed(f"{words[0]} took longer than {TOOL_S:g} s") from error
