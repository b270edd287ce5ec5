"""A robot of a chaos job: a program with a control loop of its own, whose rows lie in a spool until they are acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from headrace.actor.config import ActorConfig
from headrace.actor.envs import make_spec
from headrace.actor.joining import ActorSettings
from headrace.actor.session import Session
from headrace.actor.uplink import Uplink
from headrace.common.clock import MonotonicClock
from headrace.common.ending import end_code
from headrace.common.errors import DeadlineExceeded
from headrace.common.process import stop_on_signal
from headrace.common.seeds import derive_seed
from headrace.launch.chaos.scripted import ScriptedEnv, make
from headrace.launch.chaos.witness import WitnessPolicy

SPOOL_BYTES = 16 << 20
CLOSE_S, LOOK_S = 20.0, 0.2


def run_robot(settings: ActorSettings, spool: Path, make_uplink: Callable[..., Uplink]) -> int:
    """Act until the buffer or a signal says stop, and say late of each episode what became of it.

    Raises:
        SpoolError: another process of the id has the spool.
        SessionRefused: the id is held, or the spec differs.
        DeadlineExceeded: no session or no weights in ``network.connect_s``.
    """
    env, stop, network = make(**settings.env.kwargs), stop_on_signal(), settings.network
    spool.mkdir(parents=True, exist_ok=True)
    actor = replace(ActorConfig(robot=True), spool=str(spool), spool_bytes=SPOOL_BYTES)
    spec = make_spec(settings.env, settings.window)
    seeds = settings.seed, settings.actor_id
    session = Session(
        settings.endpoint,
        settings.actor_id,
        spec,
        actor=actor,
        network=network,
        rng=np.random.default_rng(derive_seed(*seeds, "action")),
        clock=MonotonicClock(),
        make_uplink=make_uplink,
        make=WitnessPolicy,
    )
    try:
        _wait_weights(session, stop, network.connect_s)
        episode = session.uplink.next_episode  # the spool's stream goes on, and its episodes with it
        while not stop.is_set() and not session.ended:
            _play(session, env, episode, lambda: stop.is_set() or bool(session.ended))
            episode += 1
    finally:
        session.close(CLOSE_S)
        env.close()
    return end_code(session.uplink.stop, stop)


def _wait_weights(session: Session, stop: threading.Event, deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while not stop.is_set():
        try:
            session.policy(LOOK_S)
            return
        except DeadlineExceeded:
            if time.monotonic() > end:
                raise


def _play(session: Session, env: ScriptedEnv, episode: int, must_leave: Callable[[], bool]) -> None:
    env.on_episode(0, episode)
    obs, _ = env.reset()
    session.begin({"obs": obs})
    ends = False
    while not ends and not must_leave():
        action = session.act({"obs": obs})
        obs, reward, terminated, truncated, info = env.step(action)
        session.record({"obs": obs}, action, reward, terminated, truncated)
        ends = terminated or truncated
        if ends:
            session.success() if info["success"] else session.failure()
