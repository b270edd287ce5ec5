"""A policy server as a process: rows are those of a policy of one's own, and an arm that loses it holds and then stops."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
from helpers.publishing import publish
from helpers.roles import free_port, roles, scripted
from helpers.weights import mlp_weights

from headrace.actor import ActorConfig, connect
from headrace.actor.envs import make_spec
from headrace.actor.policy import make_policy
from headrace.buffer import SACReplayPool
from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.key_files import KeyFiles
from headrace.launch.chaos.robot_log import RobotLog
from headrace.launch.config import make_config, read_config

STEPS = 120
PLACE = ("episode", "t", "learner_epoch", "learner_step", "source", "digest")


def endpoint():
    return f"tcp://127.0.0.1:{free_port()}"


def spec_of(run):
    config = make_config(read_config(run.config))
    return make_spec(config.env, config.window, robot=config.actor.robot)


def serve(run, *words):
    return run.start("server", "policy-server", str(run.config), "--connect", run.endpoint, "--id", "gpu", *words)


def rows_of(directory, policy, **window):
    """The rows of one actor that decides by ``policy``, and what the buffer knew of the policy servers at the end."""
    config = scripted(
        pool={"capacity": 2000},
        pacing={"env_steps": 2 * STEPS, "min_fill": STEPS, "random_steps": 0},
        actor={"policy": policy, "epsilon": 0.2},
        policy_server={"endpoint": endpoint()},
        window=window,
        env={"id": "headrace.launch.chaos.scripted:make", "kwargs": {"lengths": [4, 3, 5]}, "lanes": 2},
    )
    directory.mkdir()
    with roles(directory, config) as run:
        run.buffer()
        run.actor("actor-0")
        run.wait(lambda s: s["actors"], 30)
        publish(run.endpoint, mlp_weights(spec_of(run)))
        if policy == "server":
            serve(run)
        status = run.wait(lambda s: s["env_steps"] >= STEPS, 60, watch=("actor-0",))
        run.stop()
        with SACReplayPool(2000, path=run.run / "pool") as pool:
            rows = sorted(([row[name] for name in PLACE] for row in pool.dump()), key=lambda row: row[:2])
        whole = rows[-1][0] - 4  # the newest episodes were cut where this process was stopped
        return [row for row in rows if row[0] < whole], status["policy_servers"]


def test_the_same_seeds_and_weights_give_the_same_rows_wherever_the_policy_is(tmp_path):
    own, nobody = rows_of(tmp_path / "own", "auto", chunk=3)
    theirs, (server,) = rows_of(tmp_path / "theirs", "server", chunk=3)
    common = min(len(own), len(theirs))
    assert common > 20
    assert own[:common] == theirs[:common]
    assert nobody == []
    assert (server["id"], server["actors"], server["lanes_a_batch"] > 0) == ("gpu", 1, True)
    assert server["requests"]["decided"] > 0


def test_a_loop_of_ones_own_asks_and_is_told_in_time_when_nobody_answers(tmp_path):
    asked = {"policy_server": {"endpoint": endpoint()}, "pacing": {"random_steps": 0}}
    with roles(tmp_path, scripted(actor={"policy": "server"}, **asked)) as run:
        run.buffer()
        spec, there = spec_of(run), make_config(read_config(run.config)).policy_server
        asks, before = ActorConfig(policy="server"), threading.active_count()
        with connect(run.endpoint, "arm-0", spec, actor=asks, network=run.network, server=there) as session:
            weights = mlp_weights(spec)
            publish(run.endpoint, weights)
            server, obs = serve(run), {o.key: np.ones(o.shape, o.dtype) for o in spec.obs}
            end, action = time.monotonic() + 60, None
            while action is None and time.monotonic() < end:
                with contextlib.suppress(DeadlineExceeded):
                    action = session.act(obs, deterministic=True)
            one = {key: value[None] for key, value in obs.items()}
            own = make_policy(weights, spec, asks).act(one, np.random.default_rng(0), True)[0]
            np.testing.assert_allclose(action, own, atol=1e-6)
            assert session.version.step == weights.version.step
            session.begin(obs)
            session.record(obs, action, 0.0, True, False)
            os.kill(server.pid, signal.SIGSTOP)
            with pytest.raises(DeadlineExceeded, match="no decision of the policy server"):
                session.act(obs)
            os.kill(server.pid, signal.SIGCONT)
        assert session.counts.acknowledged == 1
        assert threading.active_count() == before


ARM = {
    "env": {"id": "headrace.actor.fake_arm:FakeArm", "max_episode_steps": 1000},
    "actor": {"robot": True, "policy": "server"},
    "robot": {
        "rate_hz": 20,
        "operator": "headrace.actor.operator:Willing",
        "guard": {"low": [-1.5], "high": [1.5], "max_delta": [0.2], "max_rate": [9.0], "late": 2},
    },
    "eval": {"every": 0, "final_episodes": 0},
    "pacing": {"env_steps": 0, "random_steps": 0},
    "pool": {"capacity": 3000},
}


def wait(record, what, deadline_s=60.0):
    """The log once ``what`` is true of it."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        log = RobotLog.read(record)
        if what(log):
            return log
        time.sleep(0.02)
    raise AssertionError(f"not within {deadline_s} s: {log.lines[-5:]}")


def lost(record, deed):
    """What the arm is told behind the last command of the policy, from ``deed`` on to its stop."""
    wait(record, lambda log: log.lines and log.lines[-1].get("kind") == "policy")
    stops = RobotLog.read(record).count("stop")
    deed()
    log = wait(record, lambda log: log.count("stop") > stops)
    kinds = [line.get("kind", line["what"]) for line in log.lines]
    stop = len(kinds) - 1 - kinds[::-1].index("stop")
    return kinds[len(kinds) - kinds[::-1].index("policy") : stop + 1]


def test_an_arm_that_loses_its_policy_server_holds_and_then_stops_and_goes_on_when_there_is_one(tmp_path):
    record = tmp_path / "record"
    env = {**ARM["env"], "kwargs": {"record": str(record), "size": 8}}
    keys = KeyFiles(tmp_path / "keys")
    for name, role in (("arm", "actor"), ("policy-server", "policy-server"), ("learner", "learner"), ("operator", "operator")):
        keys.new(name, role)
    network = {"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60, "keys": str(keys.path)}
    with roles(tmp_path, {**ARM, "env": env, "policy_server": {"endpoint": endpoint()}, "network": network}) as run:
        run.buffer()
        run.actor("arm")
        run.wait(lambda s: s["actors"], 30, watch=("arm",))
        publish(run.endpoint, mlp_weights(spec_of(run), scale=0.1), run.network)
        server = serve(run)
        wait(record, lambda log: log.count("policy") > 25)
        assert lost(record, lambda: os.kill(server.pid, signal.SIGSTOP)) == ["hold", "stop"]
        resets = RobotLog.read(record).count("reset")
        time.sleep(0.5)  # longer than an episode needs to begin, if it could
        assert RobotLog.read(record).count("reset") == resets
        moved = RobotLog.read(record).count("policy")
        os.kill(server.pid, signal.SIGCONT)
        wait(record, lambda log: log.count("policy") > moved + 10)
        assert lost(record, lambda: run.kill("server")) == ["hold", "stop"]
        moved = RobotLog.read(record).count("policy")
        serve(run)
        log = wait(record, lambda log: log.count("policy") > moved + 10)
        assert (log.stale_commands, log.crossed_resets) == (0, 0)
        told = run.wait(lambda s: s["actors"] and s["actors"][0].get("policy_server", {}).get("unanswered"), 20)
        assert told["policy_servers"][0]["requests"]["decided"] > 0
        assert run.stop()["server"] == 0
