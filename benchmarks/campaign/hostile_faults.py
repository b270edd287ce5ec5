"""Planted faults of what keeps hostile input out: at the buffer, at an actor, between versions, and in files."""

from __future__ import annotations

from campaign.planting import Mutant

HOSTILE, LYING = ("tests/protocol/test_hostile.py",), ("tests/protocol/test_lying_buffer.py",)
VERSIONS = ("tests/protocol/test_versions.py",)
UPLINK = ("tests/protocol/test_uplink.py",)
FORGED = ("tests/unit/learner/test_hostile_checkpoints.py",)
BLOCK = ("tests/unit/common/test_block.py",)
THROTTLE, REFUSALS = ("tests/unit/common/test_throttle.py",), ("tests/unit/common/test_refusals.py",)


INPUT = (
    Mutant("anybody-sends-anything", "common/wire/codec.py", "if sender not in message.SENDERS:", "if not sender:", HOSTILE),
    Mutant(
        "frames-nobody-reads",
        "common/wire/codec.py",
        "if message.FRAMES is not None and len(frames) != message.FRAMES:",
        "if message.FRAMES is not None and len(frames) < message.FRAMES:",
        HOSTILE,
    ),
    Mutant(
        "frames-without-number",
        "buffer/service.py",
        "if not 1 <= len(parts) <= MAX_PARTS:",
        "if not parts:",
        HOSTILE,
    ),
    Mutant("peers-without-bound", "common/wire/refusals.py", "len(self.by_peer) >= MOST_PEERS", "not self.by_reason", HOSTILE),
    Mutant(
        "refusals-of-nobody", "common/wire/refusals.py", "self.by_peer.setdefault(peer,", 'self.by_peer.setdefault("",', HOSTILE
    ),
    Mutant("a-line-for-each-refusal", "common/throttle.py", " or now - self._told_at < self._wait_s", "", THROTTLE),
    Mutant("a-line-in-ten-seconds-for-ever", "common/throttle.py", "2 * self._wait_s", "self._wait_s", THROTTLE),
    Mutant("news-wait-for-an-hour", "common/throttle.py", "now - self._last_at >= self._most_s", "False", THROTTLE),
    Mutant("one-wait-for-all-reasons", "common/wire/refusals.py", "self._throttles[reason]", 'self._throttles[""]', REFUSALS),
    Mutant("a-line-for-each-reason", "common/wire/refusals.py", " or now - self._told_at < LINE_S", "", REFUSALS),
    Mutant("an-answer-to-all-garbage", "buffer/client.py", "return self._declined <= MOST_DECLINED", "return True", HOSTILE),
    Mutant(
        "strangers-are-answered", "buffer/service.py", "if client is None or not client", "if client and not client", HOSTILE
    ),
    Mutant("counts-beyond-all", "common/wire/fields.py", "COUNT = 1 << 53", "COUNT = (1 << 64) - 1", HOSTILE),
    Mutant(
        "a-peer-is-many-clients",
        "buffer/reception.py",
        "if known is not None and known.session.name != name_of(hello.role, hello.id):",
        "if known is not None and known.session.name == hello.id:",
        HOSTILE,
    ),
    Mutant(
        "a-report-that-poses",
        "buffer/status.py",
        '            **told(session),\n            **_who(session, now),\n            "robot"',
        '            **_who(session, now),\n            **told(session),\n            "robot"',
        HOSTILE,
    ),
    Mutant(
        "a-report-that-writes-to-terminals",
        "buffer/status.py",
        "shown: dict[str, Any] = as_shown(session.report)",
        "shown: dict[str, Any] = session.report",
        HOSTILE,
    ),
    Mutant(
        "variance-beyond-float32", "buffer/statistics.py", "np.clip(vector, -_LARGEST, _LARGEST)", "np.asarray(vector)", HOSTILE
    ),
    Mutant("infinite-windows", "common/specs.py", "ValueError, OverflowError) as error:", "ValueError) as error:", HOSTILE),
    Mutant(
        "ids-that-no-ledger-holds",
        "common/wire/answers.py",
        "if 1 <= size <= MAX_ID:",
        "if 1 <= len(hello.id) <= MAX_ID:",
        HOSTILE,
    ),
    Mutant(
        "evaluations-without-a-mean", "buffer/status.py", "if not np.isfinite(numbers).all():", "if np.isnan(0.0):", HOSTILE
    ),
    Mutant(
        "steps-under-way-that-nobody-was-granted",
        "buffer/pacing.py",
        "UNBOUNDED if robot else Pacing._lead(self))",
        "UNBOUNDED)",
        HOSTILE,
    ),
    Mutant("flags-of-any-value", "common/block.py", 'if of.dtype == "|b1" and', 'if of.dtype == "b1" and', BLOCK),
    Mutant("forged-acks", "actor/outbox.py", "        self.check_sent(seq)\n", "", UPLINK),
    Mutant(
        "forged-welcomes", "actor/outbox.py", "if not first and acknowledged > self.on_wire(self._left):", "if False:", UPLINK
    ),
    Mutant(
        "credit-as-it-is-granted",
        "common/wire/session.py",
        "min(self.welcome.credit_bytes, self._network.credit_bytes)",
        "self.welcome.credit_bytes",
        LYING,
    ),
    Mutant("weights-of-any-policy", "actor/weights.py", 'self._policy not in ("", policy)', "False", LYING),
    Mutant(
        "policies-of-any-values",
        "common/weights.py",
        '        check_plain(head["policy"], MAX_POLICY_ELEMENTS)\n',
        "        pass\n",
        LYING,
    ),
    Mutant("numbers-that-overflow", "common/weights.py", "ValueError, ArithmeticError, msgpack", "ValueError, msgpack", LYING),
    Mutant(
        "newer-messages-to-older-clients",
        "common/wire/codec.py",
        "    if type(message).__name__ in LACKS[version]:\n        return []\n",
        "",
        VERSIONS,
    ),
    Mutant(
        "newer-fields-from-older-clients",
        "common/wire/codec.py",
        'if lacks and any(f"{cls.__name__}.{name}" in lacks for name in values):',
        "if lacks and not values:",
        VERSIONS,
    ),
    Mutant(
        "two-versions-in-one-hello",
        "common/wire/codec.py",
        'if cls is Hello and values["protocol"] != version:',
        "if cls is Hello and not version:",
        VERSIONS,
    ),
    Mutant(
        "strange-versions-are-not-told",
        "buffer/service.py",
        'unspoken_hello(parts[0]) if error.reason == "version" else None',
        "None",
        VERSIONS,
    ),
    Mutant(
        "hello-first-in-the-newest-version",
        "buffer/service.py",
        "self.reception.ask_to_greet(peer, version_of(parts[0]))",
        "self.reception.ask_to_greet(peer, m.PROTOCOL)",
        VERSIONS,
    ),
    Mutant("names-that-lead-out", "learner/checkpoint.py", '{"/", ".."}.intersection(parts)', "set()", FORGED),
    Mutant("links-that-lead-out", "learner/checkpoint.py", " or any(place.is_symlink() for place in places)", "", FORGED),
    Mutant(
        "tensors-without-a-digest",
        "learner/checkpoint.py",
        "if missing := {TENSORS, SCALARS} - files.keys():",
        "if missing := files.keys() - files.keys():",
        FORGED,
    ),
    Mutant(
        "damaged-tensors-escape", "learner/checkpoint.py", "(SafetensorError, ValueError, RecursionError)", "ValueError", FORGED
    ),
)
