"""The config of a whole run: one validated YAML file, composed of the configs of its roles."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.actor.config import ActorConfig, EnvConfig, RobotConfig, WindowConfig
from headrace.actor.server_config import PolicyServerConfig
from headrace.buffer.config import BufferConfig, PoolConfig, SamplingConfig
from headrace.buffer.pacing import PacingConfig
from headrace.common.config import describe, dump, flatten, load, merge, option, parse_overrides
from headrace.common.errors import ConfigError
from headrace.common.exporter import MetricsConfig
from headrace.common.wire.network import NetworkConfig
from headrace.launch.sizes import require_sizes
from headrace.launch.supervision import SupervisorConfig
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.sinks import SinkConfig

try:
    import yaml
except ImportError as error:  # the base install is for loops of one's own, which have no config
    raise ConfigError("configs are read by PyYAML, which is not installed: pip install 'headrace[robot]'") from error

SCHEMA = 1
T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """Where a run lives and in which way it runs."""

    name: str = option("", help="name of the run directory; empty: made of the env's id and the time")
    dir: str = option("runs", help="directory that holds run directories")
    mode: str = option(
        "async",
        help="async: a process for each role; sync: one process, bit-identical under a seed",
        choices=("async", "sync"),
    )
    pool_from: str = option(
        "",
        help="begin with the rows of this pool, snapshot or run; they count as no env step, and pool.max_actors"
        " must hold their actors too",
    )
    pool_dir: str = option("", help="directory for the pool, such as /dev/shm; empty: in the run directory")
    curve_s: float = option(
        15.0, help="time between two drawings of the learning curve; 0 draws it at the end only", unit="s", low=0, resume=True
    )

    def check(self, path: str = "run") -> None:
        """Refuse a name that would lead out of ``dir``."""
        if self.name in (".", "..") or "/" in self.name or "\0" in self.name:
            last = self.name.rstrip("/").rpartition("/")[2].strip(".\0") or "empty"
            raise ConfigError(
                f"{path}.name: {self.name!r} is a path, but names one directory in {path}.dir; nearest valid: {last}"
            )


@dataclass(frozen=True)
class EvalConfig:
    """How the policy is judged: deterministic actions in an environment of its own."""

    every: int = option(
        1000,
        help="env steps between two evaluations; 0 starts no evaluator",
        unit="env steps",
        low=0,
        resume=True,
    )
    ema: bool = option(False, help="judge the average of the policy (learner.ema_decay)", resume=True)
    episodes: int = option(5, help="episodes of one of these evaluations", unit="episodes", low=1, high=10_000, resume=True)
    final_episodes: int = option(
        20, help="episodes of the last evaluation; 0 leaves it out", unit="episodes", low=0, high=10_000, resume=True
    )


@dataclass(frozen=True)
class RunConfig:
    """Every option of a run."""

    env: EnvConfig = option(help="the environment")
    schema: int = option(SCHEMA, help="version of this file's format", low=SCHEMA, high=SCHEMA)
    seed: int = option(0, help="what every random number of the run derives from", low=0, high=(1 << 31) - 1)
    run: RunOptions = option(factory=RunOptions, help="where and how the run runs")
    window: WindowConfig = option(factory=WindowConfig, help="what one row covers")
    actor: ActorConfig = option(factory=ActorConfig, help="actor processes")
    robot: RobotConfig = option(factory=RobotConfig, help="how a robot is driven, with actor.robot")
    policy_server: PolicyServerConfig = option(
        factory=PolicyServerConfig, help="a process that decides for actors, with actor.policy server"
    )
    buffer: BufferConfig = option(factory=BufferConfig, help="the buffer process")
    pool: PoolConfig = option(factory=PoolConfig, help="the pool")
    sampling: SamplingConfig = option(factory=SamplingConfig, help="how batches are drawn")
    pacing: PacingConfig = option(factory=PacingConfig, help="length of the run and ratio of learning to acting")
    learner: LearnerConfig = option(factory=LearnerConfig, help="the algorithm")
    model: ModelConfig = option(factory=ModelConfig, help="the networks")
    eval: EvalConfig = option(factory=EvalConfig, help="evaluation")
    network: NetworkConfig = option(factory=NetworkConfig, help="how roles meet")
    sinks: SinkConfig = option(factory=SinkConfig, help="where metrics go")
    metrics: MetricsConfig = option(factory=MetricsConfig, help="where each process serves its figures")
    supervisor: SupervisorConfig = option(factory=SupervisorConfig, help="how roles are kept alive")

    def check(self, path: str = "") -> None:
        """Refuse combinations of options of several roles that cannot work."""
        batch, capacity, offline = self.learner.batch_size, self.pool.capacity, self.pacing.offline_updates
        if self.pool.demos:
            self.sampling.check_pinned()
        if self.window.prefix and (self.pool.demos or self.run.pool_from):
            raise ConfigError(
                f"window.prefix: {self.window.prefix!r} with pool.demos or run.pool_from, whose rows hold no prefix; nearest"
                " valid: empty"
            )
        if offline and not (self.run.pool_from or self.pool.demos):
            raise ConfigError(
                f"pacing.offline_updates: {offline} with run.pool_from and pool.demos empty, so there is nothing to learn"
                " from; nearest valid: 0, or name a pool or demonstrations"
            )
        for key, ema in (("actor.ema", self.actor.ema), ("eval.ema", self.eval.ema)):
            if ema and self.learner.ema_decay is None:
                raise ConfigError(f"{key}: true with learner.ema_decay none, so there is no average; nearest valid: false")
        if self.learner.normalise_obs and ":" not in self.model.type and self.model.type != ModelConfig().type:
            raise ConfigError(
                f"learner.normalise_obs: true with model.type {self.model.type}, but actors normalise for the mlp only; nearest"
                " valid: false"
            )
        if not self.learner.resample_target_action and not self.window.next_action:
            raise ConfigError(
                "learner.resample_target_action: false with window.next_action false, so rows hold no next action; nearest"
                " valid: true, or window.next_action true"
            )
        require_sizes(self.pacing, batch, capacity)
        self.sampling.check_fits(capacity, batch)
        if self.actor.priorities and self.sampling.method != "prioritised":
            raise ConfigError(
                f"actor.priorities: {self.actor.priorities!r} with sampling.method {self.sampling.method}, which has none;"
                " nearest valid: empty, or sampling.method prioritised"
            )
        if self.actor.count > self.pool.max_actors:
            raise _impossible("actor.count", self.actor.count, "above", "pool.max_actors", self.pool.max_actors)
        if self.robot.ahead and (self.window.chunk > 1 or self.window.latent):
            raise ConfigError(
                f"robot.ahead: true with window.chunk {self.window.chunk} and window.latent {self.window.latent}: a row would"
                " not hold what its decision saw; nearest valid: false"
            )
        if self.actor.robot:
            self._require_guarded()
        if self.actor.policy == "server":
            self._require_server()
        if self.run.mode == "sync" and self.actor.count == 0:
            raise ConfigError("actor.count: 0 with run.mode sync, where no actor can join from elsewhere; nearest valid: 1")
        if self.learner.ranks > 1:
            self._require_ranks()
        if self.buffer.shards > 1:
            self._require_shards()

    def _require_guarded(self) -> None:
        """Refuse a robot without limits, or without the one process that is its own."""
        if missing := self.robot.guard.missing():
            raise ConfigError(f"{', '.join(missing)}: not given, with actor.robot true; a robot does not move without limits")
        for key, value, valid in (("run.mode", self.run.mode, "async"), ("env.lanes", self.env.lanes, 1)):
            if value != valid:
                raise ConfigError(
                    f"{key}: {value} with actor.robot true, where one actor drives one robot, in a process of its own; nearest"
                    f" valid: {valid}"
                )

    def _require_server(self) -> None:
        """Refuse actors that ask a policy server which nobody could have started."""
        if not self.policy_server.endpoint:
            raise ConfigError("policy_server.endpoint: empty with actor.policy server; say where it listens, tcp://HOST:PORT")
        if self.run.mode == "sync":
            raise ConfigError("actor.policy: server with run.mode sync, which is one process; nearest valid: auto")

    def require_evaluable(self) -> None:
        """Refuse an evaluation that would drive a robot beside its actor, and without its guard.

        Raises:
            ConfigError: naming what asks for one.
        """
        for key, value in (("eval.every", self.eval.every), ("eval.final_episodes", self.eval.final_episodes)):
            if self.actor.robot and value:
                raise ConfigError(
                    f"{key}: {value} with actor.robot true, but nobody except its actor drives a robot; nearest valid: 0"
                )

    def _require_shards(self) -> None:
        """Refuse several buffers where there can be one only, or where the config says twice how many there are."""
        shards = self.buffer.shards
        if self.run.mode == "sync":
            raise ConfigError(
                f"buffer.shards: {shards} with run.mode sync, which is one process; nearest valid: 1, or run.mode async"
            )
        if self.network.shards:
            raise ConfigError(
                f"buffer.shards: {shards} with {len(self.network.shards)} network.shards, which are started by hand; nearest"
                " valid: 1"
            )

    def _require_ranks(self) -> None:
        """Refuse several ranks where there can be one only, or where a lost one could not be replaced in time."""
        ranks, timeout_s, lease_s = self.learner.ranks, self.learner.rank_timeout_s, self.network.lease_s
        if self.run.mode == "sync":
            raise ConfigError(
                f"learner.ranks: {ranks} with run.mode sync, which is one process; nearest valid: 1, or run.mode async"
            )
        if timeout_s < 2 * lease_s:
            raise ConfigError(
                f"learner.rank_timeout_s: {timeout_s:g} s is below two leases (network.lease_s {lease_s:g} s), and a killed"
                f" rank's name is free again only after one; nearest valid: {2 * lease_s:g}"
            )


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        ConfigError: the file is missing, unreadable, no YAML, or names a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    value = _parse(text, str(path))
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: expected a mapping of options, got {type(value).__name__}")
    return dict(value)


def make_config(mapping: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """The validated config of ``mapping`` with command line words such as ``--learner.lr 3e-4`` laid over it.

    Raises:
        ConfigError: naming the key, the value or values, and the nearest valid one.
    """
    _refuse_missing_values(overrides)
    return load(RunConfig, merge(mapping, parse_overrides(overrides, parse_value)))


def parse_value(text: str) -> Any:
    """One value of the command line, read as YAML; an empty one is the empty text."""
    if not text.strip():
        return ""
    return _parse(text, f"value {text!r}")


def resume_config(old: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The config of a resumed run.

    Raises:
        ConfigError: an override changes a key that a running run may not change; names each with both values.
    """
    new = make_config(dump(old), overrides)
    allowed = resumable_keys()
    patterns = [key.replace("<name>", "*") for key in allowed]
    before, after = flatten(old), flatten(new)
    changed = [key for key in after if before.get(key) != after[key]]
    changed = [key for key in changed if not any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)]
    if changed:
        what = "; ".join(f"{key}: {before.get(key)!r} in the run, {after[key]!r} asked for" for key in changed)
        whole = [key for key in allowed if "<name>" not in key]
        raise ConfigError(f"--resume cannot change {what}. It may change: {', '.join(whole)}")
    return new


def resumable_keys() -> list[str]:
    """Keys that ``--resume`` may change."""
    return [doc.key for doc in describe(RunConfig) if doc.resume]


def digest(config: RunConfig) -> str:
    """SHA-256 in hex of what decides a run's result: the config without names, places and limits of processes."""
    plain = dump(config)
    for section in ("run", "policy_server", "buffer", "network", "sinks", "metrics", "supervisor"):
        plain.pop(section)
    plain["mode"], plain["pool_from"] = config.run.mode, config.run.pool_from
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _refuse_missing_values(words: Sequence[str]) -> None:
    """A key without a value means true, which only a flag can be."""
    kinds = {doc.key: doc.type for doc in describe(RunConfig)}
    for word, following in zip(words, [*words, "--"][1:], strict=True):
        kind = kinds.get(word[2:].replace("-", "_"), "bool")  # free keys, as below env.kwargs, may be flags
        if word.startswith("--") and following.startswith("--") and "bool" not in kind:
            raise ConfigError(f"{word}: its value is missing; expected {kind}")


def _impossible(key: str, value: int, relation: str, other: str, limit: int) -> ConfigError:
    return ConfigError(f"{key}: {value} is {relation} {other} {limit}; nearest valid: {limit}")


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key which is given twice, where YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error
