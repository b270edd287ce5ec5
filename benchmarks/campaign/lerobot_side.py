"""What the ``lerobot`` package itself writes and reads. Runs in an environment of its own, which has no headrace.

PYTHON lerobot_side.py write DIR        # a small data set: every number and picture says (episode, frame)
PYTHON lerobot_side.py read DIR FILE    # every frame of a data set as one .npz file
PYTHON lerobot_side.py convert DIR      # a data set of layout 2.1 becomes one of 3.0, in place
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import lerobot
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

OLD = lerobot.__version__.startswith("0.3.")  # writes and reads layout 2.1, later ones 3.0
FPS, SIDE, LENGTHS = 10, 32, (12, 12)
TASKS = ("touch the red block", "touch the blue block")
NAMES = ["height", "width", "channels"]
PLAIN = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["episode", "frame", "wave"]},
    "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    "next.success": {"dtype": "bool", "shape": (1,), "names": None},
}
CAMERAS = {
    "observation.images.front": {"dtype": "video", "shape": (SIDE, SIDE, 3), "names": NAMES},
    "observation.images.wrist": {"dtype": "image", "shape": (SIDE, SIDE, 3), "names": NAMES},
}


def picture(episode: int, frame: int) -> np.ndarray:
    """A bright bar that moves by two pixels a frame, over a slope whose colour is the episode's."""
    out = np.zeros((SIDE, SIDE, 3), np.uint8)
    out[..., episode] = np.linspace(40, 160, SIDE, dtype=np.uint8)[:, None]
    out[:, 2 * frame : 2 * frame + 4] = 230
    return out


def write(root: Path) -> None:
    """Two episodes: the first succeeds, the second does not."""
    data = LeRobotDataset.create("headrace/toy", FPS, {**PLAIN, **CAMERAS}, root=root, robot_type="toy", use_videos=True)
    for episode, length in enumerate(LENGTHS):
        for frame in range(length):
            last = frame == length - 1
            values = {
                "observation.state": np.array([episode, frame, np.sin(frame)], np.float32),
                "action": np.array([episode - 0.5, frame / length - 0.5], np.float32),
                "next.reward": np.array([frame / 8], np.float32),
                "next.done": np.array([last]),
                "next.success": np.array([last and episode == 0]),
                "observation.images.front": picture(episode, frame),
                "observation.images.wrist": picture(episode, frame),
            }
            if OLD:
                data.add_frame(values, task=TASKS[episode])
            else:
                data.add_frame({**values, "task": TASKS[episode]})
        data.save_episode()
    if not OLD:
        data.finalize()
    shutil.rmtree(root / "images", ignore_errors=True)  # what lerobot leaves of pictures that are in the data


def read(root: Path, out: Path) -> None:
    """Every frame: plain features as they are, pictures as ``(n, h, w, 3)`` uint8, tasks as text; and what ``meta`` says."""
    backend = "pyav"  # its other one needs FFmpeg of the system
    data = LeRobotDataset("headrace/toy", root=root, video_backend=backend)
    frames = [data[i] for i in range(len(data))]
    columns = {name: np.stack([np.asarray(frame[name]) for frame in frames]) for name in data.features}
    for name in data.meta.camera_keys:
        columns[name] = np.rint(columns[name].transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    columns["task"] = np.array([frame["task"] for frame in frames])
    about = {"fps": data.fps, "episodes": data.num_episodes, "frames": data.num_frames, "lerobot": lerobot.__version__}
    np.savez_compressed(out, **columns, about=np.array(json.dumps(about)))


def convert(root: Path) -> None:
    """By lerobot's own converter."""
    from lerobot.datasets.v30.convert_dataset_v21_to_v30 import convert_dataset

    convert_dataset(root.name, root=root.parent, push_to_hub=False)


if __name__ == "__main__":
    command, *places = sys.argv[1:]
    {"write": write, "read": read, "convert": convert}[command](*map(Path, places))
