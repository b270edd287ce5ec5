"""Planted faults of models that steer a flow policy: whose rows are learned from, what is judged, and what stays as it is."""

from __future__ import annotations

from campaign.planting import Mutant

TESTS = ("tests/unit/learner/test_steered.py",)
SHARED = ("tests/unit/learner/test_shared_features.py",)
ARMS, JUDGED = "benchmarks/campaign/table_arms.py", ("tests/unit/benchmarks/test_table_arms.py",)
ROUTED, STORED = ("tests/unit/learner/test_routed_critics.py",), ("tests/unit/learner/test_stored_prefix.py",)
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
        "after = model.next_features(sample.next_obs)",
        "after = model.next_features(sample.obs)",
        TESTS,
    ),
    Mutant(
        "the-base-looks-twice",
        STEERED,
        "return self.sac_next_features(obs)",
        'return self.sac_state_features(obs, "actor"), self.sac_state_features(obs, "critic")',
        SHARED,
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
    Mutant("dips-are-forgiven", ARMS, 'if lowest < start["rate"] - DIP:', "if lowest < -DIP:", JUDGED),
    Mutant("a-task-may-be-forgotten", ARMS, "if after < before - LOSS:", "if after < -LOSS:", JUDGED),
    Mutant("images-need-not-matter", ARMS, 'if record["blank"]["rate"] > record["chance"] + NEAR:', "if False:", JUDGED),
    Mutant(
        "tasks-share-their-critics",
        "learner/prefix_critics.py",
        "gather(1, task.unsqueeze(1))",
        "mean(1, keepdim=True)",
        ROUTED,
    ),
    Mutant(
        "every-row-is-of-one-task",
        "learner/sample.py",
        "return tasks.astype(np.int64)",
        "return np.zeros_like(tasks, np.int64)",
        ROUTED,
    ),
    Mutant("a-task-without-critics", "learner/sample.py", "tasks.max() >= self._tasks:", "False:", ROUTED),
    Mutant("tasks-decide-how-to-act", FLOW, '    "critic_tasks": 0,\n', "", ROUTED),
    Mutant(
        "a-stored-prefix-is-run-all-the-same",
        FLOW,
        "        if self._stored:\n            return self.sight.stored(self._stored, obs)\n",
        "",
        STORED,
    ),
    Mutant("the-base-is-run-all-the-same", STEERED, "if self._stored else", "if False else", STORED),
    Mutant("a-trained-prefix-is-stored", FLOW, "if self.stored and (self.trains == ALL", "if self.stored and (False", STORED),
    Mutant("the-prefix-of-any-policy", "common/prefix_columns.py", "{digest[:16]}.tokens", "tokens", STORED),
    Mutant(
        "one-prefix-for-all-frames",
        "actor/prefix_columns.py",
        "block.frames[key] for key",
        "block.frames[key][[0] * block.n_frames] for key",
        STORED,
    ),
    Mutant("what-is-absent-is-stored-as-there", "learner/prefix.py", "absent != 0, self", "absent > 1, self", STORED),
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
