"""A table with blocks: a sentence says which one to touch, or to push into the ring; where they are only two cameras tell."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

Array = np.ndarray[Any, Any]
COLOURS = {"red": (230, 50, 40), "blue": (50, 90, 230), "green": (60, 180, 70)}
TASKS = ("touch the red block", "touch the blue block", "push the red block into the ring", "push the blue block into the ring")
VOCABULARY = ("", *sorted({word for text in TASKS for word in text.split()}))
LENGTH = max(len(text.split()) for text in TASKS) + 1  # of an instruction, with room at its end
SIZE, PICTURE = 64, 256  # pixels of a camera, and of a picture for people
TIP, BLOCK, RING = 0.06, 0.13, 0.26  # radii
EDGE, NEAR = 0.75, 0.45  # where things begin, and how far apart at least
WRIST = 0.45  # half of what the camera at the fingertip sees
_GREY, _WHITE, _BLACK = (120, 120, 120), (235, 235, 235), (20, 20, 20)


class Tabletop(gym.Env[Any, Any]):
    """The action is the fingertip's velocity; who touches another block than the one that is named has failed.

    Observations: ``top`` and ``wrist``, ``(64, 64, 3)`` bytes, the whole table and what is around the fingertip; ``tip``,
    its place; ``words``, ids of the instruction's words, and ``words_there``, 0 behind its end. The reward is 1 for success
    and else 0.

    Attributes:
        tip, ring: ``(2,)``, x and y from -1 to 1.
        blocks: colour -> ``(2,)``.
        task: which of ``TASKS``.

    Args:
        tasks: which ones there are; each episode has one of them.
        speed: way of one step at full action, in each direction.
        horizon: steps of an episode.
        blank: whether the cameras are covered; to see what a policy knows without them.
        shuffle: whether the words are those of another task, to see what it knows without them.
        render_mode: ``rgb_array`` or nothing.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        tasks: tuple[int, ...] = (0, 1, 2, 3),
        speed: float = 0.1,
        horizon: int = 60,
        blank: bool = False,
        shuffle: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if not tasks or not all(0 <= task < len(TASKS) for task in tasks):
            raise ValueError(f"tasks {list(tasks)}: some of 0 to {len(TASKS) - 1}, {', '.join(TASKS)}")
        self.render_mode, self.speed = render_mode, speed
        self.tip, self.ring, self.task = np.zeros(2), np.zeros(2), 0
        self.blocks = {colour: np.zeros(2) for colour in COLOURS}
        self._tasks, self._horizon, self._t, self._said = tuple(tasks), horizon, 0, 0
        self._blank, self._shuffle = blank, shuffle
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        camera = gym.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.observation_space = gym.spaces.Dict(
            {
                "tip": gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
                "top": camera,
                "words": gym.spaces.Box(0, len(VOCABULARY) - 1, (LENGTH,), np.int32),
                "words_there": gym.spaces.Box(0, 1, (LENGTH,), np.uint8),
                "wrist": camera,
            }
        )

    @property
    def named(self) -> str:
        """Colour of the block that the task is about."""
        return TASKS[self.task].split()[2]

    @property
    def pushes(self) -> bool:
        """Whether the block must come into the ring, or be touched."""
        return TASKS[self.task].startswith("push")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Fingertip, ring and blocks anywhere, apart from each other; any of the tasks."""
        super().reset(seed=seed)
        self._t = 0
        self.task = self._said = int(self.np_random.choice(self._tasks))
        if self._shuffle:
            self._said = int(self.np_random.integers(len(TASKS)))
        while True:
            places = self.np_random.uniform(-EDGE, EDGE, (2 + len(COLOURS), 2))
            away = np.linalg.norm(places[:, None] - places[None], axis=2) + 9 * np.eye(len(places))
            if away.min() >= NEAR:
                break
        self.tip, self.ring, *blocks = places
        self.blocks = dict(zip(COLOURS, blocks, strict=True))
        return self._observe(), {"task": self.task}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Move, and push what is in the way; info says ``is_success`` and ``task``."""
        self._t += 1
        self.tip = np.clip(self.tip + self.speed * np.clip(np.asarray(action, np.float64), -1, 1), -1, 1)
        touched = [colour for colour, place in self.blocks.items() if self._push(place)]
        wrong = any(colour != self.named for colour in touched)
        reached = self.named in touched
        if self.pushes:
            reached = bool(np.linalg.norm(self.blocks[self.named] - self.ring) < RING - BLOCK)
        success = reached and not wrong
        ended = success or wrong
        info = {"is_success": success, "task": self.task}
        return self._observe(), float(success), ended, not ended and self._t >= self._horizon, info

    def render(self) -> Array:
        """The table from above, large enough for people."""
        return self._draw(np.zeros(2), 1.0, PICTURE)

    def _push(self, place: Array) -> bool:
        """Whether the fingertip meets the block at ``place``, which then makes way, as far as the table goes."""
        away = place - self.tip
        distance = float(np.linalg.norm(away))
        if distance >= TIP + BLOCK:
            return False
        direction = away / distance if distance > 0 else np.array([1.0, 0.0])
        place += (TIP + BLOCK - distance) * direction
        np.clip(place, -1 + BLOCK, 1 - BLOCK, out=place)
        if float(np.linalg.norm(place - self.tip)) < TIP + BLOCK:  # it cannot go on, and so the fingertip cannot
            self.tip = np.clip(place - (TIP + BLOCK) * direction, -1, 1)
        return True

    def _observe(self) -> dict[str, Array]:
        words = [VOCABULARY.index(word) for word in TASKS[self._said].split()]
        ids, there = np.zeros(LENGTH, np.int32), np.zeros(LENGTH, np.uint8)
        ids[: len(words)], there[: len(words)] = words, 1
        dark = np.zeros((SIZE, SIZE, 3), np.uint8)
        return {
            "tip": self.tip.astype(np.float32),
            "top": dark if self._blank else self._draw(np.zeros(2), 1.0, SIZE),
            "words": ids,
            "words_there": there,
            "wrist": dark if self._blank else self._draw(self.tip, WRIST, SIZE),
        }

    def _draw(self, centre: Array, half: float, size: int) -> Array:
        """``(size, size, 3)`` uint8 of the square around ``centre``, y downwards; soft edges tell places below a pixel."""
        pixel = 2 * half / size
        places = ((np.arange(size) + 0.5) * pixel - half).astype(np.float32)
        x, y = places[None, :] + np.float32(centre[0]), places[:, None] + np.float32(centre[1])
        picture = np.empty((size, size, 3), np.float32)
        picture[:] = _WHITE
        off = np.clip((np.maximum(np.abs(x), np.abs(y)) - 1) / pixel + 0.5, 0, 1)  # beyond the table's edge
        _paint(picture, off, _GREY)
        away = np.hypot(x - self.ring[0], y - self.ring[1])
        _paint(picture, np.clip(0.5 + (0.03 - np.abs(away - RING)) / pixel, 0, 1), _BLACK)
        for colour, place in self.blocks.items():
            _paint(picture, _disc(x, y, place, BLOCK, pixel), COLOURS[colour])
        _paint(picture, _disc(x, y, self.tip, TIP, pixel), _BLACK)
        return np.round(picture).astype(np.uint8)


def _disc(x: Array, y: Array, place: Array, radius: float, pixel: float) -> Array:
    """How much of each pixel a disc covers, 0 to 1."""
    return np.clip(0.5 + (radius - np.hypot(x - place[0], y - place[1])) / pixel, 0, 1)


def _paint(picture: Array, cover: Array, colour: tuple[int, int, int]) -> None:
    rows, columns = cover.any(axis=1), cover.any(axis=0)
    if not rows.any():
        return
    (top, bottom), (left, right) = ((int(hit.argmax()), len(hit) - int(hit[::-1].argmax())) for hit in (rows, columns))
    part = picture[top:bottom, left:right]
    part += cover[top:bottom, left:right, None] * (np.array(colour, np.float32) - part)
