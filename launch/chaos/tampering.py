"""What a fault proxy does to what passes, without sockets: rules about whole messages, and how a link is as a whole.

act          what comes of a message that a rule meets                            needs whole messages
DROP         nothing of it passes                                                 yes
DUPLICATE    it passes twice                                                      yes
REPLAY       it passes, and behind it the one that was met ``age`` messages ago   yes
FLIP         one bit of one frame's body is turned, behind the header if it can   no
CUT          a part of it passes, then the connection is closed in order          no
RESET        nothing of it passes, and the connection is reset                    no
HALF_CLOSE   it passes, and nothing more is said in this direction                no

Under CURVE a proxy sees neither where messages end nor what they are: what needs whole messages is left out there, and of the
other acts those that ask for certain tags.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headrace.common.errors import ConfigError
from headrace.common.wire.messages import Hello
from headrace.launch.chaos.zmtp import Unit


class Way(enum.Enum):
    """A direction through the proxy."""

    UP = "up"  # client to buffer
    DOWN = "down"


class Act(enum.Enum):
    """What is done to a message; the values name the counters."""

    DROP = "dropped"
    DUPLICATE = "duplicated"
    REPLAY = "replayed"
    FLIP = "flipped"
    CUT = "cut"
    RESET = "reset"
    HALF_CLOSE = "half_closed"


WHOLE = (Act.DROP, Act.DUPLICATE, Act.REPLAY)
ENDS = (Act.CUT, Act.RESET, Act.HALF_CLOSE)


@dataclass(frozen=True)
class Rule:
    """Which messages something is done to, and how often.

    Attributes:
        act: what.
        way: in which direction.
        tags: kinds of messages (``TAG``); empty for any. A message that travels in fragments is a fragment here.
        rate: probability for each message that is met.
        most: acts at most so often; 0 for no end.
        age: of REPLAY: how many messages ago the one was met that is sent again; as many are kept in memory. It is of the
            same session, since what is said without one is refused, and comes again in the next.
    """

    act: Act
    way: Way
    tags: frozenset[int] = frozenset()
    rate: float = 1.0
    most: int = 0
    age: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"rate: {self.rate:g} of {self.act.name} is no probability; nearest valid: 0 to 1")
        if min(self.most, self.age) < 0:
            raise ConfigError(f"most {self.most}, age {self.age} of {self.act.name}: nearest valid: 0")


@dataclass(frozen=True)
class Faults:
    """How a link is; as it comes, faultless.

    Attributes:
        rules: what is done to single messages.
        delay_s: how long everything takes longer, in each direction (s).
        bytes_per_s: what passes in each direction of each connection; 0 for no limit.
        held: nothing passes, and all of it later, as through a network that is down for a while.
        dead: whatever connections there are now are half-open for ever: all that is said is swallowed, and no end is told
            to the other side.
    """

    rules: tuple[Rule, ...] = ()
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    held: bool = False
    dead: bool = False

    def __post_init__(self) -> None:
        if self.delay_s < 0 or self.bytes_per_s < 0:
            raise ConfigError(f"delay_s {self.delay_s:g}, bytes_per_s {self.bytes_per_s:g}: nearest valid: 0")


@dataclass(frozen=True)
class Passed:
    """What is sent on in place of a unit, and what then ends: nothing, or one of :data:`ENDS`."""

    chunks: tuple[bytes, ...]
    end: Act | None = None

    @property
    def size(self) -> int:
        """Bytes that are sent on."""
        return sum(map(len, self.chunks))


Past = dict[Rule, deque[bytes]]  # of one direction of one connection: what each rule has met since the last hello


class Tamper:
    """Carries out rules on units, one after the other, and counts each act in ``counts``.

    Args:
        rng: decides by the rules' rates, and where messages are flipped and cut.
        counts: by the values of :class:`Act`.
    """

    def __init__(self, rng: np.random.Generator, counts: Counter[str]) -> None:
        self._rng, self._counts = rng, counts
        self._acted: dict[Rule, int] = {}

    def use(self, rules: Iterable[Rule]) -> None:
        """From now on these rules; one that is among those before goes on counting to its ``most``."""
        self._acted = {rule: self._acted.get(rule, 0) for rule in rules}

    def pass_on(self, way: Way, unit: Unit, past: Past) -> Passed:
        """What becomes of a unit; ``past`` is kept for us by the direction of the connection that it is on."""
        if tag_of(unit) == Hello.TAG:
            past.clear()
        chunks, end = [unit.data], None
        for rule in self._acted:
            if not _meets(rule, way, unit) or not self._acts(rule, unit, past):
                continue
            self._acted[rule] += 1
            self._counts[rule.act.value] += 1
            if rule.act is Act.DUPLICATE:
                chunks.append(unit.data)
            elif rule.act is Act.REPLAY:
                chunks.append(past[rule][0])
            elif rule.act is Act.FLIP:
                chunks[0] = self._flipped(chunks[0], unit)
            elif rule.act is Act.CUT:
                chunks = [unit.data[: int(self._rng.integers(1, len(unit.data)))]]
            elif rule.act is not Act.HALF_CLOSE:
                chunks = []
            if rule.act in ENDS or rule.act is Act.DROP:
                end = rule.act if rule.act in ENDS else None
                break
        return Passed(tuple(chunks), end)

    def _acts(self, rule: Rule, unit: Unit, past: Past) -> bool:
        if rule.act is Act.REPLAY:
            met = past.setdefault(rule, deque(maxlen=rule.age + 1))
            met.append(unit.data)
            if len(met) <= rule.age:
                return False
        spent = rule.most and self._acted[rule] >= rule.most
        return not spent and (rule.rate == 1 or float(self._rng.random()) < rule.rate)

    def _flipped(self, data: bytes, unit: Unit) -> bytes:
        header, *others = _filled(unit)
        bodies = others or [header]
        start, stop = bodies[int(self._rng.integers(len(bodies)))]
        at, turned = int(self._rng.integers(start, stop)), bytearray(data)
        turned[at] ^= 1 << int(self._rng.integers(8))
        return bytes(turned)


def tag_of(unit: Unit) -> int:
    """The tag in a message's header, which begins with three small numbers: a list of 3, the protocol, the tag; else -1."""
    if not unit.bodies or unit.sealed:
        return -1
    start, stop = unit.bodies[0]
    head = unit.data[start : min(stop, start + 3)]
    return head[2] if len(head) == 3 and head[0] == 0x93 and max(head[1], head[2]) < 0x80 else -1


def _filled(unit: Unit) -> list[tuple[int, int]]:
    return [(start, stop) for start, stop in unit.bodies if stop > start]


def _meets(rule: Rule, way: Way, unit: Unit) -> bool:
    if rule.way is not way or not _filled(unit) or (unit.sealed and rule.act in WHOLE):
        return False
    return not rule.tags or tag_of(unit) in rule.tags
