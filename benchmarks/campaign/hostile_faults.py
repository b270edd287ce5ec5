"""Planted faults of what keeps hostile input out: at the buffer, at an actor, between versions, and in files."""

from __future__ import annotations

from campaign.planting import Mutant

HOSTILE, LYING = ("tests/protocol/test_hostile.py",), ("tests/protocol/test_lying_buffer.py",)
VERSIONS = ("tests/protocol/test_versions.py",)
UPLINK = ("tests/protocol/test_uplink.py",)
FORGED = ("tests/unit/learner/test_hostile_checkpoints.py",)
BLOCK = ("tests/unit/common/test_block.py",)


def _planted(name: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(name, f"{file}.py", old, new, tests)


INPUT = (
    _planted("anybody-sends-anything", "common/wire/codec", "if sender not in message.SENDERS:", "if not sender:", HOSTILE),
    _planted(
        "frames-nobody-reads",
        "common/wire/codec",
        "if message.FRAMES is not None and len(frames) != message.FRAMES:",
        "if message.FRAMES is not None and len(frames) < message.FRAMES:",
        HOSTILE,
    ),
    _planted(
        "frames-without-number",
        "buffer/service",
        "if not 1 <= len(parts) <= MAX_PARTS:",
        "if not parts:",
        HOSTILE,
    ),
    _planted("peers-without-bound", "buffer/refusals", "len(self.by_peer) >= MOST_PEERS", "not self.by_reason", HOSTILE),
    _planted("refusals-of-nobody", "buffer/refusals", "self.by_peer.setdefault(peer,", 'self.by_peer.setdefault("",', HOSTILE),
    _planted("a-line-for-each-refusal", "common/throttle", " or now - self._told_at < self._period_s", "", HOSTILE),
    _planted("an-answer-to-all-garbage", "buffer/client", "return self._declined <= MOST_DECLINED", "return True", HOSTILE),
    _planted(
        "strangers-are-answered", "buffer/service", "if client is None or not client", "if client and not client", HOSTILE
    ),
    _planted("counts-beyond-all", "common/wire/fields", "COUNT = 1 << 53", "COUNT = (1 << 64) - 1", HOSTILE),
    _planted(
        "a-peer-is-many-clients",
        "buffer/service",
        "if known is not None and known.session.name != name_of(hello.role, hello.id):",
        "if known is not None and known.session.name == hello.id:",
        HOSTILE,
    ),
    _planted(
        "a-report-that-poses",
        "buffer/status",
        '            **session.report,\n            **_who(session, now),\n            "robot"',
        '            **_who(session, now),\n            **session.report,\n            "robot"',
        HOSTILE,
    ),
    _planted(
        "a-report-that-writes-to-terminals",
        "buffer/status",
        "session.report = as_shown(pulse.report)",
        "session.report = pulse.report",
        HOSTILE,
    ),
    _planted(
        "variance-beyond-float32", "buffer/statistics", "np.clip(vector, -_LARGEST, _LARGEST)", "np.asarray(vector)", HOSTILE
    ),
    _planted("infinite-windows", "common/specs", "ValueError, OverflowError) as error:", "ValueError) as error:", HOSTILE),
    _planted(
        "ids-that-no-ledger-holds", "buffer/admission", "if 1 <= size <= MAX_ID:", "if 1 <= len(hello.id) <= MAX_ID:", HOSTILE
    ),
    _planted("evaluations-without-a-mean", "buffer/status", "if not np.isfinite(numbers).all():", "if np.isnan(0.0):", HOSTILE),
    _planted(
        "steps-under-way-that-nobody-was-granted",
        "buffer/pacing",
        "UNBOUNDED if robot else self._lead())",
        "UNBOUNDED)",
        HOSTILE,
    ),
    _planted("flags-of-any-value", "common/block", 'if o.dtype == "|b1" and m and', 'if o.dtype == "b1" and m and', BLOCK),
    _planted("forged-acks", "actor/outbox", "        self.check_sent(seq)\n", "", UPLINK),
    _planted(
        "forged-welcomes", "actor/outbox", "if not first and acknowledged > self.on_wire(self._left):", "if False:", UPLINK
    ),
    _planted(
        "credit-as-it-is-granted",
        "common/wire/session",
        "min(self.welcome.credit_bytes, self._network.credit_bytes)",
        "self.welcome.credit_bytes",
        LYING,
    ),
    _planted("weights-of-any-policy", "actor/uplink", ' or self._policy not in ("", policy)', "", LYING),
    _planted(
        "policies-of-any-values", "common/weights", '            check_plain(head["policy"], MAX_POLICY_ELEMENTS)\n', "", LYING
    ),
    _planted("numbers-that-overflow", "common/weights", "ValueError, ArithmeticError, msgpack", "ValueError, msgpack", LYING),
    _planted(
        "newer-messages-to-older-clients",
        "common/wire/codec",
        "    if type(message).__name__ in LACKS[version]:\n        return []\n",
        "",
        VERSIONS,
    ),
    _planted(
        "newer-fields-from-older-clients",
        "common/wire/codec",
        'if lacks and any(f"{cls.__name__}.{name}" in lacks for name in values):',
        "if lacks and not values:",
        VERSIONS,
    ),
    _planted(
        "two-versions-in-one-hello",
        "common/wire/codec",
        'if cls is Hello and values["protocol"] != version:',
        "if cls is Hello and not version:",
        VERSIONS,
    ),
    _planted(
        "strange-versions-are-not-told",
        "buffer/service",
        'unspoken_hello(parts[0]) if error.reason == "version" else None',
        "None",
        VERSIONS,
    ),
    _planted(
        "hello-first-in-the-newest-version",
        "buffer/service",
        "self._turn_away(peer, admission.HELLO_FIRST, version_of(parts[0]))",
        "self._turn_away(peer, admission.HELLO_FIRST, m.PROTOCOL)",
        VERSIONS,
    ),
    _planted("names-that-lead-out", "learner/checkpoint", '{"/", ".."}.intersection(parts)', "set()", FORGED),
    _planted("links-that-lead-out", "learner/checkpoint", " or any(place.is_symlink() for place in places)", "", FORGED),
    _planted(
        "tensors-without-a-digest",
        "learner/checkpoint",
        "if missing := {TENSORS, SCALARS} - files.keys():",
        "if missing := files.keys() - files.keys():",
        FORGED,
    ),
    _planted(
        "damaged-tensors-escape", "learner/checkpoint", "(SafetensorError, ValueError, RecursionError)", "ValueError", FORGED
    ),
)
