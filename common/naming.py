"""Naming: what a config's ``module:function`` stands for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from headrace.common.errors import ConfigError


def resolve(name: str, key: str) -> Callable[..., Any]:
    """The function or class that option ``key`` names as ``module:attribute``.

    Raises:
        ConfigError: it cannot be imported, or cannot be called.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a foreign module may raise anything while it is imported
        raise ConfigError(f"{key}: {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}: {name!r} is a {type(found).__name__}, expected a function or a class")
    called: Callable[..., Any] = found
    return called


def is_factory(name: str) -> bool:
    """Whether ``name`` is module:factory; module:Id-v0 is a gymnasium id that the module registers."""
    return ":" in name and name.partition(":")[2].replace(".", "").isidentifier()
