"""What a config, a command line or a place may get wrong, and the words by which the process that meets it must name it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import yaml
from helpers.roles import Roles

START_S = 30.0


@dataclass(frozen=True)
class Case:
    """One misconfiguration.

    Attributes:
        name: in a few words.
        begin: starts what is wrong among what is right; the name of the process that must end by itself.
        words: what its last line must hold.
    """

    name: str
    begin: Callable[[Roles], str]
    words: Callable[[Roles], tuple[str, ...]]


def _says(*words: str) -> Callable[[Roles], tuple[str, ...]]:
    return lambda run: words


def _buffer(*words: str) -> Callable[[Roles], str]:
    """A buffer with one more word on its command line."""

    def begin(run: Roles) -> str:
        run.start("wrong", "buffer", str(run.config), "--bind", run.endpoint, *words)
        return "wrong"

    return begin


def _actor(*words: str) -> Callable[[Roles], str]:
    """An actor of a buffer that already has another one."""

    def begin(run: Roles) -> str:
        run.buffer()
        run.actor("right")
        run.wait(lambda s: len(s["actors"]) == 1, START_S)
        run.actor("wrong", *words)
        return "wrong"

    return begin


def _learner(*words: str) -> Callable[[Roles], str]:
    """A learner of a buffer that has an actor."""

    def begin(run: Roles) -> str:
        run.buffer()
        run.actor("right")
        run.wait(lambda s: len(s["actors"]) == 1, START_S)
        run.start("wrong", "learner", str(run.config), "--connect", run.endpoint, *words)
        return "wrong"

    return begin


def _taken_port(run: Roles) -> str:
    run.buffer()
    run.wait(lambda s: True, START_S)
    other = run.directory / "other.yaml"
    other.write_text(
        yaml.safe_dump({**yaml.safe_load(run.config.read_text()), "run": {"dir": str(run.directory), "name": "b"}})
    )
    run.start("wrong", "buffer", str(other), "--bind", run.endpoint)
    return "wrong"


def _second_buffer(run: Roles) -> str:
    run.buffer()
    run.wait(lambda s: True, START_S)
    run.start("wrong", "buffer", str(run.config), "--bind", "tcp://127.0.0.1:0")
    return "wrong"


def _second_train(run: Roles) -> str:
    words = ("--pacing.env_steps", "0", "--actor.count", "1")
    run.start("right", "train", str(run.config), *words)
    deadline = time.monotonic() + START_S
    while not (run.run / "endpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.start("wrong", "train", "--resume", str(run.run))
    return "wrong"


def _two_learners(run: Roles) -> str:
    """The second has a buffer of its own and the first one's directory."""
    run.buffer()
    run.actor("right")
    run.start("learner", "learner", str(run.config), "--connect", run.endpoint)
    run.wait(lambda s: s["updates"] > 0, START_S)
    place = run.directory / "elsewhere"
    place.mkdir()
    other = Roles(place, {**yaml.safe_load(run.config.read_text()), "run": {"dir": str(place), "name": "run"}})
    other.processes = run.processes  # so that they are ended with the others
    other.start("buffer 2", "buffer", str(other.config), "--bind", other.endpoint)
    other.start("actor 2", "actor", str(other.config), "--connect", other.endpoint, "--id", "right")
    other.wait(lambda s: len(s["actors"]) == 1, START_S)
    run.start("wrong", "learner", str(run.config), "--connect", other.endpoint)
    return "wrong"


def _file_in_place_of(name: str) -> Callable[[Roles], str]:
    """A file where a directory of the run should be."""

    def begin(run: Roles) -> str:
        run.start("first", "buffer", str(run.config), "--bind", run.endpoint)  # makes the run's directory
        run.actor("right")
        run.wait(lambda s: len(s["actors"]) == 1, START_S)
        (run.run / name).write_text("")
        run.start("wrong", "learner", str(run.config), "--connect", run.endpoint)
        return "wrong"

    return begin


def _other_pool(run: Roles) -> str:
    """A buffer whose directory has a pool, and an actor of another window."""
    run.buffer()
    run.actor("right")
    run.wait(lambda s: s["env_steps"] > 10, START_S)
    run.stop()
    run.buffer()
    run.wait(lambda s: True, START_S)
    run.actor("wrong", "--window.n_step", "3")
    return "wrong"


def _huge_pool(run: Roles) -> str:
    run.start("wrong", "buffer", str(run.config), "--bind", run.endpoint, "--pool.capacity", str(10**12))
    run.actor("right", "--pool.capacity", str(10**12))
    return "wrong"


CASES = (
    Case("port in use", _taken_port, lambda run: ("network.endpoint", run.endpoint)),
    Case("port below the allowed", _buffer("--network.endpoint", "tcp://127.0.0.1:x"), _says("network.endpoint")),
    Case("open to the network", _buffer("--bind", "tcp://0.0.0.0:0"), _says("network.", "0.0.0.0")),
    Case(
        "second buffer on a directory",
        _second_buffer,
        lambda run: (str(run.run / "pool"), f"pid {run.processes['buffer'].pid}"),
    ),
    Case("second train on a directory", _second_train, lambda run: (str(run.run), f"pid {run.processes['right'].pid}")),
    Case(
        "second learner on a directory",
        _two_learners,
        lambda run: (str(run.run / "checkpoints"), f"pid {run.processes['learner'].pid}"),
    ),
    Case("file in place of checkpoints", _file_in_place_of("checkpoints"), lambda run: (str(run.run / "checkpoints"),)),
    Case("other frames of an actor", _actor("--window.stack", "2"), _says("spec.stack: 1 != 2", "window.stack")),
    Case("other window of an actor", _other_pool, _says("spec.window: 1 != 3", "window.n_step")),
    Case("other actions of an actor", _actor("--env.kwargs.action_dim", "2"), _says("spec.action")),
    Case("id of another actor", _actor("--id", "right"), lambda run: ("right", f"pid {run.processes['right'].pid}")),
    Case("unknown key", _buffer("--pool.capacty", "7"), _says("pool.capacty", "'capacity'")),
    Case("wrong type", _buffer("--pool.capacity", "many"), _says("pool.capacity", "'many'")),
    Case("out of range", _buffer("--pacing.ratio", "-1"), _says("pacing.ratio", "nearest valid")),
    Case("fill beyond the pool", _buffer("--pacing.min_fill", "4000"), _says("pacing.min_fill", "pool.capacity")),
    Case("batch beyond the pool", _buffer("--learner.batch_size", "4000"), _says("learner.batch_size")),
    Case("batch beyond the fill", _buffer("--learner.batch_size", "65"), _says("learner.batch_size", "pacing.min_fill")),
    Case(
        "unknown env",
        _actor("--env.id", "headrace.launch.chaos.scripted:mke"),
        _says("env.id", "headrace.launch.chaos.scripted:mke"),
    ),
    Case("unknown argument of an env", _actor("--env.kwargs.lenghts", "[3]"), _says("env", "lenghts")),
    Case(
        "unknown option of a model",
        _learner("--model.options.hiden", "[8]", "--run.name", "other"),
        _says("model.options.hiden", "'hidden'"),
    ),
    Case("no such policy to begin with", _learner("--init-from", "nowhere"), _says("nowhere")),
    Case("pool too large for the disk", _huge_pool, _says("the pool needs", "pool.capacity")),
)
