"""Placing: which buffers a run has, which of them an actor dials, and where each listens.

The buffers of a run are its shards, numbered as the config lists them; shard 0 is the home shard, which paces the run and has
the newest weights. An actor's shard follows from its id alone (the highest of one hash for each shard), so any host finds it,
and a shard more or less moves no actor between two others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from headrace.common.errors import ConfigError
from headrace.launch.config import RunConfig
from headrace.launch.rundir import RunDir

_DEALT = re.compile(r"actor-(\d+)", re.ASCII)


def shard_names(config: RunConfig) -> tuple[str, ...]:
    """What the shards of a run are known by: their endpoints, or their numbers where ``train`` starts them on this host."""
    return config.network.shards or tuple(str(number) for number in range(config.buffer.shards))


def shard_of(actor: str, names: Sequence[str]) -> int:
    """The number of the shard that the actor of this id dials."""
    return max(range(len(names)), key=lambda number: _weight(actor, names[number]))


def _weight(actor: str, name: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{actor}".encode(), digest_size=8).digest()


def own_shard(config: RunConfig, actor: str) -> int:
    """The number of an actor's shard: what ``actor.shard`` says, else what its id does.

    Raises:
        ConfigError: there are fewer shards.
    """
    names = shard_names(config)
    if config.actor.shard is not None:
        return require_shard(config, config.actor.shard, "actor.shard")
    dealt = None if config.network.shards else _DEALT.fullmatch(actor)  # a few that train starts are to be on all shards
    return shard_of(actor, names) if dealt is None else int(dealt[1]) % len(names)


def require_shard(config: RunConfig, number: int, key: str) -> int:
    """``number``, if the run has such a shard.

    Raises:
        ConfigError: it has not; names ``key``.
    """
    last = len(shard_names(config)) - 1
    if not 0 <= number <= last:
        raise ConfigError(f"{key}: {number}, but the run has the shards 0 to {last} (network.shards); nearest valid: {last}")
    return number


def shard_endpoint(config: RunConfig, run: RunDir | None, number: int) -> str:
    """Where a shard listens: what the config says, else the run directory, else the config's endpoint when that names a port.

    Raises:
        ConfigError: neither says it.
        DeadlineExceeded: the run's buffer never wrote it.
    """
    if config.network.shards:
        return config.network.shards[number]
    if run is not None:
        return run.shard(number).wait_endpoint(config.network.connect_s)
    if config.network.endpoint.endswith(":0"):
        raise ConfigError(f"network.endpoint: {config.network.endpoint} names no port; say --connect tcp://HOST:PORT")
    return config.network.endpoint


def shard_endpoints(config: RunConfig, run: RunDir | None) -> list[str]:
    """Where all shards listen, the home shard first; raises as :func:`shard_endpoint` does."""
    return [shard_endpoint(config, run, number) for number in range(len(shard_names(config)))]
