"""``headrace pool export --format lerobot``: the steps of a pool as a LeRobotDataset.

Each step is a frame: what was observed before it, what was executed, and in ``next.*`` what came of it. What was observed after
an episode's last step has no place in that format. Pictures are kept as they are (``image``) or as videos, which are then read
back and compared with the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer import about
from headrace.buffer.about import About
from headrace.buffer.partial import Partial
from headrace.buffer.trails import Taken, Trail, taken, trails
from headrace.buffer.transfer import Progress, Readable
from headrace.common.errors import ConfigError, PoolError, SpecError
from headrace.common.specs import OUTCOME_SUCCESS, OUTCOME_UNKNOWN, SOURCE_HUMAN, ObsSpec
from headrace.launch.demo_lerobot import DONE, OBSERVATION, REWARD, SUCCESS, TRUNCATED, LeRobot
from headrace.launch.demos import ReadOptions
from headrace.launch.lerobot_layout import Feature
from headrace.launch.lerobot_options import LeRobotOptions
from headrace.launch.lerobot_writer import LeRobotWriter

Array = np.ndarray[Any, Any]
INTERVENTION = "complementary_info.is_intervention"
MOST_FPS = 10_000
MAX_ERROR = 16.0  # mean levels of 255 by which a frame of a video may be off
OWN = {
    REWARD: Feature(REWARD, "float32", (1,)),
    DONE: Feature(DONE, "bool", (1,)),
    TRUNCATED: Feature(TRUNCATED, "bool", (1,)),
    INTERVENTION: Feature(INTERVENTION, "bool", (1,)),
}


@dataclass
class Given:
    """What was written.

    Attributes:
        frames: of all episodes.
        episodes: pieces of episodes, each an episode of the data set.
        late: of these, begin in the middle, since earlier rows are gone.
        open: of these, have no end.
        unknown: of these, have no outcome, and stand as no success.
        error: camera -> mean error of its video, and of its worst frame, in levels of 255.
    """

    frames: int = 0
    episodes: int = 0
    late: int = 0
    open: int = 0
    unknown: int = 0
    error: dict[str, tuple[float, float]] | None = None


def export_lerobot(pool: Readable, out: Path, options: LeRobotOptions, progress: Progress | None = None) -> Given:
    """Write ``out``, a directory that does not exist; it appears when everything is written and compared, or never.

    Args:
        pool: a pool or a view of one, whose rows are steps.
        out: the data set.
        options: what rows do not say.
        progress: called with rows done and rows in all, each counted three times where there are videos, else twice.

    Raises:
        ConfigError: nobody says how many steps a second there are, or ``out`` exists.
        SpecError: rows of chunks.
        PoolError: no rows, rows that went meanwhile, or a video that is too far off.
    """
    said = about.read(pool.info()["path"])
    fps = said.fps if options.fps is None else options.fps
    if options.fps is None and not fps:
        raise ConfigError(f"--fps: the pool does not say how many steps a second {out} has; give it")
    if not 0 < fps <= MOST_FPS:
        raise ConfigError(f"--fps: {fps:g}, expected more than 0 and at most {MOST_FPS:,} steps a second")
    if out.exists():
        raise ConfigError(f"{out}: exists already; name a directory that does not")
    found = trails(pool, progress)
    total = pool.head - pool.tail
    if pool.made_of()["plain"] and len(found) == total > 1:
        raise SpecError(
            f"{out}: rows of plain dictionaries do not say of which episode they are, so each would be an episode of one frame,"
            " whose step is left out when it is read; export them as npz, or record episodes (headrace record)"
        )
    plan = _Plan(pool, said, options, found)
    videos = [f for f in plan.features.values() if f.dtype == "video"]
    meter = _Meter(progress, total, (3 if videos else 2) * total)
    partial = Partial(out)
    writer = LeRobotWriter(partial.path, plan.features, fps, plan.texts, options.robot_type, f"v{options.layout}")
    try:
        given = Given(episodes=len(found))
        for trail in found:
            writer.begin(plan.place(trail.task))
            for values in plan.frames(pool, trail):
                writer.add(values)
                given.frames += len(values[REWARD])
                meter.add(len(values[REWARD]))
            given.late += trail.first > 0
            given.open += not trail.ended
            given.unknown += trail.outcome == OUTCOME_UNKNOWN
        writer.close()
        if videos:
            given.error = _compare(partial.path, pool, found, plan, meter)
        partial.publish()
    except BaseException:
        writer.discard()
        partial.discard()
        raise
    return given


class _Plan:
    """How rows become frames."""

    def __init__(self, pool: Readable, said: About, options: LeRobotOptions, found: Sequence[Trail]) -> None:
        assert pool.spec is not None
        spec = pool.spec
        self._said = said
        self.keys = {o.key: _feature(o, options.cameras) for o in spec.obs}
        outcome = {} if all(t.outcome == OUTCOME_UNKNOWN for t in found) else {SUCCESS: Feature(SUCCESS, "bool", (1,))}
        action = Feature("action", "float32", (spec.action.dim,))
        named = {f.name: f for f in self.keys.values()}
        if len(named) < len(self.keys):
            raise ConfigError(f"observations {', '.join(self.keys)} would not have names of their own: {', '.join(named)}")
        self.features = {**named, "action": action, **OWN, **outcome}
        numbers = sorted({trail.task for trail in found})
        self._places = {number: place for place, number in enumerate(numbers)}
        self.texts = [_text(number, said.tasks, options.tasks) for number in numbers]
        if len(set(self.texts)) < len(self.texts):
            raise ConfigError(f"--tasks: {self.texts}; each task needs a text of its own")

    def place(self, task: int) -> int:
        """Number of a task in the data set."""
        return self._places[task]

    def frames(self, pool: Readable, trail: Trail) -> Iterator[dict[str, Array]]:
        """The frames of a trail, feature -> ``(n, *shape)``, a bounded number at a time."""
        last = self._said.lasts.get(trail.actor, {}).get(trail.episode) if trail.ended else None
        pieces = taken(pool, trail)
        done = 0
        for steps in pieces:
            done += len(steps)
            at_end = done == len(trail.ids)
            values = self._values(steps, trail, ends=at_end and last is None)
            if at_end and last is not None:
                values[DONE][-1] = values[TRUNCATED][-1] = False
            yield values
            if at_end and last is not None:
                yield self._last(steps, trail, last)

    def _values(self, steps: Taken, trail: Trail, *, ends: bool) -> dict[str, Array]:
        n = len(steps)
        out = {f.name: steps.obs[key].reshape(n, *f.shape) for key, f in self.keys.items()}
        out["action"], out[REWARD] = steps.action, steps.reward
        out[DONE], out[TRUNCATED] = steps.terminated | steps.truncated, steps.truncated
        out[INTERVENTION] = steps.source == SOURCE_HUMAN
        if SUCCESS in self.features:
            out[SUCCESS] = np.zeros(n, bool)
            out[SUCCESS][-1] = ends and trail.outcome == OUTCOME_SUCCESS
        return out

    def _last(self, steps: Taken, trail: Trail, last: about.Last) -> dict[str, Array]:
        """The step that is no row: seen before it is what came after the one before."""
        yes = np.ones(1, bool)
        out = {f.name: np.asarray(steps.after[key]).reshape(1, *f.shape) for key, f in self.keys.items()}
        out["action"], out[REWARD] = np.array([last.action], np.float32), np.array([last.reward], np.float32)
        out[DONE], out[TRUNCATED], out[INTERVENTION] = yes, yes, ~yes
        if SUCCESS in self.features:
            out[SUCCESS] = yes & (trail.outcome == OUTCOME_SUCCESS)
        return out


def _compare(root: Path, pool: Readable, found: Sequence[Trail], plan: _Plan, meter: _Meter) -> dict[str, tuple[float, float]]:
    """Read the videos back; camera -> mean error and that of the worst frame, in levels.

    Raises:
        PoolError: a frame is off by more than ``MAX_ERROR``; names it.
    """
    cameras = {key: f.name for key, f in plan.keys.items() if f.dtype == "video"}
    sums, worst, count = dict.fromkeys(cameras, 0.0), dict.fromkeys(cameras, 0.0), 0
    written = LeRobot(root, ReadOptions())
    keys = {f.name: key for key, f in written.keys.items()}
    try:
        for number, (trail, episode) in enumerate(zip(found, written.whole_episodes(), strict=True)):
            t = 0
            for values in plan.frames(pool, trail):
                n = len(values[REWARD])
                for key, name in cameras.items():
                    far = np.abs(episode[keys[name]].read(t, t + n).astype(np.int16) - values[name]).reshape(n, -1).mean(axis=1)
                    if far.max() > MAX_ERROR:
                        raise PoolError(
                            f"{name}: frame {t + int(far.argmax())} of episode {number} would be off by {far.max():.1f} levels"
                            f" of 255 on the mean, more than {MAX_ERROR:g}; --cameras image keeps pictures as they are"
                        )
                    sums[key] += float(far.sum())
                    worst[key] = max(worst[key], float(far.max()))
                t += n
                count += n
                meter.add(n)
    finally:
        written.close()
    return {name: (sums[key] / count, worst[key]) for key, name in cameras.items()}


def _feature(o: ObsSpec, cameras: str) -> Feature:
    """The feature of an observation key: ``(h, w, 3)`` bytes are a camera, a plain number is of shape ``(1,)``."""
    if len(o.shape) == 3 and o.dtype == "|u1" and o.shape[2] == 3:
        own = o.key == "image" or o.key.startswith("images.")
        return Feature(f"{OBSERVATION}{'' if own else 'images.'}{o.key}", cameras, o.shape)
    return Feature(OBSERVATION + o.key, np.dtype(o.dtype).name, o.shape or (1,))


def _text(number: int, said: Mapping[int, str], given: Sequence[str]) -> str:
    return said[number] if number in said else given[number] if number < len(given) else f"task {number}"


class _Meter:
    """Counts on from what has been counted."""

    def __init__(self, progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
        self._progress, self._done, self._total = progress, done, total

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)
