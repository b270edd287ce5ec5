"""The plain-dictionary face: ``state, action, reward, next_state, done`` and anything else, to blocks and back.

A plain row is an ordinary row with two frames, its state and its next state. State arrays become observation keys (a nested
dict gives one key per leaf). Whole numbers named ``task`` and ``source`` are the columns of that name, by which named sets
choose. Every further array is an observation key of its own that holds the array's raw bytes in the state's frame, so that any
dtype comes back bit for bit. Floating-point states, and all actions and rewards, are stored as float32. What comes back is
always what is stored: columns that labels, blocks and imports may change too have one dtype, which holds whatever those bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headrace.buffer.arguments import is_torch
from headrace.buffer.plain_values import (
    TORCH,
    dtype_name,
    from_numeric,
    from_raw,
    held,
    is_float,
    is_wide_float,
    numeric,
    of_same_library,
    raw,
    stored_as,
)
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.errors import BlockRefused, SpecError
from headrace.common.specs import SOURCE_DEMO, ActionSpec, ObsSpec, TransitionSpec, differences

Array = np.ndarray[Any, Any]
ACTOR, STREAM = "local", 1  # identity of rows that come in through this face
FRAMES = 2  # of one row: its state and its next state
EXTRA = "extra/"  # prefix of the observation keys that hold further arrays
TAGS = {"task": (1 << 32) - 1, "source": SOURCE_DEMO}  # whole numbers that are columns of their own, and their largest value


@dataclass(frozen=True)
class PlainField:
    """One array of a plain batch.

    Attributes:
        path: where it is in the nested dictionary.
        key: observation key that stores it; empty for what is a column of the row.
        dtype: in which it comes back, numpy's or ``torch.<name>``; see :meth:`of`.
        shape: of one row.
    """

    path: tuple[str, ...]
    key: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, path: tuple[str, ...], key: str, dtype: str, shape: tuple[int, ...]) -> PlainField:
        """An array that came as ``dtype``, and comes back so, but for columns whose later values that may not hold.

        Actions and rewards are float32 then, unless they came as wider floats, and whole numbers of :data:`TAGS` int64.
        """
        if not key and path[0] in TAGS:
            dtype = of_same_library(dtype, "int64")
        elif not key and path[0] in ("action", "reward") and not is_wide_float(dtype):
            dtype = of_same_library(dtype, "float32")
        return cls(path, key, dtype, shape)

    @property
    def name(self) -> str:
        """The path as text."""
        return "/".join(self.path)


@dataclass(frozen=True)
class PlainLayout:
    """What the first batch looked like; every later one must look the same."""

    fields: tuple[PlainField, ...]

    @classmethod
    def of_batch(cls, flat: Mapping[tuple[str, ...], Any], spec: TransitionSpec | None) -> PlainLayout:
        """The layout of a flattened batch; a bare state array takes the name of the only key of a given ``spec``."""
        _check_keys(flat)
        if ("source",) in flat and not _is_tag(flat[("source",)]):
            raise _no_tag("source", flat[("source",)], "0 policy, 1 human, 2 demonstration; another name for anything else")
        bare = spec.obs[0].key if spec is not None and len(spec.obs) == 1 else "state"
        columns = {("action",), ("reward",), ("truncated",), ("terminated",) if ("terminated",) in flat else ("done",)}
        columns |= {(name,) for name in TAGS if (name,) in flat and _is_tag(flat[(name,)])}
        keys = {path: "" if path in columns else _key(path, bare) for path in flat}
        layout = cls(tuple(PlainField.of(path, keys[path], dtype_name(v), tuple(v.shape[1:])) for path, v in flat.items()))
        if spec is not None:
            _fit(spec, layout.spec(flat))
        return layout

    @classmethod
    def of_spec(cls, spec: TransitionSpec) -> PlainLayout:
        """How rows of a pool that was filled without plain dictionaries look as one: numpy, two flags."""
        single = len(spec.obs) == 1
        fields = []
        for root in ("state", "next_state"):
            fields += [PlainField((root,) if single else (root, o.key), o.key, o.dtype, _stacked(spec, o)) for o in spec.obs]
        fields.append(PlainField(("action",), "", "<f4", spec.action.shape))
        fields.append(PlainField(("reward",), "", "<f4", (spec.window,) if spec.window > 1 else ()))
        fields += [PlainField((name,), "", "|b1", ()) for name in ("terminated", "truncated")]
        return cls(tuple(fields))

    def require_task(self) -> None:
        """Refuse tasks by which no set can choose.

        Raises:
            SpecError: they are not whole numbers.
        """
        for field in self.fields:
            if field.path == ("task",) and field.key:
                raise SpecError(
                    f"transitions.task: {field.dtype} {field.shape} a row, but a set of sampling.sets chooses by task: give one"
                    " whole number a row, and words under another name"
                )

    def spec(self, flat: Mapping[tuple[str, ...], Any]) -> TransitionSpec:
        """The spec that stores such batches.

        Actions count as normalised already, so their bounds are [-1, 1]; nothing is clipped to them.
        """
        obs = {}
        for field in self.fields:
            if not field.key or field.path[0] == "next_state":
                continue
            if field.key in obs:
                raise SpecError(f"transitions: two arrays would be stored as {field.key!r}")
            if field.key.startswith(EXTRA):
                obs[field.key] = ObsSpec(field.key, (raw(flat[field.path]).shape[1],), "|u1")
            else:
                obs[field.key] = ObsSpec(field.key, field.shape, numeric(flat[field.path], field.name).dtype.str)
        shape = self._field("action").shape
        shape = shape if len(shape) in (1, 2) else (int(np.prod(shape, dtype=np.int64)),)
        bound = (1.0,) * shape[-1]
        window = self._window()
        action = ActionSpec(shape, tuple(-b for b in bound), bound)
        return TransitionSpec(tuple(obs[k] for k in sorted(obs)), action, window, "chunk" if window > 1 else "steps")

    def block(self, flat: Mapping[tuple[str, ...], Any], spec: TransitionSpec) -> Block:
        """A flattened batch as one block of rows with two frames each.

        Raises:
            SpecError: naming the array that differs from the layout.
        """
        flat = self._checked(flat)
        values = {"/".join(path): v for path, v in flat.items()}
        n = len(next(iter(values.values())))
        rows = np.zeros(n, spec.row_dtype)
        rows["obs"][:, 0] = np.arange(n)
        rows["next_obs"][:, 0] = np.arange(n, 2 * n)
        rows["action"] = held(numeric(values["action"], "action"), "action").reshape(n, *spec.action.shape)
        rows["rewards"] = held(numeric(values["reward"], "reward"), "reward").reshape(n, spec.window)
        rows["steps"] = self._steps(values, spec.window)
        rows["terminated"] = _flag(values, "terminated" if "terminated" in values else "done")
        if "done" in values and "terminated" in values:
            self._agree(values)
        if "truncated" in values:
            rows["truncated"] = _flag(values, "truncated")
        for field in self.fields:
            if field.name in TAGS and not field.key:
                rows[field.name] = _tag(values[field.name], field.name).reshape(n, *(1,) * (rows[field.name].ndim - 1))
        frames = {}
        for field in self.fields:
            if not field.key or field.path[0] == "next_state":
                continue
            if field.key.startswith(EXTRA):
                data = raw(flat[field.path])
                frames[field.key] = np.concatenate([data, np.zeros_like(data)])
            else:
                after = flat[("next_state", *field.path[1:])]
                frames[field.key] = np.concatenate([numeric(flat[field.path], field.name), numeric(after, field.name)])
        return Block(rows, frames)

    def blamed(self, refused: BlockRefused, flat: Mapping[tuple[str, ...], Any]) -> BlockRefused:
        """Why a batch was refused, by the name that the caller gave the array where a number in it is not finite."""
        for field in self.fields:
            if field.key.startswith(EXTRA):
                continue
            with np.errstate(over="ignore"):
                values = numeric(flat[field.path], field.name).reshape(len(flat[field.path]), -1)
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                row, place = bad[0]
                return BlockRefused(refused.reason, f"transitions.{field.name}: row {row} holds {values[row, place]}")
        return refused

    def unpack(self, batch: Batch) -> dict[str, Any]:
        """A sampled batch in the form, dtypes and library of the first plain batch."""
        columns = {name: batch.rows[name] for name in ("action", "terminated", "truncated", "task")}
        columns["reward"], columns["done"] = batch.rows["rewards"], batch.rows["terminated"]
        columns["source"] = batch.rows["source"][:, 0]
        out: dict[str, Any] = {}
        for field in self.fields:
            shape = (len(batch), *field.shape)
            if field.key.startswith(EXTRA):
                value = from_raw(batch.obs[field.key], field.dtype, shape)
            else:
                source = batch.next_obs if field.path[0] == "next_state" else batch.obs
                data = source[field.key] if field.key else columns[field.path[0]]
                value = from_numeric(data.reshape(shape), field.dtype)
            node = out
            for part in field.path[:-1]:
                node = node.setdefault(part, {})
            node[field.path[-1]] = value
        return out

    def to_list(self) -> list[dict[str, Any]]:
        """Plain values for a manifest."""
        return [asdict(field) for field in self.fields]

    @classmethod
    def from_list(cls, data: list[dict[str, Any]]) -> PlainLayout:
        """Rebuild from :meth:`to_list`."""
        return cls(tuple(PlainField.of(tuple(f["path"]), f["key"], f["dtype"], tuple(f["shape"])) for f in data))

    def differences(self, other: PlainLayout) -> list[str]:
        """What keeps rows of another form from coming back as what they are, ours first."""
        ours, theirs = ({f.name: f for f in layout.fields} for layout in (self, other))
        out = [f"{name}: {'is there' if name in ours else 'missing'}" for name in sorted(ours.keys() ^ theirs.keys())]
        for name in sorted(ours.keys() & theirs.keys()):
            mine, its = ours[name], theirs[name]
            if mine.shape != its.shape:
                out.append(f"{name}: {mine.shape} a row, {its.shape} a row")
            elif (mine.key or its.key) and (mine.key != its.key or not _holds(mine, its.dtype)):
                out.append(f"{name}: {mine.dtype}, {its.dtype}")
        return out

    def _field(self, name: str) -> PlainField:
        return next(f for f in self.fields if f.name == name)

    def _window(self) -> int:
        shape = self._field("reward").shape
        if len(shape) > 1:
            raise SpecError(f"transitions.reward: {shape} a row, expected one number or one a step")
        return shape[0] if shape else 1

    @staticmethod
    def _agree(values: Mapping[str, Any]) -> None:
        """Refuse a ``done`` that says something else than the flags beside it."""
        if tuple(values["done"].shape[1:]) not in ((), (1,)):
            return
        done = _flag(values, "done") != 0
        flags = {name: _flag(values, name) != 0 for name in ("terminated", "truncated") if name in values}
        wrong = np.flatnonzero(done != np.any(list(flags.values()), axis=0))
        if len(wrong):
            row = wrong[0]
            beside = ", ".join(f"{name} {int(flag[row])}" for name, flag in flags.items())
            raise SpecError(
                f"transitions.done: row {row} holds {int(done[row])}, beside {beside}; leave done out, or make it their union"
            )

    def _steps(self, values: Mapping[str, Any], window: int) -> Any:
        """Executed steps of each row: what the response mask marks where rewards are given step by step."""
        mask = values.get("response_mask")
        if window == 1 or mask is None or tuple(mask.shape[1:]) != (window,):
            return window
        marked = numeric(mask, "response_mask") != 0
        if (marked[:, 1:] & ~marked[:, :-1]).any() or not marked[:, 0].all():
            raise SpecError("transitions.response_mask: the marked steps must be the first ones, and at least one")
        return marked.sum(axis=1)

    def _checked(self, flat: Mapping[tuple[str, ...], Any]) -> Mapping[tuple[str, ...], Any]:
        """A batch that is of this form, with its texts as wide as the first batch's."""
        known, out = {f.path: f for f in self.fields}, dict(flat)
        names = ", ".join(f.name for f in self.fields)
        for path in [p for p in known if p not in flat] + [p for p in flat if p not in known]:
            what = "missing" if path in known else "unknown"
            raise SpecError(f"transitions.{'/'.join(path)}: {what}; the first batch had {names}")
        for path, value in flat.items():
            field = known[path]
            if tuple(value.shape[1:]) != field.shape:
                raise SpecError(f"transitions.{field.name}: {tuple(value.shape[1:])} a row, the first batch had {field.shape}")
            found = dtype_name(value)
            if field.key.startswith(EXTRA):
                if found != field.dtype:
                    out[path] = _widened(value, field)
            elif field.key and not _holds(field, found):
                raise SpecError(f"transitions.{field.name}: {found}, the first batch had {field.dtype}; convert it to that")
        return out


def require_form(what: str, ours: PlainLayout | None, theirs: PlainLayout | None) -> None:
    """Refuse rows of another plain form, which would come back as something else than they are.

    Raises:
        SpecError: naming each array that differs.
    """
    different = [] if ours is None or theirs is None else ours.differences(theirs)
    if different:
        raise SpecError(f"{what} has other plain dictionaries (the pool's first): {'; '.join(different)}")


def _check_keys(flat: Mapping[tuple[str, ...], Any]) -> None:
    names = ["/".join(path) for path in flat]
    for wanted in ("action", "reward"):
        if (wanted,) not in flat:
            raise SpecError(f"transitions.{wanted}: missing, or not one array; got {names}")
    if ("done",) not in flat and ("terminated",) not in flat:
        raise SpecError(f"transitions.done: missing, and there is no 'terminated' either; got {names}")
    if ("truncated",) in flat and ("terminated",) not in flat:
        raise SpecError("transitions.terminated: missing; beside 'truncated', 'done' does not say which end it means")
    state, after = ({p[1:]: v.shape[1:] for p, v in flat.items() if p[0] == root} for root in ("state", "next_state"))
    if not state or state != after:
        raise SpecError(f"transitions.next_state: {after}, expected the keys and shapes of state: {state}")
    for path in [p for p in flat if p[0] == "state"]:
        dtype, other = dtype_name(flat[path]), dtype_name(flat[("next_state", *path[1:])])
        if stored_as(dtype) != stored_as(other):
            raise SpecError(f"transitions.{'/'.join(('next_state', *path[1:]))}: {other}, but {'/'.join(path)} is {dtype}")


def _fit(spec: TransitionSpec, derived: TransitionSpec) -> None:
    """Refuse a batch that a pool with a given spec cannot store."""
    if spec.stack != 1:
        raise SpecError(f"spec.stack: {spec.stack}; plain dictionaries carry whole observations, they need stack 1")
    different = differences(_stored(spec), _stored(derived), "spec")
    if different:
        raise SpecError(f"the batch does not fit the pool's spec (the pool's first): {'; '.join(different)}")


def _stored(spec: TransitionSpec) -> dict[str, Any]:
    obs = {o.key: {"shape": o.shape, "dtype": o.dtype} for o in spec.obs}
    return {
        "obs": obs,
        "action": spec.action.shape,
        "window": spec.window,
        "next_action": spec.next_action,
        "latent": spec.latent,
    }


def _key(path: tuple[str, ...], bare: str) -> str:
    """Observation key that stores the array at ``path``."""
    if path[0] in ("state", "next_state"):
        return "/".join(path[1:]) or bare
    return EXTRA + "/".join(path)


def _stacked(spec: TransitionSpec, obs: ObsSpec) -> tuple[int, ...]:
    return obs.shape if spec.stack == 1 else (spec.stack, *obs.shape)


def _is_tag(value: Any) -> bool:
    """Whether the array holds one whole number a row."""
    name = dtype_name(value).removeprefix(TORCH)
    return tuple(value.shape[1:]) in ((), (1,)) and (name.startswith(("int", "uint")) or name[1:2] in ("i", "u"))


def _no_tag(name: str, value: Any, meant: str) -> SpecError:
    shape = tuple(value.shape[1:])
    return SpecError(f"transitions.{name}: {dtype_name(value)} {shape} a row, expected one whole number a row ({meant})")


def _tag(value: Any, name: str) -> Array:
    array: Array = np.asarray(value).reshape(len(value))
    wrong = np.flatnonzero((array < 0) | (array > TAGS[name]))
    if len(wrong):
        raise SpecError(f"transitions.{name}: row {wrong[0]} holds {array[wrong[0]]}, allowed are 0 to {TAGS[name]}")
    return array


def _widened(value: Any, field: PlainField) -> Any:
    """Texts or bytes that are shorter than those of the first batch, as wide as they were."""
    first = None if field.dtype.startswith(TORCH) else np.dtype(field.dtype)
    if first is None or is_torch(value) or first.kind not in "US" or value.dtype.kind != first.kind:
        raise SpecError(f"transitions.{field.name}: {dtype_name(value)}, the first batch had {field.dtype}")
    if value.dtype.itemsize > first.itemsize:
        wide = f"{first.kind}{value.dtype.itemsize // (4 if first.kind == 'U' else 1)}"
        raise SpecError(
            f"transitions.{field.name}: {value.dtype.str}, wider than the first batch's {field.dtype}; give the first batch"
            f" room with .astype({wide!r})"
        )
    return value.astype(first)


def _holds(field: PlainField, dtype: str) -> bool:
    """Whether what came as ``dtype`` is the same in the dtype of the field: of floats, float32 holds what any is stored as."""
    if dtype == field.dtype or field.key.startswith(EXTRA):
        return dtype == field.dtype
    return is_float(dtype) and is_wide_float(field.dtype)


def _flag(values: Mapping[str, Any], name: str) -> Array:
    flag = numeric(values[name], name).reshape(len(values[name]), -1)
    if flag.shape[1] != 1:
        raise SpecError(f"transitions.{name}: expected one 0 or 1 a row, got {flag.shape[1]} values a row")
    wrong = np.flatnonzero((flag != 0) & (flag != 1))
    if len(wrong):
        raise SpecError(f"transitions.{name}: row {wrong[0]} holds {flag[wrong[0], 0]}, expected 0 or 1")
    return flag[:, 0]
