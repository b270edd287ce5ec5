"""A prefix of the ``transformers`` package: a PaliGemma as pi0 has one, in front of the action expert.

``model.type: headrace.learner.paligemma:PaliGemmaPolicy``; needs ``pip install headrace[transformers]``. Its configuration is
made here, of a few sizes, and its weights are random unless ``pretrained`` names an export: nothing is downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import option
from headrace.common.errors import ConfigError, SpecError
from headrace.learner.flow_policy import FlowOptions, FlowPolicy
from headrace.learner.prefix import Prefix, Sight

KEY_VALUE_HEADS = 1


@dataclass(frozen=True)
class PaliGemmaOptions(FlowOptions):
    """A flow policy's options, and the sizes of the language model and the vision tower."""

    patch: int = option(16, help="pixels of a patch's side", low=1, high=64)
    text_layers: int = option(2, help="layers of the language model", low=1, high=64)
    text_width: int = option(64, help="width of the language model", low=8, high=8192)
    vision_layers: int = option(2, help="layers of the vision tower", low=1, high=64)
    vision_width: int = option(64, help="width of the vision tower", low=8, high=8192)


class PaliGemmaPrefix(nn.Module):
    """Square cameras of one size and words through a PaliGemma; tokens ``(B, T, E)`` are its last hidden states.

    Args:
        sight: what there is to see.
        options: sizes.

    Raises:
        ConfigError: ``transformers`` is not installed.
        SpecError: there are no words, or cameras that it cannot take.
    """

    def __init__(self, sight: Sight, options: PaliGemmaOptions) -> None:
        super().__init__()
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise ConfigError(
                f"model.type: the PaliGemma prefix needs the package transformers ({error});"
                " pip install 'headrace[transformers]'"
            ) from error
        shapes = {camera.shape for camera in sight.cameras}
        side = next(iter(shapes))[0] if shapes else 0
        if sight.words is None or len(shapes) != 1 or (side, side, 3) not in shapes or side % options.patch:
            raise SpecError(
                f"model.options: PaliGemma needs words and square cameras (n, n, 3) of one size, n a multiple of patch"
                f" {options.patch}; there are {sorted(shapes)}"
            )
        self._sight, self._image_token = sight, options.vocabulary
        self._tokens = (side // options.patch) ** 2
        own = options
        shared: dict[str, Any] = {"num_attention_heads": own.heads}
        vision = {
            **shared,
            "model_type": "siglip_vision_model",
            "hidden_size": own.vision_width,
            "intermediate_size": 4 * own.vision_width,
            "image_size": side,
            "patch_size": own.patch,
            "num_hidden_layers": own.vision_layers,
            "projection_dim": own.text_width,
            "vision_use_head": False,
        }
        text = {
            **shared,
            "model_type": "gemma",
            "hidden_size": own.text_width,
            "intermediate_size": 4 * own.text_width,
            "num_hidden_layers": own.text_layers,
            "head_dim": max(2, own.text_width // own.heads),
            "vocab_size": own.vocabulary + 1,
            "num_key_value_heads": KEY_VALUE_HEADS,
        }
        config = transformers.PaliGemmaConfig(
            vision_config=vision,
            text_config=text,
            image_token_index=self._image_token,
            projection_dim=options.text_width,
        )
        self.model = transformers.AutoModel.from_config(config)
        self.project = nn.Linear(options.text_width, options.width)
        self.plain = nn.Linear(sight.numbers, options.width) if sight.numbers else None
        self.norm = nn.LayerNorm(options.width)

    def forward(self, obs: Mapping[str, Tensor]) -> Prefix:
        """The prefix of B observations: key -> ``(B, *shape)``."""
        sight, words = self._sight, self._sight.words
        assert words is not None  # refused at the beginning
        images = [obs[camera.key].movedim(-1, 1).float() / 127.5 - 1.0 for camera in sight.cameras]
        embedded, absent = [], []
        for camera, image in zip(sight.cameras, images, strict=True):
            embedded.append(_hidden(self.model.get_image_features(image)))
            absent.append(sight.absent(obs, camera.key, self._tokens))
        embedded.append(self.model.get_input_embeddings()(obs[words.key].long()))
        absent.append(sight.absent(obs, words.key, embedded[-1].shape[1]))
        inputs, missing = torch.cat(embedded, dim=1), torch.cat(absent, dim=1)
        missing = missing & ~missing.all(dim=1, keepdim=True)
        pair = (~missing)[:, None, None, :] & torch.ones_like(missing)[
            :, None, :, None
        ]  # all see all that is there, as a prefix does
        seen = inputs.new_zeros(pair.shape).masked_fill(~pair, torch.finfo(inputs.dtype).min)
        hidden = self.model.language_model(inputs_embeds=inputs, attention_mask=seen, use_cache=False)
        tokens, state = self.norm(self.project(hidden.last_hidden_state)), sight.state(obs)
        if self.plain is not None:
            tokens = torch.cat((tokens, self.plain(state).unsqueeze(1)), dim=1)
            missing = torch.cat((missing, missing.new_zeros(len(missing), 1)), dim=1)
        return Prefix(tokens, missing, state)


class PaliGemmaPolicy(FlowPolicy):
    """The flow policy with that prefix."""

    Options: ClassVar[type[Any]] = PaliGemmaOptions

    def make_prefix(self, sight: Sight) -> nn.Module:
        """A PaliGemma of the sizes that the options say."""
        return PaliGemmaPrefix(sight, self.options)


def _hidden(found: Any) -> Tensor:
    """Features of images, ``(B, T, E)``, whatever a version of the package wraps them in."""
    features: Tensor = found if isinstance(found, Tensor) else found.pooler_output
    return features
