"""The line-up of a run: which processes ``train`` starts for it, and with which words and variables."""

from __future__ import annotations

from pathlib import Path

from headrace.common.cores import usable_cores
from headrace.common.wire.messages import POLICY_SERVER
from headrace.launch.children import copy_variables, headrace_command, thread_variables
from headrace.launch.config import RunConfig
from headrace.launch.roles import LEARNER_ID
from headrace.launch.rundir import RunDir
from headrace.launch.supervision import LEARNER, RANK, RolePlan
from headrace.learner.config import CPU
from headrace.learner.place import Place, rank_name


class Lineup:
    """The roles of one run.

    Args:
        config: says how many of each there are.
        run: where they find their config and each other.
        init_from: a policy to begin with.
    """

    def __init__(self, config: RunConfig, run: RunDir, init_from: Path | None) -> None:
        self._config, self._run, self._init_from = config, run, init_from
        self._buffers = {f"buffer-{shard}" if shard else "buffer": shard for shard in range(config.buffer.shards)}
        self._ranks = {rank_name(LEARNER_ID, rank): rank for rank in range(config.learner.ranks)}

    def plans(self) -> list[RolePlan]:
        """Every role. Any start order works; the learner has the most to load."""
        config = self._config
        plans = [RolePlan(name, RANK if rank else LEARNER) for name, rank in self._ranks.items()]
        plans += [RolePlan(name, "buffer") for name in self._buffers]
        actors = config.actor.count if config.pacing.online else 0
        plans += [RolePlan(f"actor-{n}", "actor") for n in range(actors)]
        if config.actor.policy == "server" and config.policy_server.start and config.pacing.online:
            plans.append(RolePlan(POLICY_SERVER, POLICY_SERVER))
        return plans + ([RolePlan("evaluator", "evaluator")] if config.eval.every else [])

    def command(self, plan: RolePlan, again: bool) -> list[str]:
        """The command line of a role; ``again``: it ran before."""
        place = str(self._run.path)
        if plan.kind == "buffer":
            # The others know the old endpoint, so a buffer that is started again listens there.
            shard = self._buffers[plan.name]
            endpoint = self._run.shard(shard).endpoint
            known = ["--bind", endpoint.read_text().strip()] if again and endpoint.exists() else []
            return headrace_command(["buffer", place, *(["--shard", str(shard)] if shard else []), *known])
        if plan.name in self._ranks:
            policy = ["--init-from", str(self._init_from)] if self._init_from else []
            return headrace_command(["learner", place, "--id", LEARNER_ID, *policy])
        if plan.kind == POLICY_SERVER:
            return headrace_command([POLICY_SERVER, place, "--id", plan.name])
        evaluate = ["--evaluate"] if plan.kind == "evaluator" else []
        return headrace_command(["actor", place, "--id", plan.name, *evaluate])

    def environment(self, plan: RolePlan) -> dict[str, str]:
        """Variables of a role: ranks share the cores and copy as suits their device, all others have one thread."""
        if plan.name not in self._ranks:
            return thread_variables(1)
        size = len(self._ranks)
        copies = {} if self._config.learner.device == CPU else copy_variables()
        if size == 1:
            return {**copies, **Place().environment()}
        threads = thread_variables(max(1, usable_cores() // size))
        place = Place.of_one_host(self._ranks[plan.name], size, str(self._run.meeting))
        return {**copies, **threads, **place.environment()}
