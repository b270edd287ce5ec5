"""LeRobot's SmolVLA as a flow policy: its vision-language model is the prefix, its action expert the expert.

``model.type: headrace.learner.smolvla:SmolVLA``; needs the package ``lerobot`` 0.4 with its extra ``smolvla``. What it begins
with is a local directory that ``save_pretrained`` has written: nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import Tensor, nn

from headrace.common.config import option
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import TransitionSpec
from headrace.learner.dense import Head
from headrace.learner.flow_policy import EXPERT, HEADS, LEARNED, LORA, OWN, FlowOptions, FlowPolicy
from headrace.learner.prefix import Prefix, Sight

CONFIG, TENSORS, PROCESSOR = "config.json", "model.safetensors", "policy_preprocessor.json"
STATE, ACTION, IMAGES = "observation.state", "action", "observation.images."
MEAN_STD, IDENTITY = "MEAN_STD", "IDENTITY"


@dataclass(frozen=True)
class SmolVLAOptions(FlowOptions):
    """A flow policy's options, and where LeRobot's files are."""

    checkpoint: str = option("", help="directory of a SmolVLA policy as LeRobot saves it: config, tensors and processors")
    backbone: str = option(
        "", help="directory with the configuration and the tokenizer of its vision-language model; empty: as its config says"
    )
    trains: str = option(
        EXPERT,
        help="what the actor's loss trains: the action expert, its last layers (heads), or these and thin matrices beside its"
        " other linear layers (lora)",
        choices=(EXPERT, HEADS, LORA),
    )

    def check(self, path: str = "model.options") -> None:
        """Refuse what a frozen model with a memory cannot do."""
        super().check(path)
        if not self.checkpoint:
            raise ConfigError(f"{path}.checkpoint: empty; name the directory of a SmolVLA policy that LeRobot has saved")
        if self.critic_prefix == OWN:
            raise ConfigError(f"{path}.critic_prefix: own, but a SmolVLA's prefix is not trained; nearest valid: shared")
        if self.stored:
            raise ConfigError(
                f"{path}.stored: true, but the expert of a SmolVLA wants keys and values of every layer, which no row holds;"
                " nearest valid: false"
            )


class Checkpoint:
    """A SmolVLA policy of LeRobot in a local directory, and what its numbers are scaled by.

    Attributes:
        config: LeRobot's.
        model: LeRobot's ``VLAFlowMatching``, frozen, in float32.
        library: LeRobot's module of it.
        digest: of its files.
        version: of LeRobot.

    Raises:
        ConfigError: ``lerobot`` is not installed, or the directory holds no such policy; naming what is missing, unknown or
            of another shape.
    """

    def __init__(self, options: SmolVLAOptions) -> None:
        self.what, self._place = f"model.options.checkpoint: {options.checkpoint}", Path(options.checkpoint).expanduser()
        try:
            self.library: Any = importlib.import_module("lerobot.policies.smolvla.modeling_smolvla")
            configs: Any = importlib.import_module("lerobot.configs.policies")
            self.version = str(importlib.import_module("lerobot").__version__)
        except ImportError as error:
            raise ConfigError(
                f"model.type: SmolVLA needs the package lerobot 0.4 ({error}); pip install 'lerobot[smolvla]==0.4.*'"
            ) from error
        files = [self._place / name for name in (CONFIG, TENSORS, PROCESSOR)]
        if missing := [file.name for file in files if not file.is_file()]:
            raise ConfigError(
                f"{self.what}: no {missing[0]} in it; name a directory that LeRobot's save_pretrained has written"
            )
        self.config = configs.PreTrainedConfig.from_pretrained(self._place)
        if self.config.type != "smolvla":
            raise ConfigError(f"{self.what}: holds a policy of type {self.config.type!r}, expected 'smolvla'")
        backbone = Path(options.backbone or self.config.vlm_model_name).expanduser()
        if not (backbone / CONFIG).is_file():
            raise ConfigError(
                f"model.options.backbone: {str(backbone)!r} is no directory with a {CONFIG}, and nothing is downloaded; name"
                " one on this host"
            )
        self.config.vlm_model_name, self.config.load_vlm_weights = str(backbone), False
        self.config.device, self.config.compile_model = "cpu", False
        policy = self.library.SmolVLAPolicy(self.config)
        try:
            safetensors.torch.load_model(policy, self._place / TENSORS, strict=True)
        except (RuntimeError, OSError, safetensors.SafetensorError) as error:
            raise ConfigError(f"{self.what}: {TENSORS} does not fit its {CONFIG}: {error}") from error
        for name, tensor in policy.state_dict().items():
            if not bool(torch.isfinite(tensor).all()):
                raise ConfigError(f"{self.what}: tensor {name!r} holds NaN or infinity")
        self.model = policy.model.float().eval().requires_grad_(False)
        self.digest = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()

    @property
    def cameras(self) -> list[str]:
        """Observation keys of its images, in its order."""
        return [name.removeprefix(IMAGES) for name in self.config.image_features]

    def size_of(self, feature: str) -> int:
        """How many numbers state or action have."""
        features = {**self.config.input_features, **self.config.output_features}
        return int(features[feature].shape[0]) if feature in features else 0

    def scale(self, feature: str, kind: str) -> tuple[Tensor, Tensor]:
        """What is taken off the numbers of state or action, and what they are then divided by, as it was trained.

        Raises:
            ConfigError: they are scaled in another way than by mean and deviation, or nobody says by which.
        """
        mode, size = str(getattr(self.config.normalization_mapping.get(kind), "value", IDENTITY)), self.size_of(feature)
        if mode == IDENTITY:
            return torch.zeros(size), torch.ones(size)
        steps = json.loads((self._place / PROCESSOR).read_text())["steps"]
        files = [step["state_file"] for step in steps if step.get("registry_name") == "normalizer_processor"]
        known = safetensors.torch.load_file(self._place / files[0]) if files else {}
        mean, deviation = (known.get(f"{feature}.{name}") for name in ("mean", "std"))
        if mode != MEAN_STD or mean is None or deviation is None or not mean.shape == deviation.shape == (size,):
            raise ConfigError(
                f"{self.what}: {feature} is scaled by {mode}, and its processor holds {', '.join(sorted(known)) or 'nothing'};"
                f" expected {IDENTITY}, or {MEAN_STD} with {feature}.mean and {feature}.std ({size},)"
            )
        return mean.float(), deviation.float() + 1e-8  # as LeRobot's normaliser has it


class SmolPrefix(nn.Module):
    """What SmolVLA sees: tokens are the language model's last hidden states, the memory each of its layers' keys and values.

    Args:
        sight: what there is to see; cameras by the names of LeRobot's image features.
        checkpoint: of the policy.

    Raises:
        SpecError: that is not what the policy sees.
    """

    def __init__(self, sight: Sight, checkpoint: Checkpoint) -> None:
        super().__init__()
        cameras = sorted(camera.key for camera in sight.cameras)
        wanted = {"cameras": sorted(checkpoint.cameras), "plain numbers": checkpoint.size_of(STATE)}
        here = {"cameras": cameras, "plain numbers": sight.numbers}
        if wanted != here or sight.words is None:
            raise SpecError(
                f"{checkpoint.what}: it sees words, and {wanted}; the env shows {here}, and model.options.words is"
                f" {None if sight.words is None else sight.words.key!r}"
            )
        self._sight, self.checkpoint = sight, checkpoint
        self.vlm, self.state_proj = checkpoint.model.vlm_with_expert.vlm, checkpoint.model.state_proj
        mean, deviation = checkpoint.scale(STATE, "STATE")
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def train(self, mode: bool = True) -> SmolPrefix:
        """It never trains."""
        return super().train(False)

    def forward(self, obs: Mapping[str, Tensor]) -> Prefix:
        """The prefix of B observations: key -> ``(B, *shape)``."""
        sight, library, model, config = self._sight, self.checkpoint.library, self.checkpoint.model, self.checkpoint.config
        assert sight.words is not None  # refused at the beginning
        images, there = [], []
        for key in self.checkpoint.cameras:
            image = obs[key].movedim(-1, 1).float() / 255
            if config.resize_imgs_with_padding is not None:
                image = library.resize_with_pad(image, *config.resize_imgs_with_padding, pad_value=0)
            images.append(image * 2 - 1)
            there.append(~sight.absent(obs, key, 1)[:, 0])
        words, state = obs[sight.words.key].long(), sight.state(obs)
        scaled = (state - self.mean) / self.deviation
        padded = nn.functional.pad(scaled, (0, config.max_state_dim - scaled.shape[1]))
        said = ~sight.absent(obs, sight.words.key, words.shape[1])
        tokens, seen, blocks = model.embed_prefix(images, there, words, said, state=padded)
        (hidden, _), memory = model.vlm_with_expert.forward(
            attention_mask=library.make_att_2d_masks(seen, blocks),
            position_ids=seen.cumsum(dim=1) - 1,
            past_key_values=None,
            inputs_embeds=[tokens, None],
            use_cache=True,
            fill_kv_cache=True,
        )
        return Prefix(hidden.float(), ~seen, state, memory=memory)


class SmolExpert(nn.Module):
    """SmolVLA's action expert: which way each of k noisy actions moves, seen the keys and values of the prefix.

    Args:
        actions: k.
        dims: A.
        checkpoint: of the policy.
        levels: whether it says a noise level too.

    Raises:
        SpecError: the policy denoises chunks of another shape.
    """

    def __init__(self, actions: int, dims: int, checkpoint: Checkpoint, *, levels: bool) -> None:
        super().__init__()
        config, model = checkpoint.config, checkpoint.model
        for name, here, wanted in (("horizon", actions, config.chunk_size), ("dims", dims, config.max_action_dim)):
            if here != wanted:
                raise SpecError(
                    f"model.options.{name}: {here}, but {checkpoint.what} denoises {wanted}; nearest valid: {wanted}"
                )
        self._checkpoint, self.lm_expert = checkpoint, model.vlm_with_expert.lm_expert
        self.action_in_proj = model.action_in_proj
        self.action_time_mlp_in, self.action_time_mlp_out = model.action_time_mlp_in, model.action_time_mlp_out
        self.velocity = Head(model.action_out_proj.in_features, dims)
        self.velocity.weight, self.velocity.bias = model.action_out_proj.weight, model.action_out_proj.bias
        self.level = Head(model.action_out_proj.in_features, dims) if levels else None
        self.requires_grad_(True)

    def forward(self, x: Tensor, time: Tensor, prefix: Prefix) -> tuple[Tensor, Tensor | None]:
        """Velocity ``(B, k, A)`` of ``x`` ``(B, k, A)`` at ``time`` ``(B,)``, and numbers for a noise level, if it has one."""
        if prefix.memory is None:
            raise SpecError("SmolVLA: a prefix that rows hold has no keys and values; model.options.stored must be false")
        library, config = self._checkpoint.library, self._checkpoint.config
        whole = self._checkpoint.model.vlm_with_expert
        periods = whole.expert_hidden_size, config.min_period, config.max_period
        waves = library.create_sinusoidal_pos_embedding(time, *periods, device=time.device).to(x.dtype)
        moved = self.action_in_proj(x)
        both = torch.cat((moved, waves[:, None].expand_as(moved)), dim=2)
        suffix = self.action_time_mlp_out(nn.functional.silu(self.action_time_mlp_in(both)))
        rows, actions = x.shape[:2]
        there = torch.ones((rows, actions), dtype=torch.bool, device=x.device)
        seen = ~prefix.absent
        among = library.make_att_2d_masks(there, there)  # each action sees those before it
        (_, hidden), _ = whole.forward(
            attention_mask=torch.cat((seen[:, None].expand(-1, actions, -1), among), dim=2),
            position_ids=seen.sum(dim=1, keepdim=True) + there.cumsum(dim=1) - 1,
            past_key_values=prefix.memory,
            inputs_embeds=[None, suffix],
            use_cache=True,
            fill_kv_cache=False,
        )
        hidden = hidden[:, -actions:].float()
        return self.velocity(hidden), None if self.level is None else self.level(hidden)


class SmolVLA(FlowPolicy):
    """The flow policy with LeRobot's prefix and expert, from a checkpoint of it.

    Actions are denoised as that policy scales them, and brought to the env's box behind it.

    Raises:
        ConfigError: see :class:`Checkpoint`.
        SpecError: env and checkpoint do not fit each other.
    """

    Options: ClassVar[type[Any]] = SmolVLAOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        checkpoint = self.checkpoint
        width = int(checkpoint.model.vlm_with_expert.config.text_config.hidden_size)
        if width != self.options.width:
            raise SpecError(f"model.options.width: {self.options.width}, but tokens of {checkpoint.what} are of {width}")
        if checkpoint.size_of(ACTION) != spec.action.dim:
            raise SpecError(
                f"{checkpoint.what}: actions of {checkpoint.size_of(ACTION)} numbers, the env's have {spec.action.dim}"
            )
        low, high = (
            torch.tensor(bound[: spec.action.dim], dtype=torch.float32) for bound in (spec.action.low, spec.action.high)
        )
        mean, deviation = checkpoint.scale(ACTION, "ACTION")
        self.slope: Tensor
        self.offset: Tensor
        self.register_buffer("slope", 2 * deviation / (high - low), persistent=False)
        self.register_buffer("offset", (2 * mean - high - low) / (high - low), persistent=False)

    @property
    def checkpoint(self) -> Checkpoint:
        """What it begins with."""
        assert isinstance(self.prefix, SmolPrefix)  # its own, see below
        return self.prefix.checkpoint

    def make_prefix(self, sight: Sight) -> nn.Module:
        """The vision-language model."""
        return SmolPrefix(sight, Checkpoint(self.options))

    def make_expert(self, actions: int, dims: int) -> nn.Module:
        """The action expert of the same one."""
        return SmolExpert(actions, dims, self.checkpoint, levels=self.options.noise == LEARNED)

    def begin(self) -> str:
        """The checkpoint's tensors are in place; an export's, if one is named, come over them."""
        return f"{self.checkpoint.digest}{super().begin()}"

    def policy_description(self) -> dict[str, Any]:
        """As any flow policy's, with LeRobot's version, whose code it acts by."""
        return {**super().policy_description(), "lerobot": self.checkpoint.version}

    def to_box(self, actions: Tensor) -> Tensor:
        """As the checkpoint scales them, to [-1, 1]."""
        return actions * self.slope + self.offset

    def from_box(self, actions: Tensor) -> Tensor:
        """[-1, 1] to how the checkpoint scales them."""
        return (actions - self.offset) / self.slope
