"""The model of one's own that the page about training shows."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.flow import weights_of
from helpers.learner import make_batch, make_spec

from examples.own_sac import OwnSAC
from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.config import option
from headrace.common.specs import ObsSpec
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

ROOT = Path(__file__).resolve().parents[3]
OWN = ModelConfig("examples.own_sac:OwnSAC", {"width": 16, "critics": 3})
SPECS = {
    "numbers": make_spec(low=[-2.0, -1.0], high=[2.0, 1.0]),
    "stacks that one side sees": make_spec(obs=(ObsSpec("obs", (3,), "<f4"), ObsSpec("truth", (2,), "<f4", "critic")), stack=2),
}


@pytest.mark.parametrize("kind", SPECS)
def test_it_learns_what_is_the_best_action_and_actors_run_it(kind):
    spec = SPECS[kind]
    sac = SAC(make_model(spec, OWN, 0), spec, LearnerConfig(gamma=0.0, actor_lr=3e-3, critic_lr=3e-3, alpha=0.01, tau=1.0), 0)
    for seed in range(300):
        batch = make_batch(spec, 64, seed)
        batch.rows["rewards"][:, 0] = -np.abs(batch.rows["action"][:, 0] - 0.5)
        assert float(sac.update(batch)["sac/updates_skipped"]) == 0
    obs = {key: value for key, value in make_batch(spec, 32, 1000).obs.items() if key != "truth"}
    acted = make_policy(weights_of(sac.model), spec, ActorConfig()).act(obs, np.random.default_rng(0), True)
    assert acted.shape == (32, 2)
    assert np.abs(acted[:, 0] - 0.5).mean() < 0.2
    features = sac.model.sac_state_features({key: torch.tensor(value) for key, value in obs.items()}, "actor")
    np.testing.assert_allclose(
        acted / spec.action.high, sac.model.sac_forward_actor(features, None, True)[0].detach(), atol=1e-6
    )


@dataclass(frozen=True)
class Plain:
    """Options of a model without switches."""

    width: int = option(16, help="units")
    blocks: int = option(1, help="blocks")
    critics: int = option(2, help="critics")


class PlainSAC(OwnSAC):
    Options = Plain


def test_options_need_not_speak_of_switches():
    spec = make_spec()
    assert list(PlainSAC(spec).sac_switches) == []
    assert float(SAC(PlainSAC(spec), spec, LearnerConfig(), 0).update(make_batch(spec))["sac/updates_skipped"]) == 0


def test_the_page_shows_it_as_it_is():
    page = (ROOT / "docs" / "training.md").read_text()
    (shown,) = re.findall(r"```python\n(\"\"\"A SAC model.*?)```", page, re.DOTALL)
    assert shown == (ROOT / "examples" / "own_sac.py").read_text()
