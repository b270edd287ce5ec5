"""Planted faults of the promises' campaign: what is asked of figures, what counts as made, and what is found at all."""

from __future__ import annotations

from campaign.planting import Mutant

PROMISE, SCRIPT = "benchmarks/campaign/promise.py", "benchmarks/promises.py"
TEST = ("tests/unit/benchmarks/test_promises.py",)
OWN_TEST = ("tests/unit/benchmarks/test_promised.py",)

PROMISES = (
    Mutant(
        "figures-of-one-trial-not-judged",
        PROMISE,
        "*odd, *filter(None, (bar",
        "*odd, *filter(lambda text: False, (bar",
        TEST,
    ),
    Mutant("a-figure-that-is-not-there-is-good", PROMISE, 'return f"no {self.figure}" if', 'return "" if', TEST),
    Mutant("bars-over-all-trials-not-judged", PROMISE, "missed = not all(met for _, met in judged)", "missed = False", TEST),
    Mutant(
        "some-trials-are-enough", PROMISE, "return PASSED if self.trials >= self.wanted", "return PASSED if self.trials", TEST
    ),
    Mutant(
        "the-best-of-each-is-judged",
        PROMISE,
        "seen[:1] if self.high is None else seen[1:]",
        "seen[1:] if self.high is None else seen[:1]",
        TEST,
    ),
    Mutant("trials-of-changed-files-recorded", SCRIPT, 'if campaign.origin["dirty"] and not args.quick:', "if False:", TEST),
    Mutant("blind-judges-go-on", SCRIPT, "return bool(found) and all(found.values())", "return True", TEST),
    Mutant("another-chance-each-time", SCRIPT, "np.random.default_rng(seed)", "np.random.default_rng()", TEST),
    Mutant(
        "a-leaf-that-is-gone-is-no-difference",
        "benchmarks/campaign/leaves.py",
        "one.keys() | other.keys()",
        "one.keys() & other.keys()",
        OWN_TEST,
    ),
    Mutant(
        "only-the-first-kind-of-difference",
        "benchmarks/campaign/leaves.py",
        "yield name, state_digest(value)",
        'yield name, ""',
        OWN_TEST,
    ),
    Mutant("orphans-of-no-words", "benchmarks/campaign/leftovers.py", "any(word in text for word in words)", "False", OWN_TEST),
)
