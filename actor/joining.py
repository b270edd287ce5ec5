"""Joining a run: what actors and evaluators do alike, from their first hello to their goodbye."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headrace.actor.config import ActorConfig, EnvConfig, RobotConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.spool import open_outbox
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import Clock
from headrace.common.ending import end_code
from headrace.common.errors import ConfigError
from headrace.common.exporter import Exporter
from headrace.common.figures import UPLINK, Family, families
from headrace.common.metrics import process_memory
from headrace.common.process import stop_on_signal, wait_welcome
from headrace.common.specs import TransitionSpec
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye, Welcome
from headrace.common.wire.network import NetworkConfig

REASON_CHARS = 200


@dataclass(frozen=True)
class ActorSettings:
    """All that an actor process needs to know: where its buffer listens, who it is, and what it plays."""

    endpoint: str
    actor_id: str
    env: EnvConfig
    window: WindowConfig
    actor: ActorConfig
    network: NetworkConfig
    seed: int
    robot: RobotConfig = RobotConfig()
    policy_server: PolicyServerConfig = PolicyServerConfig()
    exporter: Exporter = Exporter()
    due_steps: int = 0  # of the run, see Uplink


@dataclass(frozen=True)
class Joined:
    """A process that the buffer has welcomed; ``stop`` is set by a signal, ``complete`` makes of a block what rows are to hold.

    ``spec`` is what is seen and done; rows may have a prefix beside it.
    """

    spec: TransitionSpec
    complete: Callable[[Block], Block]
    uplink: Uplink
    link: Link
    welcome: Welcome
    stop: threading.Event

    @property
    def must_leave(self) -> bool:
        """Whether a signal or the buffer asks this process to end."""
        return self.stop.is_set() or self.uplink.stop is not None

    @property
    def code(self) -> int:
        """Exit code of an ordered end."""
        return end_code(self.uplink.stop, self.stop)


def columns_of(window: WindowConfig, spec: TransitionSpec, device: str) -> tuple[TransitionSpec, Callable[[Block], Block]]:
    """What rows are to hold beside ``spec``, as ``window`` says, and what adds it to a block.

    Raises:
        ConfigError, SpecError: of :class:`headrace.actor.prefix_columns.PrefixColumns`.
    """
    if not window.prefix:
        return spec, lambda block: block
    from headrace.actor.prefix_columns import PrefixColumns

    columns = PrefixColumns(window.prefix, spec, device)
    return columns.spec, columns.add


@contextlib.contextmanager
def joined(
    role: str, settings: ActorSettings, clock: Clock, make_uplink: Callable[..., Uplink] = Uplink
) -> Iterator[Joined | None]:
    """Dial, wait to be welcomed, and say goodbye at the end of the block; none when a signal came before the welcome.

    Args:
        role: ``actor`` or ``evaluator``.
        settings: of the process.
        clock: of its link.
        make_uplink: what speaks to the buffer; a witness of it may take its place.

    Raises:
        ConfigError: options that cannot work together.
        EnvError: the env cannot be made.
        SessionRefused: the id is held, or the spec differs.
        DeadlineExceeded: no session in ``network.connect_s``.
    """
    spec = make_spec(settings.env, settings.window, robot=settings.actor.robot)
    told, complete = columns_of(settings.window, spec, settings.actor.device)
    actor = settings.actor
    if actor.chosen_when_full == "drop_oldest" and settings.env.lanes > 1:
        raise ConfigError(
            f"env.lanes: {settings.env.lanes} with actor.when_full drop_oldest: episodes of several lanes lie between each"
            " other, so none can be dropped whole; nearest valid: 1"
        )
    stored = actor if role == "actor" else replace(actor, spool="")  # evaluators send no rows
    outbox = open_outbox(stored, settings.actor_id, told)
    uplink = make_uplink(told, outbox, settings.network.fragment_bytes, clock, actor.drain_bytes_per_s)
    uplink.follows = role == "evaluator" or actor.policy != "server"
    uplink.due_steps = settings.due_steps
    hello = new_hello(role, settings.actor_id, spec=told.to_dict(), lanes=settings.env.lanes, robot=actor.robot)
    link = Link(hello, uplink, settings.endpoint, settings.network, clock)
    stop, reason = stop_on_signal(), ""
    link.start()
    try:
        welcome = wait_welcome(link, stop, settings.network.connect_s, clock)
        with settings.exporter.serve(lambda: _figures(uplink)):
            yield None if welcome is None else Joined(spec, complete, uplink, link, welcome, stop)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        reason = "".join(c if c.isprintable() else " " for c in text)[:REASON_CHARS]
        raise
    finally:
        link.close(Goodbye(False, reason))
        uplink.close()


def _figures(uplink: Uplink) -> Iterator[Family]:
    """What its heartbeat tells, and the memory of the process."""
    return families(UPLINK, {**vars(uplink.pulse()), "memory": process_memory()})
