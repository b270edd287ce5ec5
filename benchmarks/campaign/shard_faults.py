"""Planted faults of several buffers in one run: loans, what was done, batches from all shards, a merge."""

from __future__ import annotations

from campaign.planting import Mutant

RUN, BLEND = ("tests/protocol/test_shards.py",), ("tests/unit/learner/test_blend.py",)
MERGE = ("tests/unit/launch/test_merging.py",)
SATELLITES = "buffer/satellites.py"

SHARDS = (
    Mutant(
        "a-shard-counts-as-one-simulator",
        "buffer/pacing.py",
        "max(account.reserve, share * account.simulators)",
        "max(account.reserve, share)",
        RUN,
    ),
    Mutant(
        "what-a-shard-gives-back-stays-under-way",
        "buffer/pacing.py",
        "max(0, self.granted - self.returned - self.accounted)",
        "max(0, self.granted - self.accounted)",
        RUN,
    ),
    Mutant(
        "what-nobody-can-use-is-kept",
        "buffer/satellite.py",
        "if self._live and not simulators and not pacing.absent and unused > 0:",
        "if False:",
        RUN,
    ),
    Mutant("a-loan-without-end", "buffer/lent.py", "        limit = self.loan.limit\n", "        limit = UNBOUNDED\n", RUN),
    Mutant(
        "a-shard-ends-with-its-own-steps",
        "buffer/lent.py",
        "return self.loan.limit if self.loan.final else UNBOUNDED",
        "return self.config.env_steps",
        RUN,
    ),
    Mutant("a-pause-stays-at-home", "buffer/lent.py", " or self.loan.phase == PAUSED", "", RUN),
    Mutant(
        "a-pause-elsewhere-is-not-heard",
        "buffer/service.py",
        "(self.live.pause if holdings.paused else self.live.resume)(who)",
        "self.live.resume(who)",
        RUN,
    ),
    Mutant(
        "a-lost-shard-has-done-nothing",
        SATELLITES,
        "        self._here.pop(account(session.id), None)\n",
        "        self._env_steps.pop(self._here.pop(account(session.id)).pool, None)\n",
        RUN,
    ),
    Mutant(
        "what-satellites-did-is-not-counted",
        "buffer/service.py",
        "totals.env_steps + self.satellites.env_steps",
        "totals.env_steps",
        RUN,
    ),
    Mutant(
        "home-forgets-what-satellites-did",
        SATELLITES,
        '            self._env_steps = {str(pool): int(steps) for pool, steps in dict(known["env_steps"]).items()}\n',
        "",
        RUN,
    ),
    Mutant(
        "random-steps-for-each-shard",
        "buffer/lent.py",
        "        return self.loan.random\n",
        "        return self.config.random_steps\n",
        RUN,
    ),
    Mutant("actors-of-one-shard-alone", "launch/placing.py", 'f"{name}\\0{actor}"', 'f"{name}"', RUN),
    Mutant(
        "shards-in-equal-parts",
        "learner/blend.py",
        "rows = np.array([n if n >= self._chunk else 0 for n in live], np.int64)",
        "rows = np.array([max(live) if n >= self._chunk else 0 for n in live], np.int64)",
        BLEND,
    ),
    Mutant(
        "parts-always-as-expected",
        "learner/blend.py",
        'return [int(n) for n in self._rng.multivariate_hypergeometric(rows, self._batch_size, method="marginals")]',
        "return [self._batch_size - sum(int(self._batch_size * n / total) for n in rows[1:]),"
        " *(int(self._batch_size * n / total) for n in rows[1:])]",
        BLEND,
    ),
    Mutant(
        "a-part-holds-a-row-twice",
        "learner/stock.py",
        "        if not self._hand or chunk.sets is not None or chunk.weights is not None:\n",
        "        if True:\n",
        BLEND,
    ),
    Mutant(
        "rows-of-two-epochs-in-one-part",
        "learner/stock.py",
        "            if self._hand and chunk.epoch != self.epoch:\n",
        "            if False:\n",
        BLEND,
    ),
    Mutant(
        "a-lost-shard-is-waited-for",
        "learner/blend.py",
        "            self._plan = None  # what was lost with a shard is drawn from the others\n",
        "            return None\n",
        BLEND,
    ),
    Mutant("ratings-go-to-the-first-shard", "learner/blend.py", "of = shards == number", "of = shards >= 0", BLEND),
    Mutant(
        "statistics-without-the-means",
        "common/statistics.py",
        "p.var[key] + (m - center) ** 2 for p, m",
        "p.var[key] + 0 * m for p, m",
        BLEND,
    ),
    Mutant(
        "merged-steps-count-twice",
        SATELLITES,
        '            self._body["env_steps"][self._pool] -= steps\n',
        "",
        MERGE,
    ),
    Mutant(
        "a-cut-merge-takes-the-steps-twice",
        SATELLITES,
        '        if self._state != "begun":\n',
        "        if True:\n",
        MERGE,
    ),
    Mutant(
        "any-pool-is-merged",
        SATELLITES,
        '        if pool not in self._body["env_steps"]:\n',
        "        if False:\n",
        MERGE,
    ),
)
