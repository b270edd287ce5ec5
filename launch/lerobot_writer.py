"""Writes LeRobotDatasets: numbers in Parquet, cameras as videos or as PNG in it; many episodes a file, in layout 2.1 one."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.launch.lerobot_layout import CAMERAS, PATHS, V2, V3, Feature
from headrace.launch.lerobot_meta import DATA_MB, VIDEO_MB, Episode, Written, place_of, write_meta
from headrace.launch.lerobot_stats import Stats
from headrace.launch.video_writer import VideoWriter

Array = np.ndarray[Any, Any]
NUMBERS = {name: Feature(name, "int64", (1,)) for name in ("frame_index", "episode_index", "index", "task_index")}
OWN = {"timestamp": Feature("timestamp", "float32", (1,)), **NUMBERS}


class LeRobotWriter:
    """One data set in a directory.

    Args:
        root: an empty directory.
        features: without those that every data set has.
        fps: frames a second.
        tasks: number -> text; numbers that a data set has are 0, 1, ...
        robot_type: what the data set says of the robot.
        layout: ``V2`` or ``V3``.
    """

    def __init__(
        self,
        root: Path,
        features: Mapping[str, Feature],
        fps: float,
        tasks: list[str],
        robot_type: str,
        layout: str = V3,
    ) -> None:
        self._root, self._features, self._fps, self._tasks = root, {**features, **OWN}, fps, tasks
        self._robot_type, self._layout = robot_type, layout
        columns = {name: f for name, f in self._features.items() if f.dtype != "video"}
        self._schema = pa.schema([(name, _arrow_type(f)) for name, f in columns.items()])
        if layout == V2:
            self._schema = self._schema.with_metadata(_metadata(columns))
        self._episodes: list[Episode] = []
        self._frames = 0
        self._data: Any = None
        self._sink: Any = None
        self._data_files = 0
        self._videos: dict[str, VideoWriter] = {}
        self._video_files = dict.fromkeys((name for name, f in features.items() if f.dtype == "video"), 0)
        self._stats = self._new_stats()

    def begin(self, task: int) -> None:
        """Begin an episode of a task."""
        self._end()
        self._roll()
        episode = Episode(task, self._frames, self._data_files - 1)
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
        for name, f in self._features.items():
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
        self._end()
        stats = {} if self._layout == V2 else _figures(self._stats)
        about = (self._layout, self._features, self._fps, self._tasks, self._robot_type, self._episodes, stats)
        write_meta(self._root, Written(*about))

    def discard(self) -> None:
        """Let go of the files, which are not whole."""
        if self._data is not None:
            self._data.close()
        for name in list(self._videos):
            self._close_video(name)

    # --- files ------------------------------------------------------------------------------------------------------

    def _new_stats(self) -> dict[str, Stats]:
        return {name: Stats(camera=f.dtype in CAMERAS) for name, f in self._features.items()}

    def _end(self) -> None:
        """The newest episode, if there is one, is whole."""
        if self._layout == V2 and self._episodes:
            self._episodes[-1].stats, self._stats = _figures(self._stats), self._new_stats()

    def _roll(self) -> None:
        """Have a data file and a video of each camera that are not full; in layout 2.1 an episode fills them."""
        alone = self._layout == V2
        if self._data is not None and (alone or self._sink.tell() > DATA_MB << 20):
            self._close_data()
        if self._data is None:
            path = self._root / PATHS[self._layout][0].format(**place_of(self._layout, self._data_files))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(path), "wb")
            self._data = pq.ParquetWriter(self._sink, self._schema)
            self._data_files += 1
        for name in self._video_files:
            if name in self._videos and (alone or self._videos[name].nbytes() > VIDEO_MB << 20):
                self._close_video(name)
            if name not in self._videos:
                place = place_of(self._layout, self._video_files[name])
                path = self._root / PATHS[self._layout][1].format(video_key=name, **place)
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


def _figures(stats: Mapping[str, Stats]) -> dict[str, Any]:
    return {name: found.to_dict() for name, found in stats.items()}


def _metadata(columns: Mapping[str, Feature]) -> dict[str, str]:
    """What tells pictures from bytes to those who know columns by their file alone, as lerobot does in layout 2.1."""

    def told(f: Feature) -> dict[str, Any]:
        if f.dtype == "image":
            return {"_type": "Image"}
        kind: dict[str, Any] = {"dtype": f.dtype, "_type": "Value"}
        for size in () if f.shape == (1,) else reversed(f.shape):
            kind = {"feature": kind, "length": size if len(f.shape) == 1 else -1, "_type": "Sequence"}
        return kind

    return {"huggingface": json.dumps({"info": {"features": {name: told(f) for name, f in columns.items()}}})}


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
