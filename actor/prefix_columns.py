"""Frozen prefixes as columns: what a policy's prefix makes of each frame that rows refer to, computed once, here, and stored.

The learner then takes it in place of running the prefix on every row of every batch. Tokens are stored as float16, as
the whole numbers that these are in memory: nobody takes statistics of them. Only with torch.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.block import Block
from headrace.common.errors import CheckpointError, ConfigError, SpecError
from headrace.common.exported import inputs_of, read_export
from headrace.common.prefix_columns import names_of
from headrace.common.specs import ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)
KEY = "window.prefix"


class PrefixColumns:
    """Adds the prefix to blocks.

    Attributes:
        spec: that of rows with it. Only critics see the new keys: whoever acts looks for himself.

    Args:
        directory: of an exported policy with a prefix (``headrace export``).
        spec: of rows without it.
        device: of torch.

    Raises:
        ConfigError: the directory holds no such policy.
        SpecError: the policy sees what is not there.
    """

    def __init__(self, directory: str, spec: TransitionSpec, device: str = "cpu") -> None:
        from headrace.actor.torch_policy import TorchPolicy  # a robot without torch has no such columns

        try:
            weights, own = read_export(Path(directory).expanduser())
        except CheckpointError as error:
            raise ConfigError(f"{KEY}: {error}") from error
        here = {o.key: o for o in spec.obs}
        if missing := [key for key in inputs_of(own) if key not in here]:
            raise SpecError(f"{KEY}: the policy of {directory} sees {', '.join(missing)}; here are {', '.join(here)}")
        self._policy, self._keys = TorchPolicy(weights, own, device), inputs_of(own)
        self._names = names_of(weights.digest())
        tokens, absent = self._see({key: np.zeros((1, *here[key].shape), here[key].dtype) for key in self._keys})
        columns = [
            ObsSpec(name, a.shape[1:], a.dtype.str, "critic") for name, a in zip(self._names, (tokens, absent), strict=True)
        ]
        self.spec = replace(spec, obs=tuple(sorted((*spec.obs, *columns), key=lambda o: o.key)))
        LOG.info("rows hold the prefix of %s: %d bytes a frame", directory, sum(column.nbytes for column in columns))

    def add(self, block: Block) -> Block:
        """The block with the prefix of each of its frames."""
        found = self._see({key: block.frames[key] for key in self._keys})
        frames = {**block.frames, **dict(zip(self._names, found, strict=True))}
        return replace(block, frames={o.key: frames[o.key] for o in self.spec.obs})

    def _see(self, obs: dict[str, Array]) -> tuple[Array, Array]:
        try:
            return self._policy.prefix(obs)
        except SpecError as error:
            raise ConfigError(f"{KEY}: {error}; name an export of a flow policy") from error
