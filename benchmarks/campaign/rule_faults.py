"""Planted faults of the rules of SAC itself: density, target, temperature, windows, what a checkpoint holds.

What options add to them is in :mod:`campaign.learner_faults`, :mod:`campaign.offline_faults` and their neighbours.
"""

from __future__ import annotations

from campaign.planting import Mutant

TESTS = "tests/unit/"
SAC = TESTS + "learner/test_sac.py::test_"
LOSSES, DENSITY = (TESTS + f"learner/test_{name}.py" for name in ("losses", "distribution"))
MODELS, AVERAGE, TEMPERATURE = (TESTS + f"learner/test_{name}.py" for name in ("models", "average", "temperature"))
PRECISION = TESTS + "learner/test_precision.py::test_targets_are_exact_whatever_networks_multiply"
RESUME = TESTS + "learner/test_checkpoint.py::test_resuming_is_exact_to_the_bit"
LANES = TESTS + "actor/test_gym_lanes.py::test_"
ASSEMBLER, POLICY = (TESTS + f"actor/test_{name}.py" for name in ("assembler", "policy"))
POOL, PRIORITIES, MIX = (TESTS + f"buffer/test_{name}.py" for name in ("row_pool", "priorities", "mix"))
WRAPPED = TESTS + "buffer/test_pool_random.py::test_rule_9_windows_of_a_pool_that_has_wrapped_are_of_one_episode_each"
SNAPSHOT = TESTS + "buffer/test_snapshot.py"
BLOCK = TESTS + "common/test_block.py"


def fault(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A fault in ``file`` that one of ``tests`` must find."""
    return Mutant(name, file, old, new, tests)


_DENSITY = (
    fault(
        "squashing-with-a-floor",
        "learner/distribution.py",
        "return 2.0 * (_LOG_2 - u - softplus(-2.0 * u))",
        "return torch.log(1 - torch.tanh(u).square() + 1e-6)",
        DENSITY,
    ),
    fault(
        "density-of-what-was-not-squashed",
        "learner/distribution.py",
        "2.0 * (u + softplus(-2.0 * u)) - self._log_std",
        "-self._log_std",
        DENSITY,
    ),
    fault(
        "density-without-its-box",
        "learner/distribution.py",
        "(density if scale is None else density - scale.log())",
        "density",
        DENSITY,
    ),
    fault(
        "one-width-for-all-dimensions",
        "learner/distribution.py",
        "self.half = (high / 2 - low / 2).float()",
        "self.half = (high / 2 - low / 2).amax().expand(len(low)).float()",
        DENSITY,
    ),
    fault("infinite-bounds-are-taken", "common/specs.py", "math.isfinite(high) and low < high", "low < high", DENSITY),
    fault(
        "what-is-executed-is-in-units-of-the-env",
        "learner/distribution.py",
        "unit = (action - self.centre) / self.half",
        "unit = action / 4.0",
        SAC + "doubling_the_envs_action_scale_leaves_alphas_trajectory_to_the_bit",
    ),
    fault(
        "outside-of-the-box-is-judged",
        "learner/distribution.py",
        "unit.clamp(-1.0, 1.0), outside",
        "unit, outside",
        SAC + "executed_actions_outside_the_box_are_clipped_and_counted",
    ),
    fault(
        "acting-leaves-the-box",
        "actor/policy.py",
        "return _clip(self.low + (unit",
        "return (lambda x, *_: x)(self.low + (unit",
        POLICY,
    ),
)
_TARGET = (
    fault(
        "terminations-are-gone-on-behind",
        "learner/losses.py",
        "return powers[steps.long()] * (1 - terminated.float())",
        "return powers[steps.long()]",
        LOSSES,
    ),
    fault(
        "truncations-end-the-return",
        "learner/sample.py",
        'columns["steps"] = rows["steps"].astype(np.int64)',
        'columns["steps"] = rows["steps"].astype(np.int64)\n'
        '        columns["terminated"] = rows["terminated"] | rows["truncated"]',
        SAC + "rows_become_returns_and_bootstrap_weights",
    ),
    fault(
        "entropy-outside-of-the-discount",
        "learner/losses.py",
        "value = value - alpha * next_log_prob.float()",
        "reward = reward - alpha * next_log_prob.float()",
        LOSSES,
    ),
    fault(
        "target-of-the-mean", "learner/losses.py", "value = over_critics(next_q)", "value = over_critics(next_q, MEAN)", LOSSES
    ),
    fault(
        "entropy-in-every-backup",
        "learner/sac.py",
        "entropy = next_log_prob if self.config.entropy_backup and sample.next_action is None else None",
        "entropy = next_log_prob if sample.next_action is None else None",
        SAC + "the_entropy_of_the_backup_can_be_left_out",
    ),
    fault(
        "discount-of-the-longest-window",
        "learner/losses.py",
        "return powers[steps.long()] * (1",
        "return powers[-1] * (1",
        LOSSES,
    ),
    fault(
        "only-the-last-reward-of-a-chunk",
        "learner/losses.py",
        "return rewards.float() @ powers[:-1]",
        "return rewards.float()[:, -1] * powers[-2]",
        SAC + "an_early_success_in_a_chunk_raises_the_value_of_the_whole_planned_chunk",
    ),
    fault(
        "target-in-half-precision",
        "learner/losses.py",
        "return reward.float() + weight.float() * value",
        "return (reward.float() + weight.bfloat16() * value.bfloat16()).float()",
        PRECISION,
    ),
    fault(
        "discounts-in-half-precision",
        "learner/losses.py",
        "for i in range(window + 1)], dtype=torch.float32)",
        "for i in range(window + 1)], dtype=torch.bfloat16)",
        LOSSES,
    ),
    fault("errors-by-the-worst-critic", "learner/losses.py", ".abs().mean(dim=1)", ".abs().amax(dim=1)", LOSSES),
    fault("all-rows-weigh-alike", "learner/losses.py", "error = error * importance.unsqueeze(1)", "pass", LOSSES),
    fault(
        "columns-and-rows-mix",
        "learner/losses.py",
        "if len(found) != len(shape) or any(",
        "if False and any(",
        LOSSES,
        MODELS,
    ),
)
_TEMPERATURE = (
    fault(
        "temperature-falls-where-entropy-is-missing",
        "learner/losses.py",
        'return -(raw.exp() if form == "auto_exp" else raw.sigmoid()) * excess',
        'return (raw.exp() if form == "auto_exp" else raw.sigmoid()) * excess',
        LOSSES,
    ),
    fault("softplus-climbs-as-exp", "learner/losses.py", "else raw.sigmoid()) * excess", "else raw.exp()) * excess", LOSSES),
    fault("temperature-trains-the-policy", "learner/losses.py", "excess = log_prob.detach()", "excess = log_prob", LOSSES),
    fault(
        "a-temperature-that-is-its-own-number",
        "learner/losses.py",
        'if form == "auto_softplus" else raw.exp()\n\n\ndef',
        'if form == "auto_softplus" else raw\n\n\ndef',
        TEMPERATURE,
    ),
    fault("no-alarm-of-alpha", "learner/temperature.py", "ALARM = 1e3", "ALARM = 1e30", SAC + "alarm_when_alpha_runs_away"),
)
_TARGET_NETWORK = (
    fault(
        "target-keeps-tau",
        "learner/contract.py",
        "torch._foreach_lerp_(target, online, tau)",
        "torch._foreach_lerp_(target, online, 1.0 - tau)",
        SAC + "target_moves_by_tau_once_per_update",
    ),
    fault(
        "target-moves-twice-an-update",
        "learner/sac.py",
        "            if plan.target:\n                self.update_target_network()\n",
        "            if plan.target:\n                self.update_target_network()\n"
        "                self.update_target_network()\n",
        SAC + "target_moves_by_tau_once_per_update",
    ),
    fault(
        "target-begins-as-it-was-drawn",
        "learner/train_state.py",
        "        model.sac_update_target_network(1.0)",
        "        pass",
        SAC + "the_target_is_a_frozen_copy",
    ),
    fault(
        "target-can-be-trained",
        "learner/mlp.py",
        "nn.ModuleList(targets).requires_grad_(False)",
        "nn.ModuleList(targets)",
        SAC + "the_target_is_a_frozen_copy",
    ),
    fault("buffers-of-the-target-stay", "learner/contract.py", "copy.copy_(source)", "pass", MODELS),
    fault(
        "target-in-training-mode",
        "learner/contract.py",
        "        for head in self.target_network_heads:\n            head.eval()\n",
        "        pass\n",
        MODELS,
    ),
    fault("average-of-the-other-share", "learner/average.py", "self._share = 1.0 - decay", "self._share = decay", AVERAGE),
    fault(
        "actors-step-freezes-the-critics",
        "learner/contract.py",
        "        loss, q = torch.stack(found).sum(), expected(values, branches)\n",
        "        loss, q = torch.stack(found).sum(), expected(values, branches)\n"
        "        [p.requires_grad_(False) for _, p in self.critic_params()]\n",
        SAC + "the_actors_step_changes_the_actor_and_alpha_only",
    ),
    fault(
        "actors-step-leaves-gradients-behind",
        "learner/autograd.py",
        "found += torch.autograd.grad(loss, own, allow_unused=True)",
        "loss.backward(); found += [p.grad for p in own]",
        SAC + "the_actors_step_changes_the_actor_and_alpha_only",
    ),
)
_WINDOWS = (
    fault(
        "a-crash-is-a-termination",
        "actor/assembler.py",
        'self._steps.write("truncated", last',
        'self._steps.write("terminated", last',
        ASSEMBLER,
    ),
    fault(
        "a-crashed-step-is-a-row",
        "actor/gym_lanes.py",
        "live = ~(idle | crashed)",
        "live = ~idle",
        LANES + "rule_5_a_crash_truncates_the_last_complete_row",
    ),
    fault(
        "the-step-behind-an-end-is-a-row",
        "actor/gym_lanes.py",
        "idle = self._ended if next_step else self._none",
        "idle = self._none",
        LANES + "rule_6_next_step_stores_real_steps_only",
    ),
    fault(
        "what-follows-an-end-is-the-reset",
        "actor/gym_lanes.py",
        'put_frame(self._leaves, final, int(lane), infos["final_obs"][lane])',
        "pass",
        LANES + "rule_5_a_truncated_step_keeps_its_true_last_observation",
    ),
    fault(
        "the-policy-acts-on-final-observations",
        "actor/gym_lanes.py",
        "final = {key: frame.copy() for key, frame in frames.items()}",
        "final = dict(frames)",
        LANES + "rule_7_all_modes_and_vectors_give_identical_rows",
    ),
    fault(
        "all-lanes-are-reset-with-one",
        "actor/gym_lanes.py",
        "self._reset(self._episodes() + self.count, ended)",
        "self._reset(self._episodes() + self.count, ~self._none)",
        LANES + "rule_7_all_modes_and_vectors_give_identical_rows",
    ),
    fault(
        "an-unknown-mode-is-the-usual-one",
        "actor/gym_lanes.py",
        "    except ValueError:\n        known =",
        "    except ValueError:\n        return AutoresetMode.NEXT_STEP\n        known =",
        LANES + "a_vector_env_must_say_its_mode_and_size",
    ),
    fault(
        "windows-cross-ends",
        "actor/assembler.py",
        'np.minimum(ids + spec.window - 1, step("stop", ids))',
        "ids + spec.window - 1",
        ASSEMBLER,
    ),
    fault(
        "tails-of-episodes-are-no-rows",
        "actor/assembler.py",
        "        self._ready = last + 1\n",
        "        self._ready = max(self._taken, last + 2 - self._spec.window)\n",
        ASSEMBLER,
    ),
    fault(
        "rewards-of-what-follows-an-end",
        "actor/assembler.py",
        'rows["rewards"] = np.where(inside, step("reward", window), 0)',
        'rows["rewards"] = step("reward", window)',
        ASSEMBLER,
    ),
    fault(
        "rewards-of-nobody-are-taken",
        "common/block.py",
        'if spec.window > 1 and rows["rewards"]',
        'if False and rows["rewards"]',
        BLOCK,
    ),
    fault(
        "each-window-is-all-its-steps",
        "common/specs.py",
        'len(rows) if self.kind == "steps" else int(rows["steps"].sum(dtype=np.int64))',
        'int(rows["steps"].sum(dtype=np.int64))',
        POOL,
    ),
)
_DRAWING = (
    fault(
        "priorities-as-they-are",
        "buffer/priorities.py",
        "leaves: Array = priorities ** np.float32(self._config.priority_exponent)",
        "leaves: Array = priorities * np.float32(1)",
        PRIORITIES,
    ),
    fault(
        "errors-of-zero-are-never-drawn",
        "buffer/priorities.py",
        "(priorities + self._config.priority_eps)",
        "(priorities * 1.0)",
        PRIORITIES,
    ),
    fault(
        "small-sets-never-repeat",
        "buffer/mix.py",
        'hand.draw(i, counts[i], repeat=self._sets[i].config.when_small == "replace")',
        "hand.draw(i, counts[i], repeat=False)",
        MIX,
    ),
    fault(
        "actor-moves-in-every-slice",
        "learner/sac.py",
        " and step % config.actor_update_interval == 0",
        "",
        SAC + "intervals",
    ),
    fault(
        "rows-behind-the-cursor-are-drawn",
        "buffer/sampler.py",
        "self._tombstones.step_over(places + tail)",
        "self._tombstones.step_over(np.maximum(places + tail - 1, 0))",
        WRAPPED,
    ),
    fault(
        "frames-of-another-block",
        "buffer/segment.py",
        'column["obs"][slots] += frame_head\n',
        'column["obs"][slots] += max(0, frame_head - 1)\n',
        WRAPPED,
    ),
    fault(
        "sets-one-behind-the-other",
        "buffer/mix.py",
        'order = np.argsort(places, kind="stable")',
        "order = np.arange(len(places))",
        MIX,
    ),
)
_NORMALISING = (
    fault(
        "old-rows-keep-old-statistics",
        "learner/normalise.py",
        "self._var[key].copy_(torch.tensor(statistics.var[key]))\n        self._rescale()\n",
        "self._var[key].copy_(torch.tensor(statistics.var[key]))\n",
        SAC + "statistics_are_used_and_not_changed",
    ),
    fault(
        "weights-without-their-statistics",
        "learner/train_state.py",
        "                    tensors[name] = _to_numpy(tensor)\n",
        "                    tensors[name] = 0 * _to_numpy(tensor)\n",
        SAC + "statistics_are_used_and_not_changed",
    ),
    fault(
        "frames-that-come-again-count-again",
        "buffer/store.py",
        "self.statistics.add(block.frames, newest)",
        "self.statistics.add(block.frames, np.arange(block.n_frames))",
        POOL,
    ),
)
_RESUMING = (
    *(
        fault(
            f"checkpoint-without-{part}",
            "learner/train_state.py",
            f'            "{part}": {owner},\n',
            f'            "{part}": None,\n',
            *tests,
        )
        for part, owner, tests in (
            ("actor_optimizer", "self.actor_optimizer", (RESUME,)),
            ("critic_optimizer", "self.critic_optimizer", (RESUME,)),
            ("alpha_optimizer", "self.temperature.optimizer", (RESUME,)),
            ("normaliser", "self.normaliser", (RESUME,)),
        )
    ),
    fault(
        "noise-begins-anew",
        "learner/train_state.py",
        "            self.generator.set_state(state)\n",
        "            pass\n",
        RESUME,
    ),
    fault(
        "draws-begin-anew",
        "buffer/sampling.py",
        "        self._random.set_state({",
        "        self._random.check_state({",
        SNAPSHOT,
    ),
    fault(
        "updates-are-counted-anew",
        "learner/train_state.py",
        '        self.step = int(state["scalars"]["step"])\n',
        "",
        RESUME,
    ),
    fault(
        "checkpoint-without-alpha",
        "learner/train_state.py",
        'own = {"log_alpha": self.temperature.raw, "skipped"',
        'own = {"skipped"',
        RESUME,
    ),
)
RULES = (*_DENSITY, *_TARGET, *_TEMPERATURE, *_TARGET_NETWORK, *_WINDOWS, *_DRAWING, *_NORMALISING, *_RESUMING)
