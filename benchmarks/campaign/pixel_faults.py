"""Planted faults of the model for cameras: who trains the encoder, what is moved at random, what travels."""

from __future__ import annotations

from campaign.planting import Mutant

AUGMENT, PIXELS_TEST = ("tests/unit/learner/test_augment.py",), ("tests/unit/learner/test_pixels.py",)
SHARED = ("tests/unit/learner/test_shared_features.py",)
MODEL = "learner/pixels.py"
SHRINKING, SHRINKING_TEST = "common/shrinking.py", ("tests/unit/common/test_shrinking.py",)

PIXELS = (
    Mutant(
        "blocks-at-the-edge",
        SHRINKING,
        "(2 * np.arange(size) + 1) * length - k * size)",
        "2 * np.arange(size) * length)",
        SHRINKING_TEST,
    ),
    Mutant("means-rounded-down", SHRINKING, "(total + count // 2)", "total", SHRINKING_TEST),
    Mutant("critics-see-large-images", MODEL, "(self._seen(obs[o.key])) for o", "(obs[o.key]) for o", PIXELS_TEST),
    Mutant(
        "large-images-are-moved", MODEL, "random_shift(self._seen(obs[key]), pad", "random_shift(obs[key], pad", PIXELS_TEST
    ),
    Mutant("numpy-sees-large-images", "actor/pixel_policy.py", "shrunk(obs[o.key], size) if size else obs", "obs", PIXELS_TEST),
    Mutant(
        "arm-steps-without-bounds",
        "actor/fake_arm.py",
        "np.clip(self._target + wanted, self._low, self._high)",
        "self._target + wanted",
        ("tests/unit/actor/test_fake_arm.py",),
    ),
    Mutant("one-shift-for-all-samples", "learner/augment.py", "(2, batch, 1)", "(2, 1, 1)", AUGMENT),
    Mutant("shift-wraps-around", "learner/augment.py", ".clamp_(0, width - 1)", ".remainder_(width)", AUGMENT),
    Mutant("shift-to-one-side", "learner/augment.py", "torch.randint(-pad, pad + 1,", "torch.randint(0, pad + 1,", AUGMENT),
    Mutant("shift-from-the-global-generator", "learner/augment.py", "generator=generator, ", "", AUGMENT),
    Mutant(
        "rows-move-as-columns-do",
        "learner/augment.py",
        "(torch.arange(height, device=device) + down)",
        "(torch.arange(height, device=device) + right)",
        AUGMENT,
    ),
    Mutant("columns-move-in-other-rows", "learner/augment.py", "rows.unsqueeze(1)]", "columns.unsqueeze(1)]", AUGMENT),
    Mutant(
        "each-image-is-encoded-twice",
        MODEL,
        'self._features("actor", obs, encoded), self',
        'self.sac_state_features(obs, "actor"), self',
        SHARED,
    ),
    Mutant("the-arm-is-left-out", MODEL, "*(flat(obs[o.key], o) for o in rest)", "", SHARED + PIXELS_TEST),
    Mutant(
        "next-images-are-not-moved",
        "learner/sac.py",
        "return replace(sample, obs=obs, next_obs=next_obs)",
        "return replace(sample, obs=obs)",
        PIXELS_TEST,
    ),
    Mutant(
        "actor-trains-the-encoder",
        MODEL,
        'torch.set_grad_enabled(torch.is_grad_enabled() and role == "critic")',
        "torch.set_grad_enabled(torch.is_grad_enabled())",
        PIXELS_TEST,
    ),
    Mutant(
        "critics-do-not-train-the-encoder",
        MODEL,
        'torch.is_grad_enabled() and role == "critic"',
        "False",
        PIXELS_TEST,
    ),
    Mutant(
        "target-critics-look-through-the-online-encoder",
        MODEL,
        'self._encoded(self.target_encoders, "critic", obs)',
        'self._encoded(self.encoders, "critic", obs)',
        PIXELS_TEST,
    ),
    Mutant(
        "target-encoder-stands-still",
        MODEL,
        "        return [*self.encoders, *self.critics]",
        "        return [*self.target_encoders, *self.critics]",
        PIXELS_TEST,
    ),
    Mutant("frozen-encoder-is-trained", MODEL, "if not self.options.encoder_frozen:", "if True:", PIXELS_TEST),
    Mutant("critics-travel", MODEL, 'seen = ("actor.", ', 'seen = ("actor.", "critics.", ', PIXELS_TEST),
    Mutant(
        "actors-need-the-encoder-file",
        MODEL,
        '"shift": 0, "encoder_file": "", "encoder_frozen": False}',
        '"shift": 0}',
        PIXELS_TEST,
    ),
    Mutant("bytes-not-divided", "learner/encoder.py", ".float().div_(255).sub_(0.5)", ".float().sub_(0.5)", PIXELS_TEST),
    Mutant(
        "encoder-file-with-nan-passes",
        "learner/encoder.py",
        "if not bool(torch.isfinite(tensor).all()):",
        "if False:",
        PIXELS_TEST,
    ),
)
