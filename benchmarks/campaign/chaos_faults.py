"""Planted faults of `headrace chaos`: a checker that looks away, a harvest that skips, a schedule that forgets."""

from __future__ import annotations

from campaign.planting import Mutant

CHECKER = ("tests/unit/launch/chaos/test_checker.py",)
HARVEST = ("tests/unit/launch/chaos/test_harvest.py",)
SCHEDULE = ("tests/unit/launch/chaos/test_schedule.py",)
VERDICT = ("tests/unit/launch/chaos/test_verdict.py",)


def _checker(name: str, old: str, new: str) -> Mutant:
    return Mutant(f"chaos-{name}", "launch/chaos/checker.py", old, new, CHECKER)


CHAOS = (
    _checker("gaps-below-an-ack-forgiven", "if seq not in there and seq not in rejected", "if seq < 0 and seq not in rejected"),
    _checker("rejected-rows-are-lost", "and seq not in rejected ", ""),
    _checker("a-seq-may-be-there-twice", "        if row.seq in rows:\n", "        if False:\n"),
    _checker("content-not-looked-at", "or row.digest not in _digests(step, is_last=step is last[key])", ""),
    _checker("any-step-may-be-cut-off", "if is_last and not step.terminated", "if not step.terminated"),
    _checker("rows-may-change", "        if before != row:\n", "        if False:\n"),
    _checker("rows-in-any-order", "if rows and row.seq < next(reversed(rows)):", "if False:"),
    _checker("strangers-let-in", "    _judge_strangers(strangers, streams, verdict)\n", ""),
    _checker("blocks-of-any-order", "            elif index != at:\n", "            elif False:\n"),
    _checker("resent-blocks-may-differ", "if (before.rows, before.digest) != (sent.rows, sent.digest):", "if False:"),
    _checker("mixtures-let-pass", "            if low != high:\n", "            if False:\n"),
    _checker("any-update-may-act", "                if low != expected:\n", "                if False:\n"),
    _checker("rows-may-name-any-version", "low == high and low != row.step", "low != high"),
    _checker("versions-may-go-back", "if version <= before or version < floor:", "if version < floor:"),
    _checker("successors-may-begin-with-older-weights", "if version <= before or version < floor:", "if version <= before:"),
    _checker("unpublished-versions-let-pass", "not in evidence.published:", "in ():"),
    _checker("the-succeeded-may-go-on", "            if holder == client.process:\n", "            if True:\n"),
    _checker("anybody-may-abandon", "(left > 0 and not evidence.may_abandon(client))", "False"),
    _checker("unseen-rows-cover-every-loss", "and seq not in excused]", "and not excused]"),
    _checker("counters-not-looked-at", "        if ours != theirs:\n", "        if False:\n"),
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
        "self._next = self._view.tail  # all",
        "self._next = max(self._next, self._view.tail)  # all",
        HARVEST,
    ),
    Mutant("chaos-bag-never-full", "launch/chaos/schedule.py", "self._rng.permutation(len(self._whole))", "range(3)", SCHEDULE),
    Mutant("chaos-bound-of-the-other-side", "launch/chaos/verdict.py", "> 0.05 else", "> 0.95 else", VERDICT),
)
