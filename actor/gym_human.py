"""What an environment's info says of a human: the convention of SERL and RLinf, in which a wrapper lets people take over.

``info["intervene_action"]`` is the action that was executed in place of the one that was asked for. Where there is an
``info["intervene_flag"]`` too, that says whether somebody did take over. No other key, such as ``is_intervention``, says
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.common.errors import EnvError

Array = np.ndarray[Any, Any]
ACTION, FLAG = "intervene_action", "intervene_flag"


def human_action(info: Mapping[str, Any], dim: int) -> Array | None:
    """``(dim,)`` float32, what a human had executed in this step; none where nobody took over.

    Raises:
        EnvError: what is given is no action of ``dim`` numbers.
    """
    if info.get(ACTION) is None or not _is_up(info.get(FLAG, True)):
        return None
    given = np.asarray(info[ACTION])
    if given.size != dim or given.dtype.kind not in "fiu":
        raise EnvError(f"info {ACTION!r}: {given.dtype} of shape {given.shape}, and the action space has {dim} numbers")
    return given.reshape(dim).astype(np.float32)


def _is_up(flag: Any) -> bool:
    return bool(np.any(flag))
