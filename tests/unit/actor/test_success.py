"""The success classifier: the same in numpy as in torch, a file that is whole or refused, and images in a row."""

import numpy as np
import pytest
import torch
from helpers.judged import EYE, bright, picture

from headrace.actor.success import Held, SuccessClassifier, first_held, read_classifier
from headrace.common.classifying import TYPE, Classifying
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import ObsSpec
from headrace.common.weights import WeightSet
from headrace.learner.classifier import ClassifierNet, ClassifierOptions

RNG = np.random.default_rng(0)
SUCCESS, NONE = ({"eye": np.stack([picture(RNG, success=kind) for _ in range(3)])} for kind in (True, False))


def test_numpy_says_what_torch_says():
    cameras = (ObsSpec("left", (12, 14, 3), "|u1"), ObsSpec("right", (9, 9, 1), "|u1"))
    what = ClassifierOptions(channels=(4, 6), strides=(2, 1), projection=5, hidden=(7, 3)).shape(cameras)
    torch.manual_seed(0)
    net = ClassifierNet(what)
    tensors = {name: p.detach().numpy() for name, p in net.named_parameters()}
    assert {name: t.shape for name, t in tensors.items()} == what.shapes
    images = {o.key: RNG.integers(0, 256, (5, *o.shape), np.uint8) for o in cameras}
    said = SuccessClassifier(WeightSet(bright().version, what.to_dict(), tensors)).probability(images)
    with torch.no_grad():
        told = torch.sigmoid(net({key: torch.from_numpy(values) for key, values in images.items()}))
    assert said.shape == (5,)
    assert said.dtype == np.float32
    np.testing.assert_allclose(said, told.numpy(), atol=1e-6)
    assert len(np.unique(said)) == 5


def test_the_classifier_of_the_tests_sees_what_it_should():
    classifier = SuccessClassifier(bright())
    assert (classifier.probability(SUCCESS) > 0.9).all()
    assert (classifier.probability(NONE) < 0.1).all()


@pytest.mark.parametrize(
    ("hold", "seen", "at"),
    [
        (1, [0.1, 0.5, 0.9], 1),
        (2, [0.9, 0.1, 0.9, 0.9, 0.9], 3),
        (3, [0.9, 0.9, 0.49, 0.9, 0.9], None),
        (3, [0.5, 0.5, 0.5], 2),
        (2, [0.9, float("nan"), 0.9], None),
    ],
)
def test_success_is_held_by_so_many_images_in_a_row(hold, seen, at):
    held = Held(0.5, hold)
    for _ in range(2):  # nothing is left of the episode before
        assert first_held(np.array(seen, np.float32), held) == at


def changed(**told):
    weights = bright()
    return WeightSet(weights.version, {**weights.policy, **told}, weights.tensors)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"type": "mlp"}, f"expected '{TYPE}'"),
        ({"cameras": []}, "cameras"),
        ({"cameras": [{"key": "eye", "shape": [9, 9]}]}, "cameras"),
        ({"cameras": [{"key": "eye", "shape": [2, 2, 1]}]}, "too small"),
        ({"cameras": "eye"}, "TypeError"),
        ({"strides": [1, 1]}, "strides"),
        ({"hidden": [0]}, "positive"),
        ({"threshold": 1.0}, "threshold"),
        ({"hold": 0}, "hold"),
        ({"projection": 7}, "head.projection.weight"),
    ],
)
def test_a_file_that_is_no_classifier_is_refused_by_name(tmp_path, told, why):
    path = tmp_path / "cube.hrw"
    path.write_bytes(changed(**told).pack())
    with pytest.raises(ConfigError, match=why) as refused:
        read_classifier(path, "env.success.file")
    assert "env.success.file" in str(refused.value)
    assert "cube.hrw" in str(refused.value)


def test_a_file_is_whole_or_refused(tmp_path):
    path = tmp_path / "cube.hrw"
    with pytest.raises(ConfigError, match="No such file"):
        read_classifier(path, "FILE")
    blob = bright().pack()
    path.write_bytes(blob)
    classifier, name = read_classifier(path, "FILE")
    assert name.startswith("cube ")
    assert classifier.what == Classifying.of(bright().policy)
    for at in range(0, len(blob), 97):
        path.write_bytes(blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :])
        with pytest.raises(ConfigError, match="no classifier"):
            read_classifier(path, "FILE")
    bad = bright()
    bad.tensors["head.norm.bias"][0] = np.nan
    with pytest.raises(SpecError, match=r"head\.norm\.bias"):
        SuccessClassifier(bad)


@pytest.mark.parametrize(
    ("obs", "why"),
    [
        ((ObsSpec("hand", (9, 9, 1), "|u1"),), "eye: not observed"),
        ((ObsSpec("eye", (9, 8, 1), "|u1"),), r"eye: \(9, 8, 1\)"),
        ((ObsSpec("eye", (9, 9, 1), "<f4"),), "eye: .*<f4"),
    ],
)
def test_other_cameras_than_those_of_training_are_refused(obs, why):
    SuccessClassifier(bright()).require_cameras((EYE, *obs) if obs[0].key != "eye" else (EYE,))
    with pytest.raises(ConfigError, match=why):
        SuccessClassifier(bright()).require_cameras(obs)
