"""What headrace takes of LeRobot's SmolVLA, in a few lines that stand in for the package; and a checkpoint of it."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

WIDTH, INNER, HORIZON, DIMS, STATES, WORDS = 8, 6, 5, 3, 4, 300


class Whole(nn.Module):
    """The language model, whose memory is its tokens, and the expert, which sees their mean and the actions before it."""

    def __init__(self) -> None:
        super().__init__()
        seen = {"words": nn.Embedding(WORDS, WIDTH), "images": nn.Linear(3, WIDTH)}
        self.vlm = nn.ModuleDict({**seen, "layer": nn.Linear(WIDTH, WIDTH)})
        self.lm_expert = nn.ModuleDict({"cross": nn.Linear(WIDTH, INNER), "layer": nn.Linear(INNER, INNER)})
        self.config = types.SimpleNamespace(text_config=types.SimpleNamespace(hidden_size=WIDTH))
        self.expert_hidden_size = INNER

    def forward(self, attention_mask: Any, inputs_embeds: Any, past_key_values: Any, fill_kv_cache: bool, **more: Any) -> Any:
        prefix, suffix = inputs_embeds
        assert more["use_cache"]
        if prefix is not None:
            assert fill_kv_cache
            hidden = torch.tanh(self.vlm["layer"](prefix))
            return [hidden, None], {0: hidden}
        assert not fill_kv_cache
        memory = past_key_values[0]
        seen = attention_mask[:, :, : memory.shape[1]].float()
        among = attention_mask[:, :, memory.shape[1] :].float()
        looked = self.lm_expert["cross"](seen @ memory / seen.sum(2, keepdim=True))
        before = among @ suffix / among.sum(2, keepdim=True)
        return [None, torch.tanh(self.lm_expert["layer"](before + looked)) + 0.01 * more["position_ids"][:, :, None]], None


class Model(nn.Module):
    """Projections around them."""

    def __init__(self) -> None:
        super().__init__()
        self.vlm_with_expert = Whole()
        self.state_proj, self.action_in_proj = nn.Linear(STATES, WIDTH), nn.Linear(DIMS, INNER)
        self.action_out_proj = nn.Linear(INNER, DIMS)
        self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * INNER, INNER), nn.Linear(INNER, INNER)

    def embed_prefix(self, images: Any, there: Any, words: Any, said: Any, state: Any) -> Any:
        whole = self.vlm_with_expert
        tokens = [whole.vlm["images"](image.flatten(2).mean(2)).unsqueeze(1) for image in images]
        tokens += [whole.vlm["words"](words), self.state_proj(state).unsqueeze(1)]
        seen = torch.cat([*(mask[:, None] for mask in there), said, torch.ones(len(state), 1, dtype=torch.bool)], dim=1)
        return torch.cat(tokens, dim=1), seen, torch.zeros_like(seen)


class Policy(nn.Module):
    """Its door."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        assert Path(config.vlm_model_name, "config.json").is_file()
        assert not config.load_vlm_weights
        self.model = Model()


def _waves(time: Any, width: int, low: float, high: float, device: str) -> Any:
    return torch.sin(time[:, None] * torch.linspace(low, high, width, dtype=torch.float64))


def _masks(there: Any, blocks: Any) -> Any:
    order = blocks.long().cumsum(1)
    return (order[:, None] <= order[:, :, None]) & there[:, None] & there[:, :, None]


def install(monkeypatch: Any, version: str = "0.4.4") -> None:
    """Put it where the package would be."""
    config = types.SimpleNamespace(PreTrainedConfig=types.SimpleNamespace(from_pretrained=_config))
    library = types.SimpleNamespace(
        SmolVLAPolicy=Policy,
        create_sinusoidal_pos_embedding=_waves,
        make_att_2d_masks=_masks,
        resize_with_pad=lambda image, width, height, pad_value: image[:, :, :height, :width],
    )
    places = {"lerobot": types.SimpleNamespace(__version__=version), "lerobot.configs.policies": config}
    for name, module in {**places, "lerobot.policies.smolvla.modeling_smolvla": library}.items():
        monkeypatch.setitem(sys.modules, name, module)


def _config(place: Path) -> Any:
    told = json.loads(Path(place, "config.json").read_text())
    modes = {kind: types.SimpleNamespace(value=mode) for kind, mode in told.pop("modes").items()}
    shapes = {name: types.SimpleNamespace(shape=(size,)) for name, size in told.pop("sizes").items()}
    return types.SimpleNamespace(
        **told,
        normalization_mapping=modes,
        input_features={"observation.state": shapes["observation.state"]},
        output_features={"action": shapes["action"]},
        image_features={f"observation.images.{name}": None for name in told["cameras"]},
        chunk_size=HORIZON,
        max_action_dim=DIMS,
        max_state_dim=STATES,
        min_period=4e-3,
        max_period=4.0,
        resize_imgs_with_padding=(20, 20),
    )


def write_checkpoint(place: Path, **changed: Any) -> dict[str, Any]:
    """A checkpoint with random weights; the options of a model that begins with it."""
    torch.manual_seed(0)
    (place / "backbone").mkdir(parents=True)
    (place / "backbone" / "config.json").write_text("{}")
    modes, sizes = {"STATE": "MEAN_STD", "ACTION": "MEAN_STD"}, {"observation.state": 3, "action": 2}
    told = {"type": "smolvla", "vlm_model_name": str(place / "backbone"), "cameras": ["eye"], "modes": modes, "sizes": sizes}
    (place / "config.json").write_text(json.dumps({**told, **changed}))
    safetensors.torch.save_model(nn.ModuleDict({"model": Model()}), str(place / "model.safetensors"))
    numbers = {"observation.state.mean": torch.ones(3), "observation.state.std": torch.full((3,), 2.0)}
    numbers |= {"action.mean": torch.tensor([0.1, -0.2]), "action.std": torch.tensor([0.5, 0.25])}
    safetensors.torch.save_file(numbers, place / "numbers.safetensors")
    step = {"registry_name": "normalizer_processor", "state_file": "numbers.safetensors"}
    (place / "policy_preprocessor.json").write_text(json.dumps({"steps": [{"registry_name": "another"}, step]}))
    sizes = {"horizon": HORIZON, "dims": DIMS, "width": WIDTH, "heads": 2, "critic_hidden": [8], "steps": 2}
    return {"checkpoint": str(place), **sizes}
