#!/usr/bin/env python
"""Power cuts: does a pool with ``pool.ack: synced`` lose anything it acknowledged when the power fails?

    sudo .venv/bin/python benchmarks/powercut.py                  # the 70 cuts
    sudo .venv/bin/python benchmarks/powercut.py --only capacity  # of one kind
    sudo .venv/bin/python benchmarks/powercut.py --quick          # one cut of each kind in a small pool, not recorded
    sudo .venv/bin/python benchmarks/powercut.py --selftest       # only: are planted faults found?

What it measures: the buffer's pool lies on ext4, on a loop device, on a disk that is a process (a file served through FUSE), so
that everything the kernel sends to the disk passes through it, in order. The disk keeps what was written since the last flush
as a cache. At a random instant, between two requests, its power goes: from then on every request fails, and what is left is
all that was flushed, and of the cache each sector of 4 KB by chance (none, three in ten, seven in ten, or all of them: so
writes are lost, torn and out of order as disks may do it). Nothing of the kernel's page cache is in that. Instants with an
empty cache are passed over, unless the disk is idle.

The load is that of kills.py: two writers with rows and late labels that prove themselves, over sockets, and a learner that
rates rows by priority; they outlive the cuts. 30 come under load, 10 while the buffer opens the pool with another capacity.
The image is mounted elsewhere (ext4 replays its journal), the pool opened as after another boot, and everything judged that was
acknowledged until the buffer was dead: no acknowledgement can have come after the cut that was not on the disk before. Then
the machine boots from that image, the buffer starts on it, and the writers go on; so later cuts also judge earlier recoveries.

Thirty more are of machines with a buffer at ``pool.ack: memory``, which promises less: a pool that was in use is not trusted,
and the next buffer goes on from its newest whole snapshot. Its rows are judged, and how far back (s) it lies.

Before any cut two faults are planted: a buffer that syncs nothing, and a disk that ignores flushes. The judgement must find
what each has lost, or nothing it says counts and the campaign does not start.

How long: about 4 s a cut, 5 minutes in all. Each cut adds one line to docs/results/powercuts.jsonl. One that passed is not
repeated; a failed one only on another commit. It needs root, for mounts and loop devices, and says so; what it mounts is in a
namespace of its own and goes with it.

The last line on stdout is one JSON object: cuts and failures of each kind, acknowledged rows and labels, writes that were in
the disk's cache, rows lost, doubled, corrupted, phantom and unlabelled, and median and longest time from restart to first
acknowledgement. Exit code 0: every cut was made, and nothing was lost, doubled, corrupted or invented.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from campaign import cuts, machine, provenance, records, target, writing
from campaign.choosing import add_only, plan_of
from campaign.disk import SURVIVALS
from campaign.machine import Machine
from campaign.numbered import Verdict
from campaign.process import ProcessFailed, guarded
from campaign.strikes import Scale, said
from campaign.target import Place, Target
from campaign.writing import ACKED, Progress

from headrace.buffer import snapshot
from headrace.buffer.opening import existing
from headrace.common.errors import HeadraceError

FILE = records.RESULTS / "powercuts.jsonl"
SEED = 5
IMAGE_BYTES = 64 << 20
FULL, QUICK = Scale((20_000, 24_000), 4_000), Scale((4_000, 5_000), 4_000)
FILL = 1.25  # of the larger capacity: the ring has wrapped before the first cut
FILL_S = 900.0  # a deadline
SPANS = {"load": 1.0, "capacity": 0.15}  # a cut comes at a random time within this (s) of what it is to hit
SABOTAGES = ("buffer", "disk")  # who does not sync
SABOTAGED_S = 1.0
CHANGES = 40  # and then within this many writes and flushes, so that few cuts come while the disk is idle
MEMORY_S, SNAPSHOT_EVERY_S, LOOK_S, SLACK_S = (1.5, 3.0), 0.7, 0.01, 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, cuts.KINDS, "kind")
    parser.add_argument("--quick", action="store_true", help="one cut of each kind in small pools, not recorded")
    parser.add_argument("--selftest", action="store_true", help="plant the faults and exit")
    parser.add_argument("--disk", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.disk:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the campaign ends it
        machine.serve(json.loads(args.disk))
        return 0
    machine.require()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="headrace-cuts-") as root:
        machine.format_image(Path(root) / "empty.img", IMAGE_BYTES)
        found = {kind: sabotaged(Path(root), kind) for kind in SABOTAGES[: 1 if args.quick else None]}
        print(f"planted faults found: {found}", flush=True)
        if args.selftest or not all(found.values()):
            print(json.dumps({"selftest": "passed" if all(found.values()) else "FAILED"}))
            return 0 if all(found.values()) else 1
        return campaign(Path(root), args.only, args.quick)


def campaign(root: Path, kinds: list[str], quick: bool) -> int:
    """Every cut that is to do, and the verdict."""
    origin = {**provenance.commit(), "machine": provenance.machine()}
    plan = [(kind, 0) for kind in kinds]
    if not quick:
        whole = [(kind, n) for kind, n in plan_of(cuts.TRIALS) if kind in kinds]
        plan = records.unpassed(whole, records.read(FILE), origin["commit"], "kind", "trial")
    print(f"{len(plan)} cuts to do", flush=True)
    done = []
    empty = root / "empty.img"
    synced, memory = ([p for p in plan if (p[0] in cuts.MEMORY) == lost] for lost in (False, True))
    scale = QUICK if quick else FULL
    made = itertools.chain(series(root / "series", empty, synced, scale), (forgotten(root, empty, n, scale) for _, n in memory))
    for number, record in enumerate(made, 1):
        record = {**record, **origin}
        done.append(record)
        if not quick:
            records.append(FILE, record)
        print(f"[{number}/{len(plan)}] {line(record)}", flush=True)
    summary = cuts.summarise(kinds, done if quick else records.read(FILE))
    print(json.dumps(summary))
    enough = all(summary["kinds"].get(kind, {}).get("cuts", 0) >= (1 if quick else cuts.TRIALS[kind]) for kind in kinds)
    return 0 if enough and not summary["failures"] else 1


def series(root: Path, empty: Path, plan: list[tuple[str, int]], scale: Scale) -> Iterable[records.Record]:
    """Cut after cut, each machine booting from what the one before has left."""
    if not plan:
        return
    root.mkdir()
    fill = int(FILL * max(scale.capacities))
    with contextlib.ExitStack() as ends:
        aim, host = started(ends, root, empty, scale, "synced")
        capacity = scale.capacities[0]
        boot(aim, host, capacity)
        aim.wait(lambda: aim.progress.acked() >= fill, "full pool", FILL_S)
        before = np.zeros_like(aim.progress.known())
        for kind, trial in plan:
            rng = np.random.default_rng([SEED, cuts.KINDS.index(kind), trial])
            if kind == "capacity":
                capacity = scale.capacities[scale.capacities[0] == capacity]
            record, image = struck(root, aim, host, kind, capacity, rng)
            now = aim.progress.known()
            try:
                host = plugged(ends, aim, root / f"machine-{kind}-{trial}", image)
                record["restart_s"] = round(boot(aim, host, capacity), 3)
            except ProcessFailed as error:
                record |= {"passed": False, "problems": [*record["problems"], str(error).replace(str(root), "")]}
            place = {"kind": kind, "trial": trial, "capacity": capacity}
            yield {**place, **record, **writing.counts(now, before), "date": provenance.stamp()}
            before = now
            image.unlink()
            if not record["passed"]:
                return  # what comes after a fault would count it again


def boot(aim: Target, host: Machine, capacity: int, *, unsynced: bool = False) -> float:
    """Start the buffer on a machine; the time (s) to its first acknowledgement."""
    aim.place = Place(aim.place.root, host.disk)
    return aim.restart(capacity, boot=host.boot, unsynced=unsynced)


def struck(
    root: Path, aim: Target, host: Machine, kind: str, capacity: int, rng: np.random.Generator
) -> tuple[records.Record, Path]:
    """One cut and the judgement of what it left; the record, and the image of the disk."""
    image, survival = root / "left.img", float(rng.choice(SURVIVALS))
    if kind == "capacity":
        aim.kill(signal.SIGTERM)
        begun = aim.start(capacity, boot=host.boot)
        aim.wait(lambda: aim.place.half_changed(begun), "begin of the change")
    delay = float(rng.uniform(0, SPANS[kind]))
    time.sleep(delay)
    facts = host.cut(image, survival, int(rng.integers(CHANGES)), [int(rng.integers(1 << 30))])
    aim.kill()
    host.close()
    verdict = judged(root, image, aim.progress)
    counts = {**asdict(verdict), "problems": list(verdict.problems)}
    when = {"delay_s": round(delay, 4), "survival": survival, **facts}
    return {**when, "restart_s": None, **counts, "passed": verdict.passed}, image


def judged(root: Path, image: Path, progress: Progress) -> Verdict:
    """Mount a copy of the image, open the pool on it as after another boot, and account for all that was acknowledged."""
    known, copy = progress.known(), root / "copy.img"
    shutil.copyfile(image, copy)
    try:
        with machine.mounted(copy, root / "copy") as disk, machine.booted(machine.new_boot(root / "boot")):
            return target.audit(disk / "pool", progress, known, thorough=True)
    except (HeadraceError, ProcessFailed) as error:
        return Verdict(lost=int(known[:, ACKED].sum()), problems=(str(error).replace(str(root), ""),))
    finally:
        copy.unlink()


def forgotten(root: Path, empty: Path, trial: int, scale: Scale) -> records.Record:
    """One cut at level ``memory``, of a machine that was new: the buffer must go on from its newest whole snapshot."""
    rng = np.random.default_rng([SEED, cuts.KINDS.index("memory"), trial])
    place, survival = root / f"memory-{trial}", float(rng.choice(SURVIVALS))
    place.mkdir()
    image, capacity, history, begun = place / "left.img", scale.capacities[0], [], []
    with contextlib.ExitStack() as ends:
        aim, host = started(ends, place, empty, scale, "memory")
        boot(aim, host, capacity)
        end = time.monotonic() + float(rng.uniform(*MEMORY_S))
        while (now := time.monotonic()) < end or not any(aim.place.snapshots.glob("snapshot-*")):
            if now > end + FILL_S:
                raise ProcessFailed(f"no snapshot within {FILL_S:g} s")
            if not begun or now > begun[-1] + SNAPSHOT_EVERY_S:
                aim.ask_snapshot()
                begun.append(now)
            history.append((now, aim.progress.known()[:, ACKED]))
            time.sleep(LOOK_S)
        facts, cut_at = host.cut(image, survival, int(rng.integers(CHANGES)), [int(rng.integers(1 << 30))]), time.monotonic()
        aim.kill()
    verdict, lost_s, window_s = Verdict(), 0.0, 0.0
    try:
        with machine.mounted(image, place / "copy") as disk, machine.booted(machine.new_boot(place / "boot")):
            found = snapshot.read(disk / "snapshots")
            window_s = cut_at - begun[min(found[0]["number"], len(begun)) - 1] if found else 0.0
            with contextlib.closing(existing(target.settings(Place(place, disk), capacity, "memory"))) as pool:
                verdict, tops = target.judge_instant(pool, aim.progress)
            lost_s = max((cut_at - at for at, acked in history if (acked > tops).any()), default=0.0)
    except (HeadraceError, ProcessFailed) as error:
        verdict = Verdict(problems=(str(error).replace(str(root), ""),))
    if lost_s > window_s + SLACK_S:
        verdict += Verdict(problems=(f"{lost_s:.2f} s are lost, the snapshot was begun {window_s:.2f} s before",))
    counts = {**asdict(verdict), "problems": list(verdict.problems)}
    grown = writing.counts(aim.progress.known(), np.zeros_like(aim.progress.known()))
    when = {"kind": "memory", "trial": trial, "capacity": capacity, "survival": survival, **facts, "restart_s": None}
    times = {"lost_s": round(lost_s, 3), "window_s": round(window_s, 3), "date": provenance.stamp()}
    return {**when, **times, **counts, **grown, "passed": verdict.passed}


def started(
    ends: contextlib.ExitStack, place: Path, empty: Path, scale: Scale, ack: str, *, honest: bool = True
) -> tuple[Target, Machine]:
    """Writers and a machine, which ``ends`` ends in the right order."""
    aim = Target(place, scale.rate, int(FILL * max(scale.capacities)), ack)
    ends.callback(aim.close)
    return aim, plugged(ends, aim, place / "machine", empty, honest=honest)


def plugged(ends: contextlib.ExitStack, aim: Target, place: Path, image: Path, *, honest: bool = True) -> Machine:
    """A machine for the buffer of ``aim``, which ``ends`` closes."""
    host = Machine(place, image, honest=honest)
    ends.callback(host.close)
    ends.callback(aim.kill)  # before the machine is closed
    return host


def sabotaged(root: Path, who: str) -> bool:
    """Whether the judgement finds that ``who``, the buffer or the disk, does not sync."""
    place = root / f"sabotaged-{who}"
    place.mkdir()
    with contextlib.ExitStack() as ends:
        aim, host = started(ends, place, root / "empty.img", QUICK, "synced", honest=who != "disk")
        boot(aim, host, QUICK.capacities[0], unsynced=who == "buffer")
        time.sleep(SABOTAGED_S)
        host.cut(place / "left.img", 0.0, 0, [SEED])
        aim.kill()
        verdict = judged(place, place / "left.img", aim.progress)
    return verdict.lost > 0


def line(record: records.Record) -> str:
    """A cut in one line."""
    cache = f"{record['cached']} writes in the cache, {record['survival']:.0%} kept"
    return said(record, f"{record['kind']} {record['trial']}", cache)


if __name__ == "__main__":
    sys.exit(guarded(main))
