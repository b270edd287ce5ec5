"""The success classifier: what it says of camera images, in numpy alone, and for how many of them in a row it must say so."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.config import SuccessConfig
from headrace.actor.policy import require_tensors
from headrace.common.classifying import Classifying
from headrace.common.convolutions import encode, projected
from headrace.common.errors import ConfigError, SpecError, WireError
from headrace.common.specs import HEALTH_JUDGED, HEALTH_SUCCESS, ObsSpec
from headrace.common.weights import WeightSet

Array = np.ndarray[Any, Any]
MAX_BYTES = 256 << 20  # of a file


class SuccessClassifier:
    """Says of images how probable it is that they show success, in float32.

    Attributes:
        what: what it is.
        about: everything that its file says, also how it was trained and what it did on held-out episodes.

    Args:
        weights: description and tensors.

    Raises:
        SpecError: they are no classifier's.
    """

    def __init__(self, weights: WeightSet) -> None:
        self.what = Classifying.of(weights.policy)
        require_tensors(weights, self.what.shapes)
        self.about = dict(weights.policy)
        self._tensors = dict(weights.tensors)

    def require_cameras(self, obs: Sequence[ObsSpec]) -> None:
        """Refuse observations without the cameras that it was trained on.

        Raises:
            ConfigError: naming the camera, what it is there, and what it was in training.
        """
        there = {o.key: o for o in obs}
        for o in self.what.cameras:
            found = there.get(o.key)
            if found is None or (found.shape, found.dtype) != (o.shape, o.dtype):
                seen = f"{found.shape} {found.dtype}" if found else f"not observed (there are {', '.join(sorted(there))})"
                raise ConfigError(
                    f"camera {o.key}: {seen}, and the classifier was trained on {o.shape} uint8; train one on these"
                )

    def probability(self, obs: Mapping[str, Array]) -> Array:
        """``(L,)`` float32 in [0, 1] of observations with its cameras, ``(L, H, W, C)`` uint8 each."""
        what, tensors = self.what, self._tensors
        with np.errstate(all="ignore"):
            images = [encode(tensors, f"encoders.{i}", obs[o.key], what.strides) for i, o in enumerate(what.cameras)]
            logit = projected(tensors, "head", images, (), len(what.hidden))[:, 0]
            return np.asarray(np.float32(1) / (np.float32(1) + np.exp(-logit)), np.float32)


class Held:
    """Whether success has been seen in ``hold`` images in a row; one that is not a number is not success.

    Args:
        threshold: probability from which an image shows success.
        hold: images.
    """

    def __init__(self, threshold: float, hold: int) -> None:
        self._threshold, self._hold = threshold, hold
        self._seen = 0

    def restart(self) -> None:
        """An episode begins: nothing was seen yet."""
        self._seen = 0

    def see(self, probability: float) -> bool:
        """Take the next image's probability."""
        self._seen = self._seen + 1 if probability >= self._threshold else 0
        return self._seen >= self._hold


def first_held(probabilities: Array, held: Held) -> int | None:
    """Place of the image with which success is held in an episode's ``(n,)`` probabilities; none where it never is."""
    held.restart()
    return next((i for i, p in enumerate(probabilities.tolist()) if held.see(p)), None)


class Judge:
    """Looks at the steps of one episode after another, and says where success is held.

    Attributes:
        cameras: keys of what it looks at.

    Args:
        classifier: of single images.
        held: of how many in a row.
    """

    def __init__(self, classifier: SuccessClassifier, held: Held) -> None:
        self._classifier, self._held = classifier, held
        self.cameras = tuple(o.key for o in classifier.what.cameras)

    @classmethod
    def of(cls, config: SuccessConfig, obs: Sequence[ObsSpec]) -> Judge | None:
        """What a config asks for, before an env or robot with these observations; none where it asks for nothing.

        Raises:
            ConfigError: as :func:`read_classifier`, or these are not its cameras.
        """
        if not config.file:
            return None
        classifier, _ = find_classifier(config)
        classifier.require_cameras(obs)
        what = classifier.what
        threshold = what.threshold if config.threshold is None else config.threshold
        return cls(classifier, Held(threshold, what.hold if config.hold is None else config.hold))

    def restart(self) -> None:
        """An episode begins."""
        self._held.restart()

    def sees(self, values: Mapping[str, Array]) -> bool:
        """Take what was seen after the next step, key -> ``(*shape)``: whether success is held now."""
        images = {key: np.asarray(values[key])[None] for key in self.cameras}
        return self._held.see(float(self._classifier.probability(images)[0]))


def health_of(judged: bool | None) -> int:
    """What a classifier said of a step as bits of its row's health; none where there was none."""
    return 0 if judged is None else HEALTH_JUDGED | HEALTH_SUCCESS * judged


def find_classifier(config: SuccessConfig) -> tuple[SuccessClassifier, str]:
    """As :func:`read_classifier`, of a config that names one."""
    return read_classifier(Path(config.file).expanduser(), "env.success.file")


def read_classifier(path: Path, field: str) -> tuple[SuccessClassifier, str]:
    """The classifier in a file, and its name: the file's with the beginning of its digest.

    Args:
        path: as ``headrace classifier train`` writes it: tensors with a manifest, under one digest, without pickle.
        field: where the config or the command line names it.

    Raises:
        ConfigError: it cannot be read, is damaged, or is no classifier.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{field}: {path} has {size} bytes, and a classifier {MAX_BYTES} at most")
        data = path.read_bytes()
        classifier = SuccessClassifier(WeightSet.unpack(data))
    except OSError as error:
        raise ConfigError(f"{field}: {path} cannot be read: {error.strerror or error}") from error
    except (WireError, SpecError) as error:
        raise ConfigError(f"{field}: {path} is no classifier: {error}") from error
    return classifier, f"{path.stem} {hashlib.sha256(data).hexdigest()[:12]}"
