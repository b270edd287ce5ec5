"""What this machine and this installation are: versions, commit, cores, memory; for environment.txt and the doctor."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import headrace
from headrace.common.cores import usable_cores
from headrace.launch.children import THREAD_VARIABLES, TUNABLES

PACKAGES = (
    *("headrace", "numpy", "pyzmq", "msgpack", "msgpack-numpy", "torch", "gymnasium", "mujoco", "uvloop", "safetensors"),
    *("tensorboard", "matplotlib", "PyYAML", "rich", "wandb"),
)
GIB = 1 << 30


def versions() -> dict[str, str]:
    """Installed version of each package that headrace can use; ``-`` where it is not installed."""
    return {name: version_of(name) for name in PACKAGES}


def version_of(package: str) -> str:
    """Installed version of one package, or ``-``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def commit() -> str:
    """The checkout's commit, with ``-dirty`` when files differ from it; empty when headrace is not run from a checkout."""
    root = Path(headrace.__file__).resolve().parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return ""
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (subprocess.SubprocessError, OSError):
        return ""


def cpu_model() -> str:
    """Name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_limit() -> int:
    """Bytes of memory that this process may use: the machine's, cut by the cgroup's limit; 0 when unknown."""
    total = 0
    with contextlib.suppress(ValueError, OSError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            word = Path(name).read_text().strip()
        except OSError:
            continue
        if word.isdigit():
            total = min(total, int(word)) if total else int(word)
    return total


def environment_text() -> str:
    """What a result depends on beside the config, for ``environment.txt``."""
    lines = [
        f"python       {platform.python_version()} ({sys.executable})",
        f"platform     {platform.platform()}",
        f"host         {socket.gethostname()}",
        f"processor    {cpu_model()}",
        f"cores        {usable_cores()}",
        f"memory       {memory_limit() / GIB:.1f} GiB",
        f"gpu          {gpu()}",
        f"commit       {commit() or '-'}",
    ]
    lines += [f"{name:<12} {os.environ[name]}" for name in (*THREAD_VARIABLES, TUNABLES) if name in os.environ]
    lines += [f"{name:<12} {version}" for name, version in versions().items() if version != "-"]
    return "\n".join(lines) + "\n"


def gpu() -> str:
    """Names of the NVIDIA GPUs and the driver, as the driver's own tool tells (torch is not loaded for it); ``none`` else."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none"
    words = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        out = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return "none"
    return "; ".join(line.strip() for line in out.splitlines() if line.strip()) or "none"
