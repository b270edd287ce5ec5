"""Planted faults of decisions that are made elsewhere: what is late, whose answer it is, by which weights, who may ask."""

from __future__ import annotations

from campaign.planting import Mutant

PROTOCOL = ("tests/protocol/test_policy_server.py",)
ROBOT = ("tests/system/test_policy_server.py",)
PIXELS = ("tests/unit/learner/test_pixels.py",)

DECIDING = (
    Mutant("late-answer-is-executed", "actor/asking.py", " and self._clock.now() <= due", "", PROTOCOL),
    Mutant("answer-of-another-request", "actor/asking.py", " or head.number != self._number", "", PROTOCOL),
    Mutant(
        "late-request-is-computed",
        "actor/serving.py",
        "for r in self._waiting() if r.due > now)",
        "for r in self._waiting())",
        PROTOCOL,
    ),
    Mutant("late-request-is-not-told", "actor/serving.py", "if r.due <= now]", "if r.due < 0]", PROTOCOL),
    Mutant(
        "version-of-a-decision-is-dropped",
        "actor/asking.py",
        "Version(head.learner, head.epoch, head.step)",
        "Version(head.learner, 1, 0)",
        PROTOCOL,
    ),
    Mutant(
        "answer-that-is-not-used-draws",
        "actor/asking.py",
        "        if isinstance(answer, Answer) and",
        "        if isinstance(answer, Answer):\n            rng is None or noise.restore(rng, answer.noise)\n"
        "        if isinstance(answer, Answer) and",
        PROTOCOL,
    ),
    Mutant(
        "silent-server-lets-episodes-begin",
        "actor/asking.py",
        'answer, self.heard_at = "unanswered", -math.inf',
        'answer = "unanswered"',
        PROTOCOL,
    ),
    Mutant("rows-of-another-request", "actor/serving.py", "            start += request.lanes\n", "", PROTOCOL),
    Mutant("noise-of-one-for-all", "actor/noise.py", "[rng.standard_normal(", "[self._parts[0][0].standard_normal(", PROTOCOL),
    Mutant(
        "batch-beyond-its-bound",
        "actor/serving.py",
        "sum(r.lanes for r in out) + request.lanes <= self.config.batch",
        "True",
        PROTOCOL,
    ),
    Mutant(
        "modes-and-samples-together", "actor/serving.py", "(request.rng is None) == (waiting[0].rng is None)", "True", PROTOCOL
    ),
    Mutant("batch-does-not-wait", "actor/serving.py", "if not complete and", "if False and", PROTOCOL),
    Mutant("request-of-any-length", "actor/serving.py", "min(self.network.message_bytes, self._largest)", "1 << 62", PROTOCOL),
    Mutant("anybody-may-ask", "actor/serving.py", 'if hello.role != "actor":', "if False:", PROTOCOL),
    Mutant(
        "key-of-another-may-ask", "actor/serving.py", "asker is None or asker.session.user != user", "asker is None", PROTOCOL
    ),
    Mutant(
        "revoked-key-may-ask",
        "actor/serving.py",
        "self.keyring is not None and self.keyring.who(user) is None",
        "False",
        PROTOCOL,
    ),
    Mutant("episodes-begin-without-a-server", "actor/loop.py", "min(uplink.heard_at, mind.heard_at)", "uplink.heard_at", ROBOT),
    Mutant("numpy-pixels-of-another-order", "common/convolutions.py", "np.moveaxis(x, 3, 1).reshape", "x.reshape", PIXELS),
    Mutant(
        "train-starts-a-policy-server-that-others-start",
        "launch/lineup.py",
        " and config.policy_server.start",
        "",
        ("tests/unit/launch/test_lineup.py",),
    ),
    Mutant(
        "a-policy-server-of-train-has-no-key",
        "launch/credentials.py",
        "(*BOUND, POLICY_SERVER)",
        "BOUND",
        ("tests/unit/launch/test_credentials.py",),
    ),
    Mutant(
        "a-loop-of-ones-own-forgets-whose-weights-decided",
        "actor/session.py",
        "        self._version = choice.version\n",
        "",
        ("tests/system/test_policy_server.py",),
    ),
)
