"""The config loader names what is wrong, with the nearest valid choice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.common import config
from headrace.common.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    rate: float = config.option(0.5, help="a rate", unit="Hz", low=0.1, high=10)
    names: tuple[str, ...] = config.option(("a",), help="names")


@dataclass(frozen=True)
class Outer:
    count: int = config.option(help="how many", low=1)
    mode: str = config.option("fast", help="how", choices=("fast", "slow"))
    large: int = config.option(0, help="many", high=(1 << 31) - 1)
    flag: bool = config.option(False, help="whether")
    maybe: int | None = config.option(None, help="perhaps")
    free: dict[str, object] = config.option(factory=dict, help="anything")
    inner: Inner = config.option(factory=Inner, help="nested", resume=True)

    def check(self, path):
        if self.count == 13:
            raise ConfigError(f"{path}count: 13 is unlucky; nearest valid: 12")


def test_defaults_overrides_and_round_trip():
    loaded = config.load(Outer, {"count": "1e3", "inner": {"rate": 2, "names": ["x", "y"]}, "free": {"k": [1]}})
    assert (loaded.count, loaded.inner.rate, loaded.inner.names, loaded.maybe) == (1000, 2.0, ("x", "y"), None)
    assert config.load(Outer, config.dump(loaded)) == loaded
    assert config.flatten(loaded)["inner.rate"] == 2.0


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({}, ["count", "required"]),
        ({"count": 1, "inner": {"rat": 1}}, ["inner.rat", "unknown", "'rate'"]),
        ({"count": 0}, ["count", "0", "nearest valid: 1"]),
        ({"count": 1, "inner": {"rate": 99}}, ["inner.rate", "99", "10"]),
        ({"count": 1.5}, ["count", "1.5", "integer"]),
        ({"count": True}, ["count", "True", "integer"]),
        ({"count": 1, "flag": 1}, ["flag", "1", "true or false"]),
        ({"count": 1, "mode": "fest"}, ["mode", "'fest'", "fast"]),
        ({"count": 1, "inner": 3}, ["inner", "mapping", "3"]),
        ({"count": 1, "inner": {"names": "abc"}}, ["inner.names", "list"]),
        ({"count": 1, "inner": {"rate": float("nan")}}, ["inner.rate", "finite"]),
        ({"count": 13}, ["13", "12"]),
        ({"count": 1, "large": 99999999999}, ["large: 99999999999 is above", "nearest valid: 2147483647"]),
        ({"count": 1, "large": 10**400}, ["large: 1000000000", "nearest valid: 2147483647"]),
        ({"count": 1, "inner": {"rate": 10.0000001}}, ["inner.rate: 10.0000001 is above", "nearest valid: 10"]),
        ({"count": 1, "inner": {"rate": 10**400}}, ["inner.rate", "finite"]),
        ({"count": float("inf")}, ["count", "inf", "integer"]),
        ({"count": "1e999"}, ["count", "inf", "integer"]),
    ],
)
def test_what_is_wrong_is_named(mapping, words):
    with pytest.raises(ConfigError) as error:
        config.load(Outer, mapping)
    assert all(w in str(error.value) for w in words), str(error.value)


def test_an_option_without_a_value_is_written_as_the_help_says():
    assert config.load(Outer, {"count": 1, "maybe": "none"}).maybe is None
    assert {d.key: d.default for d in config.describe(Outer)}["maybe"] == "none"
    assert config.load(Outer, {"count": 1, "inner": {"names": ["none"]}}).inner.names == ("none",)
    with pytest.raises(ConfigError, match="maybe: expected an integer, got 'nothing'"):
        config.load(Outer, {"count": 1, "maybe": "nothing"})


def test_overrides_from_the_command_line():
    words = ["--inner.rate", "2", "--flag", "--mode=slow", "--a-b.c", "x"]
    assert config.parse_overrides(words, lambda t: {"true": True, "2": 2}.get(t, t)) == {
        "inner": {"rate": 2},
        "flag": True,
        "mode": "slow",
        "a_b": {"c": "x"},
    }
    with pytest.raises(ConfigError, match="word"):
        config.parse_overrides(["word"], str)
    assert config.merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


def test_describe_lists_every_option_with_type_default_and_unit():
    docs = {d.key: d for d in config.describe(Outer)}
    assert docs["inner.rate"].unit == "Hz"
    assert docs["inner.rate"].type == "float in [0.1, 10]"
    assert (docs["count"].default, docs["mode"].type, docs["maybe"].type) == ("required", "fast|slow", "int or none")


@dataclass(frozen=True)
class Named:
    """Any number of configs by name."""

    parts: dict[str, Inner] = config.option(factory=dict, help="inner configs by name")


def test_configs_by_name_are_loaded_overridden_and_described():
    loaded = config.load(Named, {"parts": {"a": {"rate": 2}, "b": {}}})
    assert loaded.parts == {"a": Inner(rate=2.0), "b": Inner()}
    assert config.load(Named, config.dump(loaded)) == loaded
    assert config.flatten(loaded)["parts.a.rate"] == 2.0
    assert config.flatten(Named()) == {"parts": {}}
    changed = config.merge(config.dump(loaded), config.parse_overrides(["--parts.b.rate", "3"], lambda t: 3))
    assert config.load(Named, changed).parts == {"a": Inner(rate=2.0), "b": Inner(rate=3.0)}
    docs = {d.key: d for d in config.describe(Named)}
    assert docs["parts"].type == "mapping"
    assert docs["parts.<name>.rate"].unit == "Hz"
    with pytest.raises(ConfigError, match=r"parts.a.rat: unknown key; did you mean 'rate'"):
        config.load(Named, {"parts": {"a": {"rat": 2}}})
    with pytest.raises(ConfigError, match="parts.a: expected a mapping, got 2"):
        config.load(Named, {"parts": {"a": 2}})
