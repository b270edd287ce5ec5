"""What a success classifier is, beside its tensors: the description that its file holds, and that training begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.common.convolutions import Shapes, encoder_shapes, projected_shapes
from headrace.common.errors import SpecError
from headrace.common.specs import ObsSpec

TYPE = "success-classifier"
MAX_HOLD = 1000


@dataclass(frozen=True)
class Classifying:
    """Cameras, shape, and when it says success.

    Attributes:
        cameras: whose images it sees, in this order.
        channels, strides: of each camera's convolutions.
        projection: what is kept of all encoded images.
        hidden: widths of the layers behind.
        threshold: probability from which an image is said to show success.
        hold: images in a row that must be said to show it.
    """

    cameras: tuple[ObsSpec, ...]
    channels: tuple[int, ...]
    strides: tuple[int, ...]
    projection: int
    hidden: tuple[int, ...]
    threshold: float
    hold: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which :meth:`of` makes it again."""
        cameras = [{"key": o.key, "shape": list(o.shape)} for o in self.cameras]
        lists = {name: list(getattr(self, name)) for name in ("channels", "strides", "hidden")}
        plain = {name: getattr(self, name) for name in ("projection", "threshold", "hold")}
        return {"type": TYPE, "cameras": cameras, **lists, **plain}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Classifying:
        """Read what a file says.

        Raises:
            SpecError: it is not a classifier's.
        """
        if told.get("type") != TYPE:
            raise SpecError(f"type {told.get('type')!r}, expected {TYPE!r}")
        try:
            cameras = tuple(ObsSpec(str(o["key"]), tuple(int(n) for n in o["shape"]), "|u1") for o in told["cameras"])
            channels, strides, hidden = (tuple(int(n) for n in told[name]) for name in ("channels", "strides", "hidden"))
            projection, threshold, hold = int(told["projection"]), float(told["threshold"]), int(told["hold"])
            made = cls(cameras, channels, strides, projection, hidden, threshold, hold)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SpecError(f"{type(error).__name__}: {error}") from error
        made.check()
        return made

    def check(self) -> None:
        """Refuse what no classifier can be.

        Raises:
            SpecError: naming the field.
        """
        keys = [o.key for o in self.cameras]
        if not keys or keys != sorted(set(keys)) or any(len(o.shape) != 3 or min(o.shape) < 1 for o in self.cameras):
            raise SpecError(f"cameras: {keys}, expected distinct sorted keys of images (H, W, C)")
        if not self.channels or len(self.channels) != len(self.strides):
            raise SpecError(f"strides: {len(self.strides)} entries for {len(self.channels)} of channels; one for each")
        if min((*self.channels, *self.strides, *self.hidden, self.projection)) < 1:
            raise SpecError("channels, strides, hidden, projection: expected positive numbers")
        if not 0 < self.threshold < 1 or not 1 <= self.hold <= MAX_HOLD:
            raise SpecError(f"threshold {self.threshold:g} and hold {self.hold}: expected (0, 1) and 1 to {MAX_HOLD}")
        for o, features in zip(self.cameras, self._features(), strict=True):
            if features < 1:
                raise SpecError(f"cameras: {o.key} {o.shape} is too small for convolutions of strides {list(self.strides)}")

    @property
    def shapes(self) -> Shapes:
        """Name -> shape of every tensor."""
        shapes: Shapes = {}
        for i, o in enumerate(self.cameras):
            shapes |= encoder_shapes(f"encoders.{i}", o, 1, self.channels, self.strides)[0]
        return shapes | projected_shapes("head", sum(self._features()), 0, self.projection, self.hidden, 1)

    def _features(self) -> list[int]:
        return [encoder_shapes("", o, 1, self.channels, self.strides)[1] for o in self.cameras]
