"""Planted faults of the flow policy: its paths, their density, what it sees, and what trains which part."""

from __future__ import annotations

from campaign.planting import Mutant

FLOW = ("tests/unit/learner/test_flow.py",)
SHARED = ("tests/unit/learner/test_shared_features.py",)
OFFLINE = ("tests/unit/learner/test_offline.py",)
DEMOS, TABLE = "examples/envs/recording.py", ("tests/unit/examples/test_tabletop.py",)
SMOLVLA, SMOL = "learner/smolvla.py", ("tests/unit/learner/test_smolvla.py",)
PATH, POLICY, PREFIX = "learner/flow.py", "learner/flow_policy.py", "learner/prefix.py"

PATHS = (
    Mutant("first-step-without-bound", PATH, "held = min(time, 1.0 - step)", "held = min(time, 1.0 - 1e-4)", FLOW),
    Mutant("noise-without-its-drift", PATH, "(until - sigma * sigma * (step / (2.0 * time)))", "until", FLOW),
    Mutant("noise-of-a-whole-unit-of-time", PATH, "return mean, sigma * math.sqrt(step)", "return mean, sigma", FLOW),
    Mutant("density-of-the-mean-step", PATH, "terms.flatten(1).sum(dim=1)", "terms.flatten(1).mean(dim=1)", FLOW),
    Mutant("velocity-the-other-way", PATH, "(noise - action).float()", "(action - noise).float()", FLOW),
    Mutant("cloning-of-what-was-not-executed", PATH, "(counts * (velocity", "((velocity", FLOW),
    Mutant("fixed-schedule-has-a-density", POLICY, "if isinstance(std, Tensor) and raw is not None:", "if True:", FLOW),
    Mutant("entropy-of-one-step", POLICY, "return int(self.options.steps) * self.action_dim", "return self.action_dim", FLOW),
    Mutant(
        "density-of-the-last-step-alone",
        POLICY,
        "log_prob = step if log_prob is None else log_prob + step",
        "log_prob = 0 * step",
        FLOW,
    ),
    Mutant(
        "one-scale-for-acting-and-training",
        POLICY,
        "own.train_scale if self.training else own.rollout_scale",
        "own.train_scale",
        FLOW,
    ),
    Mutant("level-never-comes-down", POLICY, "self.updates += 1.0", "pass", FLOW),
    Mutant("frozen-prefix-is-trained", POLICY, " and self.options.trains == ALL):", "):", FLOW),
    Mutant("padding-is-attended-to", PREFIX, "src_key_padding_mask=missing", "src_key_padding_mask=None", FLOW),
    Mutant("expert-attends-to-padding", "learner/expert.py", "memory_key_padding_mask=prefix.absent", "tgt_mask=None", FLOW),
    Mutant("critics-attend-to-padding", "learner/prefix_critics.py", "key_padding_mask=prefix.absent, ", "", FLOW),
    Mutant(
        "rows-of-patches-are-columns", PREFIX, "waves(*encoder.patches, width)", "waves(*encoder.patches[::-1], width)", FLOW
    ),
    Mutant("nothing-to-attend-to", PREFIX, "missing & ~missing.all(dim=1, keepdim=True)", "missing", FLOW),
    Mutant(
        "deterministic-paths-have-noise",
        POLICY,
        "if deterministic or self.options.noise == NONE:",
        "if self.options.noise == NONE:",
        FLOW,
    ),
    Mutant("cloning-one-update-short", "learner/sac.py", "if step <= 0:", "if step < 0:", OFFLINE),
    Mutant("warm-up-counts-the-cloning", "learner/sac.py", "self.step - self.config.cloning_updates", "self.step", OFFLINE),
    Mutant(
        "cloning-of-the-critics-rows",
        "learner/sac.py",
        "batches = batches[-1:] if plan.clones else",
        "batches = batches[:1] if plan.clones else",
        OFFLINE,
    ),
    # what is seen once
    Mutant("critics-train-the-shared-prefix", POLICY, "return seen.detach()._replace(", "return seen._replace(", SHARED),
    Mutant(
        "a-prefix-for-each", POLICY, "self._critic_features(encoder, obs, seen)", "self._critic_features(encoder, obs)", SHARED
    ),
    # demonstrations
    Mutant("chunks-never-overlap", DEMOS, "min(chunk, len(steps)) if overlap", "1 if overlap", TABLE),
    Mutant("chunks-that-overlap-begin-alike", DEMOS, '            block.rows["t"] += first\n', "", TABLE),
    # a policy of LeRobot
    Mutant(
        "density-of-padding",
        POLICY,
        "flow.log_density(self._real(noise), self._real(std))",
        "flow.log_density(noise, std)",
        SMOL,
    ),
    Mutant("smolvla-in-its-own-units", SMOLVLA, "return actions * self.slope + self.offset", "return actions", SMOL),
    Mutant("smolvla-sees-raw-numbers", SMOLVLA, "scaled = (state - self.mean) / self.deviation", "scaled = state", SMOL),
    Mutant("smolvla-of-some-tensors", SMOLVLA, "place / TENSORS, strict=True", "place / TENSORS, strict=False", SMOL),
    Mutant("smolvla-by-any-lerobot", SMOLVLA, "self.checkpoint.version}", "0}", SMOL),
    Mutant("cloning-without-its-weight", "learner/contract.py", "loss = cloning.weight * cloned\n", "loss = cloned\n", OFFLINE),
)
