"""Every message of the protocol, one frozen dataclass a kind.

Client = actor, evaluator, learner rank or observer; all dial the buffer. Frames that follow a header are
named in the class docstring. Sequence numbers start at 1; 0 means none yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.common.wire.envelopes import Compressed as Compressed
from headrace.common.wire.envelopes import Fragment as Fragment
from headrace.common.wire.fields import U32, U64, blob, flag, pairs, plain, real, text, uint
from headrace.common.wire.message import Message as Message

PROTOCOL = 1
READERS = ("learner", "rank")  # the learner, and the further ranks of its group
ROLES = ("actor", "evaluator", *READERS, "observer")
MAX_ID = 128
MAX_STREAMS = 64
MAX_RATED = 1 << 20


# --- client to buffer -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello(Message):
    """Asks for a session. ``incarnation`` names the process, so that a reconnect is not taken for a rival.

    An actor says how many ``lanes`` it steps at a time, and whether it is a ``robot``, which is never held.
    ``compression`` is what its link needs.
    """

    TAG: ClassVar[int] = 1
    protocol: int = uint(U32)
    role: str = text(16)
    id: str = text(MAX_ID)
    incarnation: bytes = blob(16)
    host: str = text(255)
    pid: int = uint(U32)
    spec: Any = plain(default=None)
    lanes: int = uint(U32, default=1)
    executed: int = uint(default=0)
    pending: int = uint(default=0)
    robot: bool = flag(default=False)
    compression: str = text(16, default="none")


@dataclass(frozen=True)
class BlockHead(Message):
    """Rows ``seq .. seq + rows - 1`` of a stream.

    Frames: packed rows, then one per observation key in spec order, then with ``priorities`` those of the rows, <f4.
    """

    TAG: ClassVar[int] = 2
    stream: int = uint()
    seq: int = uint()
    rows: int = uint(U32)
    frames: int = uint(U32)
    priorities: bool = flag(default=False)


@dataclass(frozen=True)
class Pulse(Message):
    """Client heartbeat: env steps executed, those of them that are acknowledged or rejected, and the weights it acts on."""

    TAG: ClassVar[int] = 4
    executed: int = uint(default=0)
    settled: int = uint(default=0)
    epoch: int = uint(U32, default=0)
    step: int = uint(default=0)
    report: Any = plain(default=None)


@dataclass(frozen=True)
class Draw(Message):
    """A reader's demand: ``wanted`` batches in all since this session's welcome; ids alone where it has ``mapped`` the pool."""

    TAG: ClassVar[int] = 5
    wanted: int = uint()
    batch_size: int = uint(U32)
    statistics: bool = flag(default=False)
    mapped: bool = flag(default=False)


@dataclass(frozen=True)
class WeightsGet(Message):
    """Asks for ``length`` bytes at ``offset`` of one version on the shelf."""

    TAG: ClassVar[int] = 6
    epoch: int = uint(U32)
    step: int = uint()
    offset: int = uint()
    length: int = uint(U32)


@dataclass(frozen=True)
class Publish(Message):
    """A learner's new weights. Frame: a packed weight set."""

    TAG: ClassVar[int] = 7
    epoch: int = uint(U32)
    step: int = uint()


@dataclass(frozen=True)
class EpisodeEnd(Message):
    """One finished training episode, for people who watch."""

    TAG: ClassVar[int] = 8
    episode: int = uint()
    total: float = real()
    length: int = uint(U32)
    outcome: int = uint(2)


@dataclass(frozen=True)
class Evaluation(Message):
    """One evaluation of one version. Frames: returns ``(n,)`` <f8, lengths ``(n,)`` <i8, outcomes ``(n,)`` |u1."""

    TAG: ClassVar[int] = 9
    epoch: int = uint(U32)
    step: int = uint()
    env_steps: int = uint()
    episodes: int = uint(100_000)


@dataclass(frozen=True)
class Query(Message):
    """An observer asks; ``what`` is ``status``, or ``snapshot`` to have one written."""

    TAG: ClassVar[int] = 10
    what: str = text(32)


@dataclass(frozen=True)
class Goodbye(Message):
    """The client leaves; ``done`` says that its job is complete, ``reason`` why it cannot go on, empty in good order."""

    TAG: ClassVar[int] = 11
    done: bool = flag()
    reason: str = text(256, default="")


@dataclass(frozen=True)
class Redraw(Message):
    """Asks for ``rows`` other rows, without a grant: some that it was sent as ids were gone before it had read them.

    The answer bears ``ticket``. It is a :class:`DrawnHead`, or with ``gather`` a :class:`BatchHead`.
    """

    TAG: ClassVar[int] = 12
    ticket: int = uint()
    rows: int = uint(U32)
    gather: bool = flag(default=False)


@dataclass(frozen=True)
class Rate(Message):
    """New priorities of rows that were drawn in ``pool_epoch``. Frames: ids ``(rows,)`` <i8, |td| ``(rows,)`` <f4."""

    TAG: ClassVar[int] = 13
    pool_epoch: int = uint()
    rows: int = uint(MAX_RATED)


@dataclass(frozen=True)
class LabelHead(Message):
    """Says something about rows ``first .. last`` of a stream of this actor, behind them; ``number`` names the answer.

    ``kind`` 1: ``outcome``; 2: other rewards; 3: discard. Only rows of ``episode`` are meant, of any at its largest value.
    Frame, for kind 2 only: rewards ``(last - first + 1, K)`` <f4.
    """

    TAG: ClassVar[int] = 14
    number: int = uint()
    kind: int = uint(3)
    stream: int = uint()
    first: int = uint()
    last: int = uint()
    outcome: int = uint(2, default=0)
    episode: int = uint(default=U64)


# --- buffer to client -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome(Message):
    """Opens a session: the epoch, the limits, the agreed spec, and how far each stream of this actor is acknowledged.

    A learner is told what it needs to map the pool: the directory, what the header there holds as ``nonce``, and on which
    running ``kernel`` that is so. Each of its updates takes ``mixes`` batches: 2 where the actor's is a separate one.
    Either side may send :class:`Compressed` messages where ``compression`` is not ``none``.
    """

    TAG: ClassVar[int] = 32
    epoch: int = uint(U32)
    lease_s: float = real()
    heartbeat_s: float = real()
    credit_bytes: int = uint()
    fragment_bytes: int = uint(U32)
    message_bytes: int = uint()
    spec: Any = plain(default=None)
    streams: tuple[tuple[int, int], ...] = pairs(MAX_STREAMS, default=())
    pool: str = text(64, default="")
    directory: str = text(4096, default="")
    nonce: int = uint(default=0)
    kernel: str = text(255, default="")
    mixes: int = uint(2, default=1)
    compression: str = text(16, default="none")


@dataclass(frozen=True)
class Refused(Message):
    """No session, or no longer one. ``retry_s`` 0 means never ask again."""

    TAG: ClassVar[int] = 33
    reason: str = text(32)
    detail: str = text(1024)
    retry_s: float = real(default=0.0)


@dataclass(frozen=True)
class Ack(Message):
    """All rows up to ``seq`` of the stream are committed or rejected."""

    TAG: ClassVar[int] = 34
    stream: int = uint()
    seq: int = uint()


@dataclass(frozen=True)
class Reject(Message):
    """Rows ``first .. last`` of the stream may not enter the pool and must not be sent again."""

    TAG: ClassVar[int] = 35
    stream: int = uint()
    first: int = uint()
    last: int = uint()
    reason: str = text(32)
    detail: str = text(256)


@dataclass(frozen=True)
class Received(Message):
    """Byte credit: the buffer has taken ``bytes`` in all from this session."""

    TAG: ClassVar[int] = 36
    bytes: int = uint()


@dataclass(frozen=True)
class State(Message):
    """Buffer heartbeat: the newest weights, this actor's step allowance, and the phase of the run.

    ``granted`` counts env steps of this process since its start; the first ``random`` of them are uniform random.
    ``final`` says that no further step will ever be granted.
    """

    TAG: ClassVar[int] = 37
    learner: str = text(MAX_ID, default="")
    epoch: int = uint(U32, default=0)
    step: int = uint(default=0)
    granted: int = uint(default=0)
    random: int = uint(default=0)
    final: bool = flag(default=False)
    phase: str = text(16, default="")
    env_steps: int = uint(default=0)
    report: Any = plain(default=None)


@dataclass(frozen=True)
class BatchHead(Message):
    """``batches`` sampled batches of ``rows`` rows each, one granted update each; the last one has ``number``.

    Columns, each over all rows: ids, then weights <f4 and sets |u1 where there are any, rows, then obs and next_obs per key
    in spec order. They are the frames of this message, or follow as ``pieces``. The ids hold in ``pool_epoch`` only.
    """

    TAG: ClassVar[int] = 38
    number: int = uint()
    rows: int = uint(U32)
    batches: int = uint(U32, default=1)
    ticket: int = uint(default=0)
    weights: bool = flag(default=False)
    sets: bool = flag(default=False)
    pool_epoch: int = uint(default=0)
    pieces: bool = flag(default=False)


@dataclass(frozen=True)
class StatisticsHead(Message):
    """Statistics of the pool. Frames: mean and var per float key, in spec order, <f4; count and var of returns, if followed."""

    TAG: ClassVar[int] = 39
    count: int = uint()


@dataclass(frozen=True)
class WeightsPart(Message):
    """Bytes at ``offset`` of ``total`` of one version. Frame: the bytes."""

    TAG: ClassVar[int] = 40
    epoch: int = uint(U32)
    step: int = uint()
    offset: int = uint()
    total: int = uint()


@dataclass(frozen=True)
class Published(Message):
    """The shelf holds the version now (``reason`` empty) or refused it."""

    TAG: ClassVar[int] = 41
    epoch: int = uint(U32)
    step: int = uint()
    reason: str = text(32, default="")
    detail: str = text(256, default="")


@dataclass(frozen=True)
class Stop(Message):
    """The buffer asks the client to end: ``done`` when the run has reached its goal."""

    TAG: ClassVar[int] = 42
    done: bool = flag()
    reason: str = text(256)


@dataclass(frozen=True)
class Answer(Message):
    """Answer to a query. Frame: JSON in UTF-8."""

    TAG: ClassVar[int] = 43
    what: str = text(32)


@dataclass(frozen=True)
class DrawnHead(Message):
    """As :class:`BatchHead`, for who has mapped the pool whose header holds ``nonce``. Frames: ids, weights, sets."""

    TAG: ClassVar[int] = 44
    number: int = uint()
    rows: int = uint(U32)
    batches: int = uint(U32, default=1)
    ticket: int = uint(default=0)
    weights: bool = flag(default=False)
    sets: bool = flag(default=False)
    pool_epoch: int = uint(default=0)
    nonce: int = uint(default=0)


@dataclass(frozen=True)
class BatchPiece(Message):
    """The next bytes of the last :class:`BatchHead`: of its column ``column`` from ``offset`` on. Frame: the bytes."""

    TAG: ClassVar[int] = 45
    column: int = uint(U32)
    offset: int = uint()


@dataclass(frozen=True)
class Labelled(Message):
    """The label ``number`` is durable (``reason`` empty) or refused; ``rows`` changed, ``gone`` of its range are not there."""

    TAG: ClassVar[int] = 46
    number: int = uint()
    rows: int = uint(default=0)
    gone: int = uint(default=0)
    reason: str = text(32, default="")
    detail: str = text(256, default="")


MESSAGES: dict[int, type[Message]] = {
    cls.TAG: cls
    for cls in (
        *(Hello, BlockHead, Fragment, Pulse, Draw, WeightsGet, Publish, EpisodeEnd, Evaluation, Query, Goodbye, Redraw, Rate),
        *(Welcome, Refused, Ack, Reject, Received, State, BatchHead, StatisticsHead, WeightsPart, Published, Stop, Answer),
        *(DrawnHead, BatchPiece, LabelHead, Labelled, Compressed),
    )
}
