"""A small flow policy: what it sees, how large it is, and an export of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from helpers.learner import make_batch, make_spec

from headrace.common.exported import write_export
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.learner.flow_policy import FlowPolicy

CAMERA, THERE = ObsSpec("eye", (20, 20, 3), "|u1"), ObsSpec("eye_there", (1,), "|b1")
ARM, WORDS, SAID = ObsSpec("arm", (3,), "<f4"), ObsSpec("words", (5,), "<i4"), ObsSpec("words_there", (5,), "|b1")
SPEC = make_spec(obs=(ARM, CAMERA, THERE, WORDS, SAID), action=(4, 2), window=4, kind="chunk")
SEEN = {"words": "words", "masks": {"eye": "eye_there", "words": "words_there"}, "vocabulary": 300}
TINY = {"channels": [4], "strides": [4], "width": 16, "heads": 2, "expert_layers": 1, "critic_hidden": [16], "steps": 3}


def make_flow(spec: TransitionSpec = SPEC, **options: Any) -> FlowPolicy:
    """One with weights of its own."""
    torch.manual_seed(0)
    return FlowPolicy(spec, **{**(SEEN if spec is SPEC else {}), **TINY, **options})


def weights_of(model: FlowPolicy) -> WeightSet:
    """The policy as it travels."""
    tensors = {name: tensor.detach().numpy() for name, tensor in model.policy_tensors().items()}
    return WeightSet(Version("teacher", 1, 3), {**model.policy_description(), "normalise": False}, tensors)


def export_flow(out: Path, spec: TransitionSpec = SPEC, **options: Any) -> str:
    """The directory ``out`` with one in it, whose actions differ with the noise."""
    model = make_flow(spec, **options)
    with torch.no_grad():
        model.expert.velocity.weight.normal_(0.0, 0.1)
    write_export(out, weights_of(model), spec, {})
    return str(out)


def see() -> dict[str, torch.Tensor]:
    """Six observations of ``SPEC``, in which every picture and word is there."""
    obs = {key: torch.tensor(value) for key, value in make_batch(SPEC, 6).obs.items()}
    obs["eye_there"], obs["words_there"] = torch.ones_like(obs["eye_there"]), torch.ones_like(obs["words_there"])
    return obs


@torch.no_grad()
def mode_of(model: FlowPolicy, obs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The actions that ``model`` holds for best."""
    return model.eval().sac_forward_actor(model.sac_state_features(obs, "actor"), None, True)[0]
