"""Uploads: batches on their way to a GPU, copied on a stream of their own before they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headrace.common.batch import Batch

Columns = dict[str, Tensor]


class Uploads:
    """Begins copies, and has the stream that computes wait for the one that it needs; the processor waits for none.

    Args:
        load: makes the tensors of a batch on the device, by copies that it does not wait for.
        device: where to.
    """

    def __init__(self, load: Callable[[Batch], Columns], device: torch.device) -> None:
        self._load, self._device = load, torch.get_device_module(device)
        self._stream = self._device.Stream()
        self._begun: dict[int, tuple[Batch, Columns, Any]] = {}

    def begin(self, batch: Batch) -> None:
        """Begin to copy a batch that :meth:`take` will be asked for; harmless when called twice."""
        if id(batch) not in self._begun:
            with self._device.stream(self._stream):
                columns = self._load(batch)
            self._begun[id(batch)] = batch, columns, self._stream.record_event()

    def take(self, batch: Batch) -> Columns:
        """The tensors of a batch, for the stream that computes now."""
        begun = self._begun.pop(id(batch), None)
        if begun is None:
            return self._load(batch)
        _, columns, copied = begun
        stream = self._device.current_stream()
        stream.wait_event(copied)
        for tensor in columns.values():
            if tensor.device.type != "cpu":
                tensor.record_stream(stream)  # or its memory would be given to the next copy while this stream still reads it
        return columns
