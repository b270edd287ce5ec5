"""``headrace train``: one run, a resumed one, or one for each of several seeds; then the results in a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.common.config import dump, merge
from headrace.common.errors import ConfigError, HeadraceError
from headrace.launch.config import RunConfig, digest, make_config, read_config
from headrace.launch.play import spread
from headrace.launch.rundir import RunDir, read_json
from headrace.launch.runner import TrainResult, require_verdict, resume, train
from headrace.launch.targets import slug


def train_command(
    config: Path | None,
    overrides: Sequence[str],
    *,
    preset: Path | None,
    seeds: str | None,
    resume_run: Path | None,
    init_from: Path | None,
) -> int:
    """Run what the command line asks for; 0 when every run did its job. The last line printed is the result's path.

    The more particular wins: words of the command line over those of ``preset`` over those of ``config``.
    """
    if resume_run is not None:
        if any(given is not None for given in (config, preset, seeds, init_from)):
            raise ConfigError("--resume takes config, seed and policy from the run; give it alone, or with --key value")
        print_result(resume(resume_run, overrides))
        return 0
    if config is None:
        raise ConfigError("which config? headrace train CONFIG.yaml, or headrace train --resume RUN")
    if seeds is not None:
        refuse_both("--seeds", seeds, "seed", overrides)
    options = make_config(merge(read_config(config), read_config(preset) if preset else {}), overrides)
    if seeds is None:
        print_result(train(options, init_from=init_from))
        return 0
    for result in train_seeds(options, parse_seeds(seeds), config.stem, init_from):
        print_result(result)
    return 0


def refuse_both(option: str, value: str, key: str, overrides: Sequence[str]) -> None:
    """Refuse an option beside the config key that it sets.

    Raises:
        ConfigError: ``overrides`` give ``key``; names both.
    """
    for word, following in zip(overrides, [*overrides, ""][1:], strict=True):
        name, equals, given = word.partition("=")
        if name == f"--{key}":
            raise ConfigError(f"{option} {value} and --{key} {given if equals else following} say the same; give one of them")


def parse_seeds(text: str) -> list[int]:
    """``0..4`` and ``0,3,5`` as numbers.

    Raises:
        ConfigError: it is neither, or names a seed twice.
    """
    if found := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(found[1]), int(found[2])
        if first > last:
            raise ConfigError(f"--seeds: {text!r} is an empty range, which must go up; nearest valid: {last}..{first}")
        return list(range(first, last + 1))
    elif re.fullmatch(r"\d+(,\d+)*", text):
        seeds = [int(word) for word in text.split(",")]
        if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
            raise ConfigError(
                f"--seeds: {text!r} names {twice[0]} twice; nearest valid: {','.join(map(str, dict.fromkeys(seeds)))}"
            )
        return seeds
    raise ConfigError(f"--seeds: {text!r} is neither a range such as 0..4 nor a list such as 0,3,5")


def train_seeds(config: RunConfig, seeds: Sequence[int], stem: str, init_from: Path | None) -> Iterator[TrainResult]:
    """One run after the other below one directory; a finished one is not run again, an unfinished one is continued."""
    parent = Path(config.run.dir).expanduser() / (config.run.name or slug(stem))
    for seed in seeds:
        changes = {"seed": seed, "run": {"dir": str(parent), "name": f"seed-{seed}"}}
        one = make_config(merge(dump(config), changes))
        yield _finished(one) or _begin_or_continue(one, init_from)


def _finished(config: RunConfig) -> TrainResult | None:
    run = RunDir(Path(config.run.dir) / config.run.name)
    if not run.result.exists():
        return None
    try:
        result = TrainResult(**read_json(run.result))
    except TypeError as error:
        raise HeadraceError(f"{run.result}: not a result of this version of headrace: {error}") from error
    if result.config_digest != digest(config):
        raise ConfigError(f"run.name: {run.path} is a finished run of another config; choose another run.name")
    print(f"seed {config.seed}: finished before, not run again")
    return require_verdict(result)


def _begin_or_continue(config: RunConfig, init_from: Path | None) -> TrainResult:
    run = RunDir(Path(config.run.dir) / config.run.name)
    if not run.config.exists():
        return train(config, init_from=init_from)
    if digest(make_config(read_config(run.config))) != digest(config):
        raise ConfigError(f"run.name: {run.path} is a run of another config; choose another run.name")
    return resume(run.path)


def print_result(result: TrainResult) -> None:
    """The result as a table, the paths of what was written, and last the path of ``result.json``."""
    run = RunDir(Path(result.run_dir))
    mean, std = result.eval_return_mean, result.eval_return_std
    verdict = "not evaluated"
    if mean is not None and std is not None:
        verdict = f"{mean:.2f}{spread(std, result.episodes)} over {result.episodes} episodes"
    lost = (
        f"{result.updates_lost:,} of {result.updates_granted:,} granted, to a learner that ended before it made and saved them"
    )
    offline = f"{result.offline_updates:,} granted offline, then " if result.offline_updates else ""
    pairs = [
        ("return", verdict),
        *([] if result.eval_success_rate is None else [("success", f"{result.eval_success_rate:.0%}")]),
        *_best(result, run),
        ("env steps", f"{result.env_steps:,}"),
        ("updates", f"{result.updates:,} ({offline}{result.achieved_ratio:.3f} per env step after the minimum fill)"),
        *([("updates lost", lost)] if result.updates_lost else []),
        *([("updates skipped", f"{result.updates_skipped:,}: loss or gradient not finite")] if result.updates_skipped else []),
        ("wall clock (since resumed)" if result.resumed else "wall clock", f"{result.wall_s:.1f} s"),
        ("seed", str(result.seed)),
    ]
    written = [run.config, run.metrics, run.curve, run.checkpoints, run.pool, run.logs, run.environment]
    pairs += [(p.name, str(p)) for p in written if p.exists()]
    width = max(len(label) for label, _ in pairs)
    print("\n".join(f"{label:<{width}}  {text}" for label, text in pairs))
    print(run.result)


def _best(result: TrainResult, run: RunDir) -> list[tuple[str, str]]:
    """Which policy was evaluated best during training, and how to play it."""
    if result.best is None:
        return []
    said = "{return_mean:.2f} over {episodes} episodes, at update {step:,}".format(**result.best)
    return [("best in training", f"{said}: headrace eval {run.path} --best")]
