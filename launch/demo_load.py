"""Demonstrations become rows of a pool: looked through first, then assembled by the code that actors use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.rewarding import find_reward
from headrace.buffer import about
from headrace.buffer.about import About, Last
from headrace.buffer.manifest import NAME as MANIFEST
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.shards import file_digest
from headrace.buffer.snapshot import is_snapshot
from headrace.buffer.transfer import Begin, Progress, free_name, gone
from headrace.buffer.underway import Underway
from headrace.common.block import Block
from headrace.common.errors import PoolError
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, SOURCE_DEMO, TransitionSpec
from headrace.common.weights import NO_VERSION
from headrace.launch.demos import Demonstrations, ReadOptions, Steps
from headrace.launch.lerobot_layout import is_dataset

STREAM = 1
BLOCK_ROWS = 512
_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass
class Found:
    """What a file holds, counted while it is looked through.

    Attributes:
        steps: that become part of rows.
        rows: of the pool; where these are chunks, fewer than steps.
        episodes: episodes as they will be stored.
        successes: of these.
        failures: of these.
        dropped: last steps of episodes whose next observation nobody knows.
        stand_ins: terminated steps that keep their own observation as the next one.
        gaps: places where an episode was cut because the next observation is not the one that follows.
        outside: steps with an action outside the bounds.
        lasts: episode as it will be stored -> its last step, where that was left out.
    """

    steps: int = 0
    rows: int = 0
    episodes: int = 0
    successes: int = 0
    failures: int = 0
    dropped: int = 0
    stand_ins: int = 0
    gaps: int = 0
    outside: int = 0
    lasts: dict[int, Last] = field(default_factory=dict)


def is_export(source: Path) -> bool:
    """Whether ``source`` is a directory of shards."""
    return (source / MANIFEST).is_file()


def digests_of(source: Path) -> dict[str, str]:
    """SHA-256 of each file of ``source``; of an export that of its manifest, which has those of its files."""
    files = [source / MANIFEST] if is_export(source) else sorted(source.rglob("*")) if source.is_dir() else [source]
    return {str(file.relative_to(source)): file_digest(file.resolve()) for file in files if file.is_file()}


def spec_of(pool: SACReplayPool) -> TransitionSpec:
    """Spec of a pool that demonstrations are for.

    Raises:
        PoolError: nothing has fixed it.
    """
    if pool.spec is None:
        raise PoolError("demonstrations become rows of a spec; the pool has none yet, give it one")
    return pool.spec


def name_of(source: Path) -> str:
    """Name of the actor whose rows the demonstrations at ``source`` become, where nobody says another."""
    return source.name if source.is_dir() else source.stem


def open_demonstrations(source: Path, options: ReadOptions) -> Demonstrations:
    """The file or data set at ``source``, whose format is seen from what is in it, with the rewards that are asked for.

    Raises:
        PoolError: it is none of the formats that are read.
        PoolDamaged: it is one, but not a whole one.
        ConfigError: what reads it is not installed, and names the extra; or the function of rewards cannot be imported.
    """
    reward = find_reward(options.reward, "the function of rewards")
    demos = _open(source, options)
    demos.reward = reward
    return demos


def _open(source: Path, options: ReadOptions) -> Demonstrations:
    if is_snapshot(source) or (source / "config.yaml").is_file():
        raise PoolError(f"{source}: rows of a run, or of snapshots, are exported first (headrace pool export {source} SHARDS)")
    if is_dataset(source):
        from headrace.launch.demo_lerobot import LeRobot

        return LeRobot(source, options)
    from headrace.launch.demo_d4rl import D4rl
    from headrace.launch.demo_minari import Minari, data_directory
    from headrace.launch.demo_robomimic import Robomimic
    from headrace.launch.hdf5 import Hdf5

    directory = data_directory(source)
    if directory is not None:
        return Minari(directory, options)
    if source.is_file():
        with source.open("rb") as file:
            is_hdf5 = file.read(len(_HDF5)) == _HDF5
        if is_hdf5:
            found = Hdf5(source)
            members = found.members("")
            found.close()
            if "data" in members:
                return Robomimic(source, options)
            if "actions" in members or "observations" in members:
                return D4rl(source, options)
            if any(name.startswith("episode_") for name in members):
                raise PoolError(f"{source}: a part of a Minari data set; name the directory that also has its metadata.json")
            raise PoolError(f"{source}: HDF5 of an unknown layout: {', '.join(members[:16]) or 'nothing'} at its root; {KNOWN}")
    raise PoolError(f"{source}: {'' if source.exists() else 'does not exist, or '}is none of what is read: {KNOWN}")


KNOWN = (
    "an export of headrace (a directory with manifest.json), robomimic's HDF5 (data/demo_0/...), D4RL's HDF5 (observations, "
    "actions, rewards, terminals, timeouts), a Minari data set (a directory with metadata.json and main_data.hdf5), a "
    "LeRobotDataset (a directory with meta/info.json)"
)


def look_through(demos: Demonstrations, spec: TransitionSpec, progress: Progress | None = None) -> Found:
    """Read every value once, so that nothing of a file that will be refused has entered by then.

    Raises:
        PoolDamaged: naming the dataset.
        PoolError: no rows.
    """
    found, chunk = Found(), spec.window if spec.kind == "chunk" else 1
    low, high = np.asarray(spec.action.low, "<f4"), np.asarray(spec.action.high, "<f4")
    for episode in demos.episodes():
        last: dict[str, np.ndarray] | None = None
        start = found.episodes
        found.dropped += episode.dropped
        found.stand_ins += episode.stand_ins
        ended, t = True, 0
        for steps in demos.pieces(episode):
            gaps = gaps_of(steps, last)
            ends = steps.terminated | steps.truncated
            found.steps += len(steps)
            found.outside += int(((steps.action < low) | (steps.action > high)).any(axis=1).sum())
            begins = np.concatenate([[ended], ends[:-1]])
            found.gaps += int((gaps & ~begins).sum())
            found.episodes += int((gaps | begins).sum())
            places = np.arange(t, t + len(steps))  # in the episode, once where it begins is taken off
            places -= np.maximum.accumulate(np.where(gaps | begins, places, 0))
            found.rows += int((places % chunk == 0).sum())
            t = int(places[-1]) + 1
            last, ended = {key: values[-1:] for key, values in steps.next_obs.items()}, bool(ends[-1])
            if progress is not None:
                progress(found.steps, 2 * demos.steps)
        left_out = episode.last()
        if left_out is not None and found.episodes > start:
            found.lasts[found.episodes - 1] = left_out
        found.successes += (found.episodes - start) * (episode.outcome == OUTCOME_SUCCESS)
        found.failures += (found.episodes - start) * (episode.outcome == OUTCOME_FAILURE)
    if not found.rows:
        raise PoolError(f"{demos.path}: no complete step in it")
    return found


def gaps_of(steps: Steps, last: dict[str, np.ndarray] | None) -> np.ndarray:
    """``(n,)`` bool: steps whose observation is not the one that came after the step before."""
    gaps = np.zeros(len(steps), bool)
    for key, obs in steps.obs.items():
        differs = obs[1:] != steps.next_obs[key][:-1]
        gaps[1:] |= differs.any(axis=tuple(range(1, differs.ndim)))
        if last is not None:
            gaps[0] |= bool((obs[:1] != last[key]).any())
    return gaps


class DemoWriter:
    """Assembles steps and inserts the rows as actor ``name``.

    Args:
        pool: with a spec; where its rows are chunks, each begins where the last one is full.
        name: an actor that the pool does not know.
        tasks: number of a task in the file -> in the pool, where they differ.
    """

    def __init__(self, pool: SACReplayPool, name: str, tasks: Mapping[int, int]) -> None:
        spec = spec_of(pool)
        self._pool, self.name, self._tasks = pool, name, tasks
        self._chunk = spec.window if spec.kind == "chunk" else 0
        self._assembler = Assembler(spec)
        self._seq = 1
        self._episode = -1
        self._running = False
        self._t = 0  # steps of the running episode
        self._outcomes: dict[int, int] = {}
        self._last: dict[str, np.ndarray] | None = None

    def move(self, pool: SACReplayPool) -> None:
        """Go on in ``pool``, which holds what was inserted."""
        self._pool = pool

    def add(self, steps: Steps) -> None:
        """Append the steps of one episode that follow those of the last call, or begin a new one."""
        if steps.first:
            self._last = None
        gaps = gaps_of(steps, self._last)
        self._last = {key: values[-1:] for key, values in steps.next_obs.items()}
        for i in range(len(steps)):
            if gaps[i]:
                self._assembler.abort()
                self._running = False
            if not self._running:
                self._episode += 1
                self._outcomes[self._episode] = steps.outcome
                first = {key: values[i] for key, values in steps.obs.items()}
                self._assembler.begin(self._episode, first, self._tasks.get(steps.task, steps.task))
                self._t = 0
            ended = bool(steps.terminated[i]), bool(steps.truncated[i])
            after = {key: values[i] for key, values in steps.next_obs.items()}
            self._assembler.step(
                steps.action[i],
                float(steps.reward[i]),
                *ended,
                after,
                version=NO_VERSION,
                decided=self._decided(steps, i),
                source=SOURCE_DEMO,
            )
            self._t += 1
            self._running = not any(ended)
            if self._assembler.ready >= BLOCK_ROWS:
                self.flush()

    def _decided(self, steps: Steps, i: int) -> np.ndarray | None:
        """The actions from step ``i`` on where a chunk begins; behind the last one that is known, that one again."""
        if not self._chunk or self._t % self._chunk:
            return None
        return steps.action[np.minimum(np.arange(i, i + self._chunk), len(steps) - 1)]

    def flush(self) -> None:
        """Insert every row that is ready."""
        while (block := self._assembler.take(BLOCK_ROWS)) is not None:
            self._insert(block)

    def _insert(self, block: Block) -> None:
        # The whole episode's outcome is known from the start here, so rows that leave before its end have it, too.
        episodes = block.rows["episode"].tolist()
        block.rows["outcome"] = [self._outcomes[episode] for episode in episodes]
        for done in [episode for episode in self._outcomes if episode < episodes[-1]]:
            del self._outcomes[done]
        self._pool.insert(block, self.name, STREAM, self._seq)
        self._seq += block.n_rows


@dataclass(frozen=True)
class Loaded:
    """What became of a file's rows.

    Attributes:
        actor: whose they are in the pool.
        before: those that an import of the same, which was cut, had brought in.
        evicted: rows that made room.
        underway: to be ended once somebody was told, as in :func:`import_pool`.
    """

    actor: str
    before: int
    evicted: int
    underway: Underway


def load_demonstrations(
    demos: Demonstrations,
    pool: SACReplayPool,
    name: str,
    found: Found,
    *,
    progress: Progress | None = None,
    begin: Begin | None = None,
    digest: str = "",
) -> Loaded:
    """Append the rows of a file that was looked through to ``pool``.

    Args:
        demos: the file.
        pool: with the spec that :func:`headrace.launch.demos.spec_for` gives.
        name: actor of the rows; where the pool knows it, ``<name>@<k>`` takes its place.
        found: by :func:`look_through`, for the pool's spec.
        progress: called with steps done and steps in all, each counted twice.
        begin: called with the rows that will enter, before the first one does; what it raises leaves the pool as it was.
        digest: of the file and of how it is read, by which the next import finishes what a kill has cut; empty: it does not.
    """
    place = pool.info()["path"]
    underway = Underway(place if digest else "", digest, str(demos.path))
    actor = (underway.names or {}).get(name) or free_name(name, set(pool.actors()))
    pool.admit(actor)
    known, before, said = pool.last_seq(actor, STREAM), pool.counters(), about.read(place)
    tasks = said.numbered(demos.tasks)
    told = About(demos.fps, {tasks[number]: text for number, text in demos.tasks.items()}, {actor: found.lasts})
    said = said.joined(told, str(demos.path))
    if begin is not None:
        begin(found.rows - known)
    underway.begin({name: actor})
    about.write(place, said)
    writer, done = DemoWriter(pool, actor, tasks), 0
    for episode in demos.episodes():
        for steps in demos.pieces(episode):
            writer.add(steps)
            done += len(steps)
            if progress is not None:
                progress(demos.steps + done, 2 * demos.steps)
    writer.flush()
    return Loaded(actor, known, gone(pool, before), underway)
