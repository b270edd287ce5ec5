"""Synchronous mode: the whole algorithm in one process and one thread, to be read, debugged and repeated to the bit.

One turn of the loop: every actor steps its lanes once with the newest policy, the rows go into the pool, and the learner
makes the updates that the ratio then owes. Nothing depends on time, and every random number has its own generator:

    episode e of an actor   reset with derive_seed(seed, actor, 1, e)
    actions of an actor     derive_seed(seed, actor, 1, "action")
    batches                 derive_seed(seed, "sampler")
    initial weights, noise  make_model(..., seed), SAC(..., seed)

So two runs of one config on one machine are equal in every tensor, counter and random state. A checkpoint lies between
two episodes and holds the pool too, so a resumed run is equal to one that was never stopped. Where lanes end their episodes at
different times there is no such moment: the checkpoint then waits for the first lane and cuts the others' episodes
(truncated, with their true last observations), in the same way in every run of the config.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.actor.best import BestPolicy
from headrace.actor.config import EnvConfig
from headrace.actor.envs import make_lanes, make_spec
from headrace.actor.evaluate import evaluate
from headrace.actor.exploring import epsilon_of
from headrace.actor.joining import columns_of
from headrace.actor.policy import Policy, make_policy
from headrace.actor.rating import find_rate
from headrace.buffer.pacing import Pacing
from headrace.buffer.pool import SACReplayPool
from headrace.common.batch import Batch
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.config import replace
from headrace.common.errors import CheckpointError, PoolTooSmall
from headrace.common.policy_files import policy_files
from headrace.common.seeds import derive_seed
from headrace.common.weights import Version, WeightSet
from headrace.launch.config import RunConfig
from headrace.launch.digests import state_digest
from headrace.launch.interrupt import Interrupt
from headrace.launch.pinning import pin_demos
from headrace.launch.play import read_policy
from headrace.launch.pools import find_past, open_past
from headrace.launch.roles import LEARNER_ID
from headrace.launch.rundir import RunDir
from headrace.launch.supervise import Status, Watcher
from headrace.launch.sync_actor import SyncActor
from headrace.launch.sync_watch import SyncWatch
from headrace.learner import checkpoint
from headrace.learner.checkpoint import Checkpoint
from headrace.learner.models import make_model
from headrace.learner.report import Report
from headrace.learner.sac import SAC
from headrace.learner.sinks import MetricSinks

EPOCH = 1
STATUS_S = 0.5
OFFLINE_AT_ONCE = 64  # updates between two looks at the clock and at who wants to stop
GRACE_S = 5.0
STATE, POOL = "sync.json", "pool"


def run_sync(
    config: RunConfig,
    run: RunDir,
    watcher: Watcher,
    *,
    init_from: Path | None = None,
    clock: Clock | None = None,
    update_log: Path | None = None,
) -> Status:
    """Train in this process, from the newest checkpoint in ``run`` or from the beginning, to the end that the config names.

    The options of processes, wire and publishing mean nothing here: the learner and the actors never wait for each other,
    lanes are stepped one after the other, and every action is chosen by the newest weights.

    Args:
        config: of the run; ``actor.count`` actors take turns.
        run: its directory.
        watcher: is told what happens.
        init_from: a policy file to begin with, if there is no checkpoint.
        clock: for rates, and for how often something is shown or logged.
        update_log: JSON-lines file that gets the step, batch digest and parameter digest of every update.

    Returns:
        The last status, with phase ``done``.

    Raises:
        KeyboardInterrupt: somebody stopped it; a checkpoint was written.
        CheckpointError: a checkpoint exists, but not its pool.
    """
    with (
        Interrupt() as interrupt,
        _threads_restored(),
        _logging(run.log("sync")),
        MetricSinks(run.path, config.sinks) as sinks,
        contextlib.closing(SyncRun(config, run, watcher, sinks, clock or MonotonicClock(), init_from, update_log)) as job,
    ):
        return job.run(interrupt)


class SyncRun:
    """All parts of one run, ready to :meth:`run`; the arguments are those of :func:`run_sync`."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDir,
        watcher: Watcher,
        sinks: MetricSinks,
        clock: Clock,
        init_from: Path | None = None,
        update_log: Path | None = None,
    ) -> None:
        self._config, self._run, self._watcher, self._sinks, self._clock = config, run, watcher, sinks, clock
        self._update_log = update_log
        pool_dir, newest = run.pool_dir(config.run.pool_dir), checkpoint.resume(run.checkpoints)
        if newest is None:
            shutil.rmtree(pool_dir, ignore_errors=True)  # of an attempt that ended before its first checkpoint
        self.spec, self._complete = columns_of(config.window, make_spec(config.env, config.window), config.actor.device)
        model = make_model(self.spec, config.model, config.seed)
        model.use_threads(config.learner.threads)
        self.sac = SAC(model, self.spec, config.learner, config.seed)
        rng = np.random.default_rng(derive_seed(config.seed, "sampler"))
        self.pool = SACReplayPool(
            config.pool.capacity,
            path=pool_dir,
            spec=self.spec,
            config=config.pool,
            sampling=config.sampling,
            rng=rng,
            demos=pin_demos(config, pool_dir, self.spec) if config.pool.demos else None,
            return_gamma=config.learner.return_gamma,
        )
        self.pacing = Pacing(config.pacing)
        self.actors = [self._make_actor(f"actor-{n}") for n in range(config.actor.count)]
        self._policies: dict[bool, tuple[Policy, int]] = {}  # the policy and its average, each with the update it is of
        self._metrics: dict[str, torch.Tensor] = {}
        self._watch = SyncWatch(run.run_id, clock)
        self._saved_step = 0
        self._batch: Batch | None = None
        self._best = BestPolicy(run.checkpoints)
        self._evaluate_at = 0
        self._asked_at: float | None = None
        self._shown_at = clock.now()
        self._told = Report(LEARNER_ID, clock.now(), 0)
        if newest is not None:
            self._restore(newest)
        elif (place := find_past(config)) is not None:
            with open_past(config, place) as past:
                self.pool.adopt(past)
        if newest is None and init_from is not None:
            self.sac.load_policy(read_policy(init_from))

    def _make_actor(self, name: str) -> SyncActor:
        config = self._config
        lanes = make_lanes(_in_process(config.env), config.window, run_seed=config.seed, actor=name, epoch=EPOCH)
        rng = np.random.default_rng(derive_seed(config.seed, name, EPOCH, "action"))
        rate = find_rate(config.actor.priorities)
        return SyncActor(
            name, lanes, self.pool, rng, config.pool.min_block_rows, rate, epsilon_of(name, config.actor), self._complete
        )

    # --- the algorithm ----------------------------------------------------------------------------------------------

    def run(self, interrupt: Interrupt) -> Status:
        """Train to the end, see :func:`run_sync`."""
        for actor in self.actors:
            actor.begin()
        self._observe()
        while (self.pacing.offline and self.pacing.drawable) or self._act():
            self._learn()
            self._evaluate()
            self._report()
            if self._checkpoint_due():
                self.save()
            if interrupt.asked and self._may_stop():
                self.save()
                self._report(force=True)
                raise KeyboardInterrupt
        for actor in self.actors:
            actor.cut()
        self._learn()
        self.save()
        self._evaluate()
        return self._report(force=True, done=True)

    def _act(self) -> bool:
        """One step of every lane while the budget lasts; whether there was one."""
        goal, acted = self._config.pacing.env_steps, False
        for actor in self.actors if self._config.pacing.online else ():
            if goal and self.executed >= goal:
                continue
            random = self.executed < self._config.pacing.random_steps
            policy = None if random else self._newest_policy(ema=self._config.actor.ema)
            self._watch.episodes(actor.step(policy, self._version))
            acted = True
        return acted

    def _learn(self) -> None:
        """Some updates of the offline phase, or those that the env steps owe."""
        self._observe()
        offline, batch_size = self.pacing.offline, self._config.learner.batch_size
        due = min(OFFLINE_AT_ONCE, self.pacing.updates_allowed()) if offline else self.pacing.owed - self.pacing.updates
        if due <= 0 or not self.pacing.drawable:
            return
        statistics = self.pool.statistics() if self._config.learner.normalises else None
        for _ in range(due):
            try:
                batch, *actor_batch = [self.pool.sample(batch_size, mix=mix) for mix in self.pool.mixes]
            except PoolTooSmall:  # sets that overlap hold fewer rows than their sizes say
                self._observe()
                self.pacing.drawable = False
                return
            self.pool.grant_updates(1, offline=offline)
            self._metrics |= self.sac.update(batch, statistics, *actor_batch)  # of steps not made: the last ones
            self._batch = batch
            if self.sac.td_error is not None:
                errors = self.sac.td_error.cpu().numpy()
                known = np.isfinite(errors)  # not after an update that was skipped
                self.pool.update_priorities(batch.ids[known], errors[known], batch.epoch)
            if self._update_log is not None:
                self._log_update(self._update_log, batch.ids, batch.rows)
        self._observe()

    def _observe(self) -> None:
        self.pacing.observe(self.pool.env_steps, self.pool.updates, self.pool.offline_updates)
        self.pacing.drawable = self.pool.drawable >= self._config.learner.batch_size

    def _newest_policy(self, *, ema: bool) -> Policy:
        """The policy as the learner has it now, or its average, in the form in which actors run it everywhere."""
        policy, step = self._policies.get(ema, (None, 0))
        if policy is None or step != self.sac.step:
            weights = self._weights().chosen(ema=ema)
            if policy is None:
                policy = make_policy(weights, self.spec, self._config.actor)
            else:
                policy.load(weights)
            self._policies[ema] = policy, self.sac.step
        return policy

    @property
    def executed(self) -> int:
        """Env steps executed by all actors since the run began."""
        return sum(actor.executed for actor in self.actors)

    @property
    def _version(self) -> Version:
        return Version(LEARNER_ID, EPOCH, self.sac.step)

    def _weights(self) -> WeightSet:
        return self.sac.weights(self._version)

    def _evaluate(self) -> None:
        """Judge the newest policy when it is time; draws from no generator of the run."""
        config = self._config
        if not config.eval.every or self.sac.step == 0 or self.pacing.env_steps < self._evaluate_at:
            return
        self._evaluate_at = self.pacing.env_steps + config.eval.every
        policy, seed = self._newest_policy(ema=config.eval.ema), derive_seed(config.seed, "evaluator")
        result = evaluate(policy, _in_process(config.env), config.window, config.eval.episodes, seed)
        verdict = result.verdict(self._version, self.pacing.env_steps)
        self._watch.evaluation(verdict)
        self._best.offer(self._weights().chosen(ema=config.eval.ema), self.spec, verdict)
        self._report(force=True)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        every = self._config.learner.checkpoint_every_updates
        return self.sac.step // every > self._saved_step // every and self.actors[0].first_lane_at_start

    def _may_stop(self) -> bool:
        """Whether to stop here: between episodes, or inside one when its end does not come in time."""
        if self._asked_at is None:
            self._asked_at = self._clock.now()
            self._watcher.notice("ending with the episode; once more ends at once, and goes back to the last checkpoint")
        if all(actor.at_start for actor in self.actors):
            self._watcher.notice("stopped between two episodes: resumed, the run goes on as if it had never stopped")
            return True
        if self._clock.now() < self._asked_at + GRACE_S:
            return False
        self._watcher.notice(f"stopped inside an episode: it did not end within {GRACE_S:g} s and is cut (truncated)")
        return True

    def save(self) -> Path:
        """Write a checkpoint with the pool in it; running episodes are cut."""
        inside = [actor for actor in self.actors if not actor.at_start]
        for actor in inside:
            actor.cut()
        self._saved_step = self.sac.step
        path = checkpoint.write(
            self._run.checkpoints,
            self.sac.step,
            self.sac.get_state(),
            files={**policy_files(self._weights(), self.spec), STATE: json.dumps(self._own_state()).encode()},
            add=lambda directory: self.pool.save(directory / POOL),
            keep=self._config.learner.checkpoint_keep,
        )
        for actor in inside:
            actor.begin()
        return path

    def _restore(self, newest: Checkpoint) -> None:
        own = json.loads((newest.path / STATE).read_text())
        if not self.pool.load(newest.path / POOL):
            raise CheckpointError(f"{newest.path / POOL}: the pool is missing; this is no checkpoint of a synchronous run")
        self.sac.set_state(newest.state)
        for actor in self.actors:
            actor.set_state(own["actors"][actor.name])
        self._evaluate_at = own["evaluate_at"]
        self._watch.set_state(own["watch"])
        self._saved_step = self.sac.step
        self._told = Report(LEARNER_ID, self._clock.now(), self.sac.step)
        self._observe()
        self._watcher.notice(f"continuing {newest.path.name} at {self.executed} env steps")

    def digest(self) -> str:
        """SHA-256 in hex over every tensor, row, counter and random state; equal for equal runs at the end of an episode."""
        pool = self.pool.get_state()
        return state_digest({"sac": self.sac.get_state(), "pool": pool, "actors": self._own_state()["actors"]})

    def check_valid(self) -> tuple[bool, str]:
        """Whether every part is valid, and the parts agree."""
        checks = [part.check_valid() for part in self.actors]
        checks += [self.sac.check_valid(), self.pool.check_valid(), self.pacing.check_valid(), self._watch.check_valid()]
        checks.append((self.sac.step == self.pool.updates, f"{self.sac.step} updates made, {self.pool.updates} granted"))
        reasons = [reason for ok, reason in checks if not ok]
        return not reasons, "; ".join(reasons)

    def close(self) -> None:
        """Close environments and pool, and end the processes of the model."""
        for actor in self.actors:
            actor.close()
        self.pool.close()
        self.sac.model.close()

    def _own_state(self) -> dict[str, Any]:
        actors = {actor.name: actor.get_state() for actor in self.actors}
        return {"actors": actors, "evaluate_at": self._evaluate_at, "watch": self._watch.get_state()}

    # --- what people see --------------------------------------------------------------------------------------------

    def _report(self, *, force: bool = False, done: bool = False) -> Status:
        now = self._clock.now()
        self._watch.observe(self.pacing)
        if force or self._told.due(now, self._config.sinks.period_s):
            self._log(now)
        if not force and now - self._shown_at < STATUS_S:
            return {}
        self._shown_at = now
        status = self._watch.status(self.pacing, self.pool, self.actors, done)
        self._watcher.update(status)
        return status

    def _log(self, now: float) -> None:
        summary = self._watch.summary(self.pacing, self.pool)
        told = self._told.values(now, self.sac, self._metrics, self._batch, summary["rows_accepted"])
        self._sinks.write({**{f"run/{name}": value for name, value in summary.items()}, **told})

    def _log_update(self, path: Path, ids: Any, rows: Any) -> None:
        parameters = state_digest(dict(self.sac.model.state_dict()))
        line = {"step": self.sac.step, "batch": state_digest([ids, rows]), "parameters": parameters}
        with path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def _threads_restored() -> Iterator[None]:
    """Torch's number of threads as before, whatever the model chose; the order of sums depends on it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _logging(path: Path) -> Iterator[None]:
    """What headrace logs goes to ``path``, as that of a role does."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s sync %(message)s"))
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _in_process(env: EnvConfig) -> EnvConfig:
    """The environment with its lanes in this process, and resets that take no step: the rows are the same in every mode."""
    return replace(env, vector="sync", autoreset="same_step")
