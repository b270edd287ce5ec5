"""A film of one evaluated episode: under each frame stands what was done there, what it was worth, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.deciding import Acts, Obs
from headrace.actor.envs import LaneStep
from headrace.actor.evaluate import play_lanes
from headrace.actor.policy import Policy
from headrace.common.errors import EnvError

Array = np.ndarray[Any, Any]
Value = Callable[[Obs, Array], Array]
_LETTERS = 24  # of a line
_LEAST_WIDTH = 240  # of a film in which letters can be read


@dataclass
class Caption:
    """Step, reward, return so far, value and end of the step that is shown.

    Args:
        value: observations ``(1, ...)`` and decisions ``(1, *shape)`` in env units -> ``(1,)`` what a critic says of them.
    """

    value: Value | None = None
    steps: int = 0
    total: float = 0.0

    def lines(self, obs: Obs, acts: Acts, step: LaneStep) -> tuple[str, str]:
        """Two lines for the frame of ``obs``."""
        reward = float(step.rewards[0])
        self.total += reward
        first = f"t {self.steps}  return {self.total:.2f}"
        self.steps += 1
        second = f"r {reward:+.3f}"
        if self.value is not None and acts.begins[0]:
            second += f"  Q {float(self.value(obs, acts.decided)[0]):.2f}"
        ends = [name for name, flag in (("terminated", step.terminated), ("truncated", step.truncated)) if flag[0]]
        return first, "  ".join([second, *ends])


def film(
    policy: Policy,
    env: EnvConfig,
    window: WindowConfig,
    seed: int,
    directory: Path,
    value: Value | None = None,
    told: Callable[[int], None] | None = None,
) -> tuple[Path | None, str]:
    """Play the evaluation's first episode once more and write ``episode-0.mp4``; its path, or None and why there is none.

    Any failure is only reported: a film is never worth a run.

    Args:
        policy, env, window, seed: as of :func:`headrace.actor.evaluate.evaluate`.
        directory: where to; made if missing.
        value: shown too, see :class:`Caption`.
        told: called with the number of frames after each.
    """
    try:
        import imageio.v2 as imageio

        from headrace.actor.gym_lanes import GymLanes

        config = replace(env, lanes=1, vector="sync", kwargs={**env.kwargs, "render_mode": "rgb_array"})
        lanes = GymLanes(config, window, (seed, "eval"))
    except (ImportError, EnvError) as error:
        return None, f"no video: {error}"
    path, caption = directory / "episode-0.mp4", Caption(value)
    try:
        with contextlib.closing(lanes):
            directory.mkdir(parents=True, exist_ok=True)
            writer: Any = imageio.get_writer(path, fps=lanes.render_fps, macro_block_size=1)
            frames: list[Array] = []

            def see() -> None:
                frame = lanes.render()
                if frame is None:
                    raise EnvError(f"env {env.id} does not render to an array")
                frames.append(frame)

            def write(obs: Obs, acts: Acts, step: LaneStep) -> None:
                writer.append_data(captioned(frames.pop(), caption.lines(obs, acts, step)))
                if told is not None:
                    told(caption.steps)

            with writer:
                play_lanes(policy, lanes, 1, seed, see, write)
    except Exception as error:  # renderers and encoders fail in many ways
        path.unlink(missing_ok=True)
        return None, f"no video: {type(error).__name__}: {error}"
    return path, ""


def captioned(frame: Array, lines: tuple[str, ...]) -> Array:
    """``frame``, ``(H, W, 3)`` uint8, enlarged until letters can be read, with the lines on a bar below it.

    Both sides are even, as the encoder needs them.
    """
    from PIL import Image, ImageDraw

    times = -(-_LEAST_WIDTH // frame.shape[1])
    if times > 1:
        frame = frame.repeat(times, axis=1).repeat(times, axis=0)
    height, width = frame.shape[:2]
    size = width // _LETTERS
    line = size + size // 4
    whole = Image.new("RGB", (width + width % 2, height + (bar := line * len(lines) + size // 4) + (height + bar) % 2))
    whole.paste(Image.fromarray(frame), (0, 0))
    draw, font = ImageDraw.Draw(whole), _font(size)
    for i, text in enumerate(lines):
        draw.text((size // 4, height + i * line), text, "white", font)
    return np.asarray(whole)


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
