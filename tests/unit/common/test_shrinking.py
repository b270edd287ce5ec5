"""Smaller images: which pixels make one of them, in numpy and torch alike."""

import numpy as np
import pytest
import torch

from headrace.common.errors import SpecError
from headrace.common.shrinking import blocks, seen_at, shrunk
from headrace.common.specs import ObsSpec
from headrace.learner import shrinking


def means(image, size):
    """The same by its definition, pixel by pixel."""
    out = np.zeros((size, size, image.shape[2]), np.uint8)
    for i in range(size):
        for j in range(size):
            high, wide = image.shape[0] // size, image.shape[1] // size
            top = int(((2 * i + 1) * image.shape[0] / size - high) // 2)
            left = int(((2 * j + 1) * image.shape[1] / size - wide) // 2)
            block = image[top : top + high, left : left + wide].reshape(-1, image.shape[2])
            out[i, j] = np.floor(block.mean(0) + 0.5)
    return out


@pytest.mark.parametrize(
    ("shape", "size"), [((128, 128, 3), 48), ((12, 8, 1), 4), ((9, 11, 2), 5), ((7, 7, 3), 7), ((6, 40, 3), 1)]
)
def test_each_pixel_is_the_mean_of_a_block_in_the_middle_of_what_it_stands_for(shape, size):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, *shape), np.uint8)
    small = shrunk(images, size)
    assert small.dtype == np.uint8
    assert small.shape == (2, 3, size, size, shape[2])
    assert all((small[b, h] == means(images[b, h], size)).all() for b in range(2) for h in range(3))
    assert (shrinking.shrunk(torch.from_numpy(images), size).numpy() == small).all()
    for length in shape[:2]:
        k, begins = blocks(length, size)
        assert begins[0] >= 0
        assert begins[-1] + k <= length
        assert (np.diff(begins) >= k).all()


def test_whole_multiples_are_means_of_all_pixels_and_an_image_of_that_size_stays():
    image = np.arange(6 * 4 * 1, dtype=np.uint8).reshape(6, 4, 1)
    assert (shrunk(image, 2)[..., 0] == (image[..., 0].reshape(2, 3, 2, 2).mean((1, 3)) + 0.5).astype(np.uint8)).all()
    same = torch.from_numpy(image[:4])
    assert shrinking.shrunk(same, 4) is same


def test_a_camera_is_seen_no_larger_than_it_is():
    camera = ObsSpec("eye", (10, 12, 3), "|u1", "critic")
    assert seen_at(camera, 0) is camera
    assert seen_at(camera, 10) == ObsSpec("eye", (10, 10, 3), "|u1", "critic")
    with pytest.raises(
        SpecError, match=r"model\.options\.size: 11, but the images of spec\.obs\.eye are 10 x 12; nearest valid: 10"
    ):
        seen_at(camera, 11)
