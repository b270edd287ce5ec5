"""P20: an arm at 50 Hz whose other processes are killed, stopped and cut off; and a rude actor that says all that is wrong."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from campaign.promise import Outcome, Part, Promise, Trial, at_least, at_most, never, told
from helpers.roles import Roles, roles

from headrace.actor.config import EnvConfig, RobotConfig
from headrace.actor.control import Phase
from headrace.actor.guard import Vitals
from headrace.actor.limits import GuardConfig
from headrace.actor.signals import Begun, Broken, Close, Offer, Report, Say, Signal, Start, Stepped, pack, unpack
from headrace.actor.station import serve
from headrace.common.errors import DeadlineExceeded
from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.robot_log import RobotLog
from headrace.launch.chaos.tampering import Faults

RATE_HZ = 50.0
PERIODS_MS = 2 * 1e3 / RATE_HZ
LINK_AGE_S, WEIGHT_AGE_S = 1.0, 2.0
HEARTBEAT_S = 0.1  # of helpers.roles
# What is declared as tolerable. That updates are owed is known a heartbeat later, and weights may be on their way.
ALLOWED_S = {"actor": 0.0, "buffer": LINK_AGE_S, "learner": WEIGHT_AGE_S + 2 * HEARTBEAT_S}
FAULTS, QUICK_FAULTS = 10, 1
QUIET_S, LASTS_S = 1.0, 20.0  # without a command of the policy, after which a fault is mended; the longest fault
READY_S, RECENT, FOLLOWED = 120.0, 40, 20  # last commands, and how many of them are to be the policy's
EPISODES, QUICK_EPISODES = 100, 10
FAKE = "headrace.actor.fake_arm:FakeArm"
GUARD: dict[str, Any] = {"low": [-1.4], "high": [1.4], "max_delta": [0.2], "max_rate": [6.0], "hold_s": 0.2, "late": 6}
AGES = {"link_age_s": LINK_AGE_S, "link_reaction": "hold", "weight_age_s": WEIGHT_AGE_S, "weight_reaction": "hold"}


def config_of(record: Path) -> dict[str, Any]:
    """A whole run whose robot is a fake arm that writes down what it is told."""
    return {
        "env": {"id": FAKE, "kwargs": {"record": str(record), "size": 16, "cameras": ["front"]}, "max_episode_steps": 100},
        "actor": {"robot": True},
        "robot": {
            "rate_hz": RATE_HZ,
            "realtime": True,
            "operator": "headrace.actor.operator:Willing",
            "guard": {**GUARD, **AGES},
        },
        "pool": {"capacity": 50_000},
        "pacing": {"env_steps": 0, "min_fill": 100, "random_steps": 100, "ratio": 1.0, "hold_learner": False},
        "learner": {"batch_size": 16, "checkpoint_every_updates": 500},
        "model": {"options": {"hidden": [16]}},
        "eval": {"every": 0, "final_episodes": 0},
    }


class Stage:
    """The processes of one trial, each behind a proxy of its own, and the record of the arm.

    Args:
        run: the processes; none is started yet.
        record: where the arm writes.
        proxies: name of a role -> what stands between it and the buffer.
    """

    def __init__(self, run: Roles, record: Path, proxies: Mapping[str, Proxy]) -> None:
        self._run, self._record, self._proxies = run, record, proxies
        run.buffer()
        self._start("learner")
        self._start("actor")

    @property
    def log(self) -> RobotLog:
        """What is written so far."""
        return RobotLog.read(self._record)

    def steady(self) -> None:
        """Wait until the arm follows a learner's policy, period by period."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            last = self.log.lines[-RECENT:]
            if sum(line.get("kind") == "policy" for line in last) >= FOLLOWED and self._taught() and self._acts():
                return
            time.sleep(0.1)
        raise AssertionError(f"the arm did not follow within {READY_S:g} s: {self._run.log('actor')[-900:]}")

    def quiet(self) -> float:
        """Wait until the arm has followed no policy for a while, or for too long; when."""
        end = time.monotonic() + LASTS_S
        while (now := time.monotonic()) < end:
            last = max((line["at"] for line in self.log.lines[-5 * RECENT :] if line.get("kind") == "policy"), default=0.0)
            if now - last > QUIET_S:
                break
            time.sleep(0.05)
        return now

    def hurt(self, role: str, how: str) -> float:
        """Kill, stop or cut off a role; when."""
        if how == "partition":
            self._link(role).set(Faults(dead=True, held=True))
        else:
            self._run.processes[role].send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        return time.monotonic()

    def mend(self, role: str, how: str) -> None:
        """Undo it."""
        process = self._run.processes[role]
        if how == "partition":
            self._link(role).set(Faults())
        elif how == "stop":
            process.send_signal(signal.SIGCONT)
        else:
            process.wait(10)
            self._run.buffer() if role == "buffer" else self._start(role)

    def _link(self, role: str) -> Proxy:
        return self._proxies["learner" if role == "learner" else "actor"]

    def _start(self, role: str) -> None:
        endpoint = self._proxies[role].endpoint
        name = ["--id", "arm"] if role == "actor" else []
        self._run.start(role, role, str(self._run.config), "--connect", endpoint, *name)

    def _acts(self) -> bool:
        """Whether the arm follows the policy just now."""
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            if self.log.lines[-1].get("kind") == "policy":
                return True
        return False

    def _taught(self) -> bool:
        """Whether a learner is here, and the arm's actor acts by weights of its updates: before the first none are owed."""
        with contextlib.suppress(DeadlineExceeded):
            status = self._run.status(2.0)
            arms = [a for a in status["actors"] if a["id"] == "arm"]
            return bool(status["learner"] and arms and arms[0]["version"][1] > 0)
        return False


def hurt(trial: Trial, role: str, how: str) -> Outcome:
    """One run, whose ``role`` is hurt in the same way again and again."""
    record = trial.place / "record"
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(roles(trial.place, config_of(record)))
        seed = int(trial.rng.integers(1 << 31))
        proxies = {name: stack.enter_context(Proxy(run.endpoint, seed)) for name in ("actor", "learner")}
        stage = Stage(run, record, proxies)
        wounds = []
        for _ in range(QUICK_FAULTS if trial.quick else FAULTS):
            stage.steady()
            time.sleep(float(trial.rng.uniform(0, 1 / RATE_HZ)))
            at = stage.hurt(role, how)
            time.sleep(ALLOWED_S[role])
            wounds.append((at, stage.quiet()))
            stage.mend(role, how)
        stage.steady()
    return judge(RobotLog.read(record), wounds, role)


def judge(log: RobotLog, wounds: Sequence[tuple[float, float]], role: str) -> Outcome:
    """What the record says of faults of a role, each with its time and the time until which it lasted."""
    safe = []
    for at, until in wounds:  # by how old weights are is counted while the arm acts
        idle_s = log.idle_s(at, until, RATE_HZ) if role == "learner" else 0.0
        safe.append(log.safe_s(at, until, ALLOWED_S[role] + idle_s))
    known = [1e3 * s for s in safe if s is not None]
    figures = {"stale_commands": log.stale_commands, "crossed_resets": log.crossed_resets, "never_safe": safe.count(None)}
    if known:
        figures |= {"safe_ms": max(known), "safe_ms_median": float(np.median(known))}
    return Outcome({**figures, "commands": log.count("policy"), "holds": log.count("hold"), "stops": log.count("stop")})


class Rude:
    """Speaks to a station itself, and says much that must not be carried out.

    Attributes:
        wrong: actions that were said too late, or for an episode or a period that was over, or were left of a chunk.

    Args:
        record: where its arm writes.
        rng: decides what is said.
    """

    def __init__(self, record: Path, rng: np.random.Generator) -> None:
        kwargs = {"record": str(record), "size": 8, "cameras": ["front"]}
        guard = GuardConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in GUARD.items()})
        env = EnvConfig(FAKE, kwargs, max_episode_steps=15)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, env, RobotConfig(rate_hz=RATE_HZ, guard=guard)))
        self._process.start()
        theirs.close()
        self._rng = rng
        self.wrong = self.episodes = 0

    def run(self, episodes: int) -> None:
        """Drive so many episodes, whatever becomes of each."""
        end = time.monotonic() + READY_S + episodes
        while self.episodes < episodes:
            if time.monotonic() > end:
                raise AssertionError(f"{self.episodes} of {episodes} episodes within {READY_S + episodes:g} s")
            if self._pipe.poll(1.0):
                self._answer(unpack(self._pipe.recv_bytes()))

    def close(self) -> None:
        """End the station."""
        self._say(Close())
        self._process.join(10)
        self._process.kill()

    def _answer(self, message: Signal) -> None:
        if isinstance(message, Report) and message.report["phase"] == Phase.DISARMED.value:
            self._say(Say("arm"))
        elif isinstance(message, Report) and message.report["phase"] == Phase.IDLE.value:
            self._say(Start(self.episodes, self.episodes, vitals()))
        elif isinstance(message, Begun):
            self._act(message.episode, 0)
        elif isinstance(message, Stepped) and not (message.terminated or message.truncated):
            self._act(message.episode, message.tick)
        elif isinstance(message, (Stepped, Broken)):
            self.episodes += 1
            self.wrong += 1
            self._offer(message.episode, 0, 1)  # of the episode that has just ended

    def _act(self, episode: int, tick: int) -> None:
        how = float(self._rng.random())
        if how < 0.5:
            self._offer(episode, tick, 1)
        elif how < 0.65:
            time.sleep(float(self._rng.uniform(0.4, 2.5)) / RATE_HZ)
            self._offer(episode, tick, 1)
        elif how < 0.75:
            self.wrong += 1
            self._offer(episode - 1, tick, 1)
        elif how < 0.85:
            self.wrong += 1
            self._offer(episode + 1, tick, 1)
        else:
            self._offer(episode, tick, 12)

    def _offer(self, episode: int, tick: int, count: int) -> None:
        self._say(Offer(episode, tick, self._rng.uniform(-0.7, 0.7, (count, 6)).astype(np.float32), vitals()))

    def _say(self, message: Signal) -> None:
        self._pipe.send_bytes(pack(message))


def vitals() -> Vitals:
    """Those of an actor that has just heard of everything."""
    return Vitals(time.monotonic(), 0.0)


def rude(trial: Trial) -> Outcome:
    """Late actions, actions of other episodes, and chunks that outlive theirs."""
    record = trial.place / "record"
    actor = Rude(record, trial.rng)
    try:
        actor.run(QUICK_EPISODES if trial.quick else EPISODES)
    finally:
        actor.close()
    log = RobotLog.read(record)
    figures = {"stale_commands": log.stale_commands, "crossed_resets": log.crossed_resets, "said_wrong": actor.wrong}
    return Outcome({**figures, "commands": log.count("policy"), "holds": log.count("hold"), "stops": log.count("stop")})


def control(place: Path) -> dict[str, bool]:
    """Records with a fault in them: each must break a bar."""
    period = 1 / RATE_HZ
    policy = [_line("policy", n * period, 0) for n in range(50)]
    safe = [_line("hold", 50 * period, 0), {"what": "stop", "at": 51 * period}]
    good = [{"what": "reset", "at": 0.0, "episode": 0}, *policy, *safe]
    wounds = [(49.5 * period, 2.0)]
    late = {**_line("policy", 0.3, 0), "deadline": 0.29}
    of_another = _line("policy", 0.3, 1)
    sabotaged = {
        "a late command": [*good, late],
        "a command of another episode": [*good, of_another],
        "no hold": good[:-2],
        "a hold too late": [*good[:-2], _line("hold", 54 * period, 0)],
        "a hold that did not last": [*good, _line("policy", 54 * period, 0)],
    }

    def breaks(lines: list[Any]) -> bool:
        return bool(HURT[0].problems(judge(RobotLog(lines), wounds, "actor")))

    return {"nothing": not breaks(good), **{name: breaks(lines) for name, lines in sabotaged.items()}}


def _line(kind: str, at: float, episode: int) -> dict[str, Any]:
    deadline = at + 0.5 / RATE_HZ if kind == "policy" else None
    return {"what": "act", "kind": kind, "at": at, "episode": episode, "deadline": deadline, "done": True, "tick": 0}


def part(role: str, how: str) -> Part:
    """Trials that hurt one role in one way."""
    bars = (*never("stale_commands", "crossed_resets", "never_safe"), *at_most("safe_ms", PERIODS_MS))
    seen = told("safe_ms_median", "commands", "holds", "stops")
    return Part(f"{role}-{how}", 2, lambda trial: hurt(trial, role, how), (*bars, *seen), control=control)


HURT = tuple(
    part(role, how)
    for role in ("actor", "buffer", "learner")
    for how in ("kill", "stop", "partition")
    if (role, how) != ("actor", "partition")
)
PROMISE = Promise(
    "P20",
    "A stale or malformed action is never executed; losing any other process puts the robot into its declared safe behaviour.",
    (
        *HURT,
        Part(
            "rude-actor",
            2,
            rude,
            (*never("stale_commands", "crossed_resets"), *at_least("said_wrong", 1), *told("commands", "holds", "stops")),
            control=control,
        ),
    ),
)
