"""Random shifts of images, by which critics learn from pixels without learning pixels by heart."""

from __future__ import annotations

import torch
from torch import Tensor


def random_shift(images: Tensor, pad: int, generator: torch.Generator | None) -> Tensor:
    """Each sample's images moved by a whole number of pixels up to ``pad`` either way; what comes in repeats the edge.

    The same as padding by ``pad`` with copies of the edge and cutting the old size out at random (Kostrikov et al., Image
    Augmentation Is All You Need, arXiv:2004.13649, section 3.1), as gathers of rows and columns in the images' dtype.

    Args:
        images: ``(B, H, W, C)``, or ``(B, h, H, W, C)``, whose h frames move together.
        pad: pixels.
        generator: source of the B independent shifts, on the images' device.
    """
    batch, (height, width, colours), device = len(images), images.shape[-3:], images.device
    down, right = torch.randint(-pad, pad + 1, (2, batch, 1), generator=generator, device=device)
    rows = (torch.arange(height, device=device) + down).clamp_(0, height - 1)
    columns = (torch.arange(width, device=device) + right).clamp_(0, width - 1)
    line = (columns.unsqueeze(2) * colours + torch.arange(colours, device=device)).reshape(batch, 1, 1, -1)  # in one row
    frames = images.reshape(batch, -1, height, width * colours)
    sample = torch.arange(batch, device=device).reshape(-1, 1, 1)
    frame = torch.arange(frames.shape[1], device=device).reshape(1, -1, 1)
    moved = frames[sample, frame, rows.unsqueeze(1)]  # whole rows first: pixels one by one take three times as long
    return moved.gather(3, line.expand(-1, frames.shape[1], height, -1)).reshape(images.shape)
