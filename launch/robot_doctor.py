"""``headrace doctor --robot``: a robot's computer, its link, disk, cameras and teleop device, each with what to do about it.

Nothing moves: the driver is connected and observed, never told to act.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.actor.freshness import Freshness, cameras_of
from headrace.actor.guard import Guard
from headrace.actor.robot import Robot
from headrace.actor.robots import make_robot
from headrace.actor.teleop import make_teleop
from headrace.buffer import space
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import HeadraceError
from headrace.common.specs import TransitionSpec
from headrace.common.wire.network import NetworkConfig
from headrace.launch import probe
from headrace.launch.config import RunConfig
from headrace.launch.finding import BAD, GOOD, WARN, Finding
from headrace.launch.link_doctor import examine, judge_link
from headrace.launch.probe import Call

GOVERNORS = "/sys/devices/system/cpu"
SLOW_SYNC_S = 0.1
SYNCS, SPARE = 20, 1.5  # of a disk's test; what link and disk should have to spare
MIB = 1 << 20
NEW_SHARE = 0.9  # of the periods that should see a new picture
MOVED = 1e-6  # more than this a device that is touched gives, in its own units


@dataclass(frozen=True)
class Place:
    """Which robot it is, and how long people are waited for.

    Attributes:
        endpoint: of the buffer; empty: as the config says.
        identity: the actor's id.
        look_s: how long cameras are watched (s).
        move_s: longest wait for somebody to move the teleop device (s).
    """

    endpoint: str
    identity: str
    look_s: float = 3.0
    move_s: float = 15.0


def findings(config: RunConfig, spec: TransitionSpec | None, place: Place) -> Iterator[Finding]:
    """Everything about a robot; without ``spec`` what does not need it."""
    yield from _governor(Path(GOVERNORS))
    yield from _realtime(config)
    if spec is not None:
        yield from _link(config, spec, place.endpoint or config.network.endpoint, place.identity)
        yield from _disk(spec, config)
    yield from _robot(config, place)


def needed_bytes_s(config: RunConfig, spec: TransitionSpec) -> float:
    """What the rows of one robot are in a second: an observation and a row a period."""
    return config.robot.rate_hz * (spec.frame_nbytes + spec.row_dtype.itemsize)


# --- the computer -----------------------------------------------------------------------------------------------------


def _governor(where: Path) -> Iterator[Finding]:
    found = sorted({path.read_text().strip() for path in where.glob("cpu[0-9]*/cpufreq/scaling_governor")})
    if not found:
        yield Finding("cpu governor", GOOD, "none that this system tells of")
    elif found == ["performance"]:
        yield Finding("cpu governor", GOOD, "performance")
    else:
        advice = "cores that sleep make periods late: cpupower frequency-set -g performance"
        yield Finding("cpu governor", WARN, ", ".join(found), advice)


def _realtime(config: RunConfig) -> Iterator[Finding]:
    may = os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_RTPRIO)[0] != 0
    if not config.robot.realtime:
        yield Finding("real time", GOOD, "not asked for (robot.realtime); on a busy computer it keeps periods even")
    elif may:
        yield Finding("real time", GOOD, "this user may have it")
    else:
        yield Finding(
            "real time", WARN, "refused to this user", "add `USER - rtprio 20` to /etc/security/limits.conf, log in anew"
        )


def _link(config: RunConfig, spec: TransitionSpec, endpoint: str, identity: str) -> Iterator[Finding]:
    needed = needed_bytes_s(config, spec)
    call = Call(endpoint, "actor", identity, spec, robot=True)
    return examine([call], config.network, lambda told: judge(told, needed, config.network))


def judge(told: probe.Told, needed: float, network: NetworkConfig) -> Iterator[Finding]:
    """What a probe's figures mean for a robot that makes ``needed`` bytes a second."""
    tight = told.bytes_s < SPARE * needed
    seen = f"{told.bytes_s / MIB:.1f} MiB/s to the buffer; this robot makes {needed / MIB:.2f} MiB/s before compression"
    advice = "--network.compression zlib, smaller pictures, or a lower robot.rate_hz; what does not fit waits in the spool"
    yield from judge_link(told, Finding("bandwidth", WARN if tight else GOOD, seen, advice if tight else ""), network)


# --- the disk ---------------------------------------------------------------------------------------------------------


def _disk(spec: TransitionSpec, config: RunConfig) -> Iterator[Finding]:
    actor, needed = config.actor, needed_bytes_s(config, spec)
    if not actor.spool:
        lasts = f"{_lasting(actor.outbox_bytes / needed)} without a network, and end with the process"
        seen = f"none; {actor.outbox_bytes / MIB:.0f} MiB of memory last {lasts}"
        yield Finding("spool", WARN, seen, "--actor.spool DIRECTORY keeps steps on disk")
        return
    where = Path(actor.spool).expanduser()
    existing = next(p for p in [where, *where.absolute().parents] if p.is_dir())
    if not os.access(existing, os.W_OK):
        yield Finding("spool", BAD, f"{existing} cannot be written", "choose another actor.spool, or give this user the right")
        return
    taken = sum(path.stat().st_size for path in existing.glob("*.spool")) if existing == where else 0
    free = space.disk_room(existing).free
    if free + taken < actor.spool_bytes:
        seen = f"{free / MIB:.0f} MiB free in {existing}, actor.spool_bytes is {actor.spool_bytes / MIB:.0f} MiB"
        yield Finding("spool", BAD, seen, "make room, or ask for less")
        return
    lasts = f"{_lasting(actor.spool_bytes / needed)} without a network, then: {actor.chosen_when_full}"
    yield Finding("spool", GOOD, f"{actor.spool_bytes / MIB:.0f} MiB in {existing} last {lasts}")
    try:
        syncs, rate = disk_speed(existing, max(4096, int(needed * actor.flush_s)))
    except OSError as error:
        yield Finding("disk", BAD, f"{existing}: {error.strerror or error}")
        return
    slow = rate < SPARE * needed or syncs > SLOW_SYNC_S
    seen = f"{rate / MIB:.1f} MiB/s of synced blocks, the slowest took {1e3 * syncs:.0f} ms; {needed / MIB:.2f} are needed"
    advice = "raise actor.flush_s and actor.block_rows, or put the spool on another disk (SD cards are slow)"
    yield Finding("disk", WARN if slow else GOOD, seen, advice if slow else "")


def _lasting(seconds: float) -> str:
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def disk_speed(directory: Path, block: int) -> tuple[float, float]:
    """Longest time of a synced write of ``block`` bytes (s), and bytes in a second of all of them."""
    times = []
    data = os.urandom(block)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".headrace-doctor-") as file:
        os.posix_fallocate(file.fileno(), 0, block)
        for _ in range(SYNCS):
            begun = time.monotonic()
            os.pwrite(file.fileno(), data, 0)
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - begun)
    return max(times), SYNCS * block / max(1e-9, sum(times))


# --- robot and people -------------------------------------------------------------------------------------------------


def _robot(config: RunConfig, place: Place) -> Iterator[Finding]:
    try:
        robot = make_robot(config.env)
        Guard(config.robot.guard, robot.obs, robot.action)
    except HeadraceError as error:
        yield Finding("guard", BAD, str(error))
        return
    yield Finding("guard", GOOD, "limits are complete")
    try:
        robot.connect()
        yield Finding("robot", GOOD, f"{config.env.id} is connected")
        clock = MonotonicClock()
        yield from _cameras(config, robot, place.look_s, clock)
        yield from _teleop(config, robot, place.move_s, clock)
    except Exception as error:  # whatever a foreign driver raises is to be told
        yield Finding("robot", BAD, f"{config.env.id}: {type(error).__name__}: {error}", "what does its driver need?")
    finally:
        with contextlib.suppress(Exception):
            robot.close()


def _cameras(config: RunConfig, robot: Robot, seconds: float, clock: Clock) -> Iterator[Finding]:
    """Look at the robot in its own periods; how often each camera gave a new picture, and how old the oldest was."""
    fresh, period = Freshness(robot.obs), 1 / config.robot.rate_hz
    cameras = cameras_of(robot.obs)
    new, oldest, looks = dict.fromkeys(cameras, 0), dict.fromkeys(cameras, 0.0), 0
    begun = due = clock.now()
    took = 0.0
    while due < begun + seconds:
        clock.sleep(due - clock.now())
        before = clock.now()
        seen = robot.observe()
        now = clock.now()
        took, due, looks = max(took, now - before), max(due, before) + period, looks + 1
        fresh.see(now, seen)
        for key in cameras:
            new[key] += fresh.repeats[key] == 0
            oldest[key] = max(oldest[key], fresh.ages(now)[key])
    slow = took > 0.5 * period
    advice = "observe() must only hand over what is there already; read devices in a thread of the driver's" if slow else ""
    yield Finding(
        "observing", WARN if slow else GOOD, f"{looks} times, at most {1e3 * took:.1f} of {1e3 * period:.0f} ms", advice
    )
    for key in cameras:
        rate, age, limit = new[key] / (now - begun), oldest[key], config.robot.guard.frame_age_s
        seen_text = (
            f"{rate:.1f} new pictures a second, the oldest {1e3 * age:.0f} ms; a period has one at {config.robot.rate_hz:g} Hz"
        )
        if new[key] <= 1:
            yield Finding(
                f"pictures of {key}", BAD, "gave one picture and no other", "is something before it? cables, exposure, driver"
            )
        elif age > limit:
            advice = (
                f"robot.guard.frame_age_s is {limit:g} s and would react: less exposure, another USB port, or a higher limit"
            )
            yield Finding(f"pictures of {key}", WARN, seen_text, advice)
        elif new[key] < NEW_SHARE * looks:
            advice = "raise the camera's rate, or lower robot.rate_hz; periods without a new picture are marked in health"
            yield Finding(f"pictures of {key}", WARN, seen_text, advice)
        else:
            yield Finding(f"pictures of {key}", GOOD, seen_text)


def _teleop(config: RunConfig, robot: Robot, seconds: float, clock: Clock) -> Iterator[Finding]:
    """Have somebody move the device; a device that reads nothing but zeros is a common fault of cables and rights."""
    options = config.robot.teleop
    if options.device == "none":
        yield Finding("teleop", GOOD, "none")
        return
    try:
        device = make_teleop(options, robot.action, config.robot.guard.command)
        device.connect(robot)
    except HeadraceError as error:
        yield Finding("teleop", BAD, str(error))
        return
    try:
        print(f"move the {options.device} now, all of its axes ({seconds:g} s)", file=sys.stderr, flush=True)
        moved: set[int] = set()
        words: set[str] = set()
        rest = np.zeros(robot.action.dim) if device.gives == "displacement" else None  # of positions the first one
        end = clock.now() + seconds
        while clock.now() < end and len(moved) < robot.action.dim:
            reading = device.read(clock.now(), robot.observe())
            words.update(reading.words)
            if reading.action is not None:
                rest = np.array(reading.action) if rest is None else rest
                moved.update(np.flatnonzero(np.abs(reading.action - rest) > MOVED).tolist())
            clock.sleep(1 / config.robot.rate_hz)
    finally:
        device.close()
    seen = (
        f"{options.device} drove dimensions {sorted(moved) or 'none'} of {robot.action.dim}, said {sorted(words) or 'nothing'}"
    )
    if moved:
        yield Finding("teleop", GOOD, seen)
    else:
        advice = "was it taken hold of (space, the held button)? is it plugged in, and may this user read it?"
        yield Finding("teleop", WARN, seen, advice)
