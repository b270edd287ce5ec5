"""Every message of the protocol, one frozen dataclass a kind.

Client = actor, evaluator, policy server, learner rank, further shard or observer; all dial the buffer, and actors may dial a
policy server too. Frames that follow a header are
named in the class docstring. Sequence numbers start at 1; 0 means none yet. ``docs/wire.md`` holds the same as a table, which
:mod:`headrace.common.wire.reference` makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.common.wire.envelopes import Compressed as Compressed
from headrace.common.wire.envelopes import Fragment as Fragment
from headrace.common.wire.fields import COUNT, U32, U64, blob, flag, pairs, plain, real, text, uint
from headrace.common.wire.message import BUFFER as BUFFER
from headrace.common.wire.message import LISTENERS
from headrace.common.wire.message import POLICY_SERVER as POLICY_SERVER
from headrace.common.wire.message import Message as Message

PROTOCOL = 1
PAUSED = "paused"  # a phase of the run
READERS = ("learner", "rank")  # the learner, and the further ranks of its group
SHARD = "shard"  # a further buffer of a run, as its home buffer knows it
FOLLOWERS = ("actor", "evaluator", POLICY_SERVER, SHARD)  # they act by its weights, or hand them on
ROLES = (*FOLLOWERS, *READERS, "observer")
LIVE_ROWS = "live_rows"  # in the report to a reader: what it weighs several shards by
MAX_ID = 128
MAX_LANES = 4096
MAX_STREAMS = 64
MAX_POOL = 64
MAX_RATED = 1 << 20
NOISE_BYTES = 37


# --- client to buffer -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello(Message, tag=1, senders=ROLES):
    """Asks for a session. ``incarnation`` names the process, so that a reconnect is not taken for a rival.

    An actor says how many ``lanes`` it steps at a time, and whether it is a ``robot``, which is never held.
    ``compression`` is what its link needs. ``pool`` is that of this process's last session, so that one which was replaced
    meanwhile is not taken for a newcomer.
    """

    protocol: int = uint(U32)
    role: str = text(16)
    id: str = text(MAX_ID)
    incarnation: bytes = blob(16)
    host: str = text(255)
    pid: int = uint(U32)
    spec: Any = plain(default=None)
    lanes: int = uint(MAX_LANES, default=1)
    executed: int = uint(COUNT, default=0)
    pending: int = uint(COUNT, default=0)
    robot: bool = flag(default=False)
    compression: str = text(16, default="none")
    pool: str = text(MAX_POOL, default="")


@dataclass(frozen=True)
class BlockHead(Message, tag=2, senders=("actor",), frames=None):
    """Rows ``seq .. seq + rows - 1`` of a stream.

    Frames: packed rows, then one per observation key in spec order, then with ``priorities`` those of the rows, <f4.
    """

    stream: int = uint()
    seq: int = uint()
    rows: int = uint(U32)
    frames: int = uint(U32)
    priorities: bool = flag(default=False)


@dataclass(frozen=True)
class Pulse(Message, tag=4, senders=(*FOLLOWERS, *READERS)):
    """Client heartbeat: env steps executed, those of them that are acknowledged or rejected, and the weights it acts on."""

    executed: int = uint(COUNT, default=0)
    settled: int = uint(COUNT, default=0)
    epoch: int = uint(U32, default=0)
    step: int = uint(default=0)
    report: Any = plain(default=None)


@dataclass(frozen=True)
class Draw(Message, tag=5, senders=READERS):
    """A reader's demand: ``wanted`` batches in all since this session's welcome; ids alone where it has ``mapped`` the pool."""

    wanted: int = uint()
    batch_size: int = uint(U32)
    statistics: bool = flag(default=False)
    mapped: bool = flag(default=False)


@dataclass(frozen=True)
class WeightsGet(Message, tag=6, senders=FOLLOWERS):
    """Asks for ``length`` bytes at ``offset`` of one version on the shelf."""

    epoch: int = uint(U32)
    step: int = uint()
    offset: int = uint()
    length: int = uint(U32)


@dataclass(frozen=True)
class Publish(Message, tag=7, senders=("learner",), frames=1):
    """A learner's new weights. Frame: a packed weight set."""

    epoch: int = uint(U32)
    step: int = uint()


@dataclass(frozen=True)
class EpisodeEnd(Message, tag=8, senders=("actor",)):
    """One finished training episode, for people who watch."""

    episode: int = uint()
    total: float = real()
    length: int = uint(U32)
    outcome: int = uint(2)


@dataclass(frozen=True)
class Evaluation(Message, tag=9, senders=("evaluator",), frames=3):
    """One evaluation of one version. Frames: returns ``(n,)`` <f8, lengths ``(n,)`` <i8, outcomes ``(n,)`` |u1."""

    epoch: int = uint(U32)
    step: int = uint()
    env_steps: int = uint()
    episodes: int = uint(100_000)


@dataclass(frozen=True)
class Query(Message, tag=10, senders=ROLES, frames=None):
    """Asks; ``what`` is ``about`` (what the buffer says of itself), or from an observer ``status``, or ``snapshot`` to have one
    written. A frame behind ``about`` is thrown away: by it a client finds out what its link carries.
    """

    what: str = text(32)


@dataclass(frozen=True)
class Goodbye(Message, tag=11, senders=ROLES):
    """The client leaves; ``done`` says that its job is complete, ``reason`` why it cannot go on, empty in good order."""

    done: bool = flag()
    reason: str = text(256, default="")


@dataclass(frozen=True)
class Redraw(Message, tag=12, senders=READERS):
    """Asks for ``rows`` other rows, without a grant: some that it was sent as ids were gone before it had read them.

    The answer bears ``ticket``. It is a :class:`DrawnHead`, or with ``gather`` a :class:`BatchHead`.
    """

    ticket: int = uint()
    rows: int = uint(U32)
    gather: bool = flag(default=False)


@dataclass(frozen=True)
class Rate(Message, tag=13, senders=READERS, frames=2):
    """New priorities of rows that were drawn in ``pool_epoch``. Frames: ids ``(rows,)`` <i8, |td| ``(rows,)`` <f4."""

    pool_epoch: int = uint()
    rows: int = uint(MAX_RATED)


@dataclass(frozen=True)
class LabelHead(Message, tag=14, senders=("actor",), frames=None):
    """Says something about rows ``first .. last`` of a stream of this actor, behind them; ``number`` names the answer.

    ``kind`` 1: ``outcome``; 2: other rewards; 3: discard. Only rows of ``episode`` are meant, of any at its largest value.
    Frame, for kind 2 only: rewards ``(last - first + 1, K)`` <f4.
    """

    number: int = uint()
    kind: int = uint(3)
    stream: int = uint()
    first: int = uint()
    last: int = uint()
    outcome: int = uint(2, default=0)
    episode: int = uint(default=U64)


@dataclass(frozen=True)
class Change(Message, tag=15, senders=("actor", "observer")):
    """People change the run while it goes on.

    ``what`` is ``pause`` or ``resume``, which ends the sender's own pause, or everybody's with ``*`` as an observer's
    ``target``; from an observer also ``label``, with an actor as ``target`` and a word as ``value``, or ``set``, with a key as
    ``target`` and its ``value``. An observer gets an :class:`Answer`: an object that is empty, or tells why it was ``refused``,
    or a ``warning``. One that comes again under the same ``number`` is answered and not done again. An actor gets no answer,
    but sees the :class:`State`.
    """

    what: str = text(16)
    number: int = uint(default=0)
    target: str = text(MAX_ID, default="")
    value: Any = plain(default=None)


@dataclass(frozen=True)
class Ask(Message, tag=16, senders=("actor",), frames=None):
    """Asks a policy server what to do in ``lanes`` episodes; a request before it that was not answered is given up.

    Who asks makes no use of an answer that comes later than ``within_s``. ``noise`` is the state of the generator (PCG64) that
    a decision draws from: its state and increment, 16 bytes each, 1 byte and 4 bytes of half a word that is left over.
    Without it the mode of the policy is meant. Frames: one per observation key that an actor sees, in spec order.
    """

    number: int = uint()
    lanes: int = uint(MAX_LANES)
    within_s: float = real()
    noise: bytes = blob(NOISE_BYTES, default=b"")


@dataclass(frozen=True)
class Claim(Message, tag=17, senders=("learner",)):
    """A learner's demand for updates whose rows it draws from several shards: ``wanted`` in all since this session's welcome.

    One is granted only while all shards together hold ``batch_size`` rows. The rows are drawn in sessions of role ``rank``.
    """

    wanted: int = uint()
    batch_size: int = uint(U32)


@dataclass(frozen=True)
class Holdings(Message, tag=18, senders=(SHARD,)):
    """What a further shard has, said to the home shard whenever it changes.

    ``env_steps`` are committed in ``pool``, and ``rows`` of it can be drawn. Of the steps that it was granted in this session
    it gives ``returned`` back; ``under_way`` is what its actors may still deliver. Its ``simulators`` need ``reserve`` steps to
    complete their first rows. ``paused``: people have paused the run there.
    """

    pool: str = text(MAX_POOL)
    env_steps: int = uint(COUNT)
    rows: int = uint(COUNT)
    returned: int = uint(COUNT, default=0)
    under_way: int = uint(COUNT, default=0)
    simulators: int = uint(U32, default=0)
    reserve: int = uint(COUNT, default=0)
    paused: bool = flag(default=False)


# --- buffer to client -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome(Message, tag=32, senders=LISTENERS):
    """Opens a session: the epoch, the limits, the agreed spec, and how far each stream of this actor is acknowledged.

    A learner is told what it needs to map the pool: the directory, what the header there holds as ``nonce``, and on which
    running ``kernel`` that is so. Each of its updates takes ``mixes`` batches: 2 where the actor's is a separate one.
    Either side may send :class:`Compressed` messages where ``compression`` is not ``none``.
    """

    epoch: int = uint(U32)
    lease_s: float = real()
    heartbeat_s: float = real()
    credit_bytes: int = uint()
    fragment_bytes: int = uint(U32)
    message_bytes: int = uint()
    spec: Any = plain(default=None)
    streams: tuple[tuple[int, int], ...] = pairs(MAX_STREAMS, default=())
    pool: str = text(MAX_POOL, default="")
    directory: str = text(4096, default="")
    nonce: int = uint(default=0)
    kernel: str = text(255, default="")
    mixes: int = uint(2, default=1)
    compression: str = text(16, default="none")


@dataclass(frozen=True)
class Refused(Message, tag=33, senders=LISTENERS):
    """No session, or no longer one. ``retry_s`` 0 means never ask again."""

    reason: str = text(32)
    detail: str = text(1024)
    retry_s: float = real(default=0.0)


@dataclass(frozen=True)
class Ack(Message, tag=34):
    """All rows up to ``seq`` of the stream are committed or rejected."""

    stream: int = uint()
    seq: int = uint()


@dataclass(frozen=True)
class Reject(Message, tag=35):
    """Rows ``first .. last`` of the stream may not enter the pool and must not be sent again."""

    stream: int = uint()
    first: int = uint()
    last: int = uint()
    reason: str = text(32)
    detail: str = text(256)


@dataclass(frozen=True)
class Received(Message, tag=36, senders=LISTENERS):
    """Byte credit: the buffer has taken ``bytes`` in all from this session."""

    bytes: int = uint()


@dataclass(frozen=True)
class State(Message, tag=37, senders=LISTENERS):
    """Heartbeat of who is dialled: the newest weights, this actor's step allowance, and the phase of the run.

    ``granted`` counts env steps of this process since its start; the first ``random`` of them are uniform random.
    ``final`` says that no further step will ever be granted. A robot whose run has the phase ``paused`` holds.
    """

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
class BatchHead(Message, tag=38, frames=None):
    """``batches`` sampled batches of ``rows`` rows each, one granted update each; the last one has ``number``.

    Columns, each over all rows: ids, then weights <f4 and sets |u1 where there are any, rows, then obs and next_obs per key
    in spec order. They are the frames of this message, or follow as ``pieces``. The ids hold in ``pool_epoch`` only.
    """

    number: int = uint()
    rows: int = uint(U32)
    batches: int = uint(U32, default=1)
    ticket: int = uint(default=0)
    weights: bool = flag(default=False)
    sets: bool = flag(default=False)
    pool_epoch: int = uint(default=0)
    pieces: bool = flag(default=False)


@dataclass(frozen=True)
class StatisticsHead(Message, tag=39, frames=None):
    """Statistics of the pool. Frames: mean and var per float key, in spec order, <f4; count and var of returns, if followed."""

    count: int = uint()


@dataclass(frozen=True)
class WeightsPart(Message, tag=40, frames=1):
    """Bytes at ``offset`` of ``total`` of one version. Frame: the bytes."""

    epoch: int = uint(U32)
    step: int = uint()
    offset: int = uint()
    total: int = uint()


@dataclass(frozen=True)
class Published(Message, tag=41):
    """The shelf holds the version now (``reason`` empty) or refused it."""

    epoch: int = uint(U32)
    step: int = uint()
    reason: str = text(32, default="")
    detail: str = text(256, default="")


@dataclass(frozen=True)
class Stop(Message, tag=42, senders=LISTENERS):
    """The buffer asks the client to end: ``done`` when the run has reached its goal."""

    done: bool = flag()
    reason: str = text(256)


@dataclass(frozen=True)
class Answer(Message, tag=43, frames=1):
    """Answer to a query. Frame: JSON in UTF-8."""

    what: str = text(32)


@dataclass(frozen=True)
class DrawnHead(Message, tag=44, frames=None):
    """As :class:`BatchHead`, for who has mapped the pool whose header holds ``nonce``. Frames: ids, weights, sets."""

    number: int = uint()
    rows: int = uint(U32)
    batches: int = uint(U32, default=1)
    ticket: int = uint(default=0)
    weights: bool = flag(default=False)
    sets: bool = flag(default=False)
    pool_epoch: int = uint(default=0)
    nonce: int = uint(default=0)


@dataclass(frozen=True)
class BatchPiece(Message, tag=45, frames=1):
    """The next bytes of the last :class:`BatchHead`: of its column ``column`` from ``offset`` on. Frame: the bytes."""

    column: int = uint(U32)
    offset: int = uint()


@dataclass(frozen=True)
class Labelled(Message, tag=46):
    """The label ``number`` is durable (``reason`` empty) or refused; ``rows`` changed, ``gone`` of its range are not there."""

    number: int = uint()
    rows: int = uint(default=0)
    gone: int = uint(default=0)
    reason: str = text(32, default="")
    detail: str = text(256, default="")


@dataclass(frozen=True)
class Declined(Message, tag=47, senders=LISTENERS):
    """A message of this session was not accepted, and nothing of it was done; ``reason`` is what it is counted under."""

    reason: str = text(32)
    detail: str = text(256, default="")


@dataclass(frozen=True)
class Word(Message, tag=48):
    """Somebody has said a word to this actor from elsewhere: ``success``, ``failure`` or ``discard`` of its newest episode."""

    word: str = text(16)


@dataclass(frozen=True)
class Decision(Message, tag=49, senders=(POLICY_SERVER,), frames=None):
    """Answer to the :class:`Ask` of this number, by which weights; ``noise`` is the generator behind it.

    ``reason`` says why there is none: ``late``, ``no-weights`` or ``failed``. Else frames: actions, ``(lanes, *action.shape)``
    <f4, in env units, and where rows hold latents and ``noise`` was asked with those, ``(lanes, latent)`` <f4.
    """

    number: int = uint()
    reason: str = text(32, default="")
    learner: str = text(MAX_ID, default="")
    epoch: int = uint(U32, default=0)
    step: int = uint(default=0)
    noise: bytes = blob(NOISE_BYTES, default=b"")


@dataclass(frozen=True)
class Granted(Message, tag=50):
    """``updates`` more updates that were claimed are granted; the last one has ``number``."""

    number: int = uint()
    updates: int = uint(U32)


MESSAGES: dict[int, type[Message]] = {
    cls.TAG: cls
    for cls in (
        *(
            Hello,
            BlockHead,
            Fragment,
            Pulse,
            Draw,
            WeightsGet,
            Publish,
            EpisodeEnd,
            Evaluation,
            Query,
            Goodbye,
            Redraw,
            Rate,
            Change,
        ),
        *(Welcome, Refused, Ack, Reject, Received, State, BatchHead, StatisticsHead, WeightsPart, Published, Stop, Answer),
        *(DrawnHead, BatchPiece, LabelHead, Labelled, Declined, Word, Ask, Decision, Compressed),
        *(Claim, Holdings, Granted),
    )
}
