"""Typed, frozen configuration: declare options, load a mapping, refuse what is wrong by name.

A config is a frozen dataclass whose fields are made by :func:`option`. Loading checks every key, type
and range and names the offending key, the value found, what is allowed and the nearest valid choice.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from headrace.common.errors import ConfigError

T = TypeVar("T")
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")


def option(
    default: Any = MISSING,
    *,
    help: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] | None = None,
    factory: Callable[[], Any] | None = None,
    resume: bool = False,
    live: bool = False,
) -> Any:
    """Declare one option of a config dataclass.

    Args:
        default: value when the file does not name the key; without one the key is required.
        help: one line for ``--help``.
        unit: unit of a number, shown in ``--help``.
        low: smallest allowed number, inclusive.
        high: largest allowed number, inclusive.
        choices: allowed words.
        factory: makes the default of a nested config or a mapping.
        resume: whether ``--resume`` may change the key.
        live: whether ``headrace set`` may change it while a run goes on.
    """
    metadata = {"help": help, "unit": unit, "low": low, "high": high, "choices": choices, "resume": resume, "live": live}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class OptionDoc:
    """What ``--help`` shows of one option."""

    key: str
    type: str
    default: str
    unit: str
    help: str
    resume: bool


def load(cls: type[T], mapping: Mapping[str, Any], path: str = "") -> T:
    """Build ``cls`` from a nested mapping.

    Args:
        cls: a dataclass declared with :func:`option`.
        mapping: nested plain values, as YAML gives them.
        path: dotted prefix for messages.

    Raises:
        ConfigError: naming the key, the value found and what is allowed.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{path or 'config'}: expected a mapping, got {mapping!r}")
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]  # cls is a dataclass type
    for key in mapping:
        if key not in known:
            raise ConfigError(_unknown(_join(path, str(key)), str(key), known))
    values: dict[str, Any] = {}
    for name, f in known.items():
        key = _join(path, name)
        if name in mapping:
            values[name] = _convert(hints[name], mapping[name], key, f.metadata)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{key}: required ({f.metadata.get('help', '')}), but not given")
    built = cls(**values)
    check = getattr(built, "check", None)
    if check is not None:
        check(path)
    return built


def dump(config: Any) -> dict[str, Any]:
    """The config as a nested dict of plain values that :func:`load` accepts."""
    return {f.name: _plain(getattr(config, f.name)) for f in fields(config) if f.init}


def flatten(config: Any, path: str = "") -> dict[str, Any]:
    """The config as one level of dotted keys; free mappings stay whole."""
    out: dict[str, Any] = {}
    for f in fields(config):
        value, key = getattr(config, f.name), _join(path, f.name)
        if is_dataclass(value):
            out.update(flatten(value, key))
        elif isinstance(value, Mapping) and value and all(is_dataclass(v) for v in value.values()):
            for name, v in value.items():
                out.update(flatten(v, _join(key, name)))
        else:
            out[key] = _plain(value)
    return out


def describe(cls: type, path: str = "") -> list[OptionDoc]:
    """Every option of ``cls`` and of the configs nested in it, in declaration order."""
    out: list[OptionDoc] = []
    hints = typing.get_type_hints(cls)
    for f in fields(cls):
        if not f.init:
            continue
        hint, key = hints[f.name], _join(path, f.name)
        if is_dataclass(hint):
            out.extend(describe(typing.cast("type", hint), key))
            continue
        each = _value_config(hint)
        choices = f.metadata.get("choices")
        kind = "|".join(choices) if choices else _type_name(hint)
        if choices and typing.get_origin(hint) is tuple:
            kind = f"list of {kind}"
        low, high = f.metadata.get("low"), f.metadata.get("high")
        if low is not None or high is not None:
            kind += f" in [{'-inf' if low is None else number(low)}, {'inf' if high is None else number(high)}]"
        default = "required"
        if f.default is not MISSING:
            default = "none" if f.default is None else repr(_plain(f.default))
        elif f.default_factory is not MISSING:
            default = repr(_plain(f.default_factory()))
        out.append(
            OptionDoc(
                key, kind, default, f.metadata.get("unit", ""), f.metadata.get("help", ""), f.metadata.get("resume", False)
            )
        )
        if each is not None:  # where all may be changed, each part may
            resume = out[-1].resume
            out.extend(dataclasses.replace(doc, resume=resume) for doc in describe(each, f"{key}.<name>"))
    return out


def parse_overrides(words: Sequence[str], parse: Callable[[str], Any]) -> dict[str, Any]:
    """Turn ``--a.b value``, ``--a.b=value`` and ``--flag`` (true) into a nested mapping.

    Args:
        words: command line words left after the known options.
        parse: reads one scalar or list, for instance a YAML loader.
    """
    out: dict[str, Any] = {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise ConfigError(f"unexpected word {word!r} on the command line; overrides look like --learner.lr 3e-4")
        key, equals, text = word[2:].partition("=")
        if not equals:
            text = queue.pop(0) if queue and not queue[0].startswith("--") else "true"
        node = out
        parts = key.replace("-", "_").split(".")
        for part in parts[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"--{key}: {part} was already given a plain value")
        node[parts[-1]] = parse(text)
    return out


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``extra`` laid over it, mapping by mapping."""
    out = dict(base)
    for key, value in extra.items():
        old = out.get(key)
        out[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return out


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return dump(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value


def _unknown(key: str, name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}"
    return f"{key}: unknown key{hint}"


def _value_config(hint: Any) -> type[Any] | None:
    """The config class of the values of a mapping such as ``dict[str, SetConfig]``; None for anything else."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) is dict and is_dataclass(args[1]):
        return typing.cast("type[Any]", args[1])
    return None


def _type_name(hint: Any) -> str:
    if isinstance(hint, type) and not typing.get_args(hint):
        return "none" if hint is type(None) else hint.__name__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(a) for a in args)
    if origin is tuple:
        return f"list of {_type_name(args[0])}"
    if origin in (dict, Mapping) or origin is typing.get_origin(Mapping[str, Any]):
        return "mapping"
    return str(hint)


def _convert(hint: Any, value: Any, key: str, meta: Mapping[str, Any]) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        # "none" is how options without a value are written everywhere; YAML's own word for it is null
        if type(None) in args and (value is None or (value == "none" and str not in args)):
            return None
        for arg in (a for a in args if a is not type(None)):
            try:
                return _convert(arg, value, key, meta)
            except ConfigError as error:
                failure = error
        raise failure
    if is_dataclass(hint):
        return load(typing.cast("type[Any]", hint), value, key)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigError(f"{key}: expected a list, got {value!r}; write it as [a, b]")
        return tuple(_convert(args[0], v, f"{key}[{i}]", meta) for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key}: expected a mapping, got {value!r}")
        each = _value_config(hint)
        if each is not None:
            return {str(k): load(each, v, _join(key, str(k))) for k, v in value.items()}
        return {str(k): v for k, v in value.items()}
    return _scalar(hint, value, key, meta)


def _scalar(hint: Any, value: Any, key: str, meta: Mapping[str, Any]) -> Any:
    if hint in (int, float) and isinstance(value, str) and _NUMBER.match(value):
        value = float(value)  # YAML 1.1 reads 1e6 as a word
    if hint is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{key}: expected true or false, got {value!r}")
        return value
    if hint is int:
        if isinstance(value, bool) or not (isinstance(value, int) or _is_whole(value)):
            raise ConfigError(f"{key}: expected an integer, got {value!r}")
        return _in_range(int(value), key, meta)
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(_finite(value)):
            raise ConfigError(f"{key}: expected a finite number, got {value!r}")
        return _in_range(float(value), key, meta)
    if hint is str:
        if not isinstance(value, str):
            raise ConfigError(f"{key}: expected text, got {value!r}; in YAML write '{value}' with the quotes")
        choices = meta.get("choices")
        if choices and value not in choices:
            near = difflib.get_close_matches(value, choices, n=1, cutoff=0.3)
            hint_text = f"; nearest: {near[0]}" if near else ""
            raise ConfigError(f"{key}: {value!r} is not one of {', '.join(choices)}{hint_text}")
        return value
    raise TypeError(f"{key}: option type {hint!r} is not supported by the config loader")


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _finite(value: float) -> float:
    """``value`` as a float; infinite where it is larger than any."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def number(value: float) -> str:
    """A number for people, who copy it: whole ones with all their digits, the others so that they read back equal."""
    return str(int(value)) if isinstance(value, int) or (value.is_integer() and abs(value) < 1e16) else repr(value)


def _in_range(value: T, key: str, meta: Mapping[str, Any]) -> T:
    low, high = meta.get("low"), meta.get("high")
    found = typing.cast("float", value)
    if low is not None and found < low:
        raise ConfigError(f"{key}: {number(found)} is below the smallest allowed value; nearest valid: {number(low)}")
    if high is not None and found > high:
        raise ConfigError(f"{key}: {number(found)} is above the largest allowed value; nearest valid: {number(high)}")
    return value


def replace(config: T, **changes: Any) -> T:
    """A copy of ``config`` with some fields changed (``dataclasses.replace`` under the house's name)."""
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]  # config is a dataclass instance
