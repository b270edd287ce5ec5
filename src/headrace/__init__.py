"""headrace: asynchronous actor-learner Soft Actor-Critic for robots and VLA policies."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"


def _launch_attribute(name: str) -> Any:
    """Names that ``headrace.launch`` offers, loaded when asked for."""
    if name in ("train", "TrainResult"):
        return getattr(importlib.import_module("headrace.launch.runner"), name)
    raise AttributeError(f"module 'headrace.launch' has no attribute {name!r}")


# launch/ has no __init__.py: with one, a repository root on sys.path would hide the ROS 2 package `launch`. A module
# looks up __getattr__ in its own namespace (PEP 562), so the namespace package is given one here; no file is read.
importlib.import_module("headrace.launch").__getattr__ = _launch_attribute  # type: ignore[method-assign]  # set on purpose
