"""Whose code a policy is: a digest of the files that define its class, so that no host acts by another version of them."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

OURS = ("headrace", "torch", "builtins", "abc", "typing")  # which have versions of their own


def code_of(cls: type) -> dict[str, str]:
    """Module -> SHA-256 in hex of its file, of each module that defines the class or one that it extends; but for ``OURS``.

    What these files import is not looked at. Modules without a file, as in a notebook, have no digest.
    """
    found: dict[str, str] = {}
    for each in cls.__mro__:
        if each.__module__.partition(".")[0] in OURS:
            continue
        try:
            found[each.__module__] = hashlib.sha256(Path(inspect.getfile(each)).read_bytes()).hexdigest()
        except (OSError, TypeError):
            continue
    return found
