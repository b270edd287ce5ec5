"""The transition spec: what one row and one frame look like, agreed in the handshake.

A spec is built once, from the environment's spaces and the window (:mod:`headrace.actor.envs`), and every
array that crosses a process is checked against it; nothing is guessed from shapes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headrace.common.errors import SpecError

SPEC_VERSION = 1
FRAME_DTYPES = ("|u1", "|i1", "<u2", "<i2", "<i4", "<i8", "<f4", "|b1")
STORED_AS = {  # what an observation of this dtype is stored as; every other one is refused
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "uint16": "<u2",
    "int16": "<i2",
    "int32": "<i4",
    "uint32": "<i8",
    "int64": "<i8",
    "float16": "<f4",
    "float32": "<f4",
    "float64": "<f4",
}
ROLES = ("both", "actor", "critic")
KINDS = ("steps", "chunk")
SOURCE_POLICY, SOURCE_HUMAN, SOURCE_DEMO = 0, 1, 2
OUTCOME_UNKNOWN, OUTCOME_SUCCESS, OUTCOME_FAILURE = 0, 1, 2
HEALTH_OVERRUN = 1  # a control period before this step was left out
HEALTH_STALE = 2  # a picture was older, or repeated more often, than declared
HEALTH_HELD = 4  # the robot held in place of what was wanted
HEALTH_LIMITED = 8  # less than was wanted was executed
HEALTH_JUDGED = 16  # a success classifier looked at this step
HEALTH_SUCCESS = 32  # and said that it succeeded, whatever people have said of the episode since
SOURCES, OUTCOMES = ("policy", "human", "demo"), ("unknown", "success", "failure")  # by these numbers
MAX_OBS_KEYS = 64
MAX_FRAME_BYTES = 1 << 28
# Which config key sets a field; else the env does.
SET_BY = {
    "spec.window": "window.n_step",
    "spec.stack": "window.stack",
    "spec.next_action": "window.next_action",
    "spec.latent": "window.latent",
    "spec.planned": "window.planned",
}
OPTIONAL = {"next_action": False, "latent": 0, "planned": False}  # a spec does not name them where they have these values


@dataclass(frozen=True)
class ObsSpec:
    """One observation key: its array and which networks may see it."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    role: str = "both"

    @property
    def nbytes(self) -> int:
        """Bytes of one frame of this key."""
        return int(np.dtype(self.dtype).itemsize * math.prod(self.shape))


@dataclass(frozen=True)
class ActionSpec:
    """The executed action: ``(A,)`` for one action a decision, ``(k, A)`` for a chunk, with bounds per dimension."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def dim(self) -> int:
        """A, the number of dimensions of one action."""
        return self.shape[-1]


@dataclass(frozen=True)
class TransitionSpec:
    """Columns of one row (one decision) and of one frame (one observation).

    Attributes:
        obs: observation keys, sorted by key.
        action: executed action, env units.
        window: K, the largest number of executed env steps that one row covers.
        kind: ``steps`` when consecutive rows start one env step apart (1-step and n-step rows, which overlap),
            ``chunk`` when each row covers its own steps.
        stack: h, the number of frames that one observation refers to, oldest first.
        next_action: whether rows hold the action too that was executed behind their window; zeros where the episode ended.
        latent: numbers in [-1, 1] that the policy decided on in place of the action, where rows hold them too; 0: none.
        planned: whether rows hold the decision of the policy too, beside what was executed; ``has_planned`` is 0 where it made
            none.
    """

    obs: tuple[ObsSpec, ...]
    action: ActionSpec
    window: int = 1
    kind: str = "steps"
    stack: int = 1
    next_action: bool = False
    latent: int = 0
    planned: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def like(
        cls,
        obs: Mapping[str, Any],
        low: Sequence[float],
        high: Sequence[float],
        *,
        window: int = 1,
        chunk: int = 1,
        stack: int = 1,
        roles: Mapping[str, str] | None = None,
        planned: bool = False,
    ) -> TransitionSpec:
        """The spec of observations like ``obs`` and of actions in a box, one a decision, or a chunk of them.

        Args:
            obs: key -> an array or number of the shape and dtype that they will all have; 64-bit floats are stored as float32.
            low, high: ``(A,)``, least and largest action, in env units.
            window: K, executed env steps that one row covers at most (n-step rows).
            chunk: actions of one decision, which are executed without looking and are one row (``window.chunk`` of a config).
            stack: h, frames that one observation stacks.
            roles: key -> ``actor``, ``critic`` or ``both``; both where it is not named.
            planned: whether rows hold what the policy wanted too.

        Raises:
            SpecError: naming the field that cannot be.
        """
        roles = dict(roles or {})
        unknown = sorted(roles.keys() - obs.keys())
        if unknown:
            raise SpecError(f"roles: {unknown[0]!r} is no observation key; there are {sorted(obs)}")
        keys = []
        for key in sorted(obs):
            array = np.asarray(obs[key])
            if array.dtype.name not in STORED_AS:
                raise SpecError(f"obs[{key!r}]: {array.dtype} cannot be stored; one of {', '.join(STORED_AS)} can")
            keys.append(ObsSpec(key, array.shape, STORED_AS[array.dtype.name], roles.get(key, "both")))
        bounds = tuple(float(x) for x in low), tuple(float(x) for x in high)
        if chunk > 1 and window > 1:
            raise SpecError(f"window: {window}, but with chunk {chunk} a row is one decision; leave it out")
        shape = (len(bounds[0]),) if chunk == 1 else (chunk, len(bounds[0]))
        kind = "steps" if chunk == 1 else "chunk"
        return cls(tuple(keys), ActionSpec(shape, *bounds), max(window, chunk), kind, stack, planned=planned)

    @cached_property  # building it takes microseconds, and every insert and sample asks for it
    def row_dtype(self) -> np.dtype[np.void]:
        """Packed little-endian dtype of one row; on the wire the frame references are offsets in the block."""
        return np.dtype(
            [
                ("obs", "<i8", (self.stack,)),
                ("next_obs", "<i8", (self.stack,)),
                ("episode", "<u8"),
                ("stream", "<u8"),
                ("seq", "<u8"),
                ("learner", "<u8"),
                ("learner_step", "<u8"),
                ("learner_epoch", "<u4"),
                ("actor", "<u4"),
                ("t", "<u4"),
                ("task", "<u4"),
                ("action", "<f4", self.action.shape),
                *([("next_action", "<f4", self.action.shape)] if self.next_action else []),
                *([("planned", "<f4", self.action.shape)] if self.planned else []),
                *([("latent", "<f4", (self.latent,))] if self.latent else []),
                ("rewards", "<f4", (self.window,)),
                ("action_age", "<f4"),
                ("steps", "<u2"),
                ("terminated", "u1"),
                ("truncated", "u1"),
                *([("has_latent", "u1")] if self.latent else []),
                *([("has_planned", "u1")] if self.planned else []),
                ("outcome", "u1"),
                ("health", "u1"),
                ("source", "u1", (self.window,)),
            ]
        )

    @cached_property
    def grouped_dtype(self) -> np.dtype[np.void]:
        """The same row as groups of neighbouring columns of one type, so that one call checks a whole group.

        ``references`` are ``obs`` and ``next_obs`` unsigned, ``numbers`` are the actions, ``latent``, ``rewards`` and
        ``action_age``, ``flags`` are ``terminated``, ``truncated``, ``has_latent`` and ``has_planned``.
        """
        offset = {name: kind[1] for name, kind in (self.row_dtype.fields or {}).items()}
        numbers = math.prod(self.action.shape) * (1 + self.next_action + self.planned) + self.latent + self.window + 1
        flags = 2 + bool(self.latent) + self.planned
        formats = [("<u8", (2 * self.stack,)), ("<f4", (numbers,)), ("u1", (flags,))]
        offsets = [offset["obs"], offset["action"], offset["terminated"]]
        names = ["references", "numbers", "flags"]
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": self.row_dtype.itemsize})

    @property
    def frame_nbytes(self) -> int:
        """Bytes of one observation, all keys."""
        return sum(o.nbytes for o in self.obs)

    def fresh_steps(self, rows: np.ndarray[Any, Any]) -> int:
        """Executed env steps that ``rows`` account for: 1 a row for overlapping windows, ``steps`` for chunks."""
        return len(rows) if self.kind == "steps" else int(rows["steps"].sum(dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a message or a manifest."""
        values = {"version": SPEC_VERSION, **asdict(self)}
        for name, absent in OPTIONAL.items():
            if values[name] == absent:
                del values[name]  # specs without it are what they were before there was one
        return values

    @cached_property
    def plain(self) -> Mapping[str, Any]:
        """:meth:`to_dict`, made once, and not to be changed."""
        return self.to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransitionSpec:
        """Rebuild a spec from :meth:`to_dict`; raises :class:`SpecError` for anything that is not one."""
        try:
            if data["version"] != SPEC_VERSION:
                raise SpecError(f"spec.version: {data['version']!r}, this build speaks {SPEC_VERSION}")
            obs = tuple(
                ObsSpec(str(o["key"]), tuple(int(n) for n in o["shape"]), str(o["dtype"]), str(o["role"])) for o in data["obs"]
            )
            a = data["action"]
            action = ActionSpec(
                tuple(int(n) for n in a["shape"]), tuple(float(x) for x in a["low"]), tuple(float(x) for x in a["high"])
            )
            columns = bool(data.get("next_action", False)), int(data.get("latent", 0)), bool(data.get("planned", False))
            return cls(obs, action, int(data["window"]), str(data["kind"]), int(data["stack"]), *columns)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SpecError(f"not a transition spec: {type(error).__name__} {str(error)[:200]}") from error

    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON of the spec, in hex."""
        return fingerprint(self.to_dict())

    def differences(self, other: TransitionSpec) -> list[str]:
        """Each field in which the two specs differ, with both values (ours first), and the config key that sets it."""
        if self == other:
            return []  # by far the most, and a thousand hellos have one each
        return [
            f"{text} ({SET_BY[field]})" if (field := text.partition(":")[0]) in SET_BY else text
            for text in differences(self.to_dict(), other.to_dict(), "spec")
        ]


def fingerprint(data: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of plain values, in hex."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def differences(ours: Any, theirs: Any, path: str) -> list[str]:
    """Each leaf in which two plain nested values differ, as ``path: ours != theirs``."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = list(dict.fromkeys([*ours, *theirs]))
        return [d for k in keys for d in differences(ours.get(k), theirs.get(k), f"{path}.{k}")]
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(ours) == len(theirs):
        return [d for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) for d in differences(a, b, f"{path}[{i}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} != {theirs!r}"]


def _check(spec: TransitionSpec) -> None:
    if not 1 <= len(spec.obs) <= MAX_OBS_KEYS:
        raise SpecError(f"spec.obs: {len(spec.obs)} keys, allowed 1 to {MAX_OBS_KEYS}")
    keys = [o.key for o in spec.obs]
    if keys != sorted(set(keys)):
        raise SpecError(f"spec.obs: keys must be distinct and sorted, got {keys}")
    for o in spec.obs:
        if o.dtype not in FRAME_DTYPES:
            raise SpecError(f"spec.obs.{o.key}.dtype: {o.dtype!r} is not one of {', '.join(FRAME_DTYPES)}")
        if o.role not in ROLES:
            raise SpecError(f"spec.obs.{o.key}.role: {o.role!r} is not one of {', '.join(ROLES)}")
        if len(o.shape) > 8 or any(n < 1 for n in o.shape) or o.nbytes > MAX_FRAME_BYTES:
            raise SpecError(f"spec.obs.{o.key}.shape: {o.shape} is not a bounded positive shape")
    a = spec.action
    if len(a.shape) not in (1, 2) or any(n < 1 for n in a.shape) or math.prod(a.shape) > 1 << 20:
        raise SpecError(f"spec.action.shape: {a.shape}, expected (A,) or (k, A)")
    if len(a.low) != a.dim or len(a.high) != a.dim:
        raise SpecError(f"spec.action: {len(a.low)} low and {len(a.high)} high bounds for {a.dim} dimensions")
    for i, (low, high) in enumerate(zip(a.low, a.high, strict=True)):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SpecError(f"spec.action: bounds [{low}, {high}] of dimension {i} must be finite and ordered")
    if spec.kind not in KINDS:
        raise SpecError(f"spec.kind: {spec.kind!r} is not one of {', '.join(KINDS)}")
    if not 0 <= spec.latent <= 1 << 20:
        raise SpecError(f"spec.latent: {spec.latent} numbers, allowed 0 to {1 << 20}")
    if not 1 <= spec.window <= 4096 or not 1 <= spec.stack <= 256:
        raise SpecError(f"spec.window {spec.window} must be 1 to 4096 and spec.stack {spec.stack} 1 to 256")
