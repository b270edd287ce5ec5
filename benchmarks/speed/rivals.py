"""Other libraries' replay, each in its own virtual environment; needs numpy, the library, and nothing of headrace.

Roles: ``reverb-insert``, ``reverb-sample``, ``cpprb``, ``ray-sample``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from speed.children import answer_windows, repeat

OBS, ACTION, BATCH = 17, 6, 256
IMAGE, STATE = (2, 128, 128, 3), 32
FLUSH_EVERY = 256
IN_FLIGHT = 1024
Options = dict[str, Any]
Window = Callable[[float], Mapping[str, float]]
PIPES: list[Connection] = []  # those of servers are only held
Columns = dict[str, tuple[tuple[int, ...], str]]
_TAIL: Columns = {"action": ((ACTION,), "f4"), "reward": ((), "f4"), "done": ((), "u1")}
FLAT: Columns = {"state": ((OBS,), "f4"), "next_state": ((OBS,), "f4"), **_TAIL}
_SEEN: Columns = {"image": (IMAGE, "u1"), "state": ((STATE,), "f4")}
IMAGES: Columns = {**_SEEN, **{f"next_{k}": v for k, v in _SEEN.items()}, **_TAIL}


def rows(columns: Columns, n: int, seed: int = 0) -> dict[str, Any]:
    """``n`` transitions of noise."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for name, (shape, dtype) in columns.items():
        noise = rng.integers(0, 2 if name == "done" else 256, (n, *shape), np.uint8)
        out[name] = noise if dtype == "u1" else rng.standard_normal((n, *shape), "f4")
    return out


def reverb_table(size: int) -> Any:
    """A table as its documentation makes one: uniform, first in first out."""
    import reverb
    import tensorflow as tf

    kinds = {"f4": tf.float32, "u1": tf.uint8}
    signature = {name: tf.TensorSpec(shape, kinds[dtype]) for name, (shape, dtype) in FLAT.items()}
    pick, drop = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    limiter = reverb.rate_limiters.MinSize(1)
    return reverb.Table("t", sampler=pick, remover=drop, max_size=size, rate_limiter=limiter, signature=signature)


def reverb_server(pipe: Connection, size: int) -> None:
    import reverb

    server = reverb.Server([reverb_table(size)], port=None)
    pipe.send(server.port)
    server.wait()


def reverb_write(port: int, keep: int, seconds: float = 0.0, count: int = 0, seed: int = 0) -> dict[str, float]:
    """Insert one-row items with a trajectory writer that holds ``keep`` steps a chunk, confirmed every ``FLUSH_EVERY``."""
    import reverb

    data = rows(FLAT, 2000, seed)
    items = cycle([{name: column[i] for name, column in data.items()} for i in range(2000)])
    written = 0
    with reverb.Client(f"localhost:{port}").trajectory_writer(num_keep_alive_refs=keep) as writer:

        def some() -> None:
            nonlocal written
            for _ in range(FLUSH_EVERY):
                writer.append(next(items))
                writer.create_item("t", 1.0, {name: column[-1] for name, column in writer.history.items()})
            writer.flush(block_until_num_items=FLUSH_EVERY)
            written += FLUSH_EVERY

        if seconds:
            rate = repeat(some, seconds, FLUSH_EVERY)
        else:
            rate = {"rate": 0.0}
            while written < count:
                some()
        writer.flush()
    return rate


def reverb_writer(pipe: Connection, port: int, keep: int, seed: int) -> None:
    reverb_write(port, keep, count=FLUSH_EVERY, seed=seed)
    pipe.send("up")
    while True:
        pipe.send(reverb_write(port, keep, seconds=pipe.recv(), seed=seed)["rate"])


def reverb_insert(options: Options) -> Window:
    """Rows a second that two writer processes together bring in."""
    port = start(reverb_server, options["rows"])[1]
    writers = [start(reverb_writer, port, options["keep"], seed)[0] for seed in (1, 2)]

    def window(seconds: float) -> Mapping[str, float]:
        for pipe in writers:
            pipe.send(seconds)
        return {"rate": sum(pipe.recv() for pipe in writers)}

    return window


def reverb_sample(options: Options) -> Window:
    """Batches a second of the data set over the table that it recommends."""
    import reverb

    port = start(reverb_server, options["rows"])[1]
    reverb_write(port, 1, count=options["fill"])
    address = f"localhost:{port}"
    dataset = reverb.TrajectoryDataset.from_table_signature(address, "t", max_in_flight_samples_per_worker=IN_FLIGHT)
    batches = dataset.batch(BATCH, drop_remainder=True).prefetch(2).as_numpy_iterator()
    next(batches)
    return lambda seconds: repeat(lambda: next(batches), seconds)


def cpprb(options: Options) -> Window:
    """``work``: ``add`` (``insert`` rows at a time), ``sample`` or ``update`` (sample and new priorities), in process."""
    import cpprb as library

    fields = {name: {"shape": shape or 1, "dtype": np.dtype(dtype)} for name, (shape, dtype) in FLAT.items()}
    kind = library.PrioritizedReplayBuffer if options["prioritised"] else library.ReplayBuffer
    made = kind(options["rows"], fields)
    if options["work"] == "add":
        n = options["insert"]
        data = rows(FLAT, 64 * n)
        pieces = [{k: v[i * n : (i + 1) * n] for k, v in data.items()} for i in range(64)]
        single = [{k: v[i] for k, v in data.items()} for i in range(64)]
        adds = cycle(single if n == 1 else pieces)
        return lambda seconds: repeat(lambda: made.add(**next(adds)), seconds, n)
    data = rows(FLAT, 2000)
    for _ in range(options["fill"] // 2000):
        made.add(**data)

    def update() -> None:
        batch = made.sample(BATCH)
        made.update_priorities(batch["indexes"], batch["weights"])

    call = update if options["work"] == "update" else lambda: made.sample(BATCH)
    return lambda seconds: repeat(call, seconds)


def ray_sample(options: Options) -> Window:
    """A ring of image rows in a ray actor, three batches under way through the object store."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2 << 30, _node_ip_address="127.0.0.1")

    @ray.remote(num_cpus=0)
    class Ring:
        def __init__(self, n: int) -> None:
            some = rows(IMAGES, 200)
            self.columns = {k: np.resize(v, (n, *v.shape[1:])) for k, v in some.items()}
            self.rng, self.n = np.random.default_rng(0), n

        def sample(self) -> dict[str, Any]:
            ids = self.rng.integers(0, self.n, BATCH)
            return {k: v[ids] for k, v in self.columns.items()}

    ring = Ring.remote(options["rows"])
    under_way = [ring.sample.remote() for _ in range(3)]

    def take() -> None:
        under_way.append(ring.sample.remote())
        if len(ray.get(under_way.pop(0))["reward"]) != BATCH:
            raise RuntimeError("a batch of another size")

    take()
    return lambda seconds: repeat(take, seconds)


def start(target: Callable[..., None], *args: Any) -> tuple[Connection, Any]:
    """Start a process, which ends with the group of this one: its pipe, and the first thing that it says."""
    context = get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=target, args=(there, *args), daemon=True).start()
    PIPES.append(here)
    return here, here.recv()


def versions(*names: str) -> dict[str, str]:
    """Of what is measured."""
    out = {}
    for name in names:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


ROLES = {"reverb-insert": reverb_insert, "reverb-sample": reverb_sample, "cpprb": cpprb, "ray-sample": ray_sample}

if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    said = os.dup(1)
    os.dup2(2, 1)  # the libraries talk on stdout, which is for answers
    sys.stdout = os.fdopen(said, "w")
    answer_windows(ROLES[chosen["role"]](chosen), versions("dm-reverb", "tensorflow-cpu", "cpprb", "ray", "numpy"))
    sys.stdout.flush()
    os._exit(0)
