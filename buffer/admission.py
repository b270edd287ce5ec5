"""Admission: what must be true of a hello before the fleet is asked who holds the id, and the welcome that follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.common.boot import kernel
from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.common.wire.answers import HELLO_FIRST, RETRY_S, refuse_spec
from headrace.common.wire.fields import printable
from headrace.common.wire.fleet import Session
from headrace.common.wire.messages import READERS, Hello, Refused, Welcome
from headrace.common.wire.network import NetworkConfig

MAX_PATH = 4096
OPENING = Refused("opening", "the buffer is reserving the pool", RETRY_S)
NO_SPEC = Refused("no-spec", "no actor has declared its spec to the buffer yet", RETRY_S)

# Not faults: part of any start and restart, so they are not counted as refusals.
WAIT = (OPENING, NO_SPEC, HELLO_FIRST)


def refuse_actor(known: int, most: int) -> Refused | None:
    """Refuse an actor id that was never seen when the ledger has no place for it."""
    if known < most:
        return None
    return Refused("actor-limit", f"{known} actors are known, pool.max_actors {most}; raise it for a new pool", 0.0)


def compare_specs(hello: Hello, ours: TransitionSpec | None) -> TransitionSpec | Refused | None:
    """Hold a hello's spec against the pool's.

    Returns:
        None when they agree; a refusal naming each field that differs; or the spec that a new pool is to be made for.
    """
    if hello.spec is None:
        return NO_SPEC if ours is None and hello.role != "observer" else None
    if ours is not None:
        return refuse_spec(hello.spec, ours, "pool")
    try:
        return TransitionSpec.from_dict(hello.spec)
    except SpecError as error:
        return Refused("spec", printable(str(error))[:1000], 0.0)


def welcome(
    session: Session,
    network: NetworkConfig,
    spec: TransitionSpec | None,
    streams: tuple[tuple[int, int], ...],
    pool: Mapping[str, Any],
) -> Welcome:
    """The answer that opens a session; ``pool`` is :meth:`SACReplayPool.info`, or empty."""
    place = str(pool.get("path", ""))
    mappable = session.role in READERS and place.isprintable() and len(place) <= MAX_PATH
    return Welcome(
        session.epoch,
        network.lease_s,
        network.heartbeat_s,
        network.credit_bytes,
        network.fragment_bytes,
        network.message_bytes,
        spec.plain if spec is not None else None,
        streams,
        str(pool.get("uuid", "")),
        *((place, int(pool.get("nonce", 0)), kernel()) if mappable else ("", 0, "")),
        len(pool.get("mixes", ("critic",))),
        session.compression,
    )
