"""Random shifts: pixels that say where they were, against padding and cutting in numpy."""

import numpy as np
import pytest
import torch

from headrace.learner.augment import random_shift

HEIGHT, WIDTH, COLOURS, PAD = 12, 10, 2, 4


def named(batch, *frames):
    """``(B, *frames, 12, 10, 2)`` uint8: row * 16 + column in the first colour, that plus the frame's number in the second."""
    place = np.arange(HEIGHT)[:, None] * 16 + np.arange(WIDTH)
    pictures = np.stack([np.stack([place, place + k], -1) for k in range(1, 1 + int(np.prod(frames)))]).astype(np.uint8)
    return torch.from_numpy(
        np.broadcast_to(pictures.reshape(1, *frames, HEIGHT, WIDTH, COLOURS), (batch, *frames, 12, 10, 2)).copy()
    )


def shifts_of(shifted):
    """``(B, 2)``, by how far each sample's centre came from elsewhere."""
    seen = shifted.reshape(len(shifted), -1, HEIGHT, WIDTH, COLOURS)[:, 0, 6, 5, 0].numpy().astype(int)
    return np.stack([seen // 16 - 6, seen % 16 - 5], axis=1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("frames", [(), (3,)], ids=["one", "stacked"])
def test_each_sample_is_padded_with_its_edge_and_cut_out_at_a_place_of_its_own(frames):
    images = named(256, *frames)
    shifted = random_shift(images, PAD, seeded())
    assert (shifted.shape, shifted.dtype) == (images.shape, torch.uint8)
    shifts = shifts_of(shifted)
    edges = [(0, 0)] * (1 + len(frames)) + [(PAD, PAD), (PAD, PAD), (0, 0)]
    padded = np.pad(images.numpy(), edges, mode="edge")
    for i, (down, right) in enumerate(shifts + PAD):
        expected = padded[i, ..., down : down + HEIGHT, right : right + WIDTH, :]
        np.testing.assert_array_equal(shifted[i], expected)


def test_every_shift_within_the_bounds_comes_and_rows_and_columns_are_independent():
    shifts = shifts_of(random_shift(named(8100), PAD, seeded()))
    counts = np.zeros((9, 9))
    np.add.at(counts, tuple(shifts.T + PAD), 1)
    assert counts.sum() == 8100  # nothing outside
    assert counts.min() > 50  # 100 expected in each of 81
    assert counts.max() < 150


def test_the_generator_alone_decides():
    images = named(32)
    torch.manual_seed(1)
    first = random_shift(images, PAD, seeded(3))
    torch.manual_seed(2)
    again, other = random_shift(images, PAD, seeded(3)), random_shift(images, PAD, seeded(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    generator = seeded(3)
    assert not torch.equal(random_shift(images, PAD, generator), random_shift(images, PAD, generator))


def test_no_pad_is_no_shift_and_a_pad_beyond_the_image_is_its_edge():
    images = named(4)
    assert torch.equal(random_shift(images, 0, seeded()), images)
    far = random_shift(images, 1000, seeded())
    assert all(len(np.unique(picture[:, :, 0])) <= max(HEIGHT, WIDTH) for picture in far.numpy())
    assert torch.equal(images, named(4))  # in place of nothing
