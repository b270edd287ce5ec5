"""The plan of a topology: each process with its host, its exact command line, and where it listens and dials. No I/O."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace.common.wire.keys import BUFFER, OPERATOR, holder
from headrace.common.wire.messages import SHARD
from headrace.launch.cluster.topology import ActorPlace, BufferPlace, Topology, endpoint_of
from headrace.launch.placing import shard_of
from headrace.launch.roles import LEARNER_ID
from headrace.launch.supervision import LEARNER

ACTOR, EVALUATOR = "actor", "evaluator"
ANY_IPV4 = "0.0.0.0"


@dataclass(frozen=True)
class Start:
    """One process, or with several ranks on a host the one that starts them.

    Attributes:
        name: unique in the plan.
        kind: buffer, learner, actor or evaluator.
        host: where, by the topology's name.
        directory: its working directory.
        words: its command line.
        variables: of its environment, beside those of the host.
        listens: endpoints that others dial.
        dials: endpoints that must be reachable from its host.
        keys: names of the secrets that it needs; none without keys.
    """

    name: str
    kind: str
    host: str
    directory: str
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    listens: tuple[str, ...] = ()
    dials: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def make_plan(topology: Topology) -> tuple[Start, ...]:
    """Every process in starting order; any order works, this one waits least."""
    ranks = [_learner(topology, number) for number in range(len(topology.ranks))]
    starts = [_buffer(topology, number) for number in range(len(topology.buffers))] + ranks
    starts += [_actor(topology, place, name) for place in topology.actors for name in place.ids]
    return (*starts, *([_player(topology, EVALUATOR, topology.evaluator, EVALUATOR, 0)] if topology.evaluator else []))


def secrets(topology: Topology) -> dict[str, tuple[str, ...]]:
    """The names of all keys by their role, each made once; empty without keys."""
    if not topology.keys:
        return {}
    actors = tuple(name for place in topology.actors for name in place.ids)
    shards = (SHARD,) if len(topology.buffers) > 1 else ()
    named = {LEARNER: (LEARNER,), OPERATOR: (OPERATOR,), SHARD: shards, ACTOR: actors}
    named[EVALUATOR] = (EVALUATOR,) * bool(topology.evaluator)
    return {role: names for role, names in named.items() if names}


def secrets_of(starts: Sequence[Start], host: str) -> tuple[str, ...]:
    """The names of the secrets that ``host`` needs, in the plan's order."""
    return tuple(dict.fromkeys(name for start in starts if start.host == host for name in start.keys))


def directory_of(topology: Topology, host: str) -> str:
    """The working directory of the roles on ``host``."""
    return topology.hosts[host].directory or topology.directory


def bind_of(topology: Topology, place: BufferPlace) -> str:
    """Where a buffer listens: at its host's address, and where that is a name, by IPv4 at all of the host's."""
    address = topology.hosts[place.host].address
    try:
        ipaddress.ip_address(address)
    except ValueError:  # ZeroMQ listens at addresses only
        address = ANY_IPV4
    return place.bind or endpoint_of(address, place.port)


def torchrun_of(command: str) -> str:
    """``torchrun`` as it lies beside ``headrace``."""
    return str(PurePosixPath(command).with_name("torchrun"))


def ranks_words(nodes: int, node: str, count: int, master: str, port: int) -> tuple[str, ...]:
    """Words of ``torchrun`` for ``count`` ranks on host ``node`` of ``nodes``: by its rendezvous that keeps the order of hosts.

    The one over c10d deals ranks out by the text of addresses, and rank 0 has to be where the checkpoints are.
    """
    place = ("--nnodes", str(nodes), "--node-rank", node, "--master-addr", master) if nodes > 1 else ()
    return (*place, "--nproc-per-node", str(count), "--master-port", str(port))


def _buffer(topology: Topology, number: int) -> Start:
    """A buffer; each further one is a client of the first, the home shard."""
    place = topology.buffers[number]
    name, shard = (f"{BUFFER}-{number}", ("--shard", str(number))) if number else (BUFFER, ())
    bind, dials = bind_of(topology, place), topology.endpoints[:1] if number else ()
    words = (topology.command, "buffer", topology.config, "--bind", bind, *shard, *_common(topology))
    keys = (BUFFER, SHARD) if number else (BUFFER,)
    return _start(topology, name, BUFFER, place.host, words, listens=(bind,), dials=dials, keys=keys)


def _learner(topology: Topology, number: int) -> Start:
    place, nodes = topology.ranks[number], len(topology.ranks)
    role = ("learner", topology.config, *_connect(topology), *_common(topology))
    variables: tuple[tuple[str, str], ...] = ()
    if topology.rank_count == 1:
        words = (topology.command, *role)
    else:
        master = topology.hosts[topology.ranks[0].host].address
        how = ranks_words(nodes, str(number), place.count, master, topology.meeting_port)
        words = (torchrun_of(topology.command), *how, "-m", "headrace", *role)
    device = topology.hosts[place.host].interface
    if nodes > 1 and device:
        variables = (("GLOO_SOCKET_IFNAME", device), ("NCCL_SOCKET_IFNAME", device))
    leads = number == 0
    return _start(
        topology,
        LEARNER_ID if leads else f"{LEARNER_ID}-{place.host}",
        LEARNER,
        place.host,
        words,
        variables=variables,
        listens=(topology.meeting,) if leads and topology.meeting else (),
        dials=topology.endpoints if leads or not topology.meeting else (*topology.endpoints, topology.meeting),
        keys=(holder(LEARNER, LEARNER_ID)[0],),
    )


def _actor(topology: Topology, place: ActorPlace, name: str) -> Start:
    shard = shard_of(name, topology.endpoints) if place.shard is None else place.shard
    return _player(topology, ACTOR, place.host, name, shard, *([] if place.shard is None else ["--actor.shard", str(shard)]))


def _player(topology: Topology, kind: str, host: str, name: str, shard: int, *more: str) -> Start:
    evaluate = ("--evaluate",) if kind == EVALUATOR else ()
    words = (
        topology.command,
        "actor",
        topology.config,
        *_connect(topology),
        "--id",
        name,
        *evaluate,
        *_common(topology),
        *more,
    )
    return _start(topology, name, kind, host, words, dials=(topology.endpoints[shard],), keys=(holder(kind, name)[0],))


def _connect(topology: Topology) -> tuple[str, ...]:
    """Where a client dials; of several buffers each finds its own by ``network.shards``."""
    return ("--connect", topology.endpoints[0]) if len(topology.buffers) == 1 else ()


def _common(topology: Topology) -> tuple[str, ...]:
    """Config keys that every role has to agree on."""
    keys = ("--network.keys", topology.keys) if topology.keys else ()
    ranks = ("--learner.ranks", str(topology.rank_count)) if topology.rank_count > 1 else ()
    shards = ("--network.shards", f"[{', '.join(map(json.dumps, topology.endpoints))}]") if len(topology.buffers) > 1 else ()
    return (*keys, "--run.name", topology.name, *ranks, *shards)


def _start(
    topology: Topology,
    name: str,
    kind: str,
    host: str,
    words: tuple[str, ...],
    *,
    variables: tuple[tuple[str, str], ...] = (),
    listens: tuple[str, ...] = (),
    dials: tuple[str, ...] = (),
    keys: tuple[str, ...] = (),
) -> Start:
    directory = directory_of(topology, host)
    return Start(name, kind, host, directory, words, variables, listens, dials, keys if topology.keys else ())
