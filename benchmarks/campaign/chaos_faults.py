"""Planted faults of `headrace chaos`: a checker that looks away, a harvest that skips, a schedule that forgets."""

from __future__ import annotations

from campaign.planting import Mutant

CHECKER = ("tests/unit/launch/chaos/test_checker.py",)
HARVEST = ("tests/unit/launch/chaos/test_harvest.py",)
SCHEDULE = ("tests/unit/launch/chaos/test_schedule.py",)
VERDICT = ("tests/unit/launch/chaos/test_verdict.py",)
WITNESS = ("tests/unit/launch/chaos/test_witness.py",)


def _checker(name: str, old: str, new: str) -> Mutant:
    return Mutant(f"chaos-{name}", "launch/chaos/checker.py", old, new, CHECKER)


CHAOS = (
    _checker("gaps-below-an-ack-forgiven", "if seq not in stream.rows and seq not in excused]", "if seq < 0]"),
    _checker("rejected-rows-are-lost", "stream.unseen(evidence.unseen) | stream.rejected", "stream.unseen(evidence.unseen)"),
    _checker("a-seq-may-be-there-twice", "        elif row.seq in stream.rows:\n", "        elif False:\n"),
    _checker("a-step-may-be-there-twice", "    if deed.row is not None:\n", "    if False:\n"),
    _checker("content-not-looked-at", " if row.digest in _digests(deed.step, is_last=deed.is_last)), None)", "), None)"),
    _checker("any-step-may-be-cut-off", "if is_last and not step.terminated", "if not step.terminated"),
    _checker("rows-may-change", "        if before._replace(outcome=row.outcome) != row:\n", "        if False:\n"),
    _checker("outcomes-may-change", "        if before.outcome not in (0, row.outcome):\n", "        if False:\n"),
    _checker("rows-in-any-order", "if stream.rows and row.seq < next(reversed(stream.rows)):", "if False:"),
    _checker("strangers-let-in", "    _judge_strangers(strangers, streams, verdict)\n", ""),
    _checker("blocks-of-any-order", "            if place != due:\n", "            if False:\n"),
    _checker("steps-of-all-lanes-in-one-order", "lanes.setdefault(step.lane, [])", "lanes.setdefault(0, [])"),
    _checker("spools-in-any-order", "sum(b < a for a, b in pairwise(seqs))", "0"),
    _checker("what-a-spool-kept-may-go", "in known - counted]", "in ()]"),
    _checker("what-a-spool-kept-is-lost-twice", "in known - counted]", "in known]"),
    _checker("resent-blocks-may-differ", "if (before.rows, before.digest) != (sent.rows, sent.digest):", "if False:"),
    _checker("mixtures-let-pass", "            if low != high:\n", "            if False:\n"),
    _checker("any-update-may-act", "                if low != expected:\n", "                if False:\n"),
    _checker("rows-may-name-any-version", "low == high and low != row.step", "low != high"),
    _checker("versions-may-go-back", "if version <= before or version < floor:", "if version < floor:"),
    _checker("successors-may-begin-with-older-weights", "if version <= before or version < floor:", "if version <= before:"),
    _checker("unpublished-versions-let-pass", "not in evidence.published:", "in ():"),
    _checker("the-succeeded-may-go-on", "            if holder == client.process:\n", "            if True:\n"),
    _checker("anybody-may-abandon", "if left > 0 and not evidence.may_abandon(client):", "if False:"),
    _checker("counters-not-looked-at", "        if ours != theirs:\n", "        if False:\n"),
    _checker("anybody-may-come-in", "        if answer == OPENED:\n", "        if False:\n"),
    Mutant(
        "chaos-unseen-rows-cover-every-loss",
        "launch/chaos/streams.py",
        "            out.update(range(low + 1, high))\n",
        "            out.update(range(1, high + (1 << 20)))\n",
        CHECKER,
    ),
    Mutant(
        "chaos-any-outcome-is-right",
        "launch/chaos/labelling.py",
        "            if row.outcome not in (0, expected):\n",
        "            if False:\n",
        CHECKER,
    ),
    Mutant(
        "chaos-answered-labels-may-be-forgotten",
        "launch/chaos/labelling.py",
        "and row.outcome != said.outcome:",
        "and False:",
        CHECKER,
    ),
    Mutant(
        "chaos-outcomes-of-the-ended-not-looked-at",
        "launch/chaos/labelling.py",
        "elif row.outcome != expected and row.id >= evidence.tail",
        "elif False and row.id >= evidence.tail",
        CHECKER,
    ),
    Mutant(
        "chaos-two-jobs-are-one-verdict",
        "launch/chaos/verdict.py",
        "            self.found[kind] += count\n        for",
        "            pass\n        for",
        VERDICT,
    ),
    Mutant(
        "chaos-liars-about-labels-say-the-truth",
        "launch/chaos/sabotage.py",
        "OPPOSITE.get(head.outcome, head.outcome)",
        "head.outcome",
        WITNESS,
    ),
    Mutant(
        "chaos-keys-in-every-chapter",
        "launch/chaos/schedule.py",
        "kind for kind in kinds if kind not in PLAIN_ONLY)",
        "kinds)",
        SCHEDULE,
    ),
    Mutant(
        "chaos-what-was-read-is-unseen",
        "launch/chaos/harvest.py",
        "if row > self._read_to:",
        "if row > self._next:",
        HARVEST,
    ),
    Mutant(
        "chaos-evicted-rows-not-told",
        "launch/chaos/harvest.py",
        '            self._history.write("unseen", self._read_to, row)\n',
        "            pass\n",
        HARVEST,
    ),
    Mutant(
        "chaos-rows-not-read-again",
        "launch/chaos/harvest.py",
        "self._next = self._tail = self._view.tail  # all",
        "self._next = self._tail = max(self._next, self._view.tail)  # all",
        HARVEST,
    ),
    Mutant("chaos-bag-never-full", "launch/chaos/schedule.py", "self._rng.permutation(len(self._whole))", "range(3)", SCHEDULE),
    Mutant("chaos-bound-of-the-other-side", "launch/chaos/verdict.py", "> 0.05 else", "> 0.95 else", VERDICT),
)
