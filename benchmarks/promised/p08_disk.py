"""P8: a full or failing disk loses nothing that was acknowledged, is named in the status, and is got over without help.

full   `headrace train` with pool, snapshots, checkpoints, metrics and logs on a file system of its own (tmpfs), which is filled
       to the last byte while it runs, and stays so for some seconds. In turn nobody, an actor, the buffer or the learner is
       killed meanwhile. Then there is room again.
calls  the k-th fdatasync, fsync or msync of a buffer fails with EIO, its k-th write to a small file or reservation with ENOSPC
       (strace), from its first line on, at both levels of acknowledgement. It may end with one line that says so; whoever comes
       next must have every acknowledged row, once and in order.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from campaign.job import training, undone
from campaign.process import Unable
from campaign.promise import Outcome, Part, Promise, Trial, at_most, never, told
from helpers.lane_rows import Lane, lane_spec
from helpers.roles import Roles, roles, scripted

from headrace.buffer import SACReplayPool

MIB = 1 << 20
DISK = 48 * MIB
VICTIMS = ("", "actor", "buffer", "learner")
SHOWN_S, BACK_S = 2.0, 10.0
FULL_S, QUICK_S = 12.0, 6.0
SAVE_EVERY, SNAPSHOT_S = 100, 1.0
TRAIN: dict[str, Any] = {
    "network": {"heartbeat_s": 0.1, "lease_s": 1.5, "connect_s": 120},
    "pool": {"capacity": 5000, "snapshot_every_s": SNAPSHOT_S},
    "actor": {"count": 2},
    "pacing": {"env_steps": 0, "min_fill": 256, "random_steps": 256, "hold_actors": False, "hold_learner": False},
    "env": {"kwargs": {"lengths": [7, 3, 11], "ends": ["terminated", "truncated"], "delay_s": 0.002}},
    "learner": {"batch_size": 32, "checkpoint_every_updates": SAVE_EVERY},
    "model": {"options": {"hidden": [16]}},
    "eval": {"every": 0, "final_episodes": 0},
    "sinks": {"period_s": 0.5},
}
NOT_WRITTEN = ("not written: ", "no checkpoint: ")

SYNCS, SMALL = (1, 2, 3, 4, 6, 9, 14, 22, 40, 80), (1, 2, 3, 4, 5, 6)
CALLS = (
    *(("fdatasync", "EIO", k) for k in SYNCS),
    *(("msync", "EIO", k) for k in SYNCS),
    *(("fsync", "EIO", k) for k in SMALL),
    *(("fallocate", "ENOSPC", k) for k in SMALL),
    *(("write", "ENOSPC", k) for k in SMALL),
)
LEVELS = ("memory", "synced")
FILES = (
    "epochs.tmp",
    "shelf-0.hrw",
    "shelf-1.hrw",
    "lock",
    "buffer.lock",
    "manifest.json.tmp",
)  # whose writes fail, and no socket's
STEPS = 600


def full(trial: Trial) -> Outcome:
    """One disk that fills up."""
    victim = VICTIMS[trial.number % len(VICTIMS)]
    with disk(trial.place) as place, training(place, scripted(**TRAIN), trial.place / "train.log") as job:
        job.wait(lambda s: s["updates"] > 3 * SAVE_EVERY and (s["snapshots"] or {}).get("written", 0) > 1)
        before = job.status()
        with filled(place):
            begun = time.monotonic()
            job.wait(lambda s: any(w.startswith(NOT_WRITTEN) for w in s["warnings"]))
            shown_s = time.monotonic() - begun
            time.sleep(1.0)
            if victim:
                job.role(victim).kill()
            time.sleep(max(0.0, (QUICK_S if trial.quick else FULL_S) - (time.monotonic() - begun)))
            during = job.wait(lambda s: True)
        begun = time.monotonic()
        kept = newest(place)
        after = job.wait(lambda s: goes_on(s, during) and newest(place) > kept, 60.0)
        back_s = time.monotonic() - begun
        lost = after["counters"]["lost_before"] + undone(before, after)
        ended = job.process.poll() is not None
        text = (place / "run" / "logs" / "supervisor.log").read_text() if (place / "run/logs/supervisor.log").exists() else ""
    given_up = text.count("goes on without")
    figures = {"shown_s": shown_s, "back_s": back_s, "lost": lost, "ended": ended, "given_up": given_up}
    whole = metrics_whole(place)
    return Outcome({**figures, "torn_lines": whole, "rows": after["env_steps"]})


def goes_on(status: dict[str, Any], during: dict[str, Any]) -> bool:
    """Whether everything is written again, and both sides work."""
    calm = not any(w.startswith(NOT_WRITTEN) for w in status["warnings"])
    return (
        calm and len(status["actors"]) == 2 and status["learner"] is not None and status["env_steps"] > during["env_steps"] + 50
    )


def newest(place: Path) -> tuple[str, str]:
    """The newest checkpoint and snapshot."""
    found = [sorted(p.name for p in (place / "run" / folder).glob(f"{kind}*")) for folder, kind in _KINDS]
    return tuple(names[-1] if names else "" for names in found)  # type: ignore[return-value]  # two of them


_KINDS = (("checkpoints", "step_"), ("snapshots", "snapshot-"))


def metrics_whole(place: Path) -> int:
    """Lines of the metrics that are no whole object and were not cut by the disk: two that run into each other."""
    path = place / "run" / "metrics.jsonl"
    if not path.exists():
        return 0
    return sum("}{" in line for line in path.read_text(errors="replace").splitlines())


@contextlib.contextmanager
def disk(place: Path) -> Iterator[Path]:
    """A file system of its own in a directory below ``place``."""
    where = place / "disk"
    where.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(where)], capture_output=True, check=False)
    if made.returncode:
        raise Unable(f"a tmpfs of its own needs root: {made.stderr.decode().strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=False)


@contextlib.contextmanager
def filled(place: Path) -> Iterator[None]:
    """Every byte of the file system is taken, again and again, until the end of the block."""
    path = place / "filler"
    fill(path)
    stop = time.monotonic() + 600
    done = threading.Event()

    def keep() -> None:
        while not done.wait(0.02) and time.monotonic() < stop:
            fill(path)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        path.unlink()


def fill(path: Path) -> None:
    """Append until nothing more fits."""
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        for size in (MIB, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def calls(trial: Trial) -> Outcome:
    """One call that fails."""
    if shutil.which("strace") is None:
        raise Unable("strace makes calls fail, and is not here")
    call, error, k = CALLS[trial.number // len(LEVELS) % len(CALLS)]
    level = LEVELS[trial.number % len(LEVELS)]
    pacing = {"env_steps": STEPS, "min_fill": 256, "random_steps": STEPS, "hold_actors": False}
    config = scripted(pool={"ack": level}, pacing=pacing)
    config["env"]["kwargs"]["success"] = True  # labels, whose journal is synced by msync
    problems: tuple[str, ...] = ()
    with roles(trial.place, config) as run:
        files = [word for name in FILES for word in ("-P", str(run.run / "pool" / name))] if call == "write" else []
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={k}+")
        run.actor("actor-0")
        buffer = run.buffer(before=["strace", "-f", "-qq", "-o", "/dev/null", *files, *inject])
        acked = watched(run, buffer)
        ended = buffer.poll() not in (None, 0)
        if ended:
            said = run.log("buffer")
            if "Traceback" in said or sum("error:" in line for line in said.splitlines()) != 1:
                problems = (f"it ended and said {said[-300:]}",)
        else:
            for child in psutil.Process(buffer.pid).children():  # of strace
                child.kill()  # what it acknowledged must be there all the same
            buffer.wait(10)
        run.buffer()
        last = run.wait(lambda s: s["env_steps"] >= STEPS, 60, watch=("buffer",))
        run.stop()
    missing, wrong = judged(run.run / "pool", acked)
    return Outcome({"lost": last["counters"]["lost_before"] + missing, "wrong": wrong, "ended": ended}, problems)


def watched(run: Roles, buffer: subprocess.Popen[bytes]) -> dict[tuple[str, str], int]:
    """What was acknowledged, as told until the buffer ends, or has all rows, or has had its time."""
    acked: dict[tuple[str, str], int] = {}
    end = time.monotonic() + 15
    while time.monotonic() < end and buffer.poll() is None:
        try:
            status = run.status(0.5)
        except Exception:  # it is ending
            continue
        for actor in status["actors"]:
            for stream, seq in actor["acked"].items():
                acked[actor["id"], stream] = max(seq, acked.get((actor["id"], stream), 0))
        if status["env_steps"] >= STEPS:
            break
    return acked


def judged(path: Path, acked: Mapping[tuple[str, str], int]) -> tuple[int, int]:
    """Streams of which the pool lacks what was acknowledged, and faults of the pool.

    The latter are rows that are not there once, in order and whole, of an actor that had one stream in each life of it.
    """
    with SACReplayPool(3000, path=path) as pool:
        valid, _ = pool.check_valid()
        found: dict[tuple[str, int], list[int]] = {}
        for row in pool.dump():
            found.setdefault((row["actor"], row["stream"]), []).append(row["seq"])
        wrong = sum(seqs != list(range(1, len(seqs) + 1)) for seqs in found.values())
        missing = sum(found.get((actor, int(stream)), [0])[-1] < seq for (actor, stream), seq in acked.items())
        return missing, wrong + (not valid) + (sum(map(len, found.values())) != pool.env_steps)


def control(place: Path) -> dict[str, bool]:
    """Whether rows are missed that were acknowledged and are not there, or found that are there twice."""
    spec, path = lane_spec(), place / "pool"
    with SACReplayPool(3000, path=path, spec=spec) as pool:
        lane = Lane(spec, 0)
        pool.insert(lane.block(5), "actor-0", 1, 1)
        pool.insert(lane.block(2), "actor-0", 2, 1)
    told_apart = {"nothing": (judged(path, {("actor-0", "1"): 5, ("actor-0", "2"): 2}), (0, 0))}
    told_apart["a row"] = judged(path, {("actor-0", "1"): 5, ("actor-0", "2"): 3}), (1, 0)
    told_apart["a stream"] = judged(path, {("actor-0", "3"): 1}), (1, 0)
    told_apart["an actor"] = judged(path, {("actor-1", "1"): 1}), (1, 0)
    with SACReplayPool(3000, path=path) as pool:
        pool.reject("actor-0", 1, 6, 3)
        pool.insert(lane.block(1), "actor-0", 1, 9)
    told_apart["a gap"] = judged(path, {}), (0, 1)
    return {what: found == right for what, (found, right) in told_apart.items()}


PROMISE = Promise(
    "P8",
    "A full or failing disk loses nothing that was acknowledged; the status says so, and the run goes on when there is room.",
    (
        Part(
            "full",
            12,
            full,
            (
                *at_most("shown_s", SHOWN_S),
                *at_most("back_s", BACK_S),
                *never("lost", "ended", "given_up", "torn_lines"),
                *told("rows"),
            ),
            quick=4,
        ),
        Part(
            "calls",
            len(CALLS) * len(LEVELS),
            calls,
            (*never("lost", "wrong"), *told("ended", over="sum")),
            quick=5,
            control=control,
        ),
    ),
)
