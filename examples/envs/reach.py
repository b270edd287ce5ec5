"""A fingertip in a square that has to touch a target, both seen as numbers."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

Array = np.ndarray[Any, Any]
REWARDS = ("sparse", "dense")
EDGE = 0.9  # of where fingertip and target begin; the square itself ends at 1
MAX_GAP = 1.5
PICTURE = 192


class Reach(gym.Env[Any, Any]):
    """The action is the fingertip's velocity; an episode ends with a touch, or is cut after ``horizon`` steps.

    Attributes:
        tip, target: ``(2,)``, where they are, x and y from -1 to 1.
        speed: way of one step at full action, in each direction.

    Args:
        reward: ``sparse``, 1 for the touch and else 0; or ``dense``, minus the distance at each step.
        tolerance: distance that counts as a touch.
        gap: least distance at the start, at most 1.5.
        speed: see above.
        horizon: steps of an episode.
        render_mode: ``rgb_array`` or nothing.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        reward: str = "sparse",
        tolerance: float = 0.05,
        gap: float = 1.0,
        speed: float = 0.1,
        horizon: int = 50,
        render_mode: str | None = None,
    ) -> None:
        if reward not in REWARDS or not 0 <= gap <= MAX_GAP:
            raise ValueError(f"reward {reward!r} must be one of {', '.join(REWARDS)}, and gap {gap} from 0 to {MAX_GAP}")
        self.render_mode, self.speed = render_mode, speed
        self.tip, self.target = np.zeros(2), np.zeros(2)
        self._sparse, self._tolerance, self._gap, self._horizon, self._t = reward == "sparse", tolerance, gap, horizon, 0
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = self._space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Fingertip and target anywhere, at least ``gap`` apart."""
        super().reset(seed=seed)
        self._t = 0
        while True:
            self.tip, self.target = self.np_random.uniform(-EDGE, EDGE, (2, 2))
            if self._distance() >= self._gap:
                return self._observe(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move; info says ``is_success``."""
        self._t += 1
        self.tip = np.clip(self.tip + self.speed * np.clip(np.asarray(action, np.float64), -1, 1), -1, 1)
        distance = self._distance()
        touched = distance < self._tolerance
        reward = float(touched) if self._sparse else -distance
        return self._observe(), reward, touched, not touched and self._t >= self._horizon, {"is_success": touched}

    def render(self) -> Array:
        """The picture, large enough for people."""
        return draw(self.tip, self.target, PICTURE)

    def _distance(self) -> float:
        return float(np.linalg.norm(self.tip - self.target))

    def _space(self) -> gym.spaces.Box:
        return gym.spaces.Box(-1.0, 1.0, (4,), np.float32)

    def _observe(self) -> Array:
        return np.concatenate([self.tip, self.target]).astype(np.float32)


def draw(tip: Array, target: Array, size: int) -> Array:
    """``(size, size, 3)`` uint8: the fingertip as a red disc, the target as a green one, y downwards.

    Their soft edges say where they are to a fraction of a pixel.
    """
    radius, centres = size / 20, (np.arange(size) + 0.5) * 2 / size - 1
    picture = np.zeros((size, size, 3), np.uint8)
    for colour, (x, y) in enumerate((tip, target)):
        away = np.hypot(centres[None, :] - x, centres[:, None] - y) * size / 2
        picture[:, :, colour] = np.round(255 * np.clip(radius + 0.5 - away, 0, 1))
    return picture
