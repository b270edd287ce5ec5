"""``headrace doctor``: one verdict and one piece of advice a line, on this machine and on whether a run fits here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from headrace.actor.bound import bound as bound_of_actor
from headrace.buffer import files as pool_files
from headrace.buffer import space
from headrace.buffer.books import Books
from headrace.buffer.bound import bound as bound_of_buffer
from headrace.buffer.ring import geometry
from headrace.common.cores import usable_cores
from headrace.common.errors import ConfigError, EnvError, HeadraceError, NoSpace, SpecError
from headrace.common.specs import TransitionSpec
from headrace.common.wire.key_files import SECRET, KeyFiles
from headrace.launch import robot_doctor
from headrace.launch.children import THREAD_VARIABLES
from headrace.launch.cluster import checkup
from headrace.launch.cluster.checkup import Visit
from headrace.launch.cluster.topology import is_topology
from headrace.launch.config import RunConfig, make_config, read_config
from headrace.launch.finding import BAD, GOOD, WARN, Finding
from headrace.launch.machine import GIB, cpu_model, gpu, memory_limit, version_of
from headrace.launch.placing import shard_names
from headrace.launch.robot_doctor import Place as Place
from headrace.learner.bound import bound as bound_of_learner

BASE = ("numpy", "pyzmq", "msgpack", "msgpack-numpy")
TRAINING = ("torch", "gymnasium", "uvloop", "safetensors", "tensorboard", "matplotlib", "PyYAML", "rich")


HERE = Visit()


def doctor(
    config: Path | None, overrides: Sequence[str], robot: Place | None = None, visit: Visit = HERE, *, as_json: bool = False
) -> int:
    """Print every finding, or all of them as one JSON list; 1 when one of them would keep a run from working."""
    found = []
    for finding in findings(config, overrides, robot, visit):
        found.append(finding)
        if not as_json:
            print(finding, flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    return 1 if any(finding.verdict == BAD for finding in found) else 0


def findings(
    config: Path | None, overrides: Sequence[str], robot: Place | None = None, visit: Visit = HERE
) -> Iterator[Finding]:
    """Everything that is looked at, the machine first; with ``robot`` what matters to a robot's computer, and not the run's.

    Where ``config`` is a topology, what matters to the roles of the host that ``visit`` names.
    """
    yield from _installation()
    yield from _machine()
    if config is None:
        return
    try:
        given = read_config(config)
        if is_topology(given):
            refuse_options(overrides, robot)
            yield from checkup.findings(config, visit)
            return
        options = make_config(given, overrides)
    except ConfigError as error:
        yield Finding("config", BAD, str(error))
        return
    yield Finding("config", GOOD, str(config))
    if version_of("mujoco") == "-" and _needs_mujoco(options.env.id):
        yield Finding("mujoco", BAD, f"not installed, but {options.env.id} needs it", "pip install 'headrace[mujoco]'")
    spec, finding = _environment(options)
    yield finding
    if robot is not None:
        if not options.actor.robot:
            yield Finding("robot", BAD, "actor.robot: false", "this config drives no robot; set it, with robot.guard's limits")
            return
        yield from _keys(options)
        yield from robot_doctor.findings(options, spec, robot)
        return
    yield _processes(options)
    if spec is not None:
        yield from _room(options, spec)
        yield from _memory(options, spec)
    yield from _keys(options)
    yield _port(options)


def refuse_options(overrides: Sequence[str], robot: Place | None) -> None:
    """Refuse what means nothing to a topology, whose roles have the config that lies beside it."""
    if overrides or robot is not None:
        word = overrides[0] if overrides else "--robot"
        raise ConfigError(f"{word}: the doctor of a topology takes none; give it the run's config instead")


def _installation() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", GOOD, version)
    for name in (*BASE, *TRAINING):
        installed = version_of(name)
        if installed != "-":
            yield Finding(name, GOOD, installed)
        elif name in BASE:
            yield Finding(name, BAD, "not installed", "pip install headrace")
        elif name == "PyYAML":
            yield Finding(
                name, WARN, "not installed", "it reads configs; a loop of your own has none: pip install 'headrace[robot]'"
            )
        else:
            yield Finding(name, WARN, "not installed", "a robot does not need it; training does: pip install 'headrace[train]'")

    if version_of("mujoco") != "-":  # only some envs need it
        yield Finding("mujoco", GOOD, version_of("mujoco"))


def _needs_mujoco(env_id: str) -> bool:
    """Whether an env of gymnasium's own is a MuJoCo one; of others nobody knows before they are made."""
    try:
        from gymnasium.envs.registration import registry
    except ImportError:
        return False
    return "mujoco" in str(getattr(registry.get(env_id), "entry_point", ""))


def _machine() -> Iterator[Finding]:
    yield Finding("processor", GOOD, f"{cpu_model()}, {usable_cores()} cores, {memory_limit() / GIB:.1f} GiB of memory")
    yield Finding("gpu", GOOD, gpu())
    names = [f"{n}={os.environ[n]}" for n in THREAD_VARIABLES if n in os.environ]
    if names:
        yield Finding("threads", WARN, " ".join(names), "these bind the learner too; unset them unless that is meant")
    else:
        yield Finding("threads", GOOD, "not bound; actors, buffer and evaluator are started with one each")
    for name, directory in (("disk", Path.cwd()), ("/dev/shm", Path("/dev/shm"))):
        if directory.is_dir():
            yield Finding(name, GOOD, f"{space.disk_room(directory).free / GIB:.1f} GiB free in {directory}")


def _processes(config: RunConfig) -> Finding:
    ranks, cores = config.learner.ranks, usable_cores()
    count = config.actor.count + ranks + 1 + bool(config.eval.every)
    several = f", {ranks} ranks of the learner" if ranks > 1 else ""
    seen = f"{count} processes ({config.actor.count} actors{several}) on {cores} cores"
    if ranks > cores:
        return Finding("processes", WARN, seen, f"ranks wait for each other in every update; try --learner.ranks {cores}")
    # Each rank wants a core of its own; buffer and evaluator are mostly idle.
    if config.actor.count > max(1, 2 * (cores - ranks)):
        return Finding("processes", WARN, seen, f"actors will wait for each other; try --actor.count {max(1, cores - ranks)}")
    return Finding("processes", GOOD, seen)


def _environment(config: RunConfig) -> tuple[TransitionSpec | None, Finding]:
    from headrace.actor.envs import make_spec

    try:
        spec = make_spec(config.env, config.window, robot=config.actor.robot)
    except (EnvError, SpecError, ConfigError, ImportError) as error:
        return None, Finding("env", BAD, " ".join(str(error).split()))
    obs = ", ".join(f"{o.key} {o.shape} {o.dtype}" for o in spec.obs)
    return spec, Finding("env", GOOD, f"{config.env.id}: obs {obs}; action {spec.action.shape}")


def _room(config: RunConfig, spec: TransitionSpec) -> Iterator[Finding]:
    sizes = geometry(spec, config.pool)
    needed = pool_files.nbytes(spec, sizes, Books.nbytes(spec, config.pool.max_actors))
    if config.sampling.method == "prioritised":
        needed += 4 * sizes.row_slots
    place = Path(config.run.pool_dir or config.run.dir).expanduser()
    existing = next(p for p in [place, *place.absolute().parents] if p.is_dir())
    try:
        space.require(needed, existing)
    except NoSpace as error:
        yield Finding("pool", BAD, str(error))
        return
    yield Finding("pool", GOOD, f"needs {needed / (1 << 20):,.0f} MiB in {existing}")
    if not os.access(existing, os.W_OK):
        yield Finding("pool", BAD, f"{existing} cannot be written", "choose another run.dir or run.pool_dir")


def _keys(config: RunConfig) -> Iterator[Finding]:
    """Of ``network.keys``: files that hold no key, and secrets that roles of this host would miss or refuse."""
    if not config.network.keys:
        return
    files = KeyFiles.of(config.network)
    if not files.path.exists():
        yield Finding("keys", WARN, f"{files.path} is missing", "train makes it; roles that are started by hand need it")
        return
    try:
        keys, problems = files.public()
    except ConfigError as error:
        keys, problems = {}, [str(error)]
    secrets = [path.name.removesuffix(SECRET) for path in sorted(files.path.glob(f"*{SECRET}"))]
    known = {key.public.encode("ascii") for key in keys.values()}  # none where a robot has its one secret
    for name in secrets:
        try:
            secret = files.secret(name)
        except ConfigError as error:
            problems.append(str(error))
        else:
            if known and secret.public not in known:
                problems.append(f"network.keys: {files.secret_path(name)} is of a key that is not known here, or was revoked")
    for problem in problems:
        yield Finding("keys", BAD, problem)
    if not problems:
        yield Finding("keys", GOOD, f"{len(keys)} in {files.path}, with the secrets of {', '.join(secrets) or 'nobody'}")


def _memory(config: RunConfig, spec: TransitionSpec) -> Iterator[Finding]:
    """The declared bounds of the roles, which hold whatever is offered to them."""
    rows = config.learner.batch_size * max(1, len(config.sampling.mixes))
    buffer = bound_of_buffer(config.pool, config.sampling, config.network, spec, readers=config.learner.ranks, rows=rows)
    room = memory_limit()
    advice = "" if buffer.total <= room else "lower network.credit_bytes, network.message_bytes or pool.max_actors"
    yield Finding("buffer memory", WARN if advice else GOOD, f"at most {buffer}, beside the pool's files", advice)
    actor = bound_of_actor(config.actor, config.network, spec, lanes=config.env.lanes)
    yield Finding("actor memory", GOOD, f"at most {actor}, beside env and policy")
    learner = bound_of_learner(config.learner, config.network, spec, rows=rows, shards=len(shard_names(config)))
    yield Finding("learner memory", GOOD, f"at most {learner}, beside model, optimisers and a checkpoint's copy")


def _port(config: RunConfig) -> Finding:
    import zmq

    from headrace.common.wire import sockets
    from headrace.common.wire.keys import BUFFER, Secret, new_pair

    context = zmq.Context()
    public, secret = new_pair()  # nobody vouches for anybody who comes by it, so nobody gets in
    try:
        sockets.router(context, config.network, Secret(BUFFER, BUFFER, secret, public)).close(0)
    except HeadraceError as error:
        return Finding("endpoint", BAD, str(error))
    finally:
        context.term()
    return Finding("endpoint", GOOD, config.network.endpoint)
