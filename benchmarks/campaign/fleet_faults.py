"""Planted faults of a fleet: what a thousand sessions cost, and what is told of all of them."""

from __future__ import annotations

from campaign.planting import Mutant

SESSION, SERVICE = ("tests/protocol/test_session.py",), ("tests/protocol/test_service.py",)
LEDGER = ("tests/unit/buffer/test_ledger.py",)

FLEET = (
    Mutant(
        "who-goes-on-written-down-anew",
        "common/wire/fleet.py",
        "        if returns and hello.role != LEARNER and (",
        "        if False and (",
        SESSION,
    ),
    Mutant(
        "learners-publish-under-an-old-epoch",
        "common/wire/fleet.py",
        "        if returns and hello.role != LEARNER and (",
        "        if returns and (",
        SESSION,
    ),
    Mutant("epochs-of-before-a-loss-kept", "buffer/epochs.py", " and newest > self._newest(_ALL)", "", SESSION),
    Mutant(
        "commits-not-in-the-ledgers-table",
        "buffer/ledger.py",
        "        self._changed.add(index)\n        self.lost_before",
        "        self.lost_before",
        LEDGER,
    ),
    Mutant(
        "names-not-in-the-ledgers-table",
        "buffer/ledger.py",
        '            self._table[index]["actor"] =',
        "            _ =",
        LEDGER,
    ),
    Mutant(
        "restored-ledgers-not-in-the-table", "buffer/ledger.py", "        self._table[: len(entries)] = entries\n", "", LEDGER
    ),
    Mutant(
        "allowances-of-all-after-each-block",
        "buffer/service.py",
        "        if self._unshared * SHARED_BY >= len(self._clients):",
        "        if True:",
        SERVICE,
    ),
    Mutant(
        "shared-work-counted-for-ever",
        "buffer/service.py",
        "        self._unshared = 0\n        allowances",
        "        allowances",
        SERVICE,
    ),
)
