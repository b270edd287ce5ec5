"""Recorded updates: one CUDA graph in place of some hundred kernels that the processor launches one by one.

A graph launches the same kernels on the same memory each time. So all that an update changes is written in place, what comes in
is copied to where the graph reads it, and what comes out is valid until the next update.

Each kind of update, by its steps and the shape of what it learns from, is tried when it is first met: from one state, some are
launched one by one and some as a graph. It is kept where it gives the same numbers in less time; else a line says why not.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from headrace.common.clock import Clock
from headrace.learner.uploads import Columns

if TYPE_CHECKING:
    from headrace.learner.sac import SAC, Metrics, Plan

LOG = logging.getLogger(__name__)
COMPARED, TIMED, WINDOWS = 3, 20, 3  # updates that are compared; updates of a window; windows of each, in turn
APART = 1e-3  # between numbers of the same update, as a part of those above 1; kernels may add up in any order
MOST_KINDS = 8  # a run has a few; each has memory of its own


@dataclass(frozen=True)
class Made:
    """What an update gives, in tensors that the next one of its kind writes over."""

    metrics: Metrics
    q: Tensor | None
    td_error: Tensor | None


class Recorder(Protocol):
    """What records: a GPU, or what stands in for one."""

    def record(self, make: Callable[[], Made], generator: torch.Generator) -> tuple[Callable[[], object], Made]:
        """What does all again that ``make`` does on the device, with noise that goes on, and what that writes into.

        Raises:
            RuntimeError: it cannot be recorded; the noise of what was recorded before may not be the generator's any more.
        """
        ...

    def wait(self) -> None:
        """Until the device has done all that it was told."""
        ...


class CudaGraphs:
    """Records on the current GPU."""

    def record(self, make: Callable[[], Made], generator: torch.Generator) -> tuple[Callable[[], object], Made]:
        """As the protocol says."""
        stream, beside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types there
        beside.wait_stream(stream)
        with torch.cuda.stream(beside):
            make()  # libraries get at first use what they may not get while a graph is recorded
        stream.wait_stream(beside)
        graph, noise = torch.cuda.CUDAGraph(), generator.clone_state()
        with warnings.catch_warnings(), contextlib.suppress(AttributeError):
            warnings.simplefilter("ignore")  # newer versions of torch find the generator themselves
            graph.register_generator_state(generator)
        try:
            with (
                torch.cuda.stream(stream),  # where recording fails, torch leaves its own stream as the current one
                torch.cuda.graph(graph, capture_error_mode="thread_local"),  # other threads of the learner go on
            ):
                made = make()
        except RuntimeError:
            generator.graphsafe_set_state(noise)  # what was being recorded may draw no more in some versions of torch
            raise
        return graph.replay, made

    def wait(self) -> None:
        """As the protocol says."""
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Record:
    """One kind of update: where it reads, what does it, where it writes."""

    inputs: Sequence[Columns]
    replay: Callable[[], object]
    made: Made


class Recorded:
    """The updates of one learner, recorded where that pays.

    Args:
        sac: whose updates; it is left as it is while a record is tried.
        recorder: of its device.
        clock: tells which way is faster.
    """

    def __init__(self, sac: SAC, recorder: Recorder, clock: Clock) -> None:
        self._sac, self._recorder, self._clock = sac, recorder, clock
        self._kinds: dict[Hashable, Record | None] = {}

    def __call__(self, plan: Plan, columns: Sequence[Columns]) -> Metrics:
        """One update; its metrics are valid until the next."""
        kind = plan, *((name, t.shape, t.dtype) for each in columns for name, t in each.items())
        if kind not in self._kinds and len(self._kinds) < MOST_KINDS:
            self._kinds[kind] = self._try(plan, columns)
        record = self._kinds.get(kind)
        return (self._launch(plan, columns) if record is None else self._replay(record, columns)).metrics

    def _launch(self, plan: Plan, columns: Sequence[Columns]) -> Made:
        """One by one."""
        sac = self._sac
        metrics = sac.make(plan, [sac.prepare.of(each) for each in columns])
        return Made(metrics, sac.q, sac.td_error)

    def _replay(self, record: Record, columns: Sequence[Columns]) -> Made:
        for own, new in zip(record.inputs, columns, strict=True):
            torch._foreach_copy_(list(own.values()), [new[name] for name in own])
        record.replay()
        errors = record.made.td_error
        self._sac.q = record.made.q
        self._sac.td_error = None if errors is None else errors.clone()  # the pool hears of them after the next update
        return record.made

    def _try(self, plan: Plan, columns: Sequence[Columns]) -> Record | None:
        """A record, if it is as good as what it is a record of, and faster."""
        state = self._sac.get_state()
        try:
            record, why = self._judge(plan, columns, state)
        except RuntimeError as error:
            record, why = None, f"{str(error).splitlines()[0][:300]} (and so is from now on what was recorded before)"
            self._kinds = dict.fromkeys(self._kinds)
        finally:
            self._sac.set_state(state)
        if record is None:
            LOG.warning("learner.cuda_graphs: updates of %s are launched one by one: %s", plan, why)
        else:
            LOG.info("updates of %s are recorded: %s", plan, why)
        return record

    def _judge(self, plan: Plan, columns: Sequence[Columns], state: Mapping[str, Any]) -> tuple[Record | None, str]:
        """A record, unless it is worse than launching one by one, and why."""
        sac = self._sac
        inputs = [{name: tensor.clone() for name, tensor in each.items()} for each in columns]
        record = Record(inputs, *self._recorder.record(lambda: self._launch(plan, inputs), sac.generator))
        ways: list[Callable[[], Made]] = [lambda: self._launch(plan, columns), lambda: self._replay(record, columns)]
        found = []
        for way in ways:
            sac.set_state(state)
            numbers = [[float(value) for value in way().metrics.values()] for _ in range(COMPARED)]
            found.append((np.array(numbers), sac.generator.get_state()))
        (plain, noise), (graph, graph_noise) = found
        if not np.allclose(graph, plain, APART, APART, equal_nan=True) or not torch.equal(noise, graph_noise):
            return None, "a graph gives other numbers"
        launched, replayed = self._rates(*ways)
        return (record if replayed > launched else None), f"{replayed:.0f}/s as a graph, {launched:.0f}/s one by one"

    def _rates(self, *ways: Callable[[], object]) -> list[float]:
        """Updates a second of each way."""
        seconds = [0.0 for _ in ways]
        for _ in range(WINDOWS):
            for i, way in enumerate(ways):
                self._recorder.wait()
                begun = self._clock.now()
                for _ in range(TIMED):
                    way()
                self._recorder.wait()
                seconds[i] += self._clock.now() - begun
        return [WINDOWS * TIMED / max(each, 1e-9) for each in seconds]
