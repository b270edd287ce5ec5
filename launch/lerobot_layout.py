"""What a LeRobotDataset says of itself: features, tasks and where each episode lies, in its layouts 2.1 and 3.0.

Layout 2.1 keeps one Parquet file an episode, and one video an episode and camera; layout 3.0 keeps many episodes in each file.
Files are looked for where the layout puts them by default; what info.json says of other places is refused, not followed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.common.errors import PoolDamaged, SpecError

INFO = "meta/info.json"
V2, V3 = "v2.1", "v3.0"
PATHS = {  # layout -> data_path and video_path of its info.json
    V2: (
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    ),
    V3: (
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    ),
}
EPISODES, TASKS = "meta/episodes", "meta/tasks.parquet"  # of layout 3.0
OLD_EPISODES, OLD_TASKS = "meta/episodes.jsonl", "meta/tasks.jsonl"  # of layout 2.1
EPISODES_STATS = "meta/episodes_stats.jsonl"  # likewise; not read
CAMERAS = ("image", "video")
CHANNELS = ("channel", "channels")
MAX_BYTES = 256 << 20  # of a JSON file
MAX_EPISODES = 1 << 20
MAX_SIDE = 1 << 14
_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}$")  # also a folder of videos, so it must lead nowhere else


@dataclass(frozen=True)
class Feature:
    """One column: its dtype (``image`` and ``video`` for cameras) and the shape of a frame, ``(h, w, bands)`` for cameras."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where an episode lies.

    Attributes:
        index: its number.
        length: its frames.
        data: its Parquet file.
        row: its first row in that file.
        videos: camera -> video, and the seconds at which the episode begins there.
    """

    index: int
    length: int
    data: Path
    row: int
    videos: Mapping[str, tuple[Path, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """All that ``meta`` says.

    Attributes:
        version: ``V2`` or ``V3``.
        fps: frames a second.
        features: by name.
        tasks: number -> text.
        episodes: in the order of their numbers.
    """

    version: str
    fps: float
    features: Mapping[str, Feature]
    tasks: Mapping[int, str]
    episodes: tuple[Place, ...]


def is_dataset(source: Path) -> bool:
    """Whether there is a LeRobotDataset at ``source``."""
    return (source / INFO).is_file()


def read_layout(root: Path) -> Layout:
    """What the data set at ``root`` says of itself.

    Raises:
        PoolDamaged: naming the file and the field that is missing or not of this format.
        SpecError: another layout.
    """
    where = root / INFO
    info = _json(where)
    version = info.get("codebase_version")
    if version not in PATHS:
        raise SpecError(f"{where}: codebase_version {version!r}; read are {', '.join(PATHS)}; lerobot converts older ones")
    try:
        fps, features = float(info["fps"]), {name: _feature(name, told) for name, told in info["features"].items()}
        size = int(info["chunks_size"])
        paths = info["data_path"], info.get("video_path") or PATHS[version][1]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PoolDamaged(f"{where}: {type(error).__name__} {str(error)[:200]}") from error
    if not 0 < fps <= 1e5 or size < 1:
        raise PoolDamaged(f"{where}: fps {fps} and chunks_size {size}, expected positive numbers")
    if paths != PATHS[version]:
        raise PoolDamaged(f"{where}: data_path and video_path are {paths}, expected {PATHS[version]}")
    videos = [name for name, f in features.items() if f.dtype == "video"]
    try:
        if version == V3:
            tasks, places = _new_tasks(root), _new_places(root, videos)
        else:
            tasks, places = _old_tasks(root), list(_old_places(root, videos, size))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PoolDamaged(f"{root}: meta: {type(error).__name__} {str(error)[:200]}") from error
    if not places:
        raise PoolDamaged(f"{root}: no episodes")
    return Layout(version, fps, features, tasks, tuple(sorted(places, key=lambda place: place.index)))


def _feature(name: str, told: Mapping[str, Any]) -> Feature:
    if not _NAME.match(name):
        raise ValueError(f"features: {name!r} is no name of a feature")
    dtype, shape = str(told["dtype"]), tuple(int(n) for n in told["shape"])
    if any(not 1 <= n <= 1 << 24 for n in shape):
        raise ValueError(f"features.{name}.shape: {shape}")
    if dtype not in CAMERAS:
        return Feature(name, dtype, shape)
    if len(shape) == 3 and (told.get("names") or [""])[0] in CHANNELS:
        shape = (*shape[1:], shape[0])
    if len(shape) != 3 or max(shape[:2]) > MAX_SIDE or shape[2] > 4:
        raise ValueError(f"features.{name}.shape: {shape}, expected (height, width, channels)")
    return Feature(name, dtype, shape)


def _new_tasks(root: Path) -> dict[int, str]:
    from headrace.launch.parquet import Parquet

    file = Parquet(root / TASKS)
    try:
        numbers = file.arrow("task_index", 0, file.rows).to_pylist()
        # The texts are the index of a data frame, which is written under a name of its own, or as a column.
        texts = file.texts(next((name for name in ("task", "__index_level_0__") if file.has(name)), "task"))
        return {int(number): text for number, text in zip(numbers, texts, strict=True)}
    finally:
        file.close()


def _new_places(root: Path, videos: list[str]) -> list[Place]:
    from headrace.launch.parquet import Parquet

    rows: list[dict[str, Any]] = []
    names = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    names += [f"videos/{key}/{name}" for key in videos for name in ("chunk_index", "file_index", "from_timestamp")]
    for path in sorted((root / EPISODES).glob("chunk-*/file-*.parquet")):
        file = Parquet(path)
        try:
            if len(rows) + file.rows > MAX_EPISODES:
                raise ValueError(f"more than {MAX_EPISODES} episodes")
            columns = [file.arrow(name, 0, file.rows).to_pylist() for name in names]
        finally:
            file.close()
        rows += [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    rows.sort(key=lambda row: int(row["episode_index"]))
    data, video = PATHS[V3]
    taken: dict[Path, int] = {}  # rows of each file that earlier episodes have
    places = []
    for row in rows:
        path = root / data.format(chunk_index=int(row["data/chunk_index"]), file_index=int(row["data/file_index"]))
        length = _length(int(row["length"]))
        pieces = {}
        for key in videos:
            numbers = {name: int(row[f"videos/{key}/{name}"]) for name in ("chunk_index", "file_index")}
            pieces[key] = root / video.format(video_key=key, **numbers), _seconds(float(row[f"videos/{key}/from_timestamp"]))
        places.append(Place(int(row["episode_index"]), length, path, taken.get(path, 0), pieces))
        taken[path] = taken.get(path, 0) + length
    return places


def _old_tasks(root: Path) -> dict[int, str]:
    return {int(line["task_index"]): str(line["task"]) for line in _lines(root / OLD_TASKS)}


def _old_places(root: Path, videos: list[str], size: int) -> Iterator[Place]:
    data, video = PATHS[V2]
    for line in _lines(root / OLD_EPISODES):
        index = int(line["episode_index"])
        named = {"episode_chunk": index // size, "episode_index": index}
        pieces = {key: (root / video.format(video_key=key, **named), 0.0) for key in videos}
        yield Place(index, _length(int(line["length"])), root / data.format(**named), 0, pieces)


def _length(frames: int) -> int:
    if not 1 <= frames <= 1 << 31:
        raise ValueError(f"an episode of {frames} frames")
    return frames


def _seconds(value: float) -> float:
    if not (math.isfinite(value) and 0 <= value <= 1e9):
        raise ValueError(f"from_timestamp {value}")
    return value


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise PoolDamaged(f"{path}: {type(error).__name__} {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise PoolDamaged(f"{path}: a {type(found).__name__}, expected an object")
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        found = [json.loads(line) for line in _bytes(path).splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise PoolDamaged(f"{path}: {type(error).__name__} {str(error)[:200]}") from error
    if len(found) > MAX_EPISODES or not all(isinstance(line, dict) for line in found):
        raise PoolDamaged(f"{path}: {len(found)} lines, expected at most {MAX_EPISODES} JSON objects")
    return found


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise PoolDamaged(f"{path}: {size} bytes, at most {MAX_BYTES} are read")
        return path.read_bytes()
    except OSError as error:
        raise PoolDamaged(f"{path}: {error.strerror or error}") from error
