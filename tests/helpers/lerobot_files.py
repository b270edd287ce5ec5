"""Copies of the data sets that the ``lerobot`` package wrote (``benchmarks/campaign/lerobot_side.py``), and changes of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).resolve().parents[1] / "data" / "lerobot"
LENGTH, SIDE, FPS = 12, 32, 10
TASKS = ("touch the red block", "touch the blue block")
FIRST = {"v2.1": "data/chunk-000/episode_000000.parquet", "v3.0": "data/chunk-000/file-000.parquet"}
VIDEO = {
    "v2.1": "videos/chunk-000/observation.images.front/episode_000000.mp4",
    "v3.0": "videos/observation.images.front/chunk-000/file-000.mp4",
}


def copy(place, layout="v2.1"):
    """A copy that may be changed; its directory."""
    return Path(shutil.copytree(DATA / layout, place))


def picture(episode, frame):
    """What both cameras saw, as ``lerobot_side.py`` draws it."""
    out = np.zeros((SIDE, SIDE, 3), np.uint8)
    out[..., episode] = np.linspace(40, 160, SIDE, dtype=np.uint8)[:, None]
    out[:, 2 * frame : 2 * frame + 4] = 230
    return out


def change_info(place, change):
    """Change what ``meta/info.json`` says."""
    path = place / "meta" / "info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def change_data(place, change, layout="v2.1"):
    """Rewrite the first data file with the columns that ``change`` leaves."""
    path = place / FIRST[layout]
    table = pq.read_table(path)
    columns = {name: table.column(name) for name in table.column_names}
    change(columns)
    pq.write_table(pa.table(columns), path)


def without(*names):
    """A data set without these features: ``(change of info, change of data)``."""

    def info(told):
        for name in names:
            del told["features"][name]

    def data(columns):
        for name in names:
            del columns[name]

    return info, data
