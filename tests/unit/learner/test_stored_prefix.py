"""A frozen prefix that rows hold: the same losses as with one that is run, never run again, and of no other policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.flow import SEEN, SPEC, TINY, export_flow
from helpers.learner import make_batch

from headrace.actor.prefix_columns import PrefixColumns
from headrace.common.block import Block
from headrace.common.errors import ConfigError, SpecError
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

LATENT = replace(SPEC, latent=8)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return export_flow(tmp_path_factory.mktemp("pretrained") / "out", noise="none")


def with_prefix(columns, batch):
    """The batch as if its rows had been completed on the actor."""

    def side(obs):
        return columns.add(Block(batch.rows[:0], dict(obs))).frames

    return replace(batch, obs=side(batch.obs), next_obs=side(batch.next_obs))


def sac_of(base, kind, spec, *, stored):
    options = {
        "flow": {**SEEN, **TINY, "pretrained": base, "trains": "expert"},
        "residual": {"base": base, "hidden": [16], "critic_hidden": [16]},
        "dsrl": {"base": base, "hidden": [16], "critic_hidden": [16]},
    }[kind]
    model = make_model(spec, ModelConfig(kind, {**options, "stored": stored}), 3)
    return SAC(model, spec, LearnerConfig(batch_size=8), 0)


@pytest.mark.parametrize("kind", ["flow", "residual", "dsrl"])
def test_what_is_learned_from_stored_prefixes_is_what_is_learned_from_running_them(kind, base, monkeypatch):
    spec = LATENT if kind == "dsrl" else SPEC
    columns = PrefixColumns(base, spec)
    absent, tokens = (o for o in columns.spec.obs if o.key.startswith("prefix."))
    assert (tokens.shape[1], tokens.dtype, absent.shape, absent.role) == (16, "<i2", tokens.shape[:1], "critic")
    run, stored = sac_of(base, kind, spec, stored=False), sac_of(base, kind, columns.spec, stored=True)
    prefix = stored.model.prefix if kind == "flow" else stored.model.base.prefix
    batches = [make_batch(spec, 8, seed) for seed in range(2)]
    ours = [with_prefix(columns, batch) for batch in batches]
    told = [run.update(batch) for batch in batches]
    monkeypatch.setattr(type(prefix), "forward", lambda self, obs: pytest.fail("the prefix was run"))
    for batch, before in zip(ours, told, strict=True):
        after = stored.update(batch)
        for name in ("critic/loss", "critic/qvalue_mean", "actor/loss", "actor/logprob_mean"):
            np.testing.assert_allclose(float(after[name]), float(before[name]), rtol=2e-2, atol=2e-2, err_msg=name)


def test_each_frame_of_a_block_has_its_own_prefix(base):
    columns, batch = PrefixColumns(base, SPEC), make_batch(SPEC, 5, 0)
    batch.obs["words_there"][:], batch.obs["eye_there"][:] = (
        [True, True, False, False, True],
        [[True], [False], [True], [True], [True]],
    )
    frames = columns.add(Block(batch.rows[:0], dict(batch.obs))).frames
    model = make_model(
        columns.spec, ModelConfig("flow", {**SEEN, **TINY, "pretrained": base, "trains": "expert", "stored": True}), 0
    )
    seen = {key: torch.tensor(value) for key, value in frames.items()}
    stored = model.sac_state_features(seen, "actor")
    run = model.prefix(seen)
    torch.testing.assert_close(stored.tokens, run.tokens, rtol=1e-3, atol=2e-3)
    assert torch.equal(stored.absent, run.absent)
    assert run.absent.any()
    assert torch.equal(stored.state, run.state)
    assert not torch.allclose(stored.tokens[0], stored.tokens[1], atol=1e-2)
    assert sorted(frames) == [o.key for o in columns.spec.obs]


@pytest.mark.parametrize("options", [{"trains": "all"}, {"trains": "expert", "pretrained": ""}])
def test_a_prefix_that_is_trained_cannot_be_stored(options, base):
    with pytest.raises(ConfigError, match=r"model\.options\.stored: true with model\.options\.trains"):
        make_model(SPEC, ModelConfig("flow", {**SEEN, **TINY, "pretrained": base, "stored": True, **options}), 0)


def test_the_prefix_of_another_policy_is_refused_by_name(base, tmp_path):
    other = PrefixColumns(export_flow(tmp_path / "other", noise="none", expert_layers=2), SPEC).spec
    for spec in (SPEC, other):
        with pytest.raises(SpecError, match=r"model\.options\.stored: true, but rows hold no prefix\.\w+\.tokens"):
            sac_of(base, "flow", spec, stored=True)


@pytest.mark.parametrize(("directory", "error"), [("nowhere", ConfigError), (None, SpecError)])
def test_a_directory_without_a_prefix_for_these_observations_is_refused(directory, error, base):
    with pytest.raises(error, match=r"window\.prefix: "):
        PrefixColumns(directory or base, replace(SPEC, obs=SPEC.obs[:1]))
