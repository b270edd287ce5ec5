"""Planted faults where people take part: who acted, what was executed, take-over and giving back, words, a paused run."""

from __future__ import annotations

from campaign.planting import Mutant

PEOPLE_TEST = ("tests/unit/actor/test_people.py",)
TAKEOVER_TEST, SAY_TEST, DEVICES_TEST, CONTROL_TEST, LOOP_TEST = (
    (f"tests/unit/actor/test_{name}.py",) for name in ("takeover", "people_say", "devices", "control", "loop")
)
ROBOT_LANES_TEST = ("tests/unit/actor/test_robot_lanes.py",)
SCRIBE_TEST = ("tests/unit/actor/test_scribe.py",)
UPLINK_TEST = ("tests/protocol/test_uplink.py",)
CHANGES_TEST = ("tests/protocol/test_changes.py",)
TAKEOVER, CONTROL, KEYBOARD, GAMEPAD = (f"actor/{name}.py" for name in ("takeover", "control", "keyboard", "gamepad"))
LIVE, CHANGES, PACING = "buffer/live.py", "buffer/changes.py", "buffer/pacing.py"
RECORDER, LANES, HUMAN = "actor/recorder.py", "actor/gym_lanes.py", "actor/gym_human.py"

PEOPLE = (
    # people inside an env
    Mutant("a-human-step-is-told-as-the-policys", RECORDER, "decided=decided, source=source,", "decided=decided,", PEOPLE_TEST),
    Mutant(
        "a-human-step-stores-what-was-asked-for",
        LANES,
        "executed[lane], source[lane] = action, SOURCE_HUMAN",
        "source[lane] = SOURCE_HUMAN",
        PEOPLE_TEST,
    ),
    Mutant(
        "a-human-step-that-ends-in-same-step-is-lost",
        LANES,
        'infos.get("final_info", {}) if same_step else infos',
        "infos",
        PEOPLE_TEST,
    ),
    Mutant(
        "the-intervene-flag-says-nothing",
        HUMAN,
        "info.get(ACTION) is None or not _is_up(info.get(FLAG, True))",
        "info.get(ACTION) is None",
        PEOPLE_TEST,
    ),
    Mutant(
        "a-chunk-goes-on-behind-a-human",
        RECORDER,
        "self.anew[lane] = source == SOURCE_HUMAN",
        "self.anew[lane] = False",
        PEOPLE_TEST,
    ),
    Mutant(
        "each-human-step-begins-a-chunk",
        RECORDER,
        "begins = acts.begins[lane] and not (source == SOURCE_HUMAN and assembler.may_go_on)",
        "begins = acts.begins[lane]",
        PEOPLE_TEST,
    ),
    Mutant(
        "what-was-planned-is-what-was-executed",
        "actor/assembler.py",
        'step("decided", ids), 0)\n        if spec.next_action',
        'step("action", ids), 0)\n        if spec.next_action',
        PEOPLE_TEST,
    ),
    Mutant(
        "a-plan-that-nobody-made",
        "actor/assembler.py",
        "decided is not None and source != SOURCE_DEMO",
        "True",
        SCRIBE_TEST,
    ),
    # taking over and giving back
    Mutant(
        "a-human-takes-over-at-once",
        TAKEOVER,
        "self.hands, self._since = Hands.TAKING, now",
        "self.hands, self._since = Hands.HUMAN, now",
        TAKEOVER_TEST,
    ),
    Mutant(
        "a-human-gives-back-at-once",
        TAKEOVER,
        "Hands.GIVING if letting_go else Hands.POLICY",
        "Hands.POLICY",
        TAKEOVER_TEST,
    ),
    Mutant(
        "the-robot-runs-after-the-device",
        TAKEOVER,
        "elif before is Hands.TAKING and self._agrees(action, last):",
        "elif before is Hands.TAKING:",
        TAKEOVER_TEST,
    ),
    Mutant(
        "a-device-that-never-agrees-is-waited-for",
        TAKEOVER,
        "now - self._since > self._config.agree_s",
        "False",
        TAKEOVER_TEST,
    ),
    Mutant("nobody-asks-whether-they-agreed", CONTROL, "        if self._over.refused:", "        if False:", CONTROL_TEST),
    Mutant(
        "a-human-passes-no-guard",
        CONTROL,
        'kind, verdict = "human", guard.decide(now, human, self._state)',
        'kind, verdict = "human", Verdict(Deed.GO, np.asarray(human, np.float32))',
        CONTROL_TEST,
    ),
    Mutant(
        "a-human-rests-on-the-policys-weights",
        CONTROL,
        "guard.decide(now, human, self._state)",
        "guard.decide(now, human, self._state, self._vitals)",
        CONTROL_TEST,
    ),
    Mutant(
        "a-held-period-is-a-humans",
        CONTROL,
        'return (kind if verdict.deed is Deed.GO else "hold"), verdict',
        "return kind, verdict",
        CONTROL_TEST,
    ),
    Mutant(
        "what-an-envs-human-did-is-not-where-the-robot-is",
        CONTROL,
        "            self._guard.left(self._carried_at, action)\n",
        "",
        CONTROL_TEST,
    ),
    Mutant(
        "a-humans-command-is-said-again-when-it-was-late",
        CONTROL,
        "        self._human = None  # a human's command too",
        "        # a human's command too",
        CONTROL_TEST,
    ),
    # words
    Mutant(
        "a-verdict-ends-nothing",
        CONTROL,
        "terminated = seen.terminated or bool(self._verdict)",
        "terminated = seen.terminated",
        CONTROL_TEST,
    ),
    Mutant("a-verdict-outlives-its-episode", CONTROL, '        self._verdict = ""\n', "", CONTROL_TEST),
    Mutant(
        "a-verdict-on-a-stopped-episode-is-lost",
        CONTROL,
        "            if self._verdict:\n                self.signals.append(Said(self._verdict))\n",
        "",
        CONTROL_TEST,
    ),
    Mutant(
        "what-is-discarded-goes-on",
        CONTROL,
        'self._break_off(now, "somebody has discarded it")',
        "pass",
        CONTROL_TEST,
    ),
    Mutant(
        "a-label-goes-ahead-of-the-episodes-end",
        "actor/loop.py",
        "if episode == self._recorder.running(0) >= 0:",
        "if False:",
        LOOP_TEST,
    ),
    Mutant("a-buffer-may-arm-a-robot", "actor/uplink.py", "if message.word not in VERDICTS:", "if False:", UPLINK_TEST),
    # a run that is paused
    Mutant(
        "an-episode-begins-where-a-pause-is-not-known",
        "actor/robot_lanes.py",
        " and self._people.paused is False:",
        ":",
        ROBOT_LANES_TEST,
    ),
    Mutant("a-paused-robot-begins-an-episode", CONTROL, "        if self._paused:\n", "        if False:\n", CONTROL_TEST),
    Mutant(
        "a-robot-goes-on-before-the-buffer-says-so",
        "actor/people.py",
        'self._wish, self.paused, self._ask_at = word == "pause", None, 0.0',
        'self._wish, self._ask_at = word == "pause", 0.0',
        SAY_TEST,
    ),
    Mutant("a-pause-is-asked-for-once", "actor/people.py", "self._ask_at = now + AGAIN_S", "self._ask_at = 1e99", SAY_TEST),
    Mutant(
        "a-paused-run-grants-updates",
        PACING,
        "        if self.paused:\n            return 0\n",
        "",
        CHANGES_TEST,
    ),
    Mutant("a-paused-run-grants-steps", PACING, "if self.paused or (self.offline", "if (self.offline", CHANGES_TEST),
    Mutant(
        "a-restart-ends-a-pause", LIVE, "            pacing.paused = bool(self.paused_by)\n", "            pass\n", CHANGES_TEST
    ),
    Mutant(
        "one-ends-the-pauses-of-all",
        LIVE,
        "if who and other != who]",
        "if False]",
        CHANGES_TEST,
    ),
    Mutant(
        "a-robot-ends-the-pauses-of-all",
        CHANGES,
        '"" if observer and change.target == EVERYBODY else who',
        '"" if change.target == EVERYBODY else who',
        CHANGES_TEST,
    ),
    Mutant(
        "what-was-set-outlives-the-config",
        LIVE,
        'if own.get(key.partition(".")[2]) == before:',
        "if True:",
        CHANGES_TEST,
    ),
    Mutant("anything-may-be-set", LIVE, "if key not in LIVE:", "if False:", CHANGES_TEST),
    Mutant(
        "a-word-is-said-again-with-its-question",
        CHANGES,
        "if observer and 0 < change.number == client.changed[0]:",
        "if False:",
        CHANGES_TEST,
    ),
    Mutant(
        "an-actor-sets-options",
        CHANGES,
        'if observer else ("pause", "resume"))',
        'if True else ("pause", "resume"))',
        CHANGES_TEST,
    ),
    # devices
    Mutant("a-key-counts-for-ever", KEYBOARD, "if now - at <= self._held_s:", "if True:", DEVICES_TEST),
    Mutant(
        "a-terminal-stays-without-echo",
        KEYBOARD,
        "                if self._before is not None:\n",
        "                if False:\n",
        DEVICES_TEST,
    ),
    Mutant(
        "a-button-that-was-held-before-takes-over",
        GAMEPAD,
        "self._held = bool(value) and not kind & INIT",
        "self._held = bool(value)",
        DEVICES_TEST,
    ),
    Mutant("half-an-event-is-forgotten", GAMEPAD, "self._rest = data[whole:]", "pass", DEVICES_TEST),
)
