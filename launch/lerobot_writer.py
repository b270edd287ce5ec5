"""Writes LeRobotDatasets of layout 3.0: many episodes a file, numbers in Parquet, cameras as videos or as PNG in Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.launch.lerobot_layout import CAMERAS, EPISODES, INFO, PATHS, TASKS, V3, Feature
from headrace.launch.lerobot_stats import Stats
from headrace.launch.video_writer import PIXELS, VideoWriter

Array = np.ndarray[Any, Any]
CHUNKS_SIZE = 1000
DATA_MB, VIDEO_MB = 100, 200  # after so much a new file begins, with the next episode
NUMBERS = {name: Feature(name, "int64", (1,)) for name in ("frame_index", "episode_index", "index", "task_index")}
OWN = {"timestamp": Feature("timestamp", "float32", (1,)), **NUMBERS}


@dataclass
class _Episode:
    task: int
    start: int  # of all frames
    data: int  # number of its data file
    length: int = 0
    videos: dict[str, tuple[int, float]] = field(default_factory=dict)  # camera -> number of its file, seconds there


class LeRobotWriter:
    """One data set in a directory.

    Args:
        root: an empty directory.
        features: without those that every data set has.
        fps: frames a second.
        tasks: number -> text; numbers that a data set has are 0, 1, ...
        robot_type: what the data set says of the robot.
    """

    def __init__(self, root: Path, features: Mapping[str, Feature], fps: float, tasks: list[str], robot_type: str) -> None:
        self._root, self._features, self._fps, self._tasks = root, dict(features), fps, tasks
        self._robot_type = robot_type
        self._schema = pa.schema([(name, _arrow_type(f)) for name, f in self._all().items() if f.dtype != "video"])
        self._episodes: list[_Episode] = []
        self._frames = 0
        self._data: Any = None
        self._sink: Any = None
        self._data_files = 0
        self._videos: dict[str, VideoWriter] = {}
        self._video_files = dict.fromkeys((name for name, f in features.items() if f.dtype == "video"), 0)
        self._stats = {name: Stats(camera=f.dtype in CAMERAS) for name, f in self._all().items()}

    def begin(self, task: int) -> None:
        """Begin an episode of a task."""
        self._roll()
        episode = _Episode(task, self._frames, self._data_files - 1)
        for name, video in self._videos.items():
            episode.videos[name] = self._video_files[name] - 1, video.frames / self._fps
        self._episodes.append(episode)

    def add(self, values: Mapping[str, Array]) -> None:
        """Append frames of the episode: feature -> ``(n, *shape)``."""
        episode, n = self._episodes[-1], len(next(iter(values.values())))
        frame, whole = np.arange(episode.length, episode.length + n), np.full(n, 1, np.int64)
        own: dict[str, Array] = {
            "timestamp": (frame / self._fps).astype(np.float32),
            "frame_index": frame,
            "episode_index": whole * (len(self._episodes) - 1),
            "index": np.arange(self._frames, self._frames + n),
            "task_index": whole * episode.task,
        }
        columns: dict[str, Any] = {}
        for name, f in self._all().items():
            found = own[name] if name in own else values[name]
            self._stats[name].add(found)
            if f.dtype == "video":
                self._videos[name].add(found)
            else:
                columns[name] = _pictures(found) if f.dtype == "image" else _numbers(found, f)
        self._data.write_table(pa.table([columns[name] for name in self._schema.names], schema=self._schema))
        episode.length += n
        self._frames += n

    def close(self) -> None:
        """Finish the files and say what they hold."""
        self._close_data()
        for name in self._video_files:
            self._close_video(name)
        self._write_episodes()
        self._write_tasks()
        stats = {name: found.to_dict() for name, found in self._stats.items()}
        self._write("meta/stats.json", stats)
        self._write(INFO, self._info())

    def discard(self) -> None:
        """Let go of the files, which are not whole."""
        if self._data is not None:
            self._data.close()
        for name in list(self._videos):
            self._close_video(name)

    # --- files ------------------------------------------------------------------------------------------------------

    def _all(self) -> dict[str, Feature]:
        return {**self._features, **OWN}

    def _roll(self) -> None:
        """Have a data file and a video of each camera that are not full."""
        if self._data is not None and self._sink.tell() > DATA_MB << 20:
            self._close_data()
        if self._data is None:
            path = self._root / PATHS[V3][0].format(**_place(self._data_files))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(path), "wb")
            self._data = pq.ParquetWriter(self._sink, self._schema)
            self._data_files += 1
        for name in self._video_files:
            if name in self._videos and self._videos[name].nbytes() > VIDEO_MB << 20:
                self._close_video(name)
            if name not in self._videos:
                path = self._root / PATHS[V3][1].format(video_key=name, **_place(self._video_files[name]))
                self._videos[name] = VideoWriter(path, self._features[name].shape, self._fps)
                self._video_files[name] += 1

    def _close_data(self) -> None:
        if self._data is not None:
            self._data.close()
            self._sink.close()
            self._data = None

    def _close_video(self, name: str) -> None:
        video = self._videos.pop(name, None)
        if video is not None:
            video.close()

    # --- meta -------------------------------------------------------------------------------------------------------

    def _write_episodes(self) -> None:
        columns: dict[str, list[Any]] = {
            "episode_index": list(range(len(self._episodes))),
            "tasks": [[self._tasks[e.task]] for e in self._episodes],
            "length": [e.length for e in self._episodes],
            "data/chunk_index": [e.data // CHUNKS_SIZE for e in self._episodes],
            "data/file_index": [e.data % CHUNKS_SIZE for e in self._episodes],
            "dataset_from_index": [e.start for e in self._episodes],
            "dataset_to_index": [e.start + e.length for e in self._episodes],
        }
        for name in self._video_files:
            places = [e.videos[name] for e in self._episodes]
            columns[f"videos/{name}/chunk_index"] = [number // CHUNKS_SIZE for number, _ in places]
            columns[f"videos/{name}/file_index"] = [number % CHUNKS_SIZE for number, _ in places]
            columns[f"videos/{name}/from_timestamp"] = [seconds for _, seconds in places]
            lengths = [e.length / self._fps for e in self._episodes]
            columns[f"videos/{name}/to_timestamp"] = [a + b for (_, a), b in zip(places, lengths, strict=True)]
        columns["meta/episodes/chunk_index"] = columns["meta/episodes/file_index"] = [0] * len(self._episodes)
        path = self._root / EPISODES / "chunk-000" / "file-000.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path)

    def _write_tasks(self) -> None:
        """Tasks as a data frame whose index are the texts, which is how lerobot reads them."""
        index = "__index_level_0__"
        table = pa.table(
            {"task_index": pa.array(range(len(self._tasks)), pa.int64()), index: pa.array(self._tasks, pa.string())}
        )
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
        pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), self._root / TASKS)

    def _info(self) -> dict[str, Any]:
        data, video = PATHS[V3]
        fps = int(self._fps) if self._fps.is_integer() else self._fps
        return {
            "codebase_version": V3,
            "robot_type": self._robot_type,
            "total_episodes": len(self._episodes),
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": CHUNKS_SIZE,
            "data_files_size_in_mb": DATA_MB,
            "video_files_size_in_mb": VIDEO_MB,
            "fps": fps,
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": data,
            "video_path": video if self._video_files else None,
            "features": {name: self._told(f, fps) for name, f in self._all().items()},
        }

    def _told(self, f: Feature, fps: float) -> dict[str, Any]:
        camera = f.dtype in CAMERAS
        names = ["height", "width", "channels"] if camera else None
        told: dict[str, Any] = {"dtype": f.dtype, "shape": list(f.shape), "names": names}
        if f.dtype == "video":
            height, width, channels = f.shape
            size = {"video.height": height, "video.width": width, "video.channels": channels, "video.fps": fps}
            kind = {"video.codec": "h264", "video.pix_fmt": PIXELS}
            told["info"] = {**size, **kind, "video.is_depth_map": False, "has_audio": False}
        return told

    def _write(self, name: str, body: Mapping[str, Any]) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, indent=4, allow_nan=False), encoding="utf-8")


def _place(number: int) -> dict[str, int]:
    return {"chunk_index": number // CHUNKS_SIZE, "file_index": number % CHUNKS_SIZE}


def _arrow_type(f: Feature) -> Any:
    if f.dtype == "image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    kind = pa.from_numpy_dtype(np.dtype(f.dtype)) if f.dtype != "video" else None
    if f.shape == (1,):
        return kind
    if len(f.shape) == 1:
        return pa.list_(kind, f.shape[0])
    for _ in f.shape:
        kind = pa.list_(kind)
    return kind


def _numbers(values: Array, f: Feature) -> Any:
    flat = np.ascontiguousarray(values, np.dtype(f.dtype)).reshape(-1)
    array = pa.array(flat)
    if f.shape == (1,):
        return array
    if len(f.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(array, f.shape[0])
    for size in reversed(f.shape):
        array = pa.ListArray.from_arrays(pa.array(np.arange(0, len(array) + 1, size), pa.int32()), array)
    return array


def _pictures(values: Array) -> Any:
    from PIL import Image

    files = []
    for pixels in values:
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
        files.append({"bytes": file.getvalue(), "path": None})
    return pa.array(files, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
