"""Playing a trained policy: find it, judge it, film it."""

from __future__ import annotations

import contextlib
import ctypes.util
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.best import BEST
from headrace.actor.envs import make_spec
from headrace.actor.evaluate import FEWEST, EvalResult, bootstrap_interval, evaluate
from headrace.actor.film import Value, film
from headrace.actor.policy import Policy, make_policy
from headrace.common.clock import MonotonicClock
from headrace.common.errors import CheckpointError, ConfigError, HeadraceError, SpecError, WireError
from headrace.common.exported import ABOUT, read_export
from headrace.common.policy_files import POLICY, SPEC, parse_spec
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet
from headrace.launch.config import RunConfig, make_config, read_config
from headrace.launch.counting import Counting
from headrace.launch.eval_news import EvalNews
from headrace.launch.rundir import RunDir

_Z95 = 1.959964


def find_policy(target: Path, *, best: bool = False) -> Path:
    """The policy file that TARGET names: itself, or in a checkpoint, an export, or the newest checkpoint of a run.

    Args:
        target: a path.
        best: of a run, the policy that was evaluated best in place of the newest one.

    Raises:
        CheckpointError: there is none.
    """
    if best:
        found = RunDir(target).checkpoints / BEST / POLICY
        if not found.is_file():
            raise CheckpointError(f"{target}: no best policy here; a run keeps one once a policy was evaluated (eval.every)")
        return found
    if target.is_file():
        return target
    for name in (POLICY, ABOUT):
        if (target / name).is_file():
            return target / name
    # A checkpoint that can be seen is whole, and a policy proves itself by its digest, so torch is not needed here.
    newest = sorted(RunDir(target).checkpoints.glob(f"step_{'[0-9]' * 12}/{POLICY}"))
    if not newest:
        raise CheckpointError(f"{target}: no policy here; name a checkpoint, a run that has one, an export, or a .hrw file")
    return newest[-1]


def read_policy(path: Path, *, ema: bool = False) -> WeightSet:
    """The policy in a policy file, or its average.

    Raises:
        CheckpointError: it cannot be read or is damaged.
        SpecError: there is no average.
    """
    if path.name == ABOUT:
        return read_export(path.parent)[0].chosen(ema=ema)
    try:
        weights = WeightSet.unpack(path.read_bytes())
    except (OSError, WireError) as error:
        raise CheckpointError(f"{path}: not a policy: {error}") from error
    return weights.chosen(ema=ema)


def read_spec(policy: Path) -> TransitionSpec:
    """What the policy in a file sees and does.

    Raises:
        CheckpointError: the file beside it that says so is missing or damaged.
    """
    if policy.name == ABOUT:
        return read_export(policy.parent)[1]
    try:
        return parse_spec((policy.parent / SPEC).read_bytes())
    except (OSError, SpecError) as error:
        raise CheckpointError(f"{policy.parent / SPEC}: what {policy.name} sees and does cannot be read: {error}") from error


def find_config(policy: Path) -> Path:
    """The config of the run that a policy file lies in.

    Raises:
        ConfigError: it lies in no run.
    """
    for parent in policy.resolve().parents:
        if (parent / "config.yaml").is_file():
            return parent / "config.yaml"
    raise ConfigError(f"{policy} lies in no run directory; say which env it plays with --config CONFIG")


def make_player(config: RunConfig, weights: WeightSet) -> tuple[Policy, TransitionSpec]:
    """The policy that plays the env of ``config``, which is made once to see what that is.

    Raises:
        ConfigError: a robot, which nobody but its actor drives.
    """
    if config.actor.robot:
        raise ConfigError(f"actor.robot: true: {config.env.id} is a robot, and nobody except its actor drives it")
    spec = make_spec(config.env, config.window)
    return make_policy(weights, spec, config.actor), spec


def judge(config: RunConfig, player: Policy, episodes: int, seed: int, say: Callable[[str], None]) -> EvalResult:
    """Play ``episodes`` episodes deterministically and ``say`` how far it is; see :func:`headrace.actor.evaluate.evaluate`."""
    return evaluate(player, config.env, config.window, episodes, seed, watch=EvalNews(say, MonotonicClock()))


def play_command(
    target: Path, *, best: bool, ema: bool, config: Path | None, episodes: int | None, seed: int, video: Path | None
) -> int:
    """``headrace eval``: print what the episodes gave.

    Raises:
        HeadraceError: a video was asked for and cannot be made; the rest is printed all the same.
    """
    path = find_policy(target, best=best)
    weights = read_policy(path, ema=ema)
    options = make_config(read_config(config or find_config(path)))
    count = options.eval.final_episodes or 20 if episodes is None else episodes
    if count < 1:
        raise ConfigError(f"--episodes: {count}; nearest valid: 1")
    if video is not None:
        _prepare_rendering()
    player, spec = make_player(options, weights)
    result = judge(options, player, count, seed, lambda text: print(text, file=sys.stderr, flush=True))
    print(f"policy    {path} (update {weights.version.step}{', average' if ema else ''})")
    print(f"env       {options.env.id}, {count} episodes, seed {seed}, deterministic")
    for label, text in verdict_lines(result):
        print(f"{label:<10}{text}")
    if video is not None:
        values = find_values(path, options, spec)
        print(f"video     {_film(options, player, values, seed, video, int(result.lengths[0]))}")
    return 0


def _film(config: RunConfig, player: Policy, values: Value | None, seed: int, directory: Path, steps: int) -> Path:
    """The film of the first episode, which takes ``steps`` steps, into ``directory``."""
    missing = [p for p in (directory, *directory.parents) if not p.exists()]
    with Counting("filming", unit="steps") as counting:
        path, note = film(player, config.env, config.window, seed, directory, values, lambda done: counting(done, steps))
    if path is not None:
        return path
    for made in missing:  # for the film that is not there; one that holds anything stays
        with contextlib.suppress(OSError):
            made.rmdir()
    raise HeadraceError(f"--video {directory}: {note}")


def find_values(policy: Path, config: RunConfig, spec: TransitionSpec) -> Value | None:
    """The critics beside a policy file; none where there are none, as in an export, or where they cannot be read."""
    from headrace.learner.checkpoint import MANIFEST
    from headrace.learner.values import Values

    if not (policy.parent / MANIFEST).is_file():
        return None
    try:
        return Values(policy.parent, spec, config.model, config.learner)
    except HeadraceError as error:
        print(f"headrace: the film shows no values: {error}", file=sys.stderr)
        return None


def _prepare_rendering() -> None:
    """Let MuJoCo draw without a screen; it reads the variable when it is imported."""
    if not os.environ.get("DISPLAY") and ctypes.util.find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def verdict_lines(result: EvalResult) -> list[tuple[str, str]]:
    """Return, length and success with 95 % intervals where there are enough episodes, as (label, text) pairs."""
    rng = np.random.default_rng(0)  # the same episodes always give the same interval
    pairs = [
        ("return", f"{result.mean:.2f}{spread(result.std, len(result.returns))} ({_interval(result.returns, rng, 2)})"),
        ("length", f"{result.lengths.mean():.1f} ({_interval(result.lengths, rng, 1)})"),
    ]
    if result.successes is None:
        return [*pairs, ("success", "the env does not say")]
    wins, count = int(result.successes.sum()), len(result.successes)
    pairs.append(("success", _share(wins, count)))
    for task in [] if result.tasks is None else np.unique(result.tasks).tolist():
        of = result.successes[result.tasks == task]
        pairs.append((f"task {task}", _share(int(of.sum()), len(of))))
    return pairs


def _share(wins: int, count: int) -> str:
    low, high = share_interval(wins, count)
    return f"{wins / count:.0%} ({wins} of {count}; 95 % interval {low:.0%} to {high:.0%})"


def spread(std: float, episodes: int) -> str:
    """A standard deviation behind its mean; nothing where there are too few episodes for one."""
    return f" ± {std:.2f}" if episodes >= FEWEST else ""


def _interval(values: np.ndarray[Any, Any], rng: np.random.Generator, digits: int) -> str:
    found = bootstrap_interval(values.astype(np.float64), rng)
    if found is None:
        return "too few for an interval"
    return f"mean: 95 % interval {found[0]:.{digits}f} to {found[1]:.{digits}f}"


def share_interval(wins: int, trials: int) -> tuple[float, float]:
    """95 % Wilson score interval of a share (Wilson 1927; Brown, Cai and DasGupta 2001, equation 4)."""
    share, z2 = wins / trials, _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)
