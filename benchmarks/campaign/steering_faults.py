"""Planted faults of models that steer a flow policy: whose rows are learned from, what is judged, and what stays as it is."""

from __future__ import annotations

from campaign.planting import Mutant

TESTS = ("tests/unit/learner/test_steered.py",)
ASSEMBLER, DECIDING, SAMPLE = "actor/assembler.py", "actor/deciding.py", "learner/sample.py"
NOISE, RESIDUAL, STEERED = "learner/noise_policy.py", "learner/residual.py", "learner/steered.py"

STEERING = (
    Mutant("latents-of-what-people-did", ASSEMBLER, " & (own == SOURCE_POLICY).all(axis=1)", "", TESTS),
    Mutant("latents-of-random-actions", ASSEMBLER, "np.isfinite(latent).all(axis=1)", "np.isfinite(ids)", TESTS),
    Mutant("latents-of-another-lane", DECIDING, "self._latents[due] = latents", "self._latents[:] = latents", TESTS),
    Mutant("rows-without-noise-are-learned-from", SAMPLE, "batch = batch[self._kept(rows)]", "batch = batch[:]", TESTS),
    Mutant("a-batch-without-noise-counts", SAMPLE, 'columns["has_latent"].unsqueeze(1) == 0', "False", TESTS),
    Mutant("noise-without-its-bound", NOISE, "self.options.bound * action", "action", TESTS),
    Mutant("noise-of-the-next-step", NOISE, "noise.expand(-1, steps, -1)", "noise.expand(-1, steps, -1).roll(1, 1)", TESTS),
    Mutant("correction-without-its-scale", RESIDUAL, "self.options.scale * res", "res", TESTS),
    Mutant("correction-in-place-of-the-base", RESIDUAL, "features.base + ", "", TESTS),
    Mutant("correction-leaves-the-box", RESIDUAL, ".clamp(-1.0, 1.0)", "", TESTS),
    Mutant("corrections-begin-anywhere", STEERED, "        nn.init.zeros_(self.actor.head.weight)\n", "", TESTS),
    Mutant(
        "base-of-this-state-at-the-next",
        "learner/sac.py",
        'after = model.state_features(sample.next_obs, "actor"), model.target_features(',
        'after = model.state_features(sample.obs, "actor"), model.target_features(',
        TESTS,
    ),
    Mutant("base-is-saved", STEERED, 'return {f"base.{name}" for name in self.base.state_dict()}', "return set()", TESTS),
    Mutant("base-of-any-numbers", "learner/pretrained.py", "if bad is not None:", "if False:", TESTS),
    Mutant("base-of-another-spec", "learner/pretrained.py", "    require_fit(own, spec, what)\n", "", TESTS),
)
