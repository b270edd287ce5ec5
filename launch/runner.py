"""Training from one call: a run directory, supervised roles, a final evaluation, and the result."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.actor.best import BEST, read_evaluation
from headrace.actor.device import require_device
from headrace.actor.envs import check_env
from headrace.actor.evaluate import EvalResult
from headrace.actor.rewarding import find_reward
from headrace.actor.robots import check_robot
from headrace.buffer.generations import is_pool
from headrace.buffer.lock import BUFFER_LOCK, PoolLock
from headrace.buffer.query import Observer
from headrace.common.clock import MonotonicClock
from headrace.common.config import dump, load, replace
from headrace.common.errors import CheckpointError, ConfigError, HeadraceError
from headrace.common.seeds import derive_seed
from headrace.common.weights import WeightSet
from headrace.common.wire.network import NetworkConfig
from headrace.launch.children import is_routine
from headrace.launch.config import RunConfig, digest, make_config, read_config, resume_config
from headrace.launch.credentials import absolute, make_keys
from headrace.launch.lineup import Lineup
from headrace.launch.pinning import find_demos
from headrace.launch.play import find_policy, judge, make_player, read_policy
from headrace.launch.pools import find_past
from headrace.launch.progress import Progress
from headrace.launch.reporting import Reporter
from headrace.launch.resumable import require_resumable
from headrace.launch.rundir import RunDir, each_line, write_whole
from headrace.launch.stash import move_tree
from headrace.launch.supervise import Status, Supervisor
from headrace.launch.supervision import DONE, INTERRUPTED, Supervision
from headrace.launch.targets import new_run
from headrace.learner.config import CPU, MLPOptions, ModelConfig


@dataclass(frozen=True)
class TrainResult:
    """What a finished run gave; the same as its ``result.json``.

    Attributes:
        run_dir: the run directory.
        eval_return_mean: mean return of the final evaluation; none when there was none, or when it is no finite number.
        eval_return_std: standard deviation of its returns; none likewise.
        episodes: episodes of the final evaluation.
        env_steps: executed env steps of the whole run.
        updates: optimiser updates that the final policy has had, in both phases.
        updates_granted: updates that were granted to learners, which the status calls updates.
        updates_lost: the difference: made or begun by a learner that died before its next checkpoint.
        updates_skipped: those of ``updates`` that changed nothing, since a loss or a gradient was not finite.
        wall_s: seconds from the start of this call (of a resumed run: of the last one) to the end of the last role, final
            evaluation excluded.
        achieved_ratio: online updates that the final policy has had per env step after the minimum fill.
        counters: what was accepted, refused, evicted and so on.
        seed: the run's seed.
        config_digest: identity of the config, places and names left out.
        offline_updates: those of ``updates_granted`` that were granted in the offline phase.
        best: the best evaluation during training, with the ``policy`` that it judged, a path in ``run_dir``; none without any.
            The highest of many noisy numbers flatters: ``headrace eval RUN --best`` judges it anew.
        eval_success_rate: share of successful episodes in the final evaluation, 0 to 1; none where the env does not say.
        resumed: whether ``wall_s`` tells of the last of several starts only.
    """

    run_dir: str
    eval_return_mean: float | None
    eval_return_std: float | None
    episodes: int
    env_steps: int
    updates: int
    updates_granted: int
    updates_lost: int
    wall_s: float
    achieved_ratio: float
    counters: Mapping[str, int]
    seed: int
    config_digest: str
    offline_updates: int = 0
    best: Mapping[str, Any] | None = None
    eval_success_rate: float | None = None
    resumed: bool = False
    updates_skipped: int = 0


def train(config: RunConfig | Mapping[str, Any] | Path | str, *, init_from: Path | str | None = None) -> TrainResult:
    """Train from the beginning to the end that the config names.

    Args:
        config: a config, a mapping as in the YAML file, or the path of one.
        init_from: begin with the policy of this checkpoint, run, export or ``.hrw`` file.

    Raises:
        ConfigError: the config cannot work; nothing was started.
        EnvError: there is no such env; nothing was started.
        HeadraceError: the run failed, its updates could not be made, or its final evaluation failed or is not finite; the
            text says why.
        KeyboardInterrupt: somebody stopped it; it can be resumed.
    """
    if isinstance(config, (str, Path)):
        config = read_config(Path(config))
    if not isinstance(config, RunConfig):
        config = make_config(config)
    policy = find_policy(Path(init_from)) if init_from is not None else None
    if policy is not None:
        read_policy(policy)  # a damaged one is refused before anything starts
    _refuse_shards_elsewhere(config)
    find_past(config)
    find_demos(config)
    require_parts(config)
    config = replace(config, network=absolute(config.network))
    run = new_run(config)
    with run.undone_if_refused():
        return _Job(config, run, policy).run()


def resume(path: Path, overrides: Sequence[str] = ()) -> TrainResult:
    """Continue the run in ``path``.

    Args:
        path: a run directory.
        overrides: words such as ``--pacing.env_steps 20000``.

    Raises:
        ConfigError: an override changes what a run may not change, or a part of the run is gone.
        HeadraceError: as :func:`train`.
    """
    run = RunDir.open(path)
    old = make_config(read_config(run.config))
    config = resume_config(old, overrides)
    require_resumable(run, old, config)
    require_parts(config)
    return _Job(config, run, None, resumed=True).run()


def _refuse_shards_elsewhere(config: RunConfig) -> None:
    if config.network.shards:
        raise ConfigError(
            f"network.shards: {len(config.network.shards)} buffers, started by hand (headrace buffer CONFIG --shard N), but"
            " train starts its own; nearest valid: empty, with buffer.shards for how many"
        )


def require_parts(config: RunConfig) -> None:
    """Refuse an env, a model or a device that is not there, as far as names tell it: nothing is made here.

    Raises:
        EnvError: of the env.
        ConfigError: of the model or the device, or of a robot that would be evaluated.
    """
    config.require_evaluable()
    if config.actor.robot:
        check_robot(config.env)
    else:
        check_env(config.env)
    find_reward(config.env.reward)
    if config.model.type == ModelConfig().type:
        load(MLPOptions, config.model.options, "model.options")
    else:
        from headrace.learner.models import check_model  # torch comes with it

        check_model(config.model)
    require_device(config.actor.device)
    if config.learner.device != CPU:
        from headrace.learner.group import require_gpu

        require_gpu(config.learner.device, config.learner.ranks - 1)  # one a rank


def require_verdict(result: TrainResult) -> TrainResult:
    """``result``, if its final evaluation gave a finite number or was left out on purpose.

    Raises:
        HeadraceError: it did not.
    """
    if result.episodes and result.eval_return_mean is None:
        run = RunDir(Path(result.run_dir))
        raise HeadraceError(
            f"the final evaluation over {result.episodes} episodes is not finite: look at rewards and observations of the"
            f" env, and at the losses in {run.metrics}; {run.result} says null"
        )
    return result


def require_updates(config: RunConfig, result: TrainResult) -> None:
    """Refuse to call a run done whose learner saved no update, skipped all, or had no rows for those that the run waits for.

    Raises:
        HeadraceError: it did not.
    """
    if result.updates_granted and not result.updates:
        raise HeadraceError(
            f"none of the {result.updates_granted} updates was saved: the learner died before its first checkpoint"
            f" (learner.checkpoint_every_updates {config.learner.checkpoint_every_updates}); the rows are in the pool:"
            f" headrace train --resume {result.run_dir} --pacing.env_steps MORE"
        )
    if result.updates and result.updates_skipped >= result.updates:
        raise HeadraceError(
            f"all {result.updates} updates were skipped, since a loss or a gradient was not finite: the policy is as it began;"
            f" look at rewards and observations of the env, and at the losses in {RunDir(Path(result.run_dir)).metrics}"
        )
    pacing, online = config.pacing, result.updates_granted - result.offline_updates
    waits = pacing.hold_learner or pacing.hold_actors
    owed = math.floor(pacing.ratio * max(0, result.env_steps - pacing.min_fill)) if waits else 0
    if online < owed or result.offline_updates < pacing.offline_updates:
        sets = f", or for sampling.sets {', '.join(config.sampling.sets)}" if config.sampling.sets else ""
        raise HeadraceError(
            f"the run's env steps are done, but only {result.updates_granted} of {owed + pacing.offline_updates} updates were"
            f" made: the pool never had enough rows for learner.batch_size {config.learner.batch_size}{sets}"
        )


def skipped(metrics: Path) -> int:
    """How many updates of the run changed nothing, as the last line says that tells it; 0 where none can be read."""
    found = 0
    with contextlib.suppress(HeadraceError):  # a run is not lost for want of its metrics
        for line in each_line(metrics):
            found = int(line.get("sac/updates_skipped") or found)
    return found


class Stopped(KeyboardInterrupt):
    """Somebody stopped the run: once, in order, or twice (``hurried``)."""

    def __init__(self, *, hurried: bool) -> None:
        super().__init__("the run was stopped")
        self.hurried = hurried


class _Job:
    """One run from its directory to its result."""

    def __init__(self, config: RunConfig, run: RunDir, init_from: Path | None, *, resumed: bool = False) -> None:
        self._config, self._run, self._init_from, self._resumed = config, run, init_from, resumed
        self._begun = time.monotonic()
        # Standard error: standard output is kept for the result.
        self._progress = Progress(Console(stderr=True), run.path.name, MonotonicClock())
        self._reporter = Reporter(self._progress, run, config.run.curve_s, MonotonicClock())

    def run(self) -> TrainResult:
        """Everything, from the roles to the result."""
        with self._run.claim():
            # Of a buffer that was started by hand and lives, what it wrote to the run directory is its own.
            self._refuse_left_out()
            for pool, _ in self._pools():
                PoolLock.require_free(pool, BUFFER_LOCK)
            self._run.write_config(dump(self._config))
            self._run.result.unlink(missing_ok=True)
            try:
                status = self._train()
            except Stopped:
                self._progress.notice(f"stopped; continue with: headrace train --resume {self._run.path}")
                raise
            return self._conclude(status, time.monotonic() - self._begun)

    def _train(self) -> Status:
        for pool, home in self._pools():
            if pool != home and not is_pool(pool) and is_pool(home):
                move_tree(home, pool, self._progress.notice)
        hurried, aside = False, self._set_aside()
        try:
            return self._synchronously() if self._config.run.mode == "sync" else self._supervised()
        except Stopped as stopped:
            hurried = stopped.hurried
            raise
        finally:
            self._reporter.close(hurried=hurried)
            if damaged := self._set_aside() - aside:
                self._progress.notice(
                    f"damaged checkpoints were passed over for an earlier one, and set aside: {', '.join(sorted(damaged))} in"
                    f" {self._run.checkpoints}; {self._run.logs} say what is damaged"
                )
            for pool, home in self._pools():
                self._bring_home(pool, home, hurried)

    def _set_aside(self) -> set[str]:
        return {path.name for path in self._run.checkpoints.glob("damaged-*")}

    def _refuse_left_out(self) -> None:
        """Refuse to go on beside the rows of a shard that the run had, and would have no more."""
        for place in sorted(self._run.path.glob("shard-*")):
            number = place.name.removeprefix("shard-")
            pool, shards = place / "pool", self._config.buffer.shards
            if number.isdigit() and int(number) >= shards and is_pool(pool):
                raise ConfigError(
                    f"buffer.shards: {shards}, but {pool} holds rows of a further one; nearest valid: {int(number) + 1}, or"
                    f" bring them into the home shard: headrace pool merge {pool} {self._run.path}"
                )

    def _pools(self) -> list[tuple[Path, Path]]:
        """Of each buffer, where its pool lives while the run goes on, and where it stays."""
        places = [self._run.shard(number) for number in range(self._config.buffer.shards)]
        return [(place.pool_dir(self._config.run.pool_dir), place.pool) for place in places]

    def _synchronously(self) -> Status:
        from headrace.launch.sync import run_sync  # torch comes with it

        try:
            return run_sync(self._config, self._run, self._reporter, init_from=self._init_from)
        except KeyboardInterrupt as interrupt:
            raise Stopped(hurried=False) from interrupt

    def _supervised(self) -> Status:
        if self._config.pacing.online and not self._config.actor.count:
            self._progress.notice(f"actor.count 0: waiting for actors of yours: headrace actor {self._run.path} --id NAME")
        lineup = Lineup(self._config, self._run, self._init_from)
        supervisor = self._supervisor(lineup, make_keys(self._config.network, self._run, lineup.plans()))
        decisions = supervisor.run()
        if decisions.outcome == INTERRUPTED:
            raise Stopped(hurried=decisions.hurried)
        if decisions.outcome != DONE:
            raise HeadraceError(self._explain(supervisor, decisions))
        return supervisor.status

    def _bring_home(self, pool: Path, home: Path, hurried: bool) -> None:
        """Move a pool that lives elsewhere into the run directory, unless a person asked to end at once."""
        if pool == home:
            return
        if not is_pool(pool):
            shutil.rmtree(pool, ignore_errors=True)  # what a buffer left that found no room for one
        elif hurried:
            self._progress.notice(f"the pool is still in {pool}; --resume finds it there")
        else:
            move_tree(pool, home, self._progress.notice)

    def _supervisor(self, lineup: Lineup, network: NetworkConfig) -> Supervisor:
        return Supervisor(
            lineup.plans(),
            self._run,
            self._config.supervisor,
            command=lineup.command,
            environment=lineup.environment,
            observe=lambda endpoint: Observer(endpoint, network),
            watcher=self._reporter,
        )

    def _explain(self, supervisor: Supervisor, decisions: Supervision) -> str:
        for name, words in supervisor.last_words():
            if len(words) == 1 and not is_routine(words[0]):
                return f"{name}: {words[0]}"
            self._progress.notice(f"last lines of {self._run.log(name)}:")
            for line in words:
                self._progress.notice(f"  {line}")
        self._run.keep()
        return f"{decisions.reason}; logs are in {self._run.logs}"

    def _best(self) -> dict[str, Any] | None:
        found = read_evaluation(self._run.checkpoints)
        return None if found is None else {"policy": f"{self._run.checkpoints.name}/{BEST}", **found}

    def _conclude(self, status: Mapping[str, Any], wall_s: float) -> TrainResult:
        config = self._config
        if config.eval.every and status["updates"] and not status.get("evaluations"):
            each = f"eval.every {config.eval.every}, eval.episodes {config.eval.episodes}"
            self._progress.notice(f"no evaluation was through before the run was ({each})")
        weights = self._policy()
        verdict, failure = (None, "") if weights is None else self._judge(weights)
        granted, updates, offline = status["updates"], weights.version.step if weights else 0, status["offline_updates"]
        beyond = status["env_steps"] - config.pacing.min_fill
        result = TrainResult(
            run_dir=str(self._run.path),
            eval_return_mean=None if verdict is None else verdict.mean,
            eval_return_std=None if verdict is None else verdict.std,
            episodes=0 if failure or weights is None else config.eval.final_episodes,
            env_steps=status["env_steps"],
            updates=updates,
            updates_granted=granted,
            updates_lost=max(0, granted - updates),
            wall_s=round(wall_s, 3),
            achieved_ratio=round(max(0, updates - offline) / beyond, 5) if beyond > 0 else 0.0,
            counters=status["counters"],
            seed=config.seed,
            config_digest=digest(config),
            offline_updates=offline,
            best=self._best(),
            eval_success_rate=None if verdict is None else verdict.success_rate,
            resumed=self._resumed,
            updates_skipped=min(updates, skipped(self._run.metrics)),
        )
        write_whole(self._run.result, json.dumps(asdict(result), indent=2, allow_nan=False) + "\n")
        if failure:
            raise HeadraceError(
                f"the run is trained, but its final evaluation failed: {failure}; {self._run.result} holds the rest;"
                f" to evaluate again: headrace eval {self._run.path}"
            )
        require_updates(config, result)
        return require_verdict(result)

    def _policy(self) -> WeightSet | None:
        """The final policy; none when no learner has made an update that it could save."""
        try:
            path = find_policy(self._run.path)
        except CheckpointError:
            return None
        return read_policy(path, ema=self._config.eval.ema)

    def _judge(self, weights: WeightSet) -> tuple[EvalResult | None, str]:
        """The final evaluation, where its returns are finite, and why it failed, if it did."""
        config = self._config
        if not config.eval.final_episodes:
            return None, ""
        self._progress.notice(f"final evaluation over {config.eval.final_episodes} episodes")
        try:
            seed = derive_seed(config.seed, "final evaluation")
            player, _ = make_player(config, weights)
            verdict = judge(config, player, config.eval.final_episodes, seed, self._reporter.notice)
        except HeadraceError as error:  # the policy and its counters are there all the same
            return None, str(error)
        if not (math.isfinite(verdict.mean) and math.isfinite(verdict.std)):
            return None, ""
        return verdict, ""
