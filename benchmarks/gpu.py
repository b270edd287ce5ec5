#!/usr/bin/env python
"""The learner on a GPU: updates a second at HalfCheetah's sizes, how batches come there, and whether its numbers are a CPU's.

    python benchmarks/gpu.py                          # How long: about 2 minutes, never over 8
    python benchmarks/gpu.py --device cpu --quick     # the same code without a GPU, in seconds

Needs torch, numpy and this checkout; nothing has to be installed. Rows of the table:

- ``eager``: the steps of an update, with batches that are on the device already.
- ``copied``: ``SAC.update`` of numpy batches, each copied when it is needed; ``ahead``: copied on a stream of its own, from
  pinned memory, while the update before is computed, as the learner's loop has it; ``bf16``: the same with
  ``learner.precision: bf16``, where the device has it.
- ``graphs``: as ``ahead``, with ``learner.cuda_graphs``; ``graphs bf16``: both. A line in the log says where it did not pay.
- ``parity``: the largest difference of losses between CPU and device over some updates from equal weights, with equal noise.
- ``graph_difference``: the same between updates that are launched one by one and those of a graph, with equal noise.
- ``checkpoint``: a state that the device wrote and a CPU reads: equal tensors, and losses of the next update.

Each figure is the median of windows that take turns. ``passed`` says whether parity, graphs and checkpoint held. Without a GPU
the exit code is 2. The last line on stdout is one JSON object.
"""

# ruff: noqa: E402  # the checkout has to be found before it is imported

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
try:
    import msgpack  # noqa: F401  # packs weights for the wire, which nothing here does
except ImportError:
    sys.modules["msgpack"] = types.ModuleType("msgpack")

import numpy as np
import torch
from torch import Tensor

from headrace.common.batch import Batch
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.learner.config import BF16, LearnerConfig
from headrace.learner.distribution import TanhGaussian
from headrace.learner.mlp import MLP
from headrace.learner.precision import is_native
from headrace.learner.sac import SAC

OBS, ACTION, ROWS = 17, 6, 256
GFLOP = 0.582  # arithmetic of an update at these sizes, two critics and the actor 256 x 256
FLOOR, TARGET = 1500, 2500  # updates a second that an H200 should make
TOLERANCE = 1e-4
LOSSES = ("critic/loss", "actor/loss", "sac/alpha")


class TiedMLP(MLP):
    """Draws its noise on the CPU wherever it computes, and leaves all sums to autograd, so that devices can be compared."""

    noise: torch.Generator

    def sac_forward_actor(
        self, features: Tensor, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """An action with noise from :attr:`noise`."""
        policy = TanhGaussian(self.actor(features))
        noise = torch.randn((len(features), self.action_dim), generator=self.noise).to(features.device)
        action, log_prob = policy.sample_with(noise)
        return action, log_prob, None

    def _by_hand(self, x: Tensor) -> None:
        return None


class Numbers:
    """Rates in windows that take turns.

    Args:
        device: what is waited for at the end of a window.
        rounds: windows of each.
        window_s: length of one.
    """

    def __init__(self, device: torch.device, rounds: int, window_s: float) -> None:
        self._device, self._rounds, self._window_s = device, rounds, window_s

    def rates(self, steps: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Name -> calls a second, the median."""
        found: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            self._rate(step, self._window_s / 4)  # memory, kernels and libraries are made at first use
        for _ in range(self._rounds):
            for name, step in steps.items():
                found[name].append(self._rate(step, self._window_s))
        return {name: round(statistics.median(values), 1) for name, values in found.items()}

    def _rate(self, step: Callable[[], object], window_s: float) -> float:
        wait(self._device)
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < window_s:
            step()
            count += 1
        wait(self._device)  # the processor may be many updates ahead
        return count / (time.perf_counter() - start)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="default: cuda")
    parser.add_argument("--quick", action="store_true", help="few, short windows")
    args = parser.parse_args(words)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no GPU: torch sees none here. The same code runs with --device cpu --quick.", file=sys.stderr)
        return 2
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device("cpu")
    numbers = Numbers(device, 3 if args.quick else 7, 0.05 if args.quick else 2.0)
    updates = 4 if args.quick else 50
    out: dict[str, Any] = {"device": name_of(device), "torch": torch.__version__, "batch": ROWS}
    out |= speed(device, numbers, make_batches(64, seed=0))
    out["parity"] = parity(device, updates)
    out["bf16_difference"] = bf16_difference(device, updates)
    out["graph_difference"] = graph_difference(device, updates)
    out["checkpoint"] = checkpoint_to_cpu(device)
    if device.type == "cuda":
        out["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    out["passed"] = max(out["parity"], out["checkpoint"], out["graph_difference"] or 0.0) <= TOLERANCE
    show(out)
    print(json.dumps(out))
    return 0 if out["passed"] else 1


def speed(device: torch.device, numbers: Numbers, batches: list[Batch]) -> dict[str, Any]:
    """Updates a second of each way, and what they are of each other."""
    sac = make_sac(device)
    order = cycle(batches)
    samples = cycle([sac.prepare(batch) for batch in batches[:8]])
    steps: dict[str, Callable[[], object]] = {
        "eager": lambda: update_on(sac, next(samples)),
        "copied": lambda: sac.update(next(order)),
        "ahead": ahead(sac, cycle(batches)),
    }
    if device.type == "cuda":
        steps["graphs"] = ahead(make_sac(device, cuda_graphs=True), cycle(batches))
    if is_native(device):
        steps["bf16"] = ahead(make_sac(device, precision=BF16), cycle(batches))
        if device.type == "cuda":
            steps["graphs bf16"] = ahead(make_sac(device, precision=BF16, cuda_graphs=True), cycle(batches))
    found = numbers.rates(steps)
    return {
        "updates_s": found,
        "floor": FLOOR,
        "target": TARGET,
        "gflop_s": round(max(found.values()) * GFLOP, 1),
    }


def update_on(sac: SAC, sample: Any) -> None:
    """The update of a batch that is on the device already."""
    sac.update_critic(sample)
    sac.update_actor(sample)
    sac.update_target_network()


def ahead(sac: SAC, order: Iterator[Batch]) -> Callable[[], object]:
    """Updates as the learner's loop makes them: the next batch is on its way while this one is learned from."""
    waiting = [next(order)]

    def step() -> None:
        batch, waiting[0] = waiting[0], next(order)
        sac.update(batch)
        sac.prepare.ahead(waiting[0])

    return step


def parity(device: torch.device, updates: int) -> float:
    """How far losses of the device are from those of a CPU."""
    return apart(losses(make_sac(device, TiedMLP), updates), losses(make_sac(torch.device("cpu"), TiedMLP), updates))


def bf16_difference(device: torch.device, updates: int) -> float | None:
    """How far losses with bfloat16 products are from those with float32; None where the device has no such products."""
    if not is_native(device):
        return None
    narrow = losses(make_sac(device, TiedMLP, precision=BF16), updates)
    return apart(narrow, losses(make_sac(device, TiedMLP), updates))


def graph_difference(device: torch.device, updates: int) -> float | None:
    """How far losses of graphs are from those of updates that are launched one by one; None without a GPU."""
    if device.type != "cuda":
        return None
    return apart(*(losses(make_sac(device, cuda_graphs=graphs), updates) for graphs in (True, False)))


def checkpoint_to_cpu(device: torch.device) -> float:
    """A state written from the device and read by a CPU: the largest difference of tensors, and of the next losses."""
    there, here = make_sac(device, TiedMLP), make_sac(torch.device("cpu"), TiedMLP, seed=1)
    losses(there, 2)
    here.set_state(through_file(there))
    state, own = there.get_state()["tensors"], here.get_state()["tensors"]
    tensors = max(float((t.cpu() - own[name]).abs().max()) for name, t in state.items() if t.is_floating_point() and t.numel())
    ok, why = here.check_valid()
    if not ok:
        raise SystemExit(f"the CPU has read what is not valid: {why}")
    return max(tensors, apart(losses(there, 1, first=9), losses(here, 1, first=9)))


def apart(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """The largest difference, as a part of the number if that is above 1."""
    found = np.abs(np.array(ours) - np.array(theirs)) / np.maximum(1, np.abs(theirs))
    return float(found.max())


def through_file(sac: SAC) -> Any:
    """The state as a checkpoint on disk has it; as it is where there is no safetensors."""
    try:
        from headrace.learner import checkpoint
    except ImportError:
        print("no safetensors here: the state is not written to a file", file=sys.stderr)
        return sac.get_state()
    with tempfile.TemporaryDirectory() as directory:
        return checkpoint.read(checkpoint.write(Path(directory), sac.step, sac.get_state(), keep=1)).state


def losses(sac: SAC, updates: int, first: int = 0) -> list[list[float]]:
    """Of each update, on batches that depend on its number alone."""
    found = []
    for number in range(first, first + updates):
        if isinstance(sac.model, TiedMLP):
            sac.model.noise = torch.Generator().manual_seed(number)
        (batch,) = make_batches(1, seed=number)
        metrics = sac.update(batch)
        found.append([float(metrics[name]) for name in LOSSES])
    if not all(math.isfinite(value) for row in found for value in row):
        raise SystemExit(f"losses are not finite: {found}")
    return found


def make_sac(device: torch.device, cls: type[MLP] = MLP, seed: int = 0, **options: Any) -> SAC:
    torch.manual_seed(seed)
    spec = make_spec()
    config = LearnerConfig(batch_size=ROWS, device=device.type, **options)
    return SAC(cls(spec).to(device), spec, config, seed)


def make_spec() -> TransitionSpec:
    return TransitionSpec((ObsSpec("obs", (OBS,), "<f4"),), ActionSpec((ACTION,), (-1.0,) * ACTION, (1.0,) * ACTION))


def make_batches(count: int, seed: int) -> list[Batch]:
    rng, dtype = np.random.default_rng(seed), make_spec().row_dtype
    batches = []
    for _ in range(count):
        rows = np.zeros(ROWS, dtype)
        rows["action"], rows["rewards"] = rng.uniform(-1, 1, (ROWS, ACTION)), rng.standard_normal((ROWS, 1))
        rows["steps"], rows["terminated"] = 1, rng.random(ROWS) < 0.01
        seen = [{"obs": rng.standard_normal((ROWS, OBS)).astype(np.float32)} for _ in range(2)]
        batches.append(Batch(np.arange(ROWS), rows, *seen))
    return batches


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def show(out: Mapping[str, Any]) -> None:
    print(f"{out['device']}, torch {out['torch']}, batch {out['batch']}")
    for name, value in out["updates_s"].items():
        print(f"{name:<10} {value:>9,.1f} updates/s")
    print(f"the fastest does {out['gflop_s']} GFLOP/s; asked of an H200: {out['floor']} updates/s, better {out['target']}")
    print(
        f"losses differ by {out['parity']:.1e} from those of a CPU, by {out['checkpoint']:.1e} behind a checkpoint"
        f" (at most {TOLERANCE:g})"
    )
    if out["graph_difference"] is not None:
        print(f"and by {out['graph_difference']:.1e} as graphs")
    if out["bf16_difference"] is not None:
        print(f"and by {out['bf16_difference']:.1e} in bf16")


if __name__ == "__main__":
    sys.exit(main())
