"""The prefix of a vision-language-action policy: cameras, words and state as one sequence of tokens, and which are there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headrace.common.errors import SpecError
from headrace.common.prefix_columns import is_prefix, names_of
from headrace.common.specs import TransitionSpec
from headrace.learner.encoder import ConvEncoder, is_camera
from headrace.learner.inputs import flat, keys_of

INTEGERS = ("|u1", "|i1", "<u2", "<i2", "<i4", "<i8")


class Prefix(NamedTuple):
    """What a policy knows before it decides.

    Attributes:
        tokens: ``(B, T, E)``.
        absent: ``(B, T)`` bool, tokens that nobody may attend to: padding, cameras that are not there.
        state: ``(B, S)`` the plain numbers among the observations.
        task: ``(B,)`` int64, the row's task, for critics that have networks for each; None for all others.
        memory: what an encoder of one's own hands to its expert beside the tokens, such as each layer's keys and values.
    """

    tokens: Tensor
    absent: Tensor
    state: Tensor
    task: Tensor | None = None
    memory: Any = None

    def detach(self) -> Prefix:
        """The same without what is the expert's alone, through which no gradient flows."""
        return self._replace(tokens=self.tokens.detach(), state=self.state.detach(), memory=None)


class Sight:
    """Which observation keys of a role are cameras, which are words, which say what is there, and which are plain numbers.

    Attributes:
        cameras: of the cameras.
        words: of the words, or None.
        masks: camera or words -> its mask's key.
        numbers: S, plain numbers of one observation.

    Args:
        spec: of the observations; of stacked frames only plain numbers and cameras are taken.
        role: who sees.
        words: key of the token ids ``(L,)``; empty for none.
        masks: camera or words -> key of its mask: one flag for a camera, ``(L,)`` for words; 0 means absent.

    Raises:
        SpecError: a key that is named is not there or cannot be what it is named for, or nothing is left to see.
    """

    def __init__(self, spec: TransitionSpec, role: str, words: str, masks: Mapping[str, str]) -> None:
        keys = {o.key: o for o in keys_of(spec, role) if not is_prefix(o.key)}
        for option, names in (("words", [words] if words else []), ("masks", [*masks, *masks.values()])):
            for name in names:
                if name not in keys:
                    raise SpecError(f"model.options.{option}: the {role} sees no {name!r}; there are {', '.join(keys)}")
        if words and (keys[words].dtype not in INTEGERS or len(keys[words].shape) != 1 or spec.stack > 1):
            raise SpecError(
                f"model.options.words: {words!r} is {keys[words].shape} {keys[words].dtype} in stacks of {spec.stack},"
                " expected whole numbers (L,) and stacks of 1"
            )
        taken = {words, *masks.values()}
        self.words = keys[words] if words else None
        self.cameras = [o for key, o in keys.items() if is_camera(o) and key not in taken]
        self.masks = dict(masks)
        self._plain = [o for key, o in keys.items() if not is_camera(o) and key not in taken]
        self.numbers = spec.stack * sum(math.prod(o.shape) for o in self._plain)
        for seen, mask in masks.items():
            if keys[seen] not in self.cameras and seen != words:
                raise SpecError(f"model.options.masks: {seen!r} is neither a camera nor words")
            wanted = keys[seen].shape if seen == words else (1,)
            if math.prod(keys[mask].shape) * (1 if seen == words else spec.stack) != math.prod(wanted):
                raise SpecError(f"model.options.masks.{seen}: {mask!r} is {keys[mask].shape}, expected {wanted}")

    def stored(self, digest: str, obs: Mapping[str, Tensor]) -> Prefix:
        """The prefix that rows hold, of the policy with this digest."""
        tokens, absent = (obs[name] for name in names_of(digest))
        return Prefix(tokens.view(torch.float16).float(), absent != 0, self.state(obs))

    def state(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The plain numbers, ``(B, S)``."""
        if not self._plain:
            some = next(iter(obs.values()))
            return torch.zeros((len(some), 0), device=some.device)
        return torch.cat([flat(obs[o.key], o) for o in self._plain], dim=1)

    def absent(self, obs: Mapping[str, Tensor], key: str, count: int) -> Tensor:
        """``(B, count)`` bool, which of the tokens of a camera or of words are not there."""
        mask = obs.get(self.masks.get(key, ""))
        if mask is None:
            return torch.zeros((len(obs[key]), count), dtype=torch.bool, device=obs[key].device)
        return (mask.reshape(len(mask), -1) == 0).expand(-1, count)


class PrefixEncoder(nn.Module):
    """Observations in, :class:`Prefix` out: convolutions a camera, an embedding of words, one token of the plain numbers.

    What is added to each token for its place is learned; that of a patch begins with :func:`waves`.

    Args:
        sight: what there is to see.
        stack: h, frames of one observation.
        width: E.
        heads: of the attention between tokens.
        layers: of it; 0 leaves the tokens as they are encoded.
        vocabulary: how many words there are.
        channels: of the cameras' convolutions.
        strides: of these.
    """

    def __init__(
        self,
        sight: Sight,
        stack: int,
        *,
        width: int,
        heads: int,
        layers: int,
        vocabulary: int,
        channels: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        super().__init__()
        self._sight, self._patch = sight, channels[-1]
        encoders = [ConvEncoder(o, stack, channels, strides) for o in sight.cameras]
        self.cameras = nn.ModuleList(encoders)
        self.patches = nn.ModuleList(nn.Linear(channels[-1], width) for _ in sight.cameras)
        self.words = nn.Embedding(vocabulary, width) if sight.words is not None else None
        self.plain = nn.Linear(sight.numbers, width) if sight.numbers else None
        others = (0 if sight.words is None else sight.words.shape[0]) + bool(sight.numbers)
        places = [waves(*encoder.patches, width) for encoder in encoders]
        self.places = nn.Parameter(torch.cat((*places, 0.02 * torch.randn(others, width))))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, obs: Mapping[str, Tensor]) -> Prefix:
        """The prefix of B observations: key -> ``(B, *shape)`` or ``(B, h, *shape)``."""
        sight, parts, absent = self._sight, [], []
        for o, encoder, patch in zip(sight.cameras, self.cameras, self.patches, strict=True):
            features = encoder(obs[o.key])
            parts.append(patch(features.unflatten(1, (self._patch, -1)).transpose(1, 2)))
            absent.append(sight.absent(obs, o.key, parts[-1].shape[1]))
        if sight.words is not None and self.words is not None:
            parts.append(self.words(obs[sight.words.key].long()))
            absent.append(sight.absent(obs, sight.words.key, parts[-1].shape[1]))
        state = sight.state(obs)
        if self.plain is not None:
            parts.append(self.plain(state).unsqueeze(1))
            absent.append(torch.zeros((len(state), 1), dtype=torch.bool, device=state.device))
        tokens, missing = torch.cat(parts, dim=1) + self.places, torch.cat(absent, dim=1)
        missing = missing & ~missing.all(dim=1, keepdim=True)  # attention over nothing would be no number
        for layer in self.layers:
            tokens = layer(tokens, src_key_padding_mask=missing)
        return Prefix(self.norm(tokens), missing, state)


def waves(rows: int, columns: int, width: int) -> Tensor:
    """Where each of ``rows * columns`` patches is, ``(rows * columns, width)``: numbers of near ones are alike.

    Sines and cosines from a quarter of a wave over all rows, or columns, up to one every four of them, after Vaswani et al.,
    Attention Is All You Need, arXiv:1706.03762, section 3.5; the first half of the numbers tells rows, the second columns.
    """
    down, across = (_line(count, width // 4) for count in (rows, columns))
    both = torch.cat((down[:, None].expand(-1, columns, -1), across[None].expand(rows, -1, -1)), dim=2)
    return nn.functional.pad(both.flatten(0, 1), (0, width - both.shape[2]))


def _line(count: int, frequencies: int) -> Tensor:
    at = (torch.arange(count) + 0.5) / count
    angles = math.pi * at[:, None] * torch.logspace(-1.0, math.log2(count) - 1.0, frequencies, base=2.0)
    return torch.cat((angles.sin(), angles.cos()), dim=1)
