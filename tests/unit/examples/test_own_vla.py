"""Models of one's own by one adapter class: the one of the manual, and a PaliGemma where that package is installed."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.flow import SEEN, SPEC, make_flow, mode_of, see, weights_of
from helpers.learner import make_batch, make_spec

from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.exported import write_export
from headrace.common.specs import ObsSpec
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

ROOT = Path(__file__).resolve().parents[3]
OWN, PALIGEMMA = "examples.own_vla:OwnVLA", "headrace.learner.paligemma:PaliGemmaPolicy"
SMALL = {"width": 16, "heads": 2, "expert_layers": 1, "critic_hidden": [16], "steps": 2, "patch": 4}
SIZES = {OWN: {}, PALIGEMMA: {"text_layers": 1, "text_width": 16, "vision_layers": 1, "vision_width": 16}}
KINDS = [
    OWN,
    pytest.param(
        PALIGEMMA,
        marks=pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
    ),
]


def make(kind, spec=SPEC, **options):
    return make_model(spec, ModelConfig(kind, {**SEEN, **SMALL, **SIZES[kind], **options}), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_ones_own_clones_learns_acts_and_leaves_as_a_flow_policy_does(kind, tmp_path):
    sac = SAC(make(kind), SPEC, LearnerConfig(batch_size=8, bc_weight=1.0, cloning_updates=2), 0)
    before = {name: p.detach().clone() for name, p in sac.model.named_parameters()}
    for seed in range(4):
        assert float(sac.update(make_batch(SPEC, 8, seed, steps=4))["sac/updates_skipped"]) == 0
    moved = {name.partition(".")[0] for name, p in sac.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"prefix", "expert", "pool", "critics", "target_pool", "target_critics"}
    acted = make_policy(weights_of(sac.model), SPEC, ActorConfig()).act(
        {key: value.numpy() for key, value in see().items()}, np.random.default_rng(0), True
    )
    assert acted.shape == (6, 4, 2)
    write_export(tmp_path / "out", weights_of(sac.model), SPEC, {})
    again = make(kind, pretrained=str(tmp_path / "out"), trains="lora")
    torch.testing.assert_close(mode_of(again, see()), mode_of(sac.model, see()))
    steered = make_model(SPEC, ModelConfig("residual", {"base": str(tmp_path / "out"), "hidden": [8], "critic_hidden": [8]}), 0)
    torch.testing.assert_close(mode_of(steered, see()), mode_of(sac.model, see()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("key", "mask"), [("words", "words_there"), ("eye", "eye_there")])
def test_what_is_absent_does_not_matter_to_it_and_what_is_there_does(kind, key, mask):
    model, obs = make(kind), see()
    with torch.no_grad():
        model.expert.velocity.weight.normal_(0.0, 0.3)
    other = {**obs, key: torch.randint(0, 250, obs[key].shape).to(obs[key].dtype)}
    assert not torch.allclose(mode_of(model, obs), mode_of(model, other), atol=1e-4)
    gone = torch.zeros_like(obs[mask])
    torch.testing.assert_close(mode_of(model, {**obs, mask: gone}), mode_of(model, {**other, mask: gone}))


def test_the_manual_shows_the_adapter_as_it_is():
    page = (ROOT / "docs" / "vla.md").read_text()
    (shown,) = re.findall(r"```python\n(\"\"\"A vision-language-action model.*?)```", page, re.DOTALL)
    assert shown == (ROOT / "examples" / "own_vla.py").read_text()


def test_a_tower_that_is_not_there_or_cannot_look_is_named(monkeypatch):
    blind = make_spec(obs=(ObsSpec("words", (5,), "<i4"),), action=(4, 2), window=4, kind="chunk")
    if importlib.util.find_spec("transformers") is None:
        with pytest.raises(ConfigError, match=r"needs the package transformers .*pip install 'headrace\[transformers\]'"):
            make(PALIGEMMA)
    else:
        with pytest.raises(SpecError, match=r"PaliGemma needs words and square cameras"):
            make(PALIGEMMA, blind, masks={})
    assert make_flow()
