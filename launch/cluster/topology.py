"""The topology: which roles of one run are on which hosts, and where they meet; one validated file, ``cluster.yaml``.

Only buffers listen, and the first rank of a learner on several hosts; everybody else dials out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.common.config import load, option
from headrace.common.errors import ConfigError
from headrace.common.wire.keys import check_name
from headrace.common.wire.network import MAX_PORT, is_loopback, split_endpoint
from headrace.launch.cluster.engines import KubernetesConfig, SlurmConfig, SystemdConfig
from headrace.launch.config import RunConfig, make_config, read_config

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)


@dataclass(frozen=True)
class HostConfig:
    """One host."""

    address: str = option(help="where other hosts reach it: an IPv4 or IPv6 address without brackets, or a name")
    directory: str = option("", help="working directory of its roles; empty: that of the cluster")
    interface: str = option("", help="network device by which learner ranks of several hosts talk; empty: torch chooses")

    def check(self, path: str) -> None:
        """Refuse what is no address that others could dial."""
        key, address = f"{path}.address", self.address
        try:
            if ipaddress.ip_address(address).is_unspecified:
                raise ConfigError(f"{key}: {address} is where to listen, and nobody can dial it; give the host's own address")
        except ValueError:
            bare = address.strip("[]")
            if bare != address or "/" in address or (":" in address and not _is_ip(address)):
                raise ConfigError(
                    f"{key}: {address!r} is no address or name; give it without brackets, port and tcp://, such as 10.0.0.2"
                ) from None
            labels = address.rstrip(".").split(".")
            if len(address) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
                raise ConfigError(
                    f"{key}: {address!r} is neither an address, such as 10.0.0.2, nor a name of a host, such as store.lab"
                ) from None


@dataclass(frozen=True)
class BufferPlace:
    """Where one buffer is."""

    host: str = option(help="name of a host")
    port: int = option(5555, help="the one port that is dialled", low=1, high=MAX_PORT)
    bind: str = option(
        "", help="where it listens, tcp://HOST:PORT, if that is not its host's address, as behind NAT; empty: there"
    )


@dataclass(frozen=True)
class RankPlace:
    """Ranks of the learner on one host."""

    host: str = option(help="name of a host")
    count: int = option(1, help="ranks there, one a GPU", low=1, high=1024)


@dataclass(frozen=True)
class ActorPlace:
    """Actors on one host."""

    host: str = option(help="name of a host")
    count: int = option(1, help="actor processes there", low=1, high=10_000)
    id: str = option("", help="what they are called, a number behind it; empty: the host's name")
    shard: int | None = option(None, help="number of the buffer that they dial (actor.shard); none: by their ids", low=0)

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of each."""
        return tuple(f"{self.id or self.host}-{n}" for n in range(self.count))


@dataclass(frozen=True)
class Topology:
    """Every role of a run over several hosts."""

    config: str = option(help="the run's config: on every host a file of this name in its directory, and here beside this one")
    name: str = option(help="the run's name (run.name)")
    hosts: dict[str, HostConfig] = option(help="the hosts by name")
    buffers: tuple[BufferPlace, ...] = option(help="the buffers; the first is the home, which paces the run")
    ranks: tuple[RankPlace, ...] = option(help="the learner's ranks; the first host has rank 0, with checkpoints and metrics")
    actors: tuple[ActorPlace, ...] = option((), help="the actors")
    evaluator: str = option("", help="host of the evaluator; empty: none")
    keys: str = option("", help="directory of keys on every host (headrace keys); empty: no keys")
    directory: str = option(".", help="working directory of every role, where the config lies")
    command: str = option("headrace", help="how headrace is called there, such as /opt/headrace/bin/headrace")
    meeting_port: int = option(29400, help="where rank 0 of a learner on several hosts listens", low=1, high=MAX_PORT)
    slurm: SlurmConfig = option(factory=SlurmConfig, help="what Slurm is told beside it")
    systemd: SystemdConfig = option(factory=SystemdConfig, help="what systemd is told beside it")
    kubernetes: KubernetesConfig = option(factory=KubernetesConfig, help="what Kubernetes is told beside it")

    def check(self, path: str = "") -> None:
        """Refuse what cannot work wherever the run's config says."""
        _check_words(self)
        for key, host in self._named():
            if host not in self.hosts:
                raise ConfigError(f"{key}: {host!r} is none of hosts {', '.join(self.hosts) or '(none)'}; add it there")
        if not self.buffers or not self.ranks:
            which, what = ("buffers", "buffer") if not self.buffers else ("ranks", "rank of a learner")
            raise ConfigError(f"{which}: empty, but a run has at least one {what}; nearest valid: [{{host: NAME}}]")
        for number, place in enumerate(self.actors):
            if place.shard is not None and place.shard >= len(self.buffers):
                last = len(self.buffers) - 1
                raise ConfigError(f"actors[{number}].shard: {place.shard}, but buffers has 0 to {last}; nearest valid: {last}")
        self._check_addresses()
        self._check_ids()
        self._check_ports()
        self._check_loopback()

    def endpoint(self, place: BufferPlace) -> str:
        """Where this buffer is dialled."""
        return endpoint_of(self.hosts[place.host].address, place.port)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Of all buffers, the home first."""
        return tuple(self.endpoint(place) for place in self.buffers)

    @property
    def rank_count(self) -> int:
        """Ranks of all hosts."""
        return sum(place.count for place in self.ranks)

    @property
    def meeting(self) -> str:
        """Where ranks of several hosts meet; empty where they are on one host."""
        return endpoint_of(self.hosts[self.ranks[0].host].address, self.meeting_port) if len(self.ranks) > 1 else ""

    def require_fits(self, run: RunConfig) -> None:
        """Refuse what cannot work with the run's config.

        Raises:
            ConfigError: naming the keys of both files, their values, and what would be right.
        """
        actors = sum(place.count for place in self.actors)
        if run.run.mode == "sync":
            raise ConfigError(f"run.mode: sync in {self.config}, which is one process on one host; nearest valid: async")
        if actors > run.pool.max_actors:
            raise ConfigError(
                f"actors: {actors} in all, above pool.max_actors {run.pool.max_actors} of {self.config}; raise that, or start"
                " fewer"
            )
        if self.evaluator and not run.eval.every:
            raise ConfigError(
                f"evaluator: {self.evaluator} with eval.every 0 in {self.config}, by which nobody is to evaluate; nearest"
                " valid: empty"
            )
        if self.evaluator:
            run.require_evaluable()
        if self.rank_count > 1 and run.learner.rank_timeout_s < 2 * run.network.lease_s:
            raise ConfigError(
                f"ranks: {self.rank_count} with learner.rank_timeout_s {run.learner.rank_timeout_s:g} in {self.config}, which"
                f" is below two leases; nearest valid: {2 * run.network.lease_s:g}"
            )
        opened = [e for e in self.endpoints if not is_loopback(e)]
        if opened and not self.keys and not run.network.insecure:
            raise ConfigError(
                f"keys: empty, but {opened[0]} is not loopback, so anybody could read, write and publish; nearest valid: keys"
                f" (headrace launch plan says how they are made), or network.insecure true in {self.config} where nobody else"
                " can reach the port"
            )
        if self.keys and run.network.insecure:
            raise ConfigError(f"keys: {self.keys} with network.insecure true in {self.config}, which say the opposite")

    def _named(self) -> Iterator[tuple[str, str]]:
        for what in ("buffers", "ranks", "actors"):
            for number, place in enumerate(getattr(self, what)):
                yield f"{what}[{number}].host", place.host
        if self.evaluator:
            yield "evaluator", self.evaluator

    def _check_addresses(self) -> None:
        seen: dict[str, str] = {}
        for name, host in self.hosts.items():
            address = str(ipaddress.ip_address(host.address)) if _is_ip(host.address) else host.address.rstrip(".").lower()
            if address in seen:
                raise ConfigError(
                    f"hosts.{name}.address: {host.address} is that of hosts.{seen[address]} too; give each host its own, or"
                    " make one host of them"
                )
            seen[address] = name

    def _check_ids(self) -> None:
        seen: dict[str, int] = {"evaluator": -1} if self.evaluator else {}
        for number, place in enumerate(self.actors):
            for name in place.ids:
                if name in seen:
                    before = "the evaluator" if seen[name] < 0 else f"actors[{seen[name]}]"
                    raise ConfigError(
                        f"actors[{number}].id: {name!r} is that of {before} too; give one of the entries another id"
                    )
                check_name(name)
                seen[name] = number
        hosts = [place.host for place in self.ranks]
        if double := next((h for h in hosts if hosts.count(h) > 1), None):
            raise ConfigError(f"ranks: host {double!r} is given twice; give it once, with the sum of both counts")

    def _check_ports(self) -> None:
        taken: dict[tuple[str, int], str] = {}
        listening = [(f"buffers[{n}].port", place.host, place.port) for n, place in enumerate(self.buffers)]
        if self.meeting:
            listening.append(("meeting_port", self.ranks[0].host, self.meeting_port))
        for key, host, port in listening:
            if (host, port) in taken:
                raise ConfigError(f"{key}: {port} on {host} is that of {taken[host, port]} too; give one of them another")
            taken[host, port] = key
        for number, place in enumerate(self.buffers):
            if place.bind and split_endpoint(place.bind, f"buffers[{number}].bind").scheme != "tcp":
                raise ConfigError(f"buffers[{number}].bind: {place.bind!r} reaches no other host; expected tcp://HOST:PORT")

    def _check_loopback(self) -> None:
        """Refuse a loopback address that another host would dial."""
        dialled = [(f"hosts.{b.host}.address", b.host, self.endpoint(b)) for b in self.buffers]
        if self.meeting:
            dialled.append((f"hosts.{self.ranks[0].host}.address", self.ranks[0].host, self.meeting))
        for key, host, endpoint in dialled:
            others = sorted({other for _, other in self._named()} - {host})
            if is_loopback(endpoint) and others:
                raise ConfigError(
                    f"{key}: {self.hosts[host].address} is loopback, but {', '.join(others)} dial it; give the address by which"
                    " they reach it"
                )


def endpoint_of(address: str, port: int) -> str:
    """``tcp://HOST:PORT``, an IPv6 address in brackets."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def is_topology(mapping: Mapping[str, Any]) -> bool:
    """Whether a file's mapping is meant as a topology and not as a run's config."""
    return "hosts" in mapping and "env" not in mapping


def read_topology(path: Path) -> tuple[Topology, RunConfig]:
    """The topology in a file, and the run's config that lies beside it.

    Raises:
        ConfigError: one of them cannot be read, or they cannot work together; names the field, both values and what is right.
    """
    topology = load(Topology, read_config(path))
    beside = path.parent / topology.config
    if not beside.is_file():
        raise ConfigError(
            f"config: {topology.config!r}, but {beside} is no file; name the run's config, which lies beside {path.name} and in"
            " each host's directory"
        )
    run = make_config(read_config(beside))
    topology.require_fits(run)
    return topology, run


def _check_words(topology: Topology) -> None:
    for name in topology.hosts:
        if not _HOST.fullmatch(name):
            raise ConfigError(f"hosts.{name}: a host's name has small letters, digits and '-' inside, and at most 63 of them")
    if not _HOST.fullmatch(topology.name):
        raise ConfigError(f"name: {topology.name!r} has to name files, units and jobs: small letters, digits and '-' inside")
    if "/" in topology.config:
        raise ConfigError(
            f"config: {topology.config!r} is a path; it is a file in each host's directory, and here beside this one: give its"
            f" name, {topology.config.rpartition('/')[2]!r}"
        )


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
