"""The doctor of a topology: on one of its hosts, every link that its roles will dial, before any of them starts.

Where nobody listens yet, a stand-in does: a true buffer with the run's config, port and keys, in a directory of its own that is
removed. So what is tried is what will run, and the other hosts' doctors have somebody to dial.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.buffer.admission import NO_SPEC
from headrace.buffer.query import Observer
from headrace.common.errors import ConfigError, DeadlineExceeded, EnvError, HeadraceError, SpecError
from headrace.common.specs import TransitionSpec
from headrace.common.wire import sockets
from headrace.common.wire.addresses import own_addresses
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keys import BUFFER
from headrace.common.wire.network import NetworkConfig, split_endpoint
from headrace.launch import probe
from headrace.launch.children import Child, headrace_command, role_environment, thread_variables, wait_all
from headrace.launch.cluster.plan import Start, bind_of, make_plan, secrets
from headrace.launch.cluster.shown import summary
from headrace.launch.cluster.topology import Topology, read_topology
from headrace.launch.config import RunConfig
from headrace.launch.finding import BAD, GOOD, WARN, Finding
from headrace.launch.link_doctor import examine, judge_link, reach
from headrace.launch.supervision import LEARNER

MIB = 1 << 20
SLOW_BYTES_S = 20e6  # below it compression is worth its time
READY_S, ASK_S, LOOK_S, STOP_S = 60.0, 2.0, 0.2, 5.0
RANK = "rank"  # a reader's session that is granted nothing, opened by the learner's key


@dataclass(frozen=True)
class Visit:
    """On which host the doctor is, and how long others may dial its stand-ins.

    Attributes:
        host: by its name; empty: the one whose address is of this machine.
        listen_s: longest time that stand-ins wait for the doctors of the other hosts (s).
    """

    host: str = ""
    listen_s: float = 0.0


def findings(path: Path, visit: Visit) -> Iterator[Finding]:
    """Everything that is looked at on this host."""
    try:
        topology, run = read_topology(path)
        starts = make_plan(topology)
        host = visit.host or find_host(topology)
        if host not in topology.hosts:
            raise ConfigError(f"--host: {host!r} is none of {', '.join(topology.hosts)}")
    except ConfigError as error:
        yield Finding("cluster", BAD, str(error))
        return
    yield Finding("cluster", GOOD, summary(topology, starts))
    here = [start for start in starts if start.host == host]
    yield Finding("host", GOOD, f"{host}: {', '.join(start.name for start in here) or 'no role'}")
    if not here:
        return
    place = Path(here[0].directory).expanduser()
    if not (place / topology.config).is_file():
        yield Finding("directory", BAD, f"{place} has no {topology.config}", "roles start there: copy the run's config to it")
        return
    yield Finding("directory", GOOD, f"{place.absolute()} has {topology.config}")
    network = replace(run.network, keys=str(place / Path(topology.keys).expanduser()) if topology.keys else "")
    yield from _keys(topology, here, network)
    spec, about = _spec(run, here)
    yield from about
    with contextlib.ExitStack() as stack:
        books: list[Guests] = []
        for start in here:
            for endpoint in start.listens:
                yield _open(stack, start, endpoint, topology, network, books)
        yield from _links(topology, here, network, spec)
        yield from _guests(books, [start for start in starts if start.host != host], visit.listen_s)


def find_host(topology: Topology) -> str:
    """The host whose address is of this machine.

    Raises:
        ConfigError: none of them is, or several.
    """
    found = [name for name, host in topology.hosts.items() if _is_ours(host.address)]
    if len(found) != 1:
        given = ", ".join(f"hosts.{name}.address {topology.hosts[name].address}" for name in found or topology.hosts)
        has = ", ".join(own_addresses())
        which = f"{given} are all of this machine" if found else f"none of {given} is of this machine, which has {has}"
        raise ConfigError(f"{which}; mend that one, or say which host this is: --host NAME")
    return found[0]


def _is_ours(address: str) -> bool:
    try:
        known = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _, where in known:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as taken:
            taken.bind(where)
            return True
    return False


# --- what is on this host ---------------------------------------------------------------------------------------------


def _keys(topology: Topology, here: Sequence[Start], network: NetworkConfig) -> Iterator[Finding]:
    """The secrets of the roles here, each for what it is called, and what a buffer here would know of all others."""
    if not topology.keys:
        return
    files, problems = KeyFiles.of(network), []
    roles = {name: role for role, names in secrets(topology).items() for name in names} | {BUFFER: BUFFER}
    needed = list(dict.fromkeys(name for start in here for name in start.keys))
    for name in needed:
        try:
            files.secret(name, roles[name])
        except ConfigError as error:
            problems.append(str(error))
    if BUFFER in needed and not problems:
        try:
            known, problems = files.public()
        except ConfigError as error:
            known, problems = {}, [str(error)]
        missing = sorted(roles.keys() - {key.name for key in known.values()})
        if missing:
            problems.append(f"network.keys: {files.path} lacks the public halves of {', '.join(missing)}")
    for problem in problems:
        yield Finding("keys", BAD, problem, "headrace launch plan prints the commands that make and copy them")
    if not problems:
        yield Finding("keys", GOOD, f"{files.path} has the secrets of {', '.join(needed)}")


def _spec(run: RunConfig, here: Sequence[Start]) -> tuple[TransitionSpec | None, list[Finding]]:
    """The spec of the run's rows, where the env is; only who acts needs one."""
    from headrace.actor.envs import make_spec

    acts = any(start.kind in ("actor", "evaluator") for start in here)
    try:
        spec = make_spec(run.env, run.window, robot=run.actor.robot)
    except (EnvError, SpecError, ConfigError, ImportError) as error:
        return None, [Finding("env", BAD, " ".join(str(error).split()))] if acts else []
    return spec, [Finding("env", GOOD, f"{run.env.id} is here")]


# --- who listens ------------------------------------------------------------------------------------------------------


def _open(
    stack: contextlib.ExitStack,
    start: Start,
    endpoint: str,
    topology: Topology,
    network: NetworkConfig,
    books: list[Guests],
) -> Finding:
    """Have somebody listen where ``start`` will; who came to a buffer's stand-in is in ``books``."""
    if reach(_near(endpoint)).verdict == GOOD:
        return Finding("port", GOOD, f"somebody listens on {endpoint} already, and is asked in place of a stand-in")
    try:
        if start.kind == LEARNER:
            stack.enter_context(_listener(endpoint))
        else:
            books.append(stack.enter_context(_stand_in(topology, start, network)))
    except HeadraceError as error:
        return Finding("port", BAD, f"{endpoint}: {error}", f"it comes of {field_of(topology, endpoint)}")
    return Finding("port", GOOD, f"a stand-in of {start.name} listens on {endpoint}")


@contextlib.contextmanager
def _listener(endpoint: str) -> Iterator[None]:
    parts = split_endpoint(endpoint)
    family = socket.AF_INET6 if ":" in (parts.hostname or "") else socket.AF_INET
    try:
        with socket.create_server((parts.hostname or "", parts.port or 0), family=family):
            yield
    except OSError as error:
        raise ConfigError(f"cannot be listened on: {error.strerror or error}; {sockets.fix_of(error.errno)}") from error


@contextlib.contextmanager
def _stand_in(topology: Topology, start: Start, network: NetworkConfig) -> Iterator[Guests]:
    """A buffer that answers within, asked by the operator's key who is there."""
    place = Path(start.directory).expanduser()
    buffers = [one.name for one in make_plan(topology) if one.kind == BUFFER]
    dialled = topology.endpoints[buffers.index(start.name)]
    with tempfile.TemporaryDirectory(dir=place, prefix=".headrace-doctor-") as scratch:
        # What this run would begin with is not needed to be dialled.
        empty = ("--run.pool_from", "", "--pool.demos", "[]", "--pacing.offline_updates", "0", "--run.pool_dir", "")
        words = [str(place / topology.config), "--bind", start.listens[0], "--run.dir", scratch, "--run.name", "stand-in"]
        keys = ("--network.keys", network.keys) if network.keys else ()
        command = headrace_command(["buffer", *words, *keys, *empty])
        child = Child(start.name, command, Path(scratch) / "log", role_environment(thread_variables(1)))
        try:
            with contextlib.closing(Observer(_near(start.listens[0]), network)) as observer:
                _wait_answer(observer, child)
                with Guests(observer, dialled) as guests:
                    yield guests
        finally:
            child.terminate()
            wait_all([child], STOP_S)
            child.kill()


class Guests:
    """Whoever has a session with a stand-in while this context lasts: noted by a thread, so that nobody comes unseen.

    Attributes:
        endpoint: where others dial the stand-in.
        came: ids of their sessions.
        there: those of sessions that go on.
        failure: why they cannot be told any more; empty else.
    """

    def __init__(self, observer: Observer, endpoint: str) -> None:
        self.endpoint = endpoint
        self.came: set[str] = set()
        self.there: set[str] = set()
        self.failure = ""
        self._observer = observer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace-guests", daemon=True)

    def __enter__(self) -> Guests:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def are_done(self, awaited: Collection[str]) -> bool:
        """Whether all ``awaited`` have come and left again: who is still there measures."""
        return bool(self.failure) or (self.came.issuperset(awaited) and self.there.isdisjoint(awaited))

    def _watch(self) -> None:
        try:
            while not self._over.wait(LOOK_S):
                status = self._observer.status(ASK_S)
                self.there = {one["id"] for kind in ("actors", "evaluators", "ranks") for one in status[kind]}
                self.came |= self.there
        except HeadraceError as error:
            self.failure = str(error)


def _wait_answer(observer: Observer, child: Child) -> None:
    """Return once ``child`` answers.

    Raises:
        ConfigError: it has ended.
        DeadlineExceeded: it did not answer in time.
    """
    end = time.monotonic() + READY_S
    while True:
        try:
            observer.status(ASK_S)
            return
        except DeadlineExceeded:
            if child.poll() is not None:
                raise ConfigError(child.last_line() or "its stand-in has ended") from None
            if time.monotonic() > end:
                raise


def _near(endpoint: str) -> str:
    """Where this host itself dials what listens on ``endpoint``."""
    return endpoint.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


# --- links ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A role whose link is tried, and the session that is opened for it."""

    start: Start
    role: str
    identity: str


def calls(starts: Sequence[Start]) -> list[Call]:
    """Every role that dials, each by its own key; no further buffer, whose session would count."""
    return [
        Call(start, RANK, f"doctor-{start.host}") if start.kind == LEARNER else Call(start, start.kind, start.name)
        for start in starts
        if start.kind != BUFFER
    ]


def _links(topology: Topology, here: Sequence[Start], network: NetworkConfig, spec: TransitionSpec | None) -> Iterator[Finding]:
    """Every endpoint that roles of this host dial: each of them is tried by its own key, and measured once."""
    dialled: dict[str, list[probe.Call]] = {}
    for start in here:
        if start.kind == BUFFER:
            yield from (_named(_placed(reach(endpoint), topology, endpoint), start) for endpoint in start.dials)
    for call in calls(here):
        for endpoint in call.start.dials:
            if endpoint == topology.meeting:
                yield _named(_placed(reach(endpoint), topology, endpoint), call.start)
                continue
            one = probe.Call(endpoint, call.role, call.identity, spec, name=call.start.name)
            dialled.setdefault(endpoint, []).append(one)
    for endpoint, them in dialled.items():
        for found in examine(them, network, lambda told: _judge(told, network, spec)):
            yield _placed(_softened(found), topology, endpoint)


def _judge(told: probe.Told, network: NetworkConfig, spec: TransitionSpec | None) -> Iterator[Finding]:
    slow = told.bytes_s < SLOW_BYTES_S and network.compression == "none"
    rows = "" if spec is None else f", {told.bytes_s / (spec.frame_nbytes + spec.row_dtype.itemsize):,.0f} rows a second"
    advice = "--network.compression zlib on the command that dials through it" if slow else ""
    seen = f"{told.bytes_s / MIB:.1f} MiB/s to the buffer{rows}"
    yield from judge_link(told, Finding("bandwidth", WARN if slow else GOOD, seen, advice), network)


def _softened(found: Finding) -> Finding:
    """A buffer that has no spec yet has known the key and can be measured later: a learner brings none."""
    if not found.what.endswith("session") or NO_SPEC.detail not in found.seen:
        return found
    return replace(found, verdict=WARN, advice="it answers; to measure it run the doctor of an actor's host first, meanwhile")


def field_of(topology: Topology, endpoint: str) -> str:
    """The keys of the topology that say where ``endpoint`` is."""
    for number, (place, dialled) in enumerate(zip(topology.buffers, topology.endpoints, strict=True)):
        if endpoint in (dialled, bind_of(topology, place)):
            bound = place.bind and endpoint == place.bind
            return f"buffers[{number}].bind" if bound else f"hosts.{place.host}.address and buffers[{number}].port"
    return f"hosts.{topology.ranks[0].host}.address and meeting_port"


def _placed(found: Finding, topology: Topology, endpoint: str) -> Finding:
    """What cannot be reached, by the keys that say where it is."""
    if found.verdict != BAD or not found.what.endswith("network"):
        return found
    return replace(found, seen=f"{found.seen} ({field_of(topology, endpoint)} of the topology)")


def _named(found: Finding, start: Start) -> Finding:
    return replace(found, what=f"{start.name} {found.what}")


def _guests(books: Sequence[Guests], others: Sequence[Start], listen_s: float) -> Iterator[Finding]:
    """Which roles of other hosts have dialled each stand-in, waiting for them as long as there is time."""
    awaited = [{call.identity: call.start for call in calls(others) if book.endpoint in call.start.dials} for book in books]
    if not (listen_s and any(awaited)):
        return
    print(f"listening for the doctors of the other hosts, {listen_s:g} s at most", file=sys.stderr, flush=True)
    end = time.monotonic() + listen_s
    while time.monotonic() < end and not all(book.are_done(who) for book, who in zip(books, awaited, strict=True)):
        time.sleep(LOOK_S)
    for book, who in zip(books, awaited, strict=True):
        if book.failure:
            yield Finding("guests", BAD, book.failure)
        for identity, start in who.items():
            seen = identity in book.came
            where = f"headrace doctor CLUSTER --host {start.host}"
            advice = "" if seen else f"run there, meanwhile: {where}; where it has run, it says why"
            told = f"was let in at {book.endpoint}" if seen else f"did not come to {book.endpoint} within {listen_s:g} s"
            yield Finding("guest", GOOD if seen else WARN, f"{start.name} of {start.host} {told}", advice)
