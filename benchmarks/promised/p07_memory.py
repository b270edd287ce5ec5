"""P7: memory is bounded under any load. Each role states its bound (`headrace doctor`), and takes no more.

small     four actors offer ten times what the buffer takes, a learner asks for as many batches as may be ahead and takes few.
          The buffer runs in a control group of its declared bound and a tenth.
images    the same with rows of 1 MB images.
plain     the same once more, with the event loop of the standard library in place of uvloop.
stopped   the buffer is stopped by SIGSTOP while actors step at 1 kHz with rows of 100 kB; then it goes on, and all arrives.
endless   `headrace train`, and a peer whose message never ends: memory ends at the cap: the library hangs up on it, or the
          supervisor starts the buffer again.
crowds    half greetings by the thousand, greetings of other protocols, a frame of 2^62 bytes, resets in the middle of a frame.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from campaign import footprint
from campaign.footprint import Peak, group
from campaign.job import lives, training, undone
from campaign.process import ProcessFailed
from campaign.promise import Outcome, Part, Promise, Trial, at_least, at_most, never, told
from campaign.records import ROOT
from helpers import strangers
from helpers.lane_rows import lane_spec
from helpers.roles import Roles, roles, scripted

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.bound import bound as bound_of_buffer
from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.common.clock import MonotonicClock
from headrace.common.limits import raise_open_files
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.launch.leash import leash

MIB = 1 << 20
MINUTES, QUICK_S, STOPPED_S = 10, 20.0, 300.0
WRITERS, PREFETCH = 4, 256
NETWORK = {"heartbeat_s": 0.2, "lease_s": 2.0, "connect_s": 900, "credit_bytes": 2 * MIB, "message_bytes": 64 * MIB}
FREE = {"env_steps": 0, "min_fill": 300, "hold_actors": False, "hold_learner": False}
SETTLED_S = 30.0  # after which memory no longer grows
BACK_S, JOIN_S = 5.0, 2.0
HALVES, RESETS = 2000, 10_000
SPARE = 4  # files that a process may have open at one moment and not at another
CUT = strangers.GREETING + strangers.READY + b"\x02" + bytes(6) + b"\xff\xff" + b"half of it"


def small(trial: Trial) -> Outcome:
    """Rows of a hundred bytes, 64 a block."""
    return overload(trial, image=0, rows=64, capacity=100_000, batch=256)


def images(trial: Trial) -> Outcome:
    """Rows with an image of a megabyte, 16 a block."""
    return overload(trial, image=1024, rows=16, capacity=600, batch=16)


def plain(trial: Trial) -> Outcome:
    """The loop of the standard library."""
    shadow = trial.place / "shadow"
    shadow.mkdir()
    (shadow / "uvloop.py").write_text("raise ImportError('not here')\n")
    found = os.pathsep.join([str(shadow), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return overload(trial, image=1024, rows=16, capacity=600, batch=16, before=["env", f"PYTHONPATH={found}"])


def overload(trial: Trial, *, image: int, rows: int, capacity: int, batch: int, before: list[str] | None = None) -> Outcome:
    """Offer too much and take too little for some minutes."""
    pool, network = {"capacity": capacity, "max_actors": WRITERS}, NetworkConfig(**NETWORK)
    spec = lane_spec(image=image)
    bound = bound_of_buffer(PoolConfig(**pool), SamplingConfig(), network, spec, readers=1, rows=batch).total
    config = scripted(pool=pool, network=NETWORK, pacing={**FREE, "random_steps": 0}, learner={"batch_size": batch})
    seconds = QUICK_S if trial.quick else 60.0 * MINUTES
    with group(bound * 11 // 10) as here, roles(trial.place, config) as run:
        buffer = run.buffer(before=[*here.words, *(before or [])])
        run.wait(lambda s: True, 60)
        options = {"endpoint": run.endpoint, "network": NETWORK, "image": image}
        writer = {"role": "writer", "rows": rows, "rate": 0, "outbox_bytes": 64 * MIB}
        with Peak(buffer.pid) as peak, clients(trial.place) as client:
            writers = [client(f"writer-{i}", {**options, **writer, "name": f"writer-{i}"}) for i in range(WRITERS)]
            run.wait(lambda s: s["env_steps"] > 4 * batch, 60, watch=("buffer",))
            reader = client("reader", {**options, "role": "reader", "rows": batch, "prefetch": PREFETCH, "name": "reader"})
            time.sleep(seconds)
            alive = buffer.poll() is None
            told_ = [ended(c) for c in (*writers, reader)]
        status = run.status()
        run.stop()
        kills = here.kills
    offered, taken = (sum(t[name] for t in told_[:-1]) for name in ("offered", "taken"))
    shares = [(t["peak"] - t["base"]) / t["bound"] for t in told_]
    figures = {
        "buffer_share": peak.most / bound,
        "actor_share": max(shares[:-1]),
        "learner_share": shares[-1],
        "oom_kills": kills,
        "offered_over_taken": offered / max(1, taken),
        "grown_mb": grown(peak.samples),
        "bound_mb": bound / MIB,
        "rows_s": status["env_steps"] / seconds,
        "refused": sum(n for name, n in status["counters"].items() if name.startswith(("refused", "rejected"))),
    }
    return Outcome(figures, () if alive else ("the buffer ended",))


def grown(samples: list[tuple[float, int]]) -> float:
    """MB by which the last samples are above those after a while; 0 for too few to say."""
    settled = [size for at, size in samples if at >= samples[0][0] + SETTLED_S]
    if not settled:
        return 0.0
    part = max(1, len(settled) // 4)
    return (sum(settled[-part:]) - sum(settled[:part])) / part / MIB


def stopped(trial: Trial) -> Outcome:
    """A buffer that does not answer."""
    seconds = QUICK_S / 2 if trial.quick else STOPPED_S
    config = scripted(pool={"capacity": 2000, "max_actors": 4}, network=NETWORK, pacing={**FREE, "random_steps": 0})
    with roles(trial.place, config) as run, clients(trial.place) as client:
        buffer = run.buffer()
        run.wait(lambda s: True, 60)
        words = {"role": "writer", "rows": 32, "rate": 1000, "outbox_bytes": 64 * MIB, "image": 320}
        writer = client("writer", {"endpoint": run.endpoint, "network": NETWORK, "name": "writer", **words})
        run.wait(lambda s: s["env_steps"] > 500, 60)
        buffer.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        buffer.send_signal(signal.SIGCONT)
        begun = time.monotonic()
        before = run.wait(lambda s: bool(s["actors"]), 30)["env_steps"]
        run.wait(lambda s: s["env_steps"] > before + 1000, 60)
        back_s = time.monotonic() - begun
        found = ended(writer)
        status = run.status()
    return of_writer(found, status["counters"]["lost_before"], back_s)


def of_writer(said: Mapping[str, float], lost: int, back_s: float) -> Outcome:
    """What a client said at its end, and what its buffer says was lost."""
    share = (said["peak"] - said["base"]) / said["bound"]
    return Outcome(
        {"actor_share": share, "lost": lost, "back_s": back_s, "offered_over_taken": said["offered"] / said["taken"]}
    )


TRAIN: dict[str, Any] = {
    "network": {**NETWORK, "credit_bytes": MIB, "message_bytes": 4 * MIB},
    "pool": {"capacity": 20_000, "max_actors": 4},
    "actor": {"count": 2},
    "pacing": {**FREE, "random_steps": 1 << 40},
    "learner": {"batch_size": 64},
    "model": {"options": {"hidden": [16]}},
    "eval": {"every": 0, "final_episodes": 0},
    "sinks": {"tensorboard": False},
}


def endless(trial: Trial) -> Outcome:
    """A flood, and the way back."""
    most = lost = died = 0
    back_s = 0.0
    with training(trial.place, scripted(**TRAIN), trial.place / "train.log") as job:
        status = job.wait(lambda s: s["env_steps"] > 500)
        cap = status["memory"]["cap_bytes"] + status["memory"]["rss_bytes"]
        for _ in range(1 if trial.quick else 3):
            before = job.wait(lambda s: len(s["actors"]) == 2)
            victim = job.role("buffer")
            thread = threading.Thread(target=strangers.flood, args=(job.endpoint, 256 << 10, 60.0), daemon=True)
            thread.start()
            with Peak(victim.pid) as peak:
                while thread.is_alive() and lives(victim):
                    time.sleep(0.005)
            begun = time.monotonic()
            died += not lives(victim)
            most = max(most, peak.most)
            after = job.wait(lambda s, steps=before["env_steps"]: s["env_steps"] > steps + 100)
            back_s = max(back_s, time.monotonic() - begun)
            lost += after["counters"]["lost_before"] + undone(before, job.wait(lambda s: len(s["actors"]) == 2))
    return Outcome({"cap_share": most / cap, "back_s": back_s, "lost": lost, "deaths": died, "cap_mb": cap / MIB})


def crowds(trial: Trial) -> Outcome:
    """Connections that lead to nothing."""
    raise_open_files()
    halves, resets = (200, 500) if trial.quick else (HALVES, RESETS)
    join_s = 0.0
    with roles(trial.place, scripted(pacing={**FREE, "random_steps": 1 << 40})) as run, contextlib.ExitStack() as open_:
        buffer = run.buffer()
        run.actor("actor-0")
        limit = run.wait(lambda s: s["env_steps"] > 100, 60)["memory"]["open_files"]
        process = psutil.Process(buffer.pid)
        usual = most = process.num_fds()
        rate = rate_of(run, 3.0)
        for _ in range(halves):
            open_.enter_context(strangers.dial(run.endpoint, strangers.GREETING[:32]))
        join_s = max(join_s, joined_s(run.endpoint, "actor-1"))
        most = max(most, process.num_fds())
        for data in (strangers.HTTP, strangers.GREETING + strangers.READY + strangers.HUGE, b"\x02" + bytes(7) + b"\x40"):
            open_.enter_context(strangers.dial(run.endpoint, data))
        begun = time.monotonic()
        for number in range(resets):
            strangers.reset(run.endpoint, CUT)
            if number % 500 == 0:
                most = max(most, process.num_fds())
                join_s = max(join_s, joined_s(run.endpoint, "actor-2"))
        seconds = time.monotonic() - begun
        open_.close()
        left = left_open(process, usual, 20.0)
        honest = rate_of(run, 3.0) / rate
        status = run.status()
        run.stop()
    figures = {"join_s": join_s, "open_files": most, "left_open": left, "limit": limit}
    return Outcome({**figures, "resets_s": resets / seconds, "rate_after": honest, "lost": status["counters"]["lost_before"]})


def left_open(process: psutil.Process, usual: int, patience_s: float) -> int:
    """Files beyond the ``usual`` ones, and a few, that a process still has open after a while."""
    end = time.monotonic() + patience_s
    while (left := process.num_fds() - usual - SPARE) > 0 and time.monotonic() < end:
        time.sleep(0.1)
    return max(0, left)


def rate_of(run: Roles, seconds: float) -> float:
    """Env steps a second."""
    before = run.status()["env_steps"]
    time.sleep(seconds)
    return (run.status()["env_steps"] - before) / seconds


def joined_s(endpoint: str, name: str) -> float:
    """How long an honest actor needs to be welcomed."""
    spec = make_spec(EnvConfig(**scripted()["env"]), WindowConfig())
    uplink, begun = Uplink(spec, Outbox(Memory(MIB)), MIB), time.monotonic()
    link = Link(new_hello("actor", name, spec=spec.to_dict()), uplink, endpoint, NetworkConfig(), MonotonicClock())
    link.start()
    try:
        link.wait_welcome(30.0)
        return time.monotonic() - begun
    finally:
        link.close(Goodbye(False))


@contextlib.contextmanager
def clients(place: Path) -> Iterator[Any]:
    """Starts processes of campaign.load, and leaves none."""
    made: list[subprocess.Popen[str]] = []
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])

    def start(name: str, options: Mapping[str, Any]) -> subprocess.Popen[str]:
        ready = place / f"{name}.ready"
        words = [sys.executable, "-m", "campaign.load", json.dumps({**options, "ready": str(ready)})]
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (place / f"{name}.log").open("wb") as log:
            out = subprocess.PIPE
            made.append(subprocess.Popen(words, stdout=out, stderr=log, text=True, env=environment, preexec_fn=leash()))
        end = time.monotonic() + 60
        while not ready.exists():
            if made[-1].poll() is not None or time.monotonic() > end:
                raise ProcessFailed(f"{name} did not begin: {(place / f'{name}.log').read_text()[-500:]}")
            time.sleep(0.02)
        return made[-1]

    try:
        yield start
    finally:
        for process in made:
            process.kill()
            process.communicate(timeout=10)


def ended(process: subprocess.Popen[str]) -> dict[str, float]:
    """What a client says at its end."""
    process.terminate()
    out, _ = process.communicate(timeout=60)
    if process.returncode != 0:
        raise ProcessFailed(f"a client ended with {process.returncode}")
    found: dict[str, float] = json.loads(out)
    return found


def control(place: Path) -> dict[str, bool]:
    """A process that takes 200 MB more than it says, in a group that lets it, must be seen."""
    code = "import time; taken = bytearray(b'x') * (200 << 20); print('taken', flush=True); time.sleep(30)"
    with group(1 << 30) as here:
        words = [*here.words, sys.executable, "-c", code]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process, Peak(process.pid) as peak:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(5 * footprint.POLL_S)
            process.kill()
    with (
        group(100 << 20) as tight,
        subprocess.Popen([*tight.words, sys.executable, "-c", code], stdout=subprocess.PIPE) as other,
    ):
        other.wait(30)
        killed = tight.kills
    return {"more than was said": peak.most > 200 << 20, "killed for want of memory": killed > 0}


def hoarder(place: Path) -> dict[str, bool]:
    """A client that keeps 200 MB beside its outbox must be seen in what it says at its end, and so must rows that are lost."""
    part = Part("stopped", 1, stopped, STOPPED)
    words = {"role": "writer", "rows": 32, "rate": 1000, "outbox_bytes": MIB, "image": 0, "network": NETWORK}
    with roles(place, scripted(network=NETWORK, pacing={**FREE, "random_steps": 0})) as run, clients(place) as client:
        run.buffer()
        run.wait(lambda s: True, 60)
        said = {}
        for name, hoard in (("honest", 0), ("hoarder", 200 * MIB)):
            started = client(name, {**words, "endpoint": run.endpoint, "name": name, "hoard": hoard})
            enough = run.status()["env_steps"] + 500
            run.wait(lambda s, enough=enough: s["env_steps"] > enough, 60)
            said[name] = ended(started)
        run.stop()
    return {
        "nothing": not part.problems(of_writer(said["honest"], 0, 1.0)),
        "more than was said": bool(part.problems(of_writer(said["hoarder"], 0, 1.0))),
        "a row that is lost": bool(part.problems(of_writer(said["honest"], 1, 1.0))),
    }


def forgetful(place: Path) -> dict[str, bool]:
    """As :func:`control`, and a buffer that has less of a stream than it had must be seen."""
    before, after = ({"actors": [{"id": "a", "acked": {"0": seq, "1": 7}}]} for seq in (9, 8))
    return {**control(place), "nothing": not undone(after, before), "rows that were there": undone(before, after) == 1}


def keeper(place: Path) -> dict[str, bool]:
    """A listener that closes no connection must be seen, and one that does must not."""
    code = (
        "import socket, sys; keeps = []; at = socket.create_server(('127.0.0.1', 0)); print(at.getsockname()[1], flush=True)\n"
        "while True:\n    made = at.accept()[0]\n    keeps.append(made) if sys.argv[1] == 'keeps' else made.close()\n"
    )
    found = {}
    for kind in ("closes", "keeps"):
        with subprocess.Popen([sys.executable, "-c", code, kind], stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None
            endpoint = f"tcp://127.0.0.1:{int(listener.stdout.readline())}"
            process = psutil.Process(listener.pid)
            usual = process.num_fds()
            for made in [strangers.dial(endpoint) for _ in range(50)]:
                made.close()
            time.sleep(0.2)  # until it has taken them all
            found[kind] = left_open(process, usual, 1.0)
            listener.kill()
    return {"nothing": found["closes"] == 0, "connections that stay": found["keeps"] == 50 - SPARE}


STOPPED = (*at_most("actor_share", 1.0), *never("lost"), *told("back_s", "offered_over_taken"))
LOADED = (
    *at_most("buffer_share", 1.0),
    *at_most("actor_share", 1.0),
    *at_most("learner_share", 1.0),
    *never("oom_kills", "refused"),
    *at_least("offered_over_taken", 10.0),
    *at_most("grown_mb", 32.0),
    *told("bound_mb", "rows_s"),
)
PROMISE = Promise(
    "P7",
    "Memory is bounded under any load: no role takes more than it declares, whatever is offered to it.",
    (
        Part("small", 1, small, LOADED, control=control),
        Part("images", 1, images, LOADED, control=control),
        Part("plain", 1, plain, LOADED, control=control),
        Part("stopped", 1, stopped, STOPPED, control=hoarder),
        Part(
            "endless",
            3,
            endless,
            (*at_most("cap_share", 1.0), *at_most("back_s", BACK_S), *never("lost"), *told("deaths", "cap_mb")),
            control=forgetful,
        ),
        Part(
            "crowds",
            3,
            crowds,
            (
                *at_most("join_s", JOIN_S),
                *never("left_open", "lost"),
                *at_least("rate_after", 0.9),
                *told("open_files", "limit", "resets_s"),
            ),
            control=keeper,
        ),
    ),
)
