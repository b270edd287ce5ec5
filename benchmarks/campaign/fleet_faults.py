"""Planted faults of a fleet: what a thousand sessions cost, and what is told of all of them."""

from __future__ import annotations

from campaign.planting import Mutant

SESSION, SERVICE = ("tests/protocol/test_session.py",), ("tests/protocol/test_service.py",)
LEDGER = ("tests/unit/buffer/test_ledger.py",)
FIGURES, EXPORTER = ("tests/unit/common/test_figures.py",), ("tests/unit/common/test_exporter.py",)
DISK = ("tests/protocol/test_full_disk.py",)
GATHERED = ("tests/unit/buffer/test_gathered.py",)

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
        " if self._unshared * SHARED_BY >= len(self.reception.clients) else []",
        "",
        SERVICE,
    ),
    Mutant(
        "shared-work-counted-for-ever",
        "buffer/service.py",
        "        self._unshared = 0\n        allowances",
        "        allowances",
        SERVICE,
    ),
    Mutant(
        "figures-served-unasked", "common/exporter.py", "        if not self.config.bind:\n", "        if False:\n", EXPORTER
    ),
    Mutant("ports-kept-for-ever", "common/exporter.py", "            server.server_close()\n", "            pass\n", EXPORTER),
    Mutant(
        "figures-of-the-first-look",
        "common/exporter.py",
        "for family in self._look():",
        "for family in vars(self).setdefault('once', [*self._look()]):",
        EXPORTER,
    ),
    Mutant("figures-without-value", "common/figures.py", "number if math.isfinite(number) else None", "number", FIGURES),
    Mutant("flags-are-figures", "common/figures.py", "isinstance(value, bool) or ", "", FIGURES),
    Mutant("figures-told-by-two", "common/figures.py", ' and not name.startswith("run/")', "", FIGURES),
    Mutant("labels-with-their-prefix", "common/figures.py", "key[len(step) - 1 :]", "key", FIGURES),
    Mutant(
        "actors-told-in-any-order", "buffer/gathered.py", "sorted(names)[:MOST_ACTORS]", "list(names)[:MOST_ACTORS]", GATHERED
    ),
    Mutant("actors-told-without-end", "buffer/gathered.py", "sorted(names)[:MOST_ACTORS]", "sorted(names)", GATHERED),
    Mutant("a-shard-tells-no-number", "buffer/gathered.py", " and math.isfinite(value)", "", GATHERED),
    Mutant("a-shard-tells-what-it-likes", "buffer/gathered.py", "if key in OF_ACTORS and ", "if ", GATHERED),
    Mutant("a-mean-of-means", "buffer/gathered.py", "_number(part.get(COUNT))) for", "1.0) for", GATHERED),
    Mutant(
        "actors-of-further-shards-are-in-no-metrics",
        "buffer/satellite_service.py",
        '                "part": self.watch.part(self, now),\n',
        "",
        ("tests/protocol/test_shards.py::test_each_shard_is_let_as_far_ahead_as_its_actors_are_many",),
    ),
    Mutant(
        "welcomes-that-no-disk-took",
        "buffer/reception.py",
        "            if refused is None or session.kept:",
        "            if True:",
        DISK,
    ),
    Mutant(
        "who-is-kept-turned-away", "buffer/reception.py", "if refused is None or session.kept:", "if refused is None:", DISK
    ),
    Mutant(
        "each-hello-written-by-itself",
        "buffer/epochs.py",
        "        return epoch\n",
        "        self.write()\n        return epoch\n",
        DISK,
    ),
    Mutant(
        "specs-that-differ-are-taken-for-equal", "common/specs.py", "        if self == other:\n", "        if True:\n", SERVICE
    ),
)
