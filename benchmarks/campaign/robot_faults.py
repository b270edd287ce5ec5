"""Planted faults of the robot's side: every rule of the guard, of deadlines and episodes, and of periods."""

from __future__ import annotations

from campaign.planting import Mutant

GUARD_TEST, CONTROL_TEST, PACER_TEST, ARM_TEST, LANES_TEST = (
    (f"tests/unit/actor/test_{name}.py",) for name in ("guard", "control", "pacer", "fake_arm", "robot_lanes")
)
GUARD, CONTROL = "actor/guard.py", "actor/control.py"
LOG, DRY = "launch/chaos/robot_log.py", "launch/chaos/dry_run.py"
LOG_TEST, DRY_TEST = ("tests/unit/launch/test_robot_log.py",), ("tests/unit/launch/test_dry_config.py",)
LIMITS = "low, high = inwards(np.maximum(self._low, last - reach), np.minimum(self._high, last + reach))"

ROBOTS = (
    # the guard
    Mutant("guard-without-a-box", GUARD, LIMITS, "low, high = inwards(last - reach, last + reach)", GUARD_TEST),
    Mutant(
        "guard-without-a-delta",
        GUARD,
        "reach = np.minimum(self._delta, self._rate * max(0.0, now - self._last_at))",
        "reach = self._rate * max(0.0, now - self._last_at)",
        GUARD_TEST,
    ),
    Mutant(
        "guard-without-a-rate",
        GUARD,
        "reach = np.minimum(self._delta, self._rate * max(0.0, now - self._last_at))",
        "reach = self._delta",
        GUARD_TEST,
    ),
    Mutant("guard-lets-nan-through", GUARD, "and bool(np.isfinite(array).all())", "and True", GUARD_TEST),
    Mutant("guard-lets-other-shapes-through", GUARD, "return array.shape == shape and", "return", GUARD_TEST),
    Mutant("guard-raises-at-words", GUARD, "except (TypeError, ValueError):", "except ZeroDivisionError:", GUARD_TEST),
    Mutant("guard-holds-for-ever-without-actions", GUARD, "if self._late >= self._config.late:", "if False:", GUARD_TEST),
    Mutant(
        "guard-counts-late-periods-that-lie-apart",
        GUARD,
        "self._late + 1 if wanted is None else 0",
        "self._late + (wanted is None)",
        GUARD_TEST,
    ),
    Mutant("guard-holds-for-ever", GUARD, "> self._config.hold_s:", "> math.inf:", GUARD_TEST),
    Mutant(
        "guard-adds-holds-up",
        GUARD,
        "        if deed is Deed.GO:\n            self._held_since = math.inf\n",
        "        if deed is Deed.GO:\n            pass\n",
        GUARD_TEST,
    ),
    Mutant(
        "guard-lets-a-faulty-robot-go-on",
        GUARD,
        "        if state.fault:\n            return self._stop",
        "        if False:\n            return self._stop",
        GUARD_TEST,
    ),
    Mutant(
        "guard-arms-a-faulty-robot",
        GUARD,
        '        if state.fault:\n            return f"fault',
        '        if False:\n            return f"fault',
        GUARD_TEST,
    ),
    Mutant("guard-arms-itself-after-a-stop", GUARD, "self.armed, self.why = False, why", "self.why = why", GUARD_TEST),
    Mutant(
        "guard-arms-without-reading-the-state",
        GUARD,
        "            self.reread(now, state)\n        return",
        "            pass\n        return",
        GUARD_TEST,
    ),
    Mutant(
        "guard-arms-outside-of-the-box",
        GUARD,
        "(position < self._low) | (position > self._high)",
        "position != position",
        GUARD_TEST,
    ),
    Mutant(
        "guard-takes-what-a-workspace-refuses",
        GUARD,
        "refused = self._refuses(command, state)\n        if refused and deed",
        "refused = ''\n        if refused and deed",
        GUARD_TEST,
    ),
    Mutant(
        "guard-sends-a-refused-hold",
        GUARD,
        "            refused = self._refuses(command, state)\n        if refused:",
        "            refused = ''\n        if refused:",
        GUARD_TEST,
    ),
    Mutant("a-broken-workspace-allows-all", GUARD, 'return f"{type(error).__name__}: {error}"', 'return ""', GUARD_TEST),
    Mutant("the-least-careful-reaction-wins", GUARD, "return max((deeds[r]", "return min((deeds[r]", GUARD_TEST),
    Mutant("old-pictures-pass", GUARD, "any(age > config.frame_age_s for age in ages) or", "", GUARD_TEST),
    Mutant("repeated-pictures-pass", GUARD, "or any(count > config.frame_repeats for count in repeats)", "", GUARD_TEST),
    Mutant(
        "a-frozen-picture-with-new-stamps-is-new",
        "actor/freshness.py",
        "or np.array_equal(picture, self._last[key])",
        "",
        GUARD_TEST,
    ),
    Mutant("an-old-stamp-with-other-pixels-is-new", "actor/freshness.py", "(stamp <= self._taken[key] or ", "(", GUARD_TEST),
    Mutant("old-weights-pass", GUARD, "vitals.acted_s > config.weight_age_s", "False", GUARD_TEST),
    Mutant("a-silent-link-passes", GUARD, "now - vitals.heard > config.link_age_s", "False", GUARD_TEST),
    Mutant(
        "a-robot-without-a-rate-limit",
        "actor/limits.py",
        '("low", "high", "max_delta", "max_rate") if not',
        '("low", "high", "max_delta") if not',
        GUARD_TEST,
    ),
    # deadlines, episodes, phases
    Mutant("a-late-action-is-carried-out", CONTROL, "(self._decided or now > self._deadline)", "self._decided", CONTROL_TEST),
    Mutant("an-action-of-a-period-that-is-over-is-kept", CONTROL, "if tick < self._tick or", "if", CONTROL_TEST),
    Mutant("an-action-of-another-episode-is-carried-out", CONTROL, "or offer.episode != self._start.episode", "", CONTROL_TEST),
    Mutant("queued-actions-cross-a-reset", CONTROL, "        self._queue = {}\n", "", CONTROL_TEST),
    Mutant("an-old-chunk-outlives-a-newer-one", CONTROL, "if tick < offer.tick}", "if True}", CONTROL_TEST),
    Mutant("a-lost-actor-is-waited-for", CONTROL, "if self._lost and self._lost_seen:", "if False:", CONTROL_TEST),
    Mutant(
        "a-command-that-expired-is-where-the-robot-holds",
        CONTROL,
        "        self._done = None\n        return self._act(now, None)",
        "        self._guard.left(now, self._done.action)\n        return self._act(now, None)",
        CONTROL_TEST,
    ),
    Mutant("an-episode-begins-with-an-old-link", CONTROL, "        if not old:\n", "        if True:\n", CONTROL_TEST),
    Mutant("a-gate-that-nobody-opened", CONTROL, "if self._config.gate:", "if False:", CONTROL_TEST),
    Mutant("a-gate-is-waited-at-for-ever", CONTROL, "now - self._since > self._config.gate_s", "False", CONTROL_TEST),
    Mutant("home-is-sought-for-ever", CONTROL, "if now - self._since > self._config.home_s:", "if False:", CONTROL_TEST),
    Mutant(
        "a-broken-episode-is-not-told", CONTROL, "self.signals.append(Broken(self._start.episode, why))", "pass", CONTROL_TEST
    ),
    Mutant("a-terminal-at-the-limit-is-truncated-too", CONTROL, " and not terminated)", ")", CONTROL_TEST),
    Mutant("the-robot-that-moved-by-itself-goes-on", CONTROL, "        self._guard.reread(now, state)\n", "", CONTROL_TEST),
    Mutant(
        "what-was-wanted-is-stored",
        "actor/recorder.py",
        "actions if step.executed is None else step.executed",
        "actions",
        LANES_TEST,
    ),
    # periods, and the arm that tests believe
    Mutant(
        "missed-periods-are-made-up-for",
        "actor/pacer.py",
        "self.due += (missed + 1) * self.period_s",
        "self.due += self.period_s",
        PACER_TEST,
    ),
    Mutant(
        "lateness-adds-up",
        "actor/pacer.py",
        "self.due += (missed + 1) * self.period_s",
        "self.due = now + self.period_s",
        PACER_TEST,
    ),
    Mutant(
        "weights-age-while-nothing-is-owed",
        "actor/uplink.py",
        "self._acted = self.acted + steps if self._owed else 0",
        "self._acted = self.acted + steps",
        ("tests/protocol/test_uplink.py",),
    ),
    Mutant(
        "a-robot-stands-still-for-weights-that-are-owed-no-more",
        "actor/uplink.py",
        "return self._acted if self._owed else 0",
        "return self._acted",
        ("tests/protocol/test_uplink.py",),
    ),
    Mutant(
        "weights-that-nobody-owes-yet-are-waited-for",
        "actor/uplink.py",
        "(behind or state.env_steps - self._newest_at >= self.due_steps)",
        "True",
        ("tests/protocol/test_uplink.py",),
    ),
    Mutant(
        "weights-that-were-not-fetched-do-not-age",
        "actor/uplink.py",
        "(behind or state.env_steps - self._newest_at >= self.due_steps)",
        "(state.env_steps - self._newest_at >= self.due_steps)",
        ("tests/protocol/test_uplink.py",),
    ),
    Mutant(
        "a-learner-that-goes-on-publishes-what-it-began-with",
        "learner/loop.py",
        "            self.sac.set_state(found.state)\n",
        "            self.sac.step = found.step\n",
        ("tests/unit/learner/test_loop.py",),
    ),
    Mutant(
        "an-idle-learner-keeps-what-it-learned-last",
        "learner/loop.py",
        "            if self._publish_due():",
        "            if batches is not None and self._publish_due():",
        ("tests/unit/learner/test_loop.py",),
    ),
    Mutant(
        "an-ack-is-no-sign-of-life",
        "actor/uplink.py",
        "            self.heard_at = self._clock.now()\n            if isinstance(message, m.State):",
        "            if isinstance(message, m.State):",
        ("tests/protocol/test_uplink.py",),
    ),
    Mutant(
        "late-commands-in-a-record-do-not-count",
        LOG,
        'line["at"] > line["deadline"] for',
        "False for",
        LOG_TEST,
    ),
    Mutant("crossed-resets-in-a-record-do-not-count", LOG, 'crossed += line["episode"] != episode', "crossed += 0", LOG_TEST),
    Mutant("the-first-hold-is-taken-for-safe", LOG, "seen[wanted[-1] + 1 :]", "seen[wanted[0] + 1 :]", LOG_TEST),
    Mutant(
        "a-dry-run-passes-with-lost-rows",
        DRY,
        '"crossed_resets", "lost", "duplicated")]',
        '"crossed_resets", "duplicated")]',
        DRY_TEST,
    ),
    Mutant("a-dry-run-passes-unsafe", DRY, "all(kept) and safely and bool(known)", "all(kept)", DRY_TEST),
    Mutant("the-arm-follows-late-commands", "actor/fake_arm.py", "late = now > command.deadline", "late = False", ARM_TEST),
    # deciding ahead
    Mutant(
        "the-first-period-ahead-is-a-fault",
        CONTROL,
        "wanted is None and self._tick < self._config.ahead",
        "False",
        CONTROL_TEST,
    ),
    Mutant(
        "ages-of-actions-ahead-are-told-too-young", CONTROL, "now - seen_at, source", "now - self._begun, source", CONTROL_TEST
    ),
    Mutant("an-old-action-goes-out", GUARD, "elif age_s > self._config.action_age_s:", "elif False:", CONTROL_TEST),
    Mutant(
        "rows-hold-the-next-decision",
        "actor/loop.py",
        "decided, version = before or (held(step, self._spec), version)",
        "decided = acts",
        ("tests/unit/actor/test_loop.py",),
    ),
)
