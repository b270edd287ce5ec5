"""What rows do not say of themselves: their rate, their tasks in words, and steps that nothing is known to follow.

It lies beside a pool's rows as ``about.json``, and in the manifest of an export. A pool without it is whole: nothing of it is
needed for learning, all of it for giving the rows to others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.buffer import manifest
from headrace.common.errors import PoolDamaged, SpecError

NAME = "about.json"
MAX_TASK = (1 << 32) - 1


@dataclass(frozen=True)
class Last:
    """The last step of an episode that was left out of its rows, since nothing says what came after it.

    What was observed before it is what came after the episode's last row.
    """

    action: tuple[float, ...]
    reward: float


Lasts = Mapping[str, Mapping[int, Last]]


@dataclass(frozen=True)
class About:
    """What is said of the rows of one pool.

    Attributes:
        fps: env steps a second; 0 where nobody has said.
        tasks: number of a task -> what it is, in words.
        lasts: actor -> episode -> its last step, where that is no row.
    """

    fps: float = 0.0
    tasks: Mapping[int, str] = field(default_factory=dict)
    lasts: Lasts = field(default_factory=dict)

    def numbered(self, tasks: Mapping[int, str]) -> dict[int, int]:
        """Number of each of these tasks -> here: that of the same words, else its own, else the next free one."""
        known = {text: number for number, text in self.tasks.items()}
        taken, out = dict(self.tasks), dict[int, int]()
        for number, text in sorted(tasks.items()):
            if text not in known:
                known[text] = number if number not in taken else max(taken) + 1
                taken[known[text]] = text
            out[number] = known[text]
        return out

    def joined(self, other: About, source: str) -> About:
        """Both, for rows of ``source`` that enter here.

        Raises:
            SpecError: they contradict each other; names both.
        """
        if self.fps and other.fps and self.fps != other.fps:
            raise SpecError(
                f"{source}: {other.fps:g} steps a second, the pool's rows are of {self.fps:g}: rewards are discounted by steps;"
                " import it into a pool of its own"
            )
        for number, text in other.tasks.items():
            if self.tasks.get(number, text) != text:
                raise SpecError(f"{source}: task {number} is {text!r}, in the pool it is {self.tasks[number]!r}")
        actors = sorted({*self.lasts, *other.lasts})
        lasts = {actor: {**self.lasts.get(actor, {}), **other.lasts.get(actor, {})} for actor in actors}
        found = {actor: steps for actor, steps in lasts.items() if steps}
        return About(self.fps or other.fps, {**self.tasks, **other.tasks}, found)

    def renamed(self, names: Mapping[str, str]) -> About:
        """The same, of actors that have other names here."""
        return About(self.fps, self.tasks, {names.get(actor, actor): lasts for actor, lasts in self.lasts.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        lasts = {
            actor: {str(episode): [*last.action, last.reward] for episode, last in found.items()}
            for actor, found in self.lasts.items()
        }
        return {"fps": self.fps, "tasks": {str(number): text for number, text in self.tasks.items()}, "lasts": lasts}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any], where: str) -> About:
        """From :meth:`to_dict`; raises :class:`PoolDamaged` for anything that is not one."""
        try:
            fps = float(body["fps"])
            tasks = {int(number): str(text) for number, text in body["tasks"].items()}
            lasts = {
                str(actor): {int(episode): _last(values) for episode, values in found.items()}
                for actor, found in body["lasts"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PoolDamaged(f"{where}: {type(error).__name__} {str(error)[:200]}") from error
        if not (math.isfinite(fps) and fps >= 0) or any(not 0 <= number <= MAX_TASK for number in tasks):
            raise PoolDamaged(f"{where}: fps {fps} and tasks {sorted(tasks)[:8]}")
        return cls(fps, tasks, lasts)


def read(directory: str | Path | None) -> About:
    """What is said of the rows of the pool in ``directory``; nothing of one in memory, or where there is no such file.

    Raises:
        PoolDamaged: the file is not what was written.
    """
    body = manifest.read(Path(directory), NAME) if directory else None
    return About() if body is None else About.from_dict(body, str(Path(directory or "") / NAME))


def write(directory: str | Path | None, about: About) -> None:
    """Say it of the rows of the pool in ``directory``; a pool in memory does not keep it."""
    if directory and about != About():
        manifest.write(Path(directory), about.to_dict(), NAME)


def _last(values: list[float]) -> Last:
    *action, reward = map(float, values)
    if not all(map(math.isfinite, (*action, reward))):
        raise ValueError(f"a last step of {values[:8]}")
    return Last(tuple(action), reward)
