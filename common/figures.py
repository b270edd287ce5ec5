"""Figures: which number of a status or a report is which metric, by tables; nothing here counts or keeps anything.

A path leads through nested mappings, ``a.b``. ``*`` stands for every key of a mapping or, in a list of objects, for each by
its ``id``, and ``word_*`` for the keys that begin so; what it stands for is the value of the label. ``#`` is how many there
are, and ``-1`` the last one. What is not there, or no number, gives no sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "headrace_"
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")


@dataclass(frozen=True)
class Figure:
    """One metric.

    Attributes:
        name: of the metric, without :data:`PREFIX`; what only grows ends in ``_total``.
        path: where its numbers are.
        help: what it says.
        label: name of its label; empty where it has none.
    """

    name: str
    path: str
    help: str
    label: str = ""


@dataclass(frozen=True)
class Family:
    """A metric with its samples: (value of the label, number); empty values where there is no label."""

    name: str
    help: str
    label: str
    samples: tuple[tuple[str, float], ...]

    @property
    def counts(self) -> bool:
        """Whether it only grows."""
        return self.name.endswith("_total")


BUFFER = (
    Figure("env_steps_total", "env_steps", "executed env steps that are committed"),
    Figure("updates_total", "updates", "online updates that were granted"),
    Figure("offline_updates_total", "offline_updates", "updates of the offline phase that were granted"),
    Figure("episodes_total", "episodes", "training episodes that have ended, since this buffer was started"),
    Figure("env_steps_per_second", "rates.env_steps_s", "env steps a second"),
    Figure("updates_per_second", "rates.updates_s", "granted updates a second"),
    Figure("update_ratio", "achieved_ratio", "updates for each env step after the minimum fill"),
    Figure("update_ratio_target", "target_ratio", "pacing.ratio"),
    Figure("return_mean", "return_mean", "mean return of the newest training episodes"),
    Figure("evaluation_return_mean", "evaluations.-1.return_mean", "mean return of the newest evaluation"),
    Figure("policy_age_seconds", "policy_age_s", "how long the slowest actor's weights have been behind"),
    Figure("policy_lag_updates", "policy_lag_updates", "by how many updates they are"),
    Figure("weights_bytes", "weights.bytes", "length of the newest weight set"),
    Figure("pool_rows", "pool.rows", "live rows"),
    Figure("pool_capacity_rows", "pool.capacity", "pool.capacity"),
    Figure("set_rows", "sampling.sets.*", "rows of each named set", "set"),
    Figure("rows_accepted_total", "counters.rows_accepted", "rows that were committed"),
    Figure("rows_evicted_total", "counters.rows_evicted", "rows that newer ones have replaced"),
    Figure("rows_duplicate_total", "counters.rows_duplicate", "rows that came again"),
    Figure("rows_lost_total", "counters.lost_before", "rows that gaps say were lost before they came here"),
    Figure("rows_rejected_total", "counters.rejected_*", "rows that may not enter the pool", "reason"),
    Figure("messages_refused_total", "counters.refused_*", "messages that were not accepted", "reason"),
    Figure("connections_turned_away_total", "counters.turned_away_*", "connections that the keys turned away", "reason"),
    Figure("actors", "actors.#", "actors that are connected"),
    Figure("evaluators", "evaluators.#", "evaluators that are connected"),
    Figure("ranks", "ranks.#", "further ranks that are connected"),
    Figure("warnings", "warnings.#", "warnings of headrace status"),
    Figure("memory_bytes", "memory.*", "private memory and its limits", "kind"),
    Figure("actor_env_steps_total", "actors.*.executed", "env steps that the actor's process has executed", "actor"),
    Figure("actor_env_steps_per_second", "actors.*.rate", "env steps a second", "actor"),
    Figure("actor_policy_age_seconds", "actors.*.age_s", "how long its weights have been behind", "actor"),
    Figure("actor_waiting_steps", "actors.*.spooled_steps", "env steps that are not acknowledged", "actor"),
    Figure("actor_dropped_steps_total", "actors.*.dropped_steps", "env steps that were given up for want of room", "actor"),
    Figure("actor_silent_seconds", "actors.*.silent_s", "how long nothing has come of it", "actor"),
)
UPLINK = (
    Figure("uplink_env_steps_total", "executed", "env steps that this process has executed"),
    Figure("uplink_settled_steps_total", "settled", "of them those that are acknowledged or rejected"),
    Figure("uplink_waiting_steps", "report.spooled_steps", "of them those that wait"),
    Figure("uplink_waiting_bytes", "report.spooled_bytes", "what waits"),
    Figure("uplink_dropped_steps_total", "report.dropped_steps", "env steps that were given up for want of room"),
    Figure("uplink_rejected_rows_total", "report.rejected", "rows that the buffer has rejected"),
    Figure("uplink_declined_messages_total", "report.declined", "messages that the buffer has declined"),
    Figure("uplink_in_step_seconds", "report.in_step_s", "how long the step that runs has taken"),
    Figure("uplink_weights_update", "step", "update of the weights that act"),
    Figure("memory_bytes", "memory.*", "memory of the process", "kind"),
)


def families(table: Sequence[Figure], status: Mapping[str, Any]) -> Iterator[Family]:
    """The metrics of a table that ``status`` has a number for, and all that have a label."""
    for figure in table:
        found = ((at, _number(value)) for at, value in _at(figure.path.split("."), status, ""))
        samples = tuple((at, number) for at, number in found if number is not None)
        if samples or figure.label:  # a reason that nobody has met yet is no metric that is missing
            yield Family(PREFIX + figure.name, figure.help, figure.label, samples)


def learner_families(values: Mapping[str, Any]) -> Iterator[Family]:
    """The metrics of what a learner writes into its run's TensorBoard, by their names there.

    What it has from the buffer, ``run/...``, is left out, since the buffer tells it itself.
    """
    for name, found in values.items():
        value = _number(found)
        if value is not None and not name.startswith("run/"):
            yield Family(PREFIX + _NO_NAME.sub("_", name), f"{name} of the run's metrics", "", (("", value),))


def _at(path: list[str], value: Any, label: str) -> Iterator[tuple[str, Any]]:
    if not path:
        yield label, value
        return
    step, *rest = path
    if step == "#":
        yield label, len(value) if isinstance(value, Sequence) else None
    elif step == "-1":
        yield from _at(rest, value[-1], label) if isinstance(value, Sequence) and value else ()
    elif step.endswith("*"):
        for key, inner in _each(value):
            if key.startswith(step[:-1]):
                yield from _at(rest, inner, key[len(step) - 1 :])
    elif isinstance(value, Mapping):
        yield from _at(rest, value.get(step), label)


def _each(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from ((str(inner["id"]), inner) for inner in value if isinstance(inner, Mapping) and "id" in inner)


def _number(value: Any) -> float | None:
    """A finite number; what clients report may be anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = float(value)
    return number if math.isfinite(number) else None
