"""Digests of states: one SHA-256 over nested plain values, arrays and tensors, so that two runs compare to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headrace.common.errors import HeadraceError


def state_digest(state: Any) -> str:
    """SHA-256 in hex over names, types, shapes and bytes; the order of a mapping's keys does not matter.

    Args:
        state: what a ``get_state`` gives: mappings, sequences, numbers, text, bytes, None, numpy arrays, torch tensors.

    Raises:
        HeadraceError: a value of another type.
    """
    digest = hashlib.sha256()
    _feed(digest, state)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        _mark(digest, f"tensor {value.dtype} {tuple(value.shape)}")
        value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value)
        _mark(digest, f"array {array.dtype} {np.shape(value)}")
        digest.update(array.reshape(-1).view(np.uint8).data)
    elif isinstance(value, Mapping):
        _mark(digest, f"mapping {len(value)}")
        for key in sorted(value, key=str):
            _mark(digest, str(key))
            _feed(digest, value[key])
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _mark(digest, f"bytes {len(value)}")
        digest.update(value)
    elif value is None or isinstance(value, (bool, int, float, str)):
        _mark(digest, f"{type(value).__name__} {value!r}")
    elif isinstance(value, Sequence):
        _mark(digest, f"sequence {len(value)}")
        for item in value:
            _feed(digest, item)
    else:
        raise HeadraceError(f"a {type(value).__name__} has no digest; states hold plain values, arrays and tensors")


def _mark(digest: Any, text: str) -> None:
    data = text.encode()
    digest.update(len(data).to_bytes(8, "little") + data)  # with its length, so that no two sequences of marks run together
