"""Planted faults of runs over several hosts: topology, plan, engines, the doctor of links, and how a role ends."""

from __future__ import annotations

from campaign.planting import Mutant

HERE = "tests/unit/launch/cluster"
TOPOLOGY, CHECKUP, RAY = ((f"{HERE}/test_{name}.py",) for name in ("topology", "checkup", "ray_job"))
PLAN = f"{HERE}/test_plan.py::test_"
ENDING = ("tests/unit/common/test_ending.py",)
ABSENCE = ("tests/unit/common/test_absence.py",)
LINK = ("tests/unit/launch/test_link_doctor.py",)

CLUSTER = (
    Mutant("loopback-dialled-by-others", "launch/cluster/topology.py", "is_loopback(endpoint) and others", "False", TOPOLOGY),
    Mutant("two-listeners-on-a-port", "launch/cluster/topology.py", "if (host, port) in taken:", "if False:", TOPOLOGY),
    Mutant("two-hosts-of-one-address", "launch/cluster/topology.py", "if address in seen:", "if False:", TOPOLOGY),
    Mutant("one-id-for-two-actors", "launch/cluster/topology.py", "if name in seen:", "if False:", TOPOLOGY),
    Mutant(
        "open-without-keys", "launch/cluster/topology.py", "if opened and not self.keys", "if False and not self.keys", TOPOLOGY
    ),
    Mutant(
        "a-name-to-listen-at",
        "launch/cluster/plan.py",
        "        address = ANY_IPV4\n",
        "        pass\n",
        (PLAN + "a_buffer_listens_where_it_can",),
    ),
    Mutant("ipv6-without-brackets", "launch/cluster/topology.py", 'if ":" in address else', 'if "!" in address else', TOPOLOGY),
    Mutant(
        "ranks-of-one-number",
        "launch/cluster/plan.py",
        "how = ranks_words(nodes, str(number),",
        'how = ranks_words(nodes, "0",',
        (PLAN + "only_the_buffer_and_the_first_rank_listen_and_ranks_meet_there",),
    ),
    Mutant(
        "ranks-that-listen-on-one-host",
        "launch/cluster/topology.py",
        "if len(self.ranks) > 1 else",
        "if self.ranks else",
        (PLAN + "ranks_of_one_host_meet_nobody_else",),
    ),
    Mutant(
        "all-secrets-to-every-host",
        "launch/cluster/plan.py",
        "for start in starts if start.host == host for name",
        "for start in starts for name",
        (PLAN + "every_role_has_its_key_and_each_host_only_its_own",),
    ),
    Mutant(
        "all-secrets-to-every-pod",
        "launch/cluster/kubernetes.py",
        'if start.kind != "buffer":',
        "if False:",
        (PLAN + "kubernetes_manifests_hang_together",),
    ),
    Mutant(
        "units-that-never-rest",
        "launch/cluster/systemd.py",
        "RestartPreventExitStatus={usage} {permanent}\n",
        "",
        (PLAN + "systemds_units_say_when_not_to_start_again",),
    ),
    Mutant(
        "a-specifier-in-a-unit",
        "launch/cluster/systemd.py",
        'directory=start.directory.replace("%", "%%")',
        "directory=start.directory",
        (PLAN + "systemds_units_say_when_not_to_start_again",),
    ),
    Mutant(
        "an-expired-job-is-over",
        "launch/cluster/slurm.py",
        '  scontrol requeue "$SLURM_JOB_ID"\nelse',
        "  true\nelse",
        (PLAN + "slurms_job_restarts_a_step_and_requeues_at_its_time_limit_or_ends",),
    ),
    Mutant(
        "a-dead-step-stays-dead",
        "launch/cluster/slurm.py",
        "for _ in {{1..20}}; do",
        "for _ in {{1..1}}; do",
        (PLAN + "slurms_job_restarts_a_step_and_requeues_at_its_time_limit_or_ends",),
    ),
    Mutant(
        "guests-who-measure-are-cut-off",
        "launch/cluster/checkup.py",
        " and self.there.isdisjoint(awaited))",
        ")",
        CHECKUP,
    ),
    Mutant(
        "a-key-of-another-role", "launch/cluster/checkup.py", "files.secret(name, roles[name])", "files.secret(name)", CHECKUP
    ),
    Mutant(
        "public-halves-not-looked-for", "launch/cluster/checkup.py", "        if missing:\n", "        if False:\n", CHECKUP
    ),
    Mutant(
        "one-role-calls-for-all-of-its-host",
        "launch/cluster/checkup.py",
        "        for start in starts\n        if start.kind != BUFFER\n",
        "        for start in {start.kind: start for start in starts}.values()\n        if start.kind != BUFFER\n",
        CHECKUP,
    ),
    Mutant("one-session-for-all-of-a-link", "launch/link_doctor.py", "for call in calls]", "for call in calls[:1]]", LINK),
    Mutant("all-of-a-link-measure", "launch/link_doctor.py", "admitted[:1]", "admitted", LINK),
    Mutant("a-run-that-goes-on-is-a-fault", "launch/link_doctor.py", 'if error.reason == "held":', "if False:", LINK),
    Mutant("a-learners-own-place-is-taken", "launch/cluster/checkup.py", 'RANK = "rank"', 'RANK = "learner"', CHECKUP),
    Mutant(
        "what-fails-again-is-repeated", "launch/cluster/ray_job.py", "if code in (USAGE, MUST_NOT_RESTART)", "if False", RAY
    ),
    Mutant("a-cancelled-task-leaves-its-process", "launch/cluster/ray_job.py", "            child.terminate()\n", "", RAY),
    Mutant("a-run-without-its-buffer", "launch/cluster/ray_job.py", '("buffer", LEARNER)', "(LEARNER,)", RAY),
    Mutant("a-buffer-that-left-is-a-goal", "common/ending.py", "not told.done and", "told.done and", ENDING),
    Mutant("a-signal-is-a-buffer-that-left", "common/ending.py", " and not stop.is_set()", "", ENDING),
    Mutant(
        "what-the-buffer-said-last-is-kept-to-itself",
        "common/ending.py",
        "return otherwise if told is None else",
        "return otherwise if told is not None else",
        ENDING,
    ),
    Mutant(
        "a-buffer-that-stops-does-not-say-that-it-is-the-buffer",
        "buffer/service.py",
        'f"the buffer stops: {reason}"',
        "reason",
        ("tests/protocol/test_versions.py",),
    ),
    Mutant("a-loss-is-not-told", "common/wire/absence.py", "bool(self._losses.count(now))", "False", ABSENCE),
    Mutant("every-loss-is-told", "common/wire/absence.py", "bool(self._losses.count(now))", "True", ABSENCE),
    Mutant("away-since-it-was-told", "common/wire/absence.py", "= False, self._session.heard_at,", "= False, now,", ABSENCE),
    Mutant("a-wait-is-told-once", "common/wire/absence.py", "due = waited_s >= self._due_s", "due = False", ABSENCE),
    Mutant("silence-without-advice", "common/wire/session.py", "silent = self.advice and", "silent = False and", ABSENCE),
    Mutant(
        "a-role-that-left-with-its-buffer-has-died",
        "launch/supervision.py",
        "code = 0 if code == BUFFER_LEFT else code",
        "code = code",
        ("tests/unit/launch/test_supervision.py",),
    ),
)
