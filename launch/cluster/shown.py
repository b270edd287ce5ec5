"""A plan for people, as lines that a shell takes, and for machines, as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from headrace.common.wire.keys import BUFFER
from headrace.launch.cluster.plan import Start, directory_of, secrets, secrets_of
from headrace.launch.cluster.topology import Topology


def plan_text(topology: Topology, starts: Sequence[Start]) -> str:
    """The whole plan; every line that is no comment can be copied into a shell on the host that the comment above it names."""
    lines = [f"# {summary(topology, starts)}", *_key_lines(topology, starts)]
    for number, start in enumerate(starts, 1):
        told = [f"listens on {', '.join(start.listens)}"] if start.listens else []
        told += [f"dials {', '.join(start.dials)}"] if start.dials else []
        lines += ["", f"# {number}. on {start.host}: {start.name} {'; '.join(told)}", shell_line(start)]
    return "\n".join([*lines, *_end_lines(topology)]) + "\n"


def plan_json(topology: Topology, starts: Sequence[Start]) -> str:
    """The plan as one JSON object."""
    plain = [{**asdict(start), "variables": dict(start.variables)} for start in starts]
    return json.dumps({"name": topology.name, "endpoints": topology.endpoints, "starts": plain}, indent=2) + "\n"


def summary(topology: Topology, starts: Sequence[Start]) -> str:
    """What there is of each kind, in one line."""
    kinds = [start.kind for start in starts]
    parts = [_count(kinds.count("buffer"), "buffer"), f"a learner of {_count(topology.rank_count, 'rank')}"]
    parts += [_count(kinds.count("actor"), "actor"), _count(kinds.count("evaluator"), "evaluator")]
    hosts = len({start.host for start in starts})
    return f"{topology.name}: {', '.join(parts)} on {_count(hosts, 'host')}; config {topology.config}"


def shell_line(start: Start) -> str:
    """What starts it in a shell, from any directory."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in start.variables]
    return _there(start.directory, " ".join([*variables, shlex.join(start.words)]))


def key_commands(topology: Topology) -> list[str]:
    """The command lines that make all keys, in the working directory where the home buffer will run."""
    command = [topology.command, "keys", "new", topology.keys]
    made = secrets(topology).items()
    return [shlex.join([*command, *names, *(["--role", role] if role != "actor" else [])]) for role, names in made]


def _key_lines(topology: Topology, starts: Sequence[Start]) -> Iterator[str]:
    if not topology.keys:
        return
    home = topology.buffers[0].host
    keys = _keys_on(topology, home)
    yield from ("", f"# once, on {home}: a key for each role; then each host gets the secrets of its own")
    for line in key_commands(topology):
        yield _there(directory_of(topology, home), line)
    others = [host for host in dict.fromkeys(start.host for start in starts) if host != home]
    if any(not _keys_on(topology, host).startswith(("/", "~")) for host in others):
        yield "# without a directory in the topology these go below the login directory; roles look below the one they start in"
    for host in others:
        directory, names = _keys_on(topology, host), secrets_of(starts, host)
        files = shlex.join(f"{keys}/{name}.secret" for name in names)
        known = f"{shlex.quote(keys)}/*.public " if BUFFER in names else ""  # a buffer knows everybody's public half
        address = topology.hosts[host].address
        remote = f"[{address}]" if ":" in address else address
        yield f"ssh {address} mkdir -p -m 700 {shlex.quote(directory)}"
        yield f"scp -p {known}{files} {shlex.quote(f'{remote}:{directory}/')}"


def _keys_on(topology: Topology, host: str) -> str:
    directory, keys = directory_of(topology, host), topology.keys
    return keys if directory == "." or keys.startswith(("/", "~")) else f"{directory}/{keys}"


def _there(directory: str, line: str) -> str:
    """A command line that runs in a directory; in the one where people are it needs no words."""
    return line if directory == "." else f"cd {shlex.quote(directory)} && {line}"


def _end_lines(topology: Topology) -> Iterator[str]:
    keys = ["--network.keys", topology.keys] if topology.keys else []
    home = topology.buffers[0].host
    yield from ("", f"# to look, on {home}; learner, actors and evaluator leave when the goal is reached, a buffer at Ctrl-C")
    line = shlex.join([topology.command, "status", topology.endpoints[0], *keys])
    yield _there(directory_of(topology, home), line)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
