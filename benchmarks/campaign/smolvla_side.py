"""LeRobot's SmolVLA behind headrace. Runs in an environment of its own, which has ``lerobot`` 0.4 and sees headrace's sources.

PYTHON smolvla_side.py DIR        # the last line is one JSON object

A policy of a few layers with random weights is made in DIR by LeRobot itself, saved as LeRobot saves policies, and used.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lerobot
import numpy as np
import torch
import transformers
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from tokenizers import Tokenizer, models, pre_tokenizers

from examples.envs.tabletop import TASKS, VOCABULARY, Tabletop
from examples.envs.tabletop_demos import demonstrate
from headrace.actor.config import ActorConfig, EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.policy import make_policy
from headrace.common.batch import Batch
from headrace.common.exported import write_export
from headrace.common.weights import Version, WeightSet
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

TABLE = "examples.envs.tabletop:Tabletop"
CHUNK, HORIZON, DIMS, WIDTH, SIDE = 4, 8, 6, 32, 64
SPECIAL = {
    "image_token": "<image>",
    "fake_image_token": "<fake>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end>",
}
ROWS, UPDATES = 16, 40


def main() -> int:
    place = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    theirs, processors = make_checkpoint(place / "checkpoint", make_backbone(place / "backbone"))
    spec = make_spec(EnvConfig(id=TABLE), WindowConfig(chunk=CHUNK))
    rows = see()
    options: dict[str, Any] = {
        "checkpoint": str(place / "checkpoint"),
        **{"words": "words", "masks": {"words": "words_there"}, "horizon": HORIZON, "dims": DIMS, "width": WIDTH, "heads": 4},
        **{"critic_hidden": [32], "steps": theirs.config.num_steps},
    }

    def make(kind: str = "headrace.learner.smolvla:SmolVLA", spec: Any = spec, **more: Any) -> Any:
        return make_model(spec, ModelConfig(kind, {**options, **more} if "smolvla" in kind else more), 0)

    found: dict[str, Any] = {
        "lerobot": lerobot.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    model = make(noise="none")
    found["parameters"] = sum(p.numel() for p in model.prefix.parameters()) + sum(p.numel() for p in model.expert.parameters())
    noise = torch.randn(ROWS, HORIZON, DIMS)
    wanted = act_as_they_do(theirs, processors, rows, noise)
    with torch.no_grad():
        acted = model.denoise(model.sac_state_features(tensors(rows), "actor"), noise).view(ROWS, CHUNK, 2)
    found["worst_difference"] = float((acted - wanted.clamp(-1, 1)).abs().max())  # the env's box is [-1, 1]
    others = {key: np.roll(value, 1, axis=0) for key, value in rows.items()}
    with torch.no_grad():
        elsewhere = model.denoise(model.sac_state_features(tensors(others), "actor"), noise).view(ROWS, CHUNK, 2)
    found["between_tables"] = float((elsewhere - acted).abs().mean())

    trained = SAC(
        make(noise="none"), spec, LearnerConfig(bc_weight=1.0, cloning_updates=UPDATES, batch_size=ROWS, actor_lr=1e-3), 0
    )
    losses = [float(trained.update(batch_of(spec, rows))["actor/cloning_loss"]) for _ in range(UPDATES)]
    found["cloning_loss"] = [float(np.mean(losses[:10])), float(np.mean(losses[-10:]))]
    weights = weights_of(trained.model)
    found["travels"] = sum(tensor.nbytes for tensor in weights.tensors.values()) / sum(
        p.numel() * 4 for part in (trained.model.prefix, trained.model.expert) for p in part.parameters()
    )
    policy = make_policy(weights, spec, ActorConfig())
    found["acts"] = list(policy.act(rows, np.random.default_rng(0), True).shape)
    write_export(place / "teacher", weights, spec, {})
    teacher, noisy = str(place / "teacher"), make_spec(EnvConfig(id=TABLE), WindowConfig(chunk=CHUNK, latent=HORIZON * DIMS))
    plain = LearnerConfig(batch_size=ROWS)
    for name, learner in {
        "flow-sde": SAC(make(noise="learned", pretrained=teacher), spec, plain, 0),
        "lora": SAC(make(noise="learned", trains="lora"), spec, plain, 0),
        "residual": SAC(make("residual", base=teacher), spec, plain, 0),
        "dsrl": SAC(make("dsrl", noisy, base=teacher), noisy, plain, 0),
    }.items():
        before = {n: p.detach().clone() for n, p in learner.model.named_parameters()}
        for _ in range(2):
            metrics = learner.update(batch_of(noisy if name == "dsrl" else spec, rows))
        moved = {n.partition(".")[0] for n, p in learner.model.named_parameters() if not torch.equal(p, before[n])}
        found[name] = {"skipped": float(metrics["sac/updates_skipped"]), "moved": sorted(moved)}
    print(json.dumps(found))
    return 0


def make_backbone(place: Path) -> Path:
    """A vision-language model of two layers, its configuration and a tokenizer of the table's words alone."""
    words = ["<pad>", *filter(None, VOCABULARY), *SPECIAL.values()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", extra_special_tokens=SPECIAL)
    fast.chat_template = ""
    transformers.SmolVLMProcessor(
        transformers.SmolVLMImageProcessor(), fast, transformers.SmolVLMVideoProcessor(), image_seq_len=4
    ).save_pretrained(place)
    text = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.SmolVLMConfig(
        text_config={**text, "model_type": "llama", "num_key_value_heads": 2, "head_dim": 8, "vocab_size": len(words)},
        vision_config={**vision, "image_size": SIDE, "patch_size": 8},
        image_token_id=words.index("<image>"),
        scale_factor=2,
    ).save_pretrained(place)
    return place


def make_checkpoint(place: Path, backbone: Path) -> tuple[Any, Any]:
    """A policy of LeRobot with random weights, saved with its processors; the policy, and these."""
    visual = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, SIDE, SIDE)) for name in ("wrist", "top")}
    config = SmolVLAConfig(
        input_features={"observation.state": PolicyFeature(FeatureType.STATE, (2,)), **visual},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (2,))},
        chunk_size=HORIZON,
        n_action_steps=CHUNK,
        max_state_dim=5,
        max_action_dim=DIMS,
        resize_imgs_with_padding=(SIDE, SIDE),
        num_steps=5,
        vlm_model_name=str(backbone),
        num_vlm_layers=2,
        device="cpu",
    )
    policy = SmolVLAPolicy(config).eval()
    policy.save_pretrained(place)
    numbers = {
        "observation.state": {"mean": torch.tensor([0.1, -0.2]), "std": torch.tensor([0.5, 0.7])},
        "action": {"mean": torch.tensor([0.05, -0.1]), "std": torch.tensor([0.4, 0.3])},
    }
    processors = make_pre_post_processors(config, dataset_stats=numbers)
    for each in processors:
        each.save_pretrained(place)
    return policy, processors


def see() -> dict[str, np.ndarray]:
    """Observations of so many tables."""
    seen = [Tabletop().reset(seed=seed)[0] for seed in range(ROWS)]
    return {key: np.stack([obs[key] for obs in seen]) for key in seen[0]}


def tensors(rows: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor(value) for key, value in rows.items()}


def act_as_they_do(policy: Any, processors: Any, rows: dict[str, np.ndarray], noise: torch.Tensor) -> torch.Tensor:
    """What LeRobot makes of the observations, by its own processors and its own sampling: ``(B, CHUNK, 2)`` in env units."""
    before, after = processors
    batch: dict[str, Any] = {
        f"observation.images.{n}": torch.tensor(rows[n]).movedim(-1, 1).float() / 255 for n in ("top", "wrist")
    }
    batch["observation.state"] = torch.tensor(rows["tip"])
    batch["task"] = [
        " ".join(VOCABULARY[i] for i in ids[there]) for ids, there in zip(rows["words"], rows["words_there"] > 0, strict=True)
    ]
    assert set(batch["task"]) <= set(TASKS)
    with torch.no_grad():
        chunk = policy.predict_action_chunk(before(batch), noise=noise.clone())
    return torch.stack([after(chunk[:, k]) for k in range(CHUNK)], dim=1)


def batch_of(spec: Any, rows: dict[str, np.ndarray]) -> Batch:
    """Rows of a demonstrator at these tables, which see the same before and after."""
    dtype = spec.row_dtype
    out = np.zeros(ROWS, dtype)
    rng = np.random.default_rng(0)
    for row in range(ROWS):
        env = Tabletop()
        env.reset(seed=row)
        out["action"][row] = np.stack([demonstrate(env, rng) for _ in range(CHUNK)])
    out["steps"], out["source"] = CHUNK, 2
    if spec.latent:
        out["latent"], out["has_latent"] = rng.uniform(-1, 1, (ROWS, spec.latent)), 1
    obs = {key: np.ascontiguousarray(value) for key, value in rows.items()}
    return Batch(np.arange(ROWS), out, obs, obs, None, None, 0)


def weights_of(model: Any) -> WeightSet:
    tensors = {name: tensor.detach().numpy() for name, tensor in model.policy_tensors().items()}
    return WeightSet(Version("teacher", 1, 1), {**model.policy_description(), "normalise": False}, tensors)


if __name__ == "__main__":
    sys.exit(main())
