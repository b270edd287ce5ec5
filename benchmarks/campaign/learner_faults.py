"""Planted faults of the learner: what each option of the critics, of their targets and of the schedule promises."""

from __future__ import annotations

from campaign.planting import Mutant

OPTIONS, CRITIC = ("tests/unit/learner/test_sac_options.py",), ("tests/unit/learner/test_critic.py",)
GROUP, DEMANDS = ("tests/unit/learner/test_group.py",), ("tests/protocol/test_demands.py",)
MICRO = ("tests/unit/learner/test_micro.py",)
SHARDING = ("tests/unit/learner/test_sharding.py",)
RECORDED = ("tests/unit/learner/test_recorded.py",)
UPLOADS, FEED = ("tests/unit/learner/test_uploads.py",), ("tests/unit/learner/test_feed.py",)
LOSSES, MLP = ("tests/unit/learner/test_losses.py",), ("tests/unit/learner/test_mlp.py",)
PRECISION = ("tests/unit/learner/test_precision.py",)
SWITCHED = ("tests/unit/learner/test_switched.py",)
TEMPERATURE, SAC = ("tests/unit/learner/test_temperature.py",), ("tests/unit/learner/test_sac.py",)
LOOP, TRAIN = ("tests/unit/learner/test_loop.py",), ("tests/unit/launch/test_train.py",)

LEARNER = (
    Mutant(
        "what-the-actor-said-is-forgotten",
        "learner/loop.py",
        "self._metrics |= self.sac.update",
        "self._metrics = self.sac.update",
        LOOP,
    ),
    Mutant(
        "a-normaliser-that-no-actor-has",
        "launch/config.py",
        'if self.learner.normalise_obs and ":" not in',
        'if False and ":" not in',
        ("tests/unit/launch/test_config.py",),
    ),
    # what the state says of parts and numbers, where they are used
    Mutant(
        "targets-of-the-other-sign",
        "learner/temperature.py",
        "mean_log_prob + self._target",
        "mean_log_prob - self._target",
        TEMPERATURE,
    ),
    Mutant(
        "no-target-entropy",
        "learner/train_state.py",
        "Temperature(config, self.target_entropy,",
        "Temperature(config, 0.0,",
        SAC,
    ),
    Mutant(
        "alpha-one-for-the-actor",
        "learner/sac.py",
        "self._actor_gradients(rows, alpha)",
        "self._actor_gradients(rows, alpha * 0 + 1)",
        SAC,
    ),
    Mutant(
        "one-decay-for-both",
        "learner/train_state.py",
        "(config.adam_beta1, config.adam_beta2)",
        "(config.adam_beta1, config.adam_beta1)",
        SAC,
    ),
    Mutant("small-gradients-are-enlarged", "learner/sac.py", ".clamp(max=1.0)", ".clamp(max=1e9)", SAC),
    Mutant("published-as-fast-as-it-goes", "learner/loop.py", ">= config.publish_period_s", ">= 0", LOOP),
    Mutant("parts-that-lack-are-nameless", "learner/train_state.py", 'f"{name}: {error}"', "str(error)", SAC),
    Mutant("too-few-critics-are-met-later", "learner/sac.py", 'if hasattr(model.options, "critics"):', "if False:", OPTIONS),
    Mutant(
        "switches-are-asked-of-everybody",
        "learner/gaussian_actor.py",
        'getattr(self.options, "switches", ())',
        "self.options.switches",
        ("tests/unit/examples/test_own_sac.py",),
    ),
    Mutant("all-skipped-is-done", "launch/runner.py", "result.updates_skipped >= result.updates", "False", TRAIN),
    Mutant(
        "damage-is-told-to-nobody", "launch/runner.py", "if damaged := self._set_aside() - aside:", "if damaged := None:", TRAIN
    ),
    Mutant("skipped-are-not-told", "launch/train_command.py", "if result.updates_skipped else []", "if False else []", TRAIN),
    # switches
    Mutant(
        "choices-count-alike-however-likely",
        "learner/losses.py",
        "value if chance is None else chance * value",
        "value",
        SWITCHED,
    ),
    Mutant("switches-are-cloned-by-their-mode", "learner/gaussian_actor.py", "policy.expected()", "policy.mode()", SWITCHED),
    Mutant(
        "switches-are-to-keep-an-entropy",
        "learner/contract.py",
        "self.action_dim - len(self.sac_switches)",
        "self.action_dim",
        SWITCHED,
    ),
    Mutant(
        "passes-by-hand-take-switches-for-numbers",
        "learner/mlp.py",
        "self.sharding is not None or self.sac_switches",
        "self.sharding is not None",
        SWITCHED,
    ),
    Mutant(
        "other-actions-stand-between-the-ends",
        "learner/contract.py",
        "= ends(uniform[..., switches])",
        "= uniform[..., switches]",
        SWITCHED,
    ),
    Mutant(
        "a-choice-of-nan-is-an-end",
        "learner/switched.py",
        "torch.where(x.isnan(), x, torch.where(x >= 0, 1.0, -1.0))",
        "torch.where(x >= 0, 1.0, -1.0)",
        SWITCHED,
    ),
    Mutant("actors-learn-the-spread-of-a-switch", "actor/policy.py", "        spread[:, at] = 1\n", "", SWITCHED),
    Mutant(
        "torch-actors-learn-the-spread-of-a-switch",
        "actor/torch_policy.py",
        "            spread[:, list(self._layout.switches)] = 1.0\n",
        "",
        SWITCHED,
    ),
    # REDQ
    Mutant(
        "the-same-critics-for-every-target",
        "learner/subset.py",
        "torch.randperm(critics, generator=self._generator, device=values.device)",
        "torch.arange(critics)",
        OPTIONS,
    ),
    Mutant(
        "minimum-of-all-critics-all-the-same",
        "learner/subset.py",
        "if self._wanted is None or self._wanted == critics:",
        "if True:",
        OPTIONS,
    ),
    Mutant(
        "a-draw-where-all-are-wanted",
        "learner/subset.py",
        "if self._wanted is None or self._wanted == critics:",
        "if self._wanted is None:",
        OPTIONS,
    ),
    Mutant(
        "actor-always-climbs-the-minimum",
        "learner/sac.py",
        "model, reduction = self.model, self.config.actor_reduction",
        'model, reduction = self.model, "min"',
        OPTIONS,
    ),
    Mutant(
        "gradient-of-the-mean-for-one-critic",
        "learner/losses.py",
        "torch.full_like(q, -share / q.shape[1])",
        "torch.full_like(q, -share)",
        LOSSES,
    ),
    Mutant(
        "minimum-in-the-passes-by-hand",
        "learner/mlp_steps.py",
        "MEAN if step == MEAN_ACTOR_GRADIENTS else MIN",
        "MIN",
        MLP,
    ),
    # DroQ
    Mutant(
        "targets-without-dropout",
        "learner/mlp.py",
        "module.train(mode)",
        "module.train(False)",
        OPTIONS,
    ),
    Mutant(
        "masks-from-the-global-generator",
        "learner/critic.py",
        "bernoulli_(self._keep, generator=self.generator)",
        "bernoulli_(self._keep)",
        CRITIC,
    ),
    Mutant(
        "dropout-without-the-learners-generator",
        "learner/train_state.py",
        "        model.use_generator(self.generator)\n",
        "",
        OPTIONS,
    ),
    Mutant("dropout-shrinks-the-mean", "learner/critic.py", ".div_(self._keep)", "", CRITIC),
    Mutant(
        "no-layer-norm",
        "learner/critic.py",
        "layers += [nn.LayerNorm(width)] if layer_norm else []",
        "layers += []",
        CRITIC,
    ),
    # CrossQ
    Mutant(
        "next-value-pulls-at-itself",
        "learner/contract.py",
        "return q, next_q.detach(), log_prob",
        "return q, next_q, log_prob",
        OPTIONS,
    ),
    Mutant(
        "both-ends-judged-apart",
        "learner/contract.py",
        "q, next_q = self._criticise(critic_features, torch.cat((action, after)), ONLINE).chunk(2)",
        "here, there = critic_features.chunk(2)\n"
        "        q, next_q = self._criticise(here, action, ONLINE), self._criticise(there, after, ONLINE)",
        OPTIONS,
    ),
    Mutant(
        "actor-judged-by-its-own-batch",
        "learner/autograd.py",
        "        head.eval()\n    try:",
        "        pass\n    try:",
        OPTIONS,
    ),
    Mutant("critics-stay-in-eval-mode", "learner/autograd.py", "head.train(training)", "pass", OPTIONS),
    Mutant(
        "batch-norm-with-the-usual-momentum",
        "learner/critic.py",
        "nn.BatchNorm1d(width, momentum=BATCH_NORM_MOMENTUM)",
        "nn.BatchNorm1d(width)",
        CRITIC,
    ),
    Mutant(
        "targets-beside-batch-norm",
        "learner/mlp.py",
        "targets = [] if self.options.critic_batch_norm else list(copy.deepcopy(self.critics))",
        "targets = list(copy.deepcopy(self.critics))",
        OPTIONS,
    ),
    # schedule and clipping
    Mutant(
        "actor-moves-while-critics-warm-up",
        "learner/sac.py",
        "step > config.critic_warmup_updates and ",
        "",
        OPTIONS,
    ),
    Mutant(
        "one-warm-up-update-short",
        "learner/sac.py",
        "step > config.critic_warmup_updates",
        "step >= config.critic_warmup_updates",
        OPTIONS,
    ),
    Mutant(
        "critics-clipped-as-the-actor",
        "learner/sac.py",
        "config.grad_clip if config.critic_grad_clip is None else config.critic_grad_clip",
        "config.grad_clip",
        OPTIONS,
    ),
    # bfloat16
    Mutant(
        "last-layer-rounded-under-autocast",
        "learner/dense.py",
        "torch.autocast(x.device.type, enabled=False)",
        "torch.autocast(x.device.type, torch.bfloat16)",
        PRECISION,
    ),
    Mutant(
        "last-layer-rounded-by-hand",
        "learner/dense.py",
        "return torch.addmm(self._head.bias, self._last, self._head.weight.t())",
        "return torch.addmm(self._head.bias, self._last, self._head.weight.t()).to(self._dtype).float()",
        PRECISION,
    ),
    Mutant(
        "parameters-rounded-once",
        "learner/dense.py",
        "torch._foreach_copy_(self._rounded, self._parameters)",
        "self._rounded[0].any() or torch._foreach_copy_(self._rounded, self._parameters)",
        PRECISION,
    ),
    Mutant(
        "gradients-through-idle-units",
        "learner/dense.py",
        "return _relu_backward(delta.view(torch.int16), activation.view(torch.int16)).view(torch.bfloat16)",
        "return delta",
        PRECISION,
    ),
    Mutant("mates-in-float32", "learner/mate.py", 'about["precision"]', '"fp32"', PRECISION),
    Mutant(
        "encoders-in-float32",
        "learner/contract.py",
        "        with self._multiplying():\n            return self.sac_state_features(obs, role)",
        "        return self.sac_state_features(obs, role)",
        PRECISION,
    ),
    Mutant("bfloat16-at-half-the-rate-in-silence", "learner/precision.py", "if times > 1:", "if False:", PRECISION),
    Mutant("a-density-of-three-digits", "learner/precision.py", "if tensor.dtype in _HALVES:", "if False:", PRECISION),
    Mutant(
        "imitated-bfloat16-is-taken",
        "learner/precision.py",
        'return not NATIVE.isdisjoint(CPUINFO.read_text(encoding="utf-8").split())',
        "return True",
        PRECISION,
    ),
    # ranks
    Mutant("ranks-sum-gradients", "learner/group.py", "flat.div_(total)", "pass", GROUP),
    Mutant(
        "rows-that-are-not-new-count",
        "learner/sac.py",
        "len(sample.reward) if self._counts and sample.counts else 0",
        "len(sample.reward)",
        GROUP,
    ),
    Mutant(
        "a-temperature-of-each-rank-s-own",
        "learner/sac.py",
        "if value is not None}\n        self._reduce(sample, found.gradients, found.loss, *means.values())",
        "if value is not None}\n        self._reduce(sample, found.gradients, found.loss)",
        GROUP,
    ),
    Mutant(
        "ranks-begin-apart",
        "learner/train_state.py",
        "self.set_state(state)\n        if not self._group.leads:",
        "if not self._group.leads:",
        GROUP,
    ),
    Mutant("critics-drawn-by-each-rank", "learner/subset.py", "            self._group.copy_first([self._drawn])\n", "", GROUP),
    Mutant(
        "values-of-one-rank-s-rows",
        "learner/sac.py",
        ".abs().mean()\n        self._reduce(sample, found.gradients, found.loss, *means.values())",
        ".abs().mean()\n        self._reduce(sample, found.gradients, found.loss)",
        GROUP,
    ),
    # one model for all ranks
    Mutant("shards-weigh-ranks-alike", "learner/sharding.py", "(loss * self.rows).backward()", "loss.backward()", SHARDING),
    Mutant("only-wanted-gradients", "learner/sharding.py", ".rows).backward()", ".rows).backward(inputs=parameters)", SHARDING),
    Mutant(
        "gradients-of-other-parts-stay", "learner/sharding.py", "            p.grad = None\n", "            pass\n", SHARDING
    ),
    Mutant(
        "averages-of-ranks",
        "learner/sharding.py",
        "            unit.set_gradient_divide_factor(1.0)",
        "            pass",
        SHARDING,
    ),
    Mutant("yesterdays-weights", "learner/sharding.py", "mesh=mesh, reshard_after_forward=True", "mesh=mesh", SHARDING),
    Mutant(
        "methods-that-gather-nothing", "learner/sharding.py", "            self._hook(name)\n", "            pass\n", SHARDING
    ),
    Mutant("norm-of-a-rank-s-own-rows", "learner/sac.py", "norm = self._group.norm(norm)", "pass", SHARDING),
    Mutant(
        "moments-begin-anew",
        "learner/train_state.py",
        "            self._make_followers()\n        elif",
        "        elif",
        SHARDING,
    ),
    Mutant("rows-of-another-rank", "learner/shards.py", "mesh.get_local_rank() * each", "0", SHARDING),
    Mutant("last-rows-that-are-no-numbers", "learner/sac.py", "return blank(sample)", "return sample", SHARDING),
    Mutant("policy-of-another-class", "learner/contract.py", "cls = self._class\n", "cls = type(self)\n", SHARDING),
    Mutant(
        "target-of-the-whole",
        "learner/contract.py",
        "self.sharding, self._target_pairs = Sharding(",
        "self.sharding, _ = Sharding(",
        SHARDING,
    ),
    # a GPU
    Mutant(
        "copies-in-the-stream-that-computes",
        "learner/uploads.py",
        "with self._device.stream(self._stream):",
        "if True:",
        UPLOADS,
    ),
    Mutant("copies-that-nobody-waits-for", "learner/uploads.py", "        stream.wait_event(copied)\n", "", UPLOADS),
    Mutant("copied-twice", "learner/uploads.py", "self._begun.pop(id(batch), None)", "None", UPLOADS),
    Mutant("other-objects-than-were-shown", "learner/feed.py", "return parts or rows.split", "return rows[:].split", FEED),
    # recorded updates
    Mutant(
        "skipped-updates-bound-anew",
        "learner/sac.py",
        "self._skipped.add_(self._skip)",
        "self._skipped = self._skipped + self._skip",
        RECORDED,
    ),
    Mutant(
        "scales-bound-anew",
        "learner/normalise.py",
        "scale.copy_((self._var[key] + VAR_FLOOR).sqrt())",
        "self._scale[key] = (self._var[key] + VAR_FLOOR).sqrt()",
        RECORDED,
    ),
    Mutant("graphs-see-the-first-batch", "learner/recorded.py", "[new[name] for name in own]", "list(own.values())", RECORDED),
    Mutant(
        "errors-of-the-batch-behind", "learner/recorded.py", "None if errors is None else errors.clone()", "errors", RECORDED
    ),
    Mutant(
        "the-trial-is-learned-from",
        "learner/recorded.py",
        "        finally:\n            self._sac.set_state(state)\n",
        "        finally:\n            pass\n",
        RECORDED,
    ),
    Mutant(
        "graphs-with-other-numbers-are-taken",
        "learner/recorded.py",
        "if not np.allclose(graph, plain, APART, APART, equal_nan=True) or",
        "if",
        RECORDED,
    ),
    Mutant(
        "graphs-with-standing-noise-are-taken", "learner/recorded.py", " or not torch.equal(noise, graph_noise):", ":", RECORDED
    ),
    Mutant("slower-graphs-are-taken", "learner/recorded.py", "(record if replayed > launched else None)", "record", RECORDED),
    Mutant("one-graph-for-all-steps", "learner/recorded.py", "kind = plan, *(", "kind = 0, *(", RECORDED),
    Mutant(
        "kinds-without-end",
        "learner/recorded.py",
        "if kind not in self._kinds and len(self._kinds) < MOST_KINDS:",
        "if kind not in self._kinds:",
        RECORDED,
    ),
    Mutant("noise-of-what-failed", "learner/recorded.py", "generator.graphsafe_set_state(noise)", "pass", RECORDED),
    Mutant("records-outlive-one-that-failed", "learner/recorded.py", "dict.fromkeys(self._kinds)", "self._kinds", RECORDED),
    Mutant(
        "any-model-is-recorded",
        "learner/sac.py",
        'what = f"the steps of {kind}" if not self.model.CAPTURABLE else f',
        "what = f",
        RECORDED,
    ),
    # micro-batches
    Mutant("a-draw-of-critics-for-each-part", "learner/subset.py", "if self._drawn is None:", "if True:", MICRO),
    Mutant("parts-weigh-alike", "learner/micro.py", "(high - low) / rows)", "1 / parts)", MICRO),
    Mutant(
        "gradients-of-the-last-part",
        "learner/micro.py",
        "torch._foreach_add_(before, value, alpha=of_gradients)",
        "pass",
        MICRO,
    ),
    Mutant("gradients-in-memory-of-the-passes", "learner/micro.py", "[each * of_gradients for each in value]", "value", MICRO),
    Mutant("norms-of-one-part", "learner/micro.py", "if parts > 1 and norm is not None:", "if False:", MICRO),
    Mutant(
        "augmented-part-by-part",
        "learner/sac.py",
        "yield judge(part), share",
        "yield judge(self.augment(part)), share",
        MICRO,
    ),
    Mutant(
        "further-ranks-are-granted-updates",
        "buffer/demands.py",
        "return client.session.role == LEARNER",
        "return True",
        DEMANDS,
    ),
)
