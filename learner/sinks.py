"""Where metrics go: metrics.jsonl always, TensorBoard and Weights & Biases when asked for. No torch here."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from headrace.common.config import option
from headrace.common.errors import ConfigError, describe_os_error
from headrace.learner.lines import Lines

LOG = logging.getLogger(__name__)
STEP = "learner/updates"


@dataclass(frozen=True)
class SinkConfig:
    """Metrics beside the file that is always written."""

    period_s: float = option(2.0, help="time between two lines of metrics", unit="s", low=0.01, high=3600, resume=True)
    tensorboard: bool = option(True, help="write TensorBoard events", resume=True)
    wandb: bool = option(False, help="send metrics to Weights & Biases (needs the extra wandb)", resume=True)
    wandb_project: str = option("headrace", help="project there", resume=True)


class Sink(Protocol):
    """Takes flat numbers of one moment."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record ``numbers`` at update ``step``."""
        ...

    def close(self) -> None:
        """Flush and let go."""
        ...


class MetricSinks:
    """All sinks of one learner.

    Attributes:
        newest: the values of the last moment.
        not_logged: why the last moment is not recorded everywhere; empty when it is.

    Args:
        run_dir: gets ``metrics.jsonl`` and ``tensorboard/``; created if missing.
        config: which sinks.
        wall: seconds since 1970.

    Raises:
        ConfigError: a sink that was asked for is not installed.
    """

    def __init__(self, run_dir: Path, config: SinkConfig, wall: Callable[[], float] = time.time) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self._wall = wall
        self._sinks: list[Sink] = []
        if config.tensorboard:
            self._sinks.append(TensorBoard(run_dir / "tensorboard", wall))
        if config.wandb:
            self._sinks.append(WandB(run_dir, config.wandb_project))
        self._lines = Lines(run_dir / "metrics.jsonl")
        self.newest: Mapping[str, Any] = {}
        self.not_logged = ""

    def write(self, values: Mapping[str, Any]) -> None:
        """Record one moment; one that a disk does not take is left out and named in :attr:`not_logged`.

        Args:
            values: name -> number, text, None, or a mapping of those; ``learner/updates`` is the step. Numbers that are
                not finite become null in the file and are left out elsewhere.
        """
        self.newest = values
        record = {"time_s": round(self._wall(), 3), **values}
        try:
            self._lines.add(json.dumps(_plain(record), allow_nan=False))
            numbers = dict(_numbers(values))
            for sink in self._sinks:  # not before there is room again: each that was lost begins a new file
                sink.write(int(values.get(STEP, 0)), numbers)
        except OSError as error:
            if not self.not_logged:
                LOG.warning("metrics are not recorded: %s", error)
            self.not_logged = describe_os_error(error)
        else:
            self.not_logged = ""

    def close(self) -> None:
        """Flush and close all sinks."""
        self._lines.close()
        for sink in self._sinks:
            with contextlib.suppress(OSError):
                sink.close()

    def __enter__(self) -> MetricSinks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class TensorBoard:
    """Event files by TensorBoard's own writer, which needs neither torch nor tensorflow."""

    def __init__(self, directory: Path, wall: Callable[[], float]) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ConfigError(
                f"sinks.tensorboard: true, but tensorboard cannot be imported ({error}); install it or set false"
            ) from error
        self._event, self._summary, self._wall = Event, Summary, wall
        self._make = partial(EventFileWriter, str(directory))
        self._writer: Any = None  # made with the first event, so that a full disk keeps no learner from beginning

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """One event with a scalar for each number; raises :class:`OSError` when the disk does not take it."""
        values = [self._summary.Value(tag=name, simple_value=number) for name, number in numbers.items()]
        try:
            self._writer = self._writer or self._make()
            self._writer.add_event(self._event(wall_time=self._wall(), step=step, summary=self._summary(value=values)))
            self._writer.flush()
        except OSError:  # its thread has ended with that, so it takes no more
            with contextlib.suppress(OSError):
                self.close()
            raise

    def close(self) -> None:
        """Write what is queued."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class WandB:
    """One Weights & Biases run, named like the run directory and continued with it."""

    def __init__(self, run_dir: Path, project: str) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                f"sinks.wandb: true, but wandb cannot be imported ({error}); pip install 'headrace[wandb]' or set false"
            ) from error
        self._run = wandb.init(project=project, id=run_dir.name, dir=str(run_dir), resume="allow")

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """One history row."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    number = float(value)  # numpy and torch scalars too
    return number if math.isfinite(number) else None


def _numbers(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    out: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            out += _numbers(value, f"{prefix}{name}/")
        elif value is not None and not isinstance(value, (str, list, tuple)) and math.isfinite(float(value)):
            out.append((prefix + name, float(value)))
    return out
