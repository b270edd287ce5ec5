"""``headrace launch``: what a topology starts where, and starting it on an engine that places processes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMATS = ("text", "json", "slurm", "systemd", "kubernetes")
PLAN_ABOUT = """Print what a topology starts where: every command line by host, in starting order, with what each listens on and
dials; or the same for an engine, as Slurm's batch scripts, systemd's units or Kubernetes' manifests."""
RAY_ABOUT = """Run a topology on a Ray cluster, whose nodes have its hosts' names as resources (ray start --resources
'{"NAME": 1000}'). Ray restarts roles that die. Ctrl-C ends the run in order."""


def add_launch(commands: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command; ``add`` declares one of ``commands``, as :mod:`headrace.launch.cli` does."""
    launch = add(commands, "launch", _plan, "Plan a run over several hosts, or place it on Ray.")
    actions = launch.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=type(launch), help="what to do")
    cluster: dict[str, Any] = {"type": Path, "metavar": "CLUSTER", "help": "YAML file of the topology (path)"}
    plan = add(actions, "plan", _plan, PLAN_ABOUT)
    plan.add_argument("cluster", **cluster)
    plan.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="for people, machines, or an engine")
    plan.add_argument("--out", type=Path, metavar="DIR", help="write an engine's files into DIR (path); default: print them")
    ray = add(actions, "ray", _ray, RAY_ABOUT)
    ray.add_argument("cluster", **cluster)
    ray.add_argument("--address", default="auto", help="of the Ray cluster (text)")


def _plan(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.common.errors import ConfigError

    text, files = _made(args.cluster, args.format)
    if not files:
        if args.out:
            raise ConfigError(f"--out: {args.out} with --format {args.format}, which is printed; nearest valid: leave it out")
        print(text, end="")
        return 0
    for name, content in files.items():
        if args.out:
            path = args.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            print(path)
        else:
            print(f"# ---- {name}\n{content}")
    return 0


def _made(cluster: Path, form: str) -> tuple[str, dict[str, str]]:
    """What is printed, or the files of an engine."""
    from headrace.launch.cluster.plan import make_plan
    from headrace.launch.cluster.shown import plan_json, plan_text
    from headrace.launch.cluster.topology import read_topology

    topology, _ = read_topology(cluster)
    starts = make_plan(topology)
    if form == "slurm":
        from headrace.launch.cluster.slurm import slurm_files

        return "", slurm_files(topology, starts)
    if form == "systemd":
        from headrace.launch.cluster.systemd import systemd_files

        return "", systemd_files(topology, starts)
    if form == "kubernetes":
        from headrace.launch.cluster.kubernetes import kubernetes_files

        return "", kubernetes_files(topology, (cluster.parent / topology.config).read_text(encoding="utf-8"))
    return (plan_json if form == "json" else plan_text)(topology, starts), {}


def _ray(args: argparse.Namespace, overrides: list[str]) -> int:
    from headrace.launch.cluster.ray_job import run_on_ray

    return run_on_ray(args.cluster, args.address)
