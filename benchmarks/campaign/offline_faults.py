"""Planted faults of what learns from data that the policy has not made, of its average, and of its target entropy."""

from __future__ import annotations

from campaign.planting import Mutant

OFFLINE, AVERAGE = ("tests/unit/learner/test_offline.py",), ("tests/unit/learner/test_average.py",)
LOSSES, SAC = ("tests/unit/learner/test_losses.py",), ("tests/unit/learner/test_sac.py",)
GROUP = ("tests/unit/learner/test_group.py",)

FROM_DATA = (
    # cloning, TD3+BC
    Mutant(
        "the-policy-clones-itself",
        "learner/contract.py",
        "return cloning_loss(mode, action, counts)",
        "return cloning_loss(mode, mode.detach(), counts)",
        OFFLINE,
    ),
    Mutant(
        "planned-steps-are-cloned",
        "learner/sample.py",
        'counts = steps < rows["steps"][:, None]',
        'counts = steps < len(steps) + 0 * rows["steps"][:, None]',
        OFFLINE,
    ),
    Mutant("everybody-is-cloned", "learner/sample.py", "        if sources:\n", "        if False:\n", OFFLINE),
    Mutant(
        "the-mean-is-over-what-counts",
        "learner/losses.py",
        "return (counts * (action.float() - executed.float()).square()).mean()",
        "return (counts * (action.float() - executed.float()).square()).sum() / counts.sum()",
        LOSSES,
    ),
    Mutant("values-times-their-mean", "learner/losses.py", "alpha / mean_abs_q.float()", "alpha * mean_abs_q.float()", LOSSES),
    Mutant(
        "values-by-their-signed-mean",
        "learner/sac.py",
        "over_critics(found.q, self.config.actor_reduction).abs().mean()",
        "over_critics(found.q, self.config.actor_reduction).mean()",
        OFFLINE,
    ),
    Mutant(
        "a-mean-value-of-each-rank-s-own",
        "learner/sac.py",
        'means["critic/qvalue_abs_mean"] = self._mean_abs_q = ',
        "self._mean_abs_q = ",
        GROUP,
    ),
    # the executed next action
    Mutant(
        "the-policy-s-own-action-all-the-same",
        "learner/autograd.py",
        "return torch.where(executed.isnan(), action, executed)",
        "return action",
        OFFLINE,
    ),
    Mutant(
        "entropy-of-an-action-that-was-not-drawn",
        "learner/sac.py",
        "self.config.entropy_backup and sample.next_action is None",
        "self.config.entropy_backup",
        OFFLINE,
    ),
    Mutant(
        "zeros-follow-a-truncated-row",
        "learner/sample.py",
        'rows["terminated"] | rows["truncated"]',
        'rows["terminated"]',
        OFFLINE,
    ),
    Mutant(
        "the-row-s-own-action-follows-it",
        "actor/assembler.py",
        'step("action", last[follows] + 1)',
        'step("action", last[follows])',
        ("tests/unit/actor/test_assembler.py",),
    ),
    # CQL
    Mutant(
        "no-importance-of-other-actions",
        "learner/losses.py",
        "other_q.float() / temperature - log_density.float().unsqueeze(2)",
        "other_q.float() / temperature",
        LOSSES,
    ),
    Mutant(
        "executed-actions-are-not-held-up",
        "learner/losses.py",
        "return (soft_maximum - q.float())",
        "return soft_maximum",
        LOSSES,
    ),
    Mutant(
        "other-actions-of-one-end-alone",
        "learner/sac.py",
        "self.model.sac_other_actions((here, after), ",
        "self.model.sac_other_actions((here, here), ",
        OFFLINE,
    ),
    Mutant("uniform-in-half-the-box", "learner/contract.py", ".mul_(2).sub_(1)", "", OFFLINE),
    Mutant(
        "a-penalty-that-is-only-told",
        "learner/contract.py",
        "critic_loss(q, target, importance) + conservatism.weight * penalty",
        "critic_loss(q, target, importance)",
        OFFLINE,
    ),
    # the averaged policy
    Mutant(
        "the-average-is-what-trains",
        "learner/sac.py",
        "self.average.follow(self.model.policy_tensors(), self._skip)\n",
        "self.average.follow(self.model.policy_tensors(), self._skip)\n"
        "            torch._foreach_copy_(list(self.model.policy_tensors().values()), list(self.average.tensors.values()))\n",
        AVERAGE,
    ),
    Mutant(
        "a-skipped-step-moves-the-average",
        "learner/average.py",
        "share = (1.0 - skip) * self._share",
        "share = (1.0 - 0.0 * skip) * self._share",
        AVERAGE,
    ),
    Mutant("no-average-in-the-checkpoint", "learner/train_state.py", '"average": self.average,', '"average": None,', AVERAGE),
    Mutant(
        "an-average-of-two-policies",
        "learner/train_state.py",
        "            self.average.restart(self.model.policy_tensors())\n",
        "            pass\n",
        AVERAGE,
    ),
    Mutant(
        "the-evaluator-judges-what-acts",
        "launch/roles.py",
        "replace(config.actor, ema=config.eval.ema)",
        "replace(config.actor, ema=config.actor.ema)",
        ("tests/unit/launch/test_roles.py",),
    ),
    Mutant(
        "the-policy-for-its-average",
        "common/weights.py",
        "self.tensors.get(prefix + name, tensor)",
        "tensor",
        ("tests/unit/common/test_weights.py",),
    ),
    # temperature
    Mutant(
        "target-entropy-of-one-step-of-a-chunk",
        "learner/train_state.py",
        "config.target_entropy_per_dim * model.sac_entropy_dim",
        "config.target_entropy_per_dim * model.spec.action.dim",
        SAC,
    ),
)
