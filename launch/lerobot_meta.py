"""What a LeRobotDataset is told of itself in ``meta``, in its layouts 2.1 and 3.0: the other side of ``lerobot_layout.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.launch.lerobot_layout import (
    CAMERAS,
    EPISODES,
    EPISODES_STATS,
    INFO,
    OLD_EPISODES,
    OLD_TASKS,
    PATHS,
    TASKS,
    V2,
    Feature,
)
from headrace.launch.video_writer import PIXELS

CHUNKS_SIZE = 1000
DATA_MB, VIDEO_MB = 100, 200  # after so much a new file of layout 3.0 begins, with the next episode
Figures = dict[str, Any]


@dataclass
class Episode:
    """One episode that was written.

    Attributes:
        task: its number.
        start: its first frame, of all frames.
        data: number of its data file.
        length: its frames.
        videos: camera -> number of its file, and the seconds at which it begins there.
        stats: feature -> figures of its own frames, in layout 2.1.
    """

    task: int
    start: int
    data: int
    length: int = 0
    videos: dict[str, tuple[int, float]] = field(default_factory=dict)
    stats: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """All that ``meta`` tells.

    Attributes:
        layout: ``V2`` or ``V3``.
        features: by name, those that every data set has among them.
        fps: frames a second.
        tasks: number -> text.
        robot_type: of the robot.
        episodes: in their order.
        stats: feature -> figures of all frames, in layout 3.0.
    """

    layout: str
    features: Mapping[str, Feature]
    fps: float
    tasks: Sequence[str]
    robot_type: str
    episodes: Sequence[Episode]
    stats: Figures = field(default_factory=dict)

    @property
    def videos(self) -> list[str]:
        """Cameras that are videos."""
        return [name for name, f in self.features.items() if f.dtype == "video"]

    @property
    def frames(self) -> int:
        """Of all episodes."""
        return sum(e.length for e in self.episodes)


def write_meta(root: Path, written: Written) -> None:
    """Write ``meta`` of the data set at ``root``."""
    if written.layout == V2:
        _write_lines(root / OLD_EPISODES, [_told_of(i, e, written) for i, e in enumerate(written.episodes)])
        _write_lines(root / OLD_TASKS, [{"task_index": i, "task": text} for i, text in enumerate(written.tasks)])
        _write_lines(root / EPISODES_STATS, [{"episode_index": i, "stats": e.stats} for i, e in enumerate(written.episodes)])
    else:
        _write_episodes(root, written)
        _write_tasks(root, written.tasks)
        _write_json(root / "meta" / "stats.json", written.stats)
    _write_json(root / INFO, _info(written))


def place_of(layout: str, number: int) -> dict[str, int]:
    """What the paths of ``PATHS`` say of the file of this number; in layout 2.1 that of an episode."""
    names = ("episode_chunk", "episode_index") if layout == V2 else ("chunk_index", "file_index")
    return dict(zip(names, (number // CHUNKS_SIZE, number if layout == V2 else number % CHUNKS_SIZE), strict=True))


def _told_of(number: int, episode: Episode, written: Written) -> dict[str, Any]:
    return {"episode_index": number, "tasks": [written.tasks[episode.task]], "length": episode.length}


def _write_episodes(root: Path, written: Written) -> None:
    episodes = written.episodes
    told = [_told_of(i, e, written) for i, e in enumerate(episodes)]
    columns: dict[str, list[Any]] = {name: [each[name] for each in told] for name in ("episode_index", "tasks", "length")}
    columns |= {
        "data/chunk_index": [e.data // CHUNKS_SIZE for e in episodes],
        "data/file_index": [e.data % CHUNKS_SIZE for e in episodes],
        "dataset_from_index": [e.start for e in episodes],
        "dataset_to_index": [e.start + e.length for e in episodes],
    }
    for name in written.videos:
        places = [e.videos[name] for e in episodes]
        columns[f"videos/{name}/chunk_index"] = [number // CHUNKS_SIZE for number, _ in places]
        columns[f"videos/{name}/file_index"] = [number % CHUNKS_SIZE for number, _ in places]
        columns[f"videos/{name}/from_timestamp"] = [seconds for _, seconds in places]
        lengths = [e.length / written.fps for e in episodes]
        columns[f"videos/{name}/to_timestamp"] = [a + b for (_, a), b in zip(places, lengths, strict=True)]
    columns["meta/episodes/chunk_index"] = columns["meta/episodes/file_index"] = [0] * len(episodes)
    path = root / EPISODES / "chunk-000" / "file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), path)


def _write_tasks(root: Path, tasks: Sequence[str]) -> None:
    """Tasks as a data frame whose index are the texts, which is how lerobot reads them."""
    index = "__index_level_0__"
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), index: pa.array(tasks, pa.string())})
    kinds = (("task_index", "task_index", "int64", "int64"), (None, index, "unicode", "object"))
    pandas = {
        "index_columns": [index],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": column, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
            for name, column, kind, numpy in kinds
        ],
        "pandas_version": "2.0.0",
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), root / TASKS)


def _info(written: Written) -> dict[str, Any]:
    data, video = PATHS[written.layout]
    count, videos = len(written.episodes), written.videos
    fps = int(written.fps) if float(written.fps).is_integer() else written.fps
    counted = {"total_episodes": count, "total_frames": written.frames, "total_tasks": len(written.tasks)}
    if written.layout == V2:
        sizes = {"total_videos": count * len(videos), "total_chunks": -(-count // CHUNKS_SIZE), "chunks_size": CHUNKS_SIZE}
    else:
        sizes = {"chunks_size": CHUNKS_SIZE, "data_files_size_in_mb": DATA_MB, "video_files_size_in_mb": VIDEO_MB}
    return {
        "codebase_version": written.layout,
        "robot_type": written.robot_type,
        **counted,
        **sizes,
        "fps": fps,
        "splits": {"train": f"0:{count}"},
        "data_path": data,
        "video_path": video if videos else None,
        "features": {name: _told(f, fps) for name, f in written.features.items()},
    }


def _told(f: Feature, fps: float) -> dict[str, Any]:
    camera = f.dtype in CAMERAS
    names = ["height", "width", "channels"] if camera else None
    told: dict[str, Any] = {"dtype": f.dtype, "shape": list(f.shape), "names": names}
    if f.dtype == "video":
        height, width, channels = f.shape
        size = {"video.height": height, "video.width": width, "video.channels": channels, "video.fps": fps}
        kind = {"video.codec": "h264", "video.pix_fmt": PIXELS}
        told["info"] = {**size, **kind, "video.is_depth_map": False, "has_audio": False}
    return told


def _write_json(path: Path, body: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=4, allow_nan=False), encoding="utf-8")


def _write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines), encoding="utf-8")
