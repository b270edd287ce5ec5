"""Planted faults of models that steer a flow policy: whose rows are learned from, what is judged, and what stays as it is."""

from __future__ import annotations

from campaign.planting import Mutant

TESTS = ("tests/unit/learner/test_steered.py",)
ASSEMBLER, DECIDING, SAMPLE = "actor/assembler.py", "actor/deciding.py", "learner/sample.py"
PARTS, FLOW, LORA = ("tests/unit/learner/test_trained_parts.py",), "learner/flow_policy.py", "learner/low_rank.py"
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
    Mutant("base-of-any-numbers", "learner/pretrained.py", "and not bool(torch.isfinite(tensor).all())", "and False", TESTS),
    Mutant("base-of-another-spec", "learner/pretrained.py", "    require_fit(own, spec, what)\n", "", TESTS),
    # what is trained, saved and sent
    Mutant("thin-matrices-begin-anywhere", LORA, "nn.Parameter(torch.zeros(", "nn.Parameter(torch.ones(", PARTS),
    Mutant("thin-matrices-are-not-added", LORA, "super().forward(x) + self._scale", "super().forward(x) + 0", PARTS),
    Mutant("thin-matrices-for-whom-nobody-calls", LORA, "type(child) is nn.Linear", "isinstance(child, nn.Linear)", PARTS),
    Mutant("heads-alone-train-all", FLOW, "if trains in (ALL, EXPERT) or", "if True or", PARTS),
    Mutant("frozen-tensors-travel", FLOW, "in self.learned_tensors().items() if", "in self.state_dict().items() if", PARTS),
    Mutant("pretrained-tensors-are-not-taken", FLOW, "        take(own, theirs, f", "        take({}, {}, f", PARTS),
    Mutant("a-noise-level-of-nobody", FLOW, "if policy.options.noise != LEARNED:", "if False:", PARTS),
    Mutant("other-code-acts", "actor/torch_policy.py", "if describe is not None:", "if False:", PARTS),
    Mutant(
        "code-of-today",
        "learner/train_state.py",
        "_without_code(weights), _without_code(own).policy",
        "weights, own.policy",
        PARTS,
    ),
    Mutant(
        "statistics-are-halved",
        "learner/train_state.py",
        "for name, _ in self.model.actor_params() if",
        "for name in policy if",
        PARTS,
    ),
    Mutant("halves-are-cut-off", "common/weights.py", "np.uint32(0x7FFF) + ", "", ("tests/unit/common/test_weights.py",)),
    Mutant(
        "nan-becomes-a-number",
        "common/weights.py",
        "np.where(np.isnan(array), ",
        "np.where(False, ",
        ("tests/unit/common/test_weights.py",),
    ),
    Mutant(
        "all-travels-whole",
        "learner/feed.py",
        "weights.pack(self._halved)",
        "weights.pack()",
        ("tests/unit/learner/test_feed.py",),
    ),
)
