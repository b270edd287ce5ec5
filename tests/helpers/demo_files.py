"""Small data sets of other projects' layouts, written by their own libraries: every observation says (episode, t)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import h5py
import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

LOW, HIGH = (-2.0, -1.0), (2.0, 1.0)


@dataclass(frozen=True)
class Take:
    """One recorded episode of ``length`` steps; ``end`` is terminated or truncated."""

    length: int
    end: str = "terminated"
    success: bool = False


TAKES = (Take(5, "terminated", True), Take(1), Take(9, "truncated"), Take(4, "terminated", True), Take(3, "truncated"))


def observations(episode: int, length: int) -> np.ndarray:
    """``(length + 1, 2)`` float64."""
    return np.stack([np.full(length + 1, episode), np.arange(length + 1)], axis=1).astype(np.float64)


def actions(episode: int, length: int) -> np.ndarray:
    """``(length, 2)``: (episode, t) / 10, which lies inside the bounds."""
    return (np.stack([np.full(length, episode), np.arange(length)], axis=1) / 10).astype(np.float32)


def rewards(episode: int, length: int) -> np.ndarray:
    """``(length,)``: 100 e + t."""
    return 100.0 * episode + np.arange(length)


def ends(take: Take, kind: str) -> np.ndarray:
    """``(length,)`` bool."""
    flags = np.zeros(take.length, bool)
    flags[-1] = take.end == kind
    return flags


def write_robomimic(path, takes=TAKES, success=True, next_obs=True):
    """``data/demo_<i>``, made so that demo_10 comes after demo_9 only by number."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(take.length for take in takes)
        for i, take in enumerate(takes):
            demo = data.create_group(f"demo_{i}")
            demo.attrs["num_samples"] = take.length
            if success:
                demo.attrs["success"] = take.success
            obs = observations(i, take.length)
            images = np.full((take.length + 1, 4, 4, 3), i, np.uint8)
            for name, part in (("obs", slice(0, -1)), ("next_obs", slice(1, None))):
                if name == "obs" or next_obs:
                    demo[f"{name}/pose"] = obs[part]
                    demo.create_dataset(f"{name}/agentview_image", data=images[part], compression="gzip")
            demo["actions"] = actions(i, take.length).astype(np.float64)
            demo["rewards"] = rewards(i, take.length)
            demo["dones"] = ends(take, "terminated").astype(np.int64)
    return path


def write_d4rl(path, takes=TAKES, next_observations=True, tail=0):
    """Flat columns; ``tail`` more steps of an episode that has no end."""
    takes = (*takes, *([Take(tail, "none")] if tail else []))
    whole = list(enumerate(takes))
    with h5py.File(path, "w") as file:
        file["observations"] = np.concatenate([observations(i, t.length)[:-1] for i, t in whole]).astype(np.float32)
        if next_observations:
            file["next_observations"] = np.concatenate([observations(i, t.length)[1:] for i, t in whole]).astype(np.float32)
        file["actions"] = np.concatenate([actions(i, t.length) for i, t in whole])
        file["rewards"] = np.concatenate([rewards(i, t.length) for i, t in whole]).astype(np.float32)
        file["terminals"] = np.concatenate([ends(t, "terminated") for _, t in whole])
        file["timeouts"] = np.concatenate([ends(t, "truncated") for _, t in whole])
        file["infos/goal"] = np.concatenate(
            [np.arange(t.length) == t.length - 1 if t.success else ends(t, "") for _, t in whole]
        )
    return path


def write_minari(root, monkeypatch, takes=TAKES, image=0, jpeg=True, nested=True, low=LOW):
    """A data set made by ``minari.create_dataset_from_buffers``; its directory."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    space = spaces.Dict({"agent": spaces.Dict({"pose": box})}) if nested else box
    if image:
        space["camera"] = spaces.Box(0, 255, (image, image, 3), np.uint8)
    buffers = []
    for i, take in enumerate(takes):
        pose = observations(i, take.length)
        obs = {"agent": {"pose": pose}} if nested else pose
        if image:
            obs["camera"] = np.full((take.length + 1, image, image, 3), 20 * i, np.uint8)
        buffers.append(
            EpisodeBuffer(
                id=i,
                observations=obs,
                actions=actions(i, take.length),
                rewards=rewards(i, take.length).tolist(),
                terminations=ends(take, "terminated").tolist(),
                truncations=ends(take, "truncated").tolist(),
                infos={"success": np.arange(take.length + 1) == (take.length if take.success else -1)},
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what a published data set should also say
        minari.create_dataset_from_buffers(
            "toy/arm-v0",
            buffers,
            action_space=spaces.Box(np.array(low, np.float32), np.array(HIGH, np.float32)),
            observation_space=space,
            algorithm_name="script",
            author="us",
            author_email="us@example.com",
            code_permalink="https://example.com",
            jpeg_encoding=jpeg,
        )
    return root / "toy" / "arm-v0"
