"""Starting one role in this process: the run's config becomes the role's settings, and its end an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import headrace
from headrace.common.config import replace
from headrace.common.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    GroupLost,
    HeadraceError,
    NoSpace,
    PoolDamaged,
    PoolLocked,
    SessionRefused,
    SpecError,
    describe_os_error,
)
from headrace.common.exporter import Exporter
from headrace.common.limits import raise_open_files
from headrace.launch.config import RunConfig
from headrace.launch.exits import FAILED, GROUP_LOST, MUST_NOT_RESTART, STOPPED
from headrace.launch.leash import follow_parent
from headrace.launch.placing import own_shard, require_shard, shard_endpoint, shard_endpoints, shard_names
from headrace.launch.rundir import RunDir

if TYPE_CHECKING:
    from headrace.actor.joining import ActorSettings

LEARNER_ID = "learner"
# What the next start of the same process would meet again. The learner retries a checkpoint that it can do without, and
# raises only when none can be read, or when the last one cannot be written.
PERMANENT = (ConfigError, EnvError, SpecError, SessionRefused, PoolLocked, PoolDamaged, NoSpace, CheckpointError)


def run_buffer(config: RunConfig, run: RunDir, bind: str | None, number: int = 0) -> int:
    """Serve a buffer of the run at ``bind`` (none: where the config says) and write where it listens to its directory.

    ``number`` is its place among the shards of the run; a further one dials the home shard.
    """
    from headrace.buffer.server import serve
    from headrace.buffer.settings import BufferSettings
    from headrace.launch.pinning import pin_demos
    from headrace.launch.pools import find_past, open_past

    require_shard(config, number, "--shard")
    at = bind or (config.network.shards[number] if config.network.shards else "")
    network = replace(config.network, endpoint=at) if at else config.network
    home = shard_endpoint(config, run, 0) if number else ""
    own = run.shard(number)
    pool_dir = own.pool_dir(config.run.pool_dir)
    place = None if number else find_past(config)
    past = partial(open_past, config, place) if place else None
    # Where sets have shares, each shard draws its part of them; else demonstrations are rows like any, and are there once.
    pins = bool(config.pool.demos) and (number == 0 or bool(config.sampling.sets))
    demos = partial(pin_demos, config, pool_dir) if pins else None
    settings = BufferSettings(
        network,
        config.pool,
        pool_dir,
        config.pacing,
        run.run_id,
        config.seed,
        own.write_endpoint,
        past,
        own.snapshots,
        sampling=config.sampling,
        demos=demos,
        return_gamma=config.learner.return_gamma,
        limits=config.buffer,
        readers=config.learner.ranks,
        update_rows=config.learner.batch_size * max(1, len(config.sampling.mixes)),
        exporter=_exporter(config, run, "buffer", f"buffer-{number}" if number else "buffer"),
        shard=number,
        home=home,
    )
    _leave_signals_to_the_role()
    return serve(settings)


def run_learner(config: RunConfig, run: RunDir, connect: str | None, learner_id: str, init_from: Path | None) -> int:
    """Train; an existing checkpoint of the run directory is continued."""
    from headrace.buffer.view import PoolView
    from headrace.launch.play import read_policy
    from headrace.learner.loop import run as learn
    from headrace.learner.settings import LearnerSettings

    shards = shard_endpoints(config, run) if len(shard_names(config)) > 1 else []
    endpoint = connect or (shards[0] if shards else run.wait_endpoint(config.network.connect_s))
    settings = LearnerSettings(
        endpoint,
        learner_id,
        config.learner,
        config.model,
        config.sinks,
        config.network,
        run.path,
        config.seed,
        read_policy(init_from) if init_from else None,
        config.pacing.offline_updates,
        PoolView,
        _exporter(config, run, "learner", learner_id),
        (endpoint, *shards[1:]),
    )
    _leave_signals_to_the_role()
    return learn(settings)


def run_actor(config: RunConfig, run: RunDir | None, connect: str | None, actor_id: str) -> int:
    """Act in the environment and hand over what happens."""
    from headrace.actor.loop import run as act

    exporter = _exporter(config, run, "actor", actor_id)
    at = connect or shard_endpoint(config, run, own_shard(config, actor_id))
    settings = _player(config, at, actor_id, exporter)
    _leave_signals_to_the_role()
    return act(settings)


def run_evaluator(config: RunConfig, run: RunDir | None, connect: str | None, evaluator_id: str) -> int:
    """Judge the newest policy from time to time."""
    from headrace.actor.evaluator import EvaluatorSettings
    from headrace.actor.evaluator import run_evaluator as judge

    if config.eval.every == 0:
        raise ConfigError("eval.every: 0 means no evaluation during the run; nearest valid for an evaluator: 1")
    config.require_evaluable()
    judging = replace(config, actor=replace(config.actor, ema=config.eval.ema))
    exporter = _exporter(config, run, "evaluator", evaluator_id)
    player = _player(judging, connect or shard_endpoint(config, run, 0), evaluator_id, exporter)
    checkpoints = run.checkpoints if run is not None else None
    settings = EvaluatorSettings(player, config.eval.every, config.eval.episodes, checkpoints)
    _leave_signals_to_the_role()
    return judge(settings)


def run_policy_server(config: RunConfig, run: RunDir | None, connect: str | None, bind: str | None, identity: str) -> int:
    """Decide for actors that have no policy of their own, at ``bind`` (none: the config's ``policy_server.endpoint``)."""
    from headrace.actor.device import require_device
    from headrace.actor.policy_server import PolicyServerSettings
    from headrace.actor.policy_server import run as decide

    require_device(config.policy_server.device, "policy_server.device")
    endpoint = connect or shard_endpoint(config, run, 0)
    server = replace(config.policy_server, endpoint=bind) if bind else config.policy_server
    settings = PolicyServerSettings(endpoint, identity, server, config.network, config.actor.ema)
    _leave_signals_to_the_role()
    return decide(settings)


def _player(config: RunConfig, endpoint: str, identity: str, exporter: Exporter) -> ActorSettings:
    from headrace.actor.device import require_device
    from headrace.actor.joining import ActorSettings

    require_device(config.actor.device)
    parts = config.env, config.window, config.actor, config.network, config.seed, config.robot, config.policy_server
    due_steps = config.pacing.steps_for(config.learner.publish_every_updates)
    return ActorSettings(endpoint, identity, *parts, exporter, due_steps)


def _exporter(config: RunConfig, run: RunDir | None, role: str, identity: str) -> Exporter:
    about = {"run": config.run.name if run is None else run.path.name, "role": role, "id": identity}
    announce = None if run is None else partial(run.write_target, about)
    return Exporter(config.metrics, tuple({**about, "version": headrace.__version__}.items()), announce)


def own_id(kind: str) -> str:
    """A name for a role that was started without one: unique as long as this process lives."""
    return f"{kind}-{socket.gethostname()}-{os.getpid()}"


def guarded(name: str, body: Callable[[], int]) -> int:
    """Run a role's body; every end becomes an exit code, and an understood error one line on standard error.

    0: ended in order. 1: it failed, and may be started again. 3: it would fail in the same way, and must not be. 4: it has lost
    another rank, and may be started again with it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave_early)  # until the role runs, a request to end means: end here
    follow_parent()
    form = f"%(asctime)s %(levelname)s {name} %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stderr)
    raise_open_files()
    try:
        return body()
    except HeadraceError as error:
        _say(f"headrace {name}: error: {' '.join(str(error).split())}")
        if isinstance(error, GroupLost):
            return GROUP_LOST
        return MUST_NOT_RESTART if isinstance(error, PERMANENT) else FAILED
    except KeyboardInterrupt:
        return STOPPED
    except OSError as error:
        traceback.print_exc()
        _say(f"headrace {name}: error: {describe_os_error(error)}")
        return FAILED
    except Exception:
        traceback.print_exc()  # a defect: the log is where it is looked for
        return FAILED
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # stays while the interpreter shuts down, where handlers are reset


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # where a log is on a full disk, the exit code must be right all the same
        print(line, file=sys.stderr)


def _leave_early(number: int, frame: object) -> None:
    os._exit(0)  # an exception would kill by SIGABRT whoever is importing torch: its C++ lets none through


def _leave_signals_to_the_role() -> None:
    """From here on the role listens for signals itself; one that comes when it has just stopped to changes nothing."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
