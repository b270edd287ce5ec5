"""The names of a frozen prefix among the observations, and of which policy it is.

They hold a digest of that policy, so a spec with them fits no host and no model that begins with another one.
"""

from __future__ import annotations

from headrace.common.specs import TransitionSpec

_START = "prefix."


def names_of(digest: str) -> tuple[str, str]:
    """Keys of the tokens ``(T, E)`` and of which of them are absent ``(T,)``, of the policy with this digest."""
    return f"{_START}{digest[:16]}.tokens", f"{_START}{digest[:16]}.absent"


def is_prefix(key: str) -> bool:
    """Whether an observation is one of those."""
    return key.startswith(_START)


def stored(spec: TransitionSpec) -> list[str]:
    """Those that rows of ``spec`` hold."""
    return [o.key for o in spec.obs if is_prefix(o.key)]
