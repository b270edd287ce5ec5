"""Links that break in every way between actors of the wire and a real buffer: nothing is lost, doubled or out of order."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import defaultdict
from dataclasses import replace

import pytest
import zmq
from helpers.roles import roles, scripted
from helpers.serving import SPEC, block
from helpers.wire_actor import NETWORK, WireActor

from headrace.buffer import SACReplayPool
from headrace.common.clock import MonotonicClock
from headrace.common.errors import SessionRefused
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, encode
from headrace.common.wire.link import Link, new_hello
from headrace.launch.chaos.canary import canary_weights
from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.tampering import Act, Faults, Rule, Way
from headrace.learner.feed import Feed

CAPACITY = 3000
DATA, ACKS = frozenset({m.BlockHead.TAG}), frozenset({m.Ack.TAG})


@pytest.fixture
def run(tmp_path):
    pacing = {"env_steps": 0, "hold_actors": False, "hold_learner": False}
    with roles(tmp_path, scripted(pacing=pacing, pool={"capacity": CAPACITY})) as made:
        made.buffer()
        yield made


def check(run, **offered):
    """Each stream's rows were taken once each, in order, whether they are still there or not.

    ``offered`` says how many rows each actor has offered in one stream after the other.
    """
    run.stop()
    with SACReplayPool(CAPACITY, path=run.run / "pool") as pool:
        assert pool.check_valid() == (True, "")
        counters, rows = pool.counters(), list(pool.dump())
    total = sum(map(sum, offered.values()))
    assert (counters["rows_accepted"], len(rows)) == (total, min(CAPACITY, total)), str(counters)
    assert (counters["lost_before"], counters["rows_rejected"]) == (0, 0)
    found = defaultdict(list)
    for row in rows:
        assert row["seq"] == row["t"] + 1
        found[row["actor"], row["stream"]].append(row["t"])
    for actor, counts in offered.items():
        streams = sorted(stream for name, stream in found if name == actor)
        for stream, count in zip(streams, counts, strict=True):
            times = found[actor, stream]
            assert times == list(range(count - len(times), count))
    return counters


def test_rows_enter_once_though_acks_are_lost_and_blocks_come_twice_late_or_after_a_kill(run):
    rng = random.Random(2)
    lossy = Faults(
        (
            Rule(Act.DROP, Way.DOWN, ACKS, rate=0.3),
            Rule(Act.DUPLICATE, Way.UP, DATA, rate=0.2),
            Rule(Act.REPLAY, Way.UP, DATA, rate=0.2, age=150),
        )
    )
    with Proxy(run.endpoint, seed=3) as proxy, WireActor(proxy.endpoint, "a") as actor:
        proxy.set(lossy)
        for turn in range(4):
            goal = actor.offered + 3 * CAPACITY
            while actor.offered < goal:
                assert actor.offer(rng.randint(1, 30))
            if turn % 2:
                run.kill("buffer")  # some of what it has committed was not acknowledged, or that ack was lost
                run.buffer()
            else:
                proxy.reset()
        proxy.set(Faults())
        proxy.reset()  # the last ack may have been lost: the next session says how far all is in
        actor.drained()
        offered, counts = actor.offered, proxy.counts()
    counters = check(run, a=[offered])
    assert min(counts[act.value] for act in (Act.DROP, Act.DUPLICATE, Act.REPLAY)) > 0
    assert counters["rows_duplicate"] > CAPACITY / 2


def test_a_connection_that_is_reset_again_and_again_delivers_everything_once(run):
    with Proxy(run.endpoint, seed=4) as proxy, WireActor(proxy.endpoint, "a") as actor:
        proxy.set(Faults((Rule(Act.RESET, Way.UP, DATA, rate=0.3), Rule(Act.CUT, Way.UP, DATA, rate=0.2))))
        for _ in range(200):
            assert actor.offer(20)
        actor.until(lambda: proxy.counts()["reset"] + proxy.counts()["cut"] >= 12, "resets")
        proxy.set(Faults())
        actor.drained()
    check(run, a=[4000])


def test_a_half_open_predecessor_holds_nobody_up(run):
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(Proxy(run.endpoint))
        first = stack.enter_context(WireActor(proxy.endpoint, "a"))
        first.offer(10)
        first.drained()
        proxy.set(Faults(dead=True))
        begun = time.monotonic()
        heir = stack.enter_context(WireActor(run.endpoint, "a"))
        others = [stack.enter_context(WireActor(run.endpoint, f"b{n}")) for n in range(8)]
        for actor in (heir, *others):
            actor.offer(5)
            actor.drained()
        assert time.monotonic() - begun < 10.0
        assert [who["id"] for who in run.status()["lost_sessions"]] == ["a"]
        proxy.set(Faults())  # it can dial again, and finds that its place is taken
        with pytest.raises(SessionRefused, match="taken over by another process"):
            first.until(lambda: False, "end")
        assert len(run.status()["actors"]) == 9
    check(run, a=[10, 5], **{f"b{n}": [5] for n in range(8)})


def test_what_an_actor_did_while_its_link_was_down_arrives_in_order_afterwards(run):
    with Proxy(run.endpoint) as proxy, WireActor(proxy.endpoint, "a") as actor, WireActor(run.endpoint, "b") as other:
        for _ in range(3):
            actor.offer(10)
            actor.drained()
            proxy.set(Faults(held=True))
            for _ in range(5):
                assert actor.offer(20, timeout_s=0.0)
            run.wait(lambda s: [a["id"] for a in s["actors"]] == ["b"], 10)  # the buffer has given it up
            other.offer(10)
            other.drained()
            proxy.set(Faults())
            actor.drained()
    check(run, a=[330], b=[30])


def test_a_row_that_takes_longer_than_a_lease_to_send_keeps_its_session(run):
    with Proxy(run.endpoint) as proxy, WireActor(proxy.endpoint, "a", outbox_bytes=1 << 16) as actor:
        proxy.set(Faults(bytes_per_s=60e3))
        before = run.status()["actors"][0]["connected_s"]
        assert actor.offer(1000)  # one block, 2 s of the link in parts, of which each renews the lease
        assert not actor.offer(1, timeout_s=0.0)  # and no room for more: the step loop waits, or drops, as its policy says
        actor.drained()
        (session,) = run.status()["actors"]
        assert session["connected_s"] > before + 1.5  # still the same one
        assert run.status()["lost_sessions"] == []
    check(run, a=[1000])


def test_a_link_on_which_one_frame_takes_longer_than_a_lease_is_slow_and_not_broken(run):
    slow = replace(NETWORK, fragment_bytes=1 << 15)  # 1.6 s of the link
    with Proxy(run.endpoint) as proxy, WireActor(proxy.endpoint, "a", network=slow) as actor:
        feed = Feed(32, 2, statistics=False)
        link = Link(new_hello("learner", "l"), feed, run.endpoint, NETWORK, MonotonicClock())
        link.start()
        try:
            epoch = link.wait_welcome(20).epoch
            before = run.status()["actors"][0]["connected_s"]
            proxy.set(Faults(bytes_per_s=20e3))
            feed.publish(canary_weights(SPEC, "l", epoch, 1, (100, 100)))  # 44 kB of the way down
            link.wake()
            assert actor.offer(500)  # 60 kB of the way up
            actor.drained()
            assert actor.weights() == Version("l", epoch, 1)
        finally:
            link.close(m.Goodbye(False, ""))
        (session,) = run.status()["actors"]
        assert session["connected_s"] > before + 2.5  # still the same one, to the buffer and to the actor
        assert run.status()["lost_sessions"] == []
    check(run, a=[500])


def test_while_the_buffer_is_stopped_an_actor_keeps_to_its_bound_and_everything_arrives_later(run):
    bound = 1 << 20
    with WireActor(run.endpoint, "a", outbox_bytes=bound) as actor:
        actor.offer(1)
        actor.drained()
        run.processes["buffer"].send_signal(signal.SIGSTOP)
        while actor.offer(500, timeout_s=0.0):
            pass
        size = block(range(500)).nbytes
        assert bound <= actor.uplink.pulse().report["spooled_bytes"] < bound + size
        run.processes["buffer"].send_signal(signal.SIGCONT)
        actor.drained()
        offered = actor.offered
    check(run, a=[offered])


def test_a_peer_that_does_not_listen_gets_its_ack_when_it_does(run):
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvhwm = 10  # what is owed waits at the buffer, where a cumulative ack takes the place of many
        dealer.connect(run.endpoint)
        hello = encode(new_hello("actor", "a", spec=SPEC.to_dict()))
        while True:  # the first hello opens the pool
            dealer.send(hello)
            if isinstance(decode(dealer.recv_multipart()[0]), m.Welcome):
                break
        for seq in range(1, 4001):
            dealer.send_multipart(block_parts(m.BlockHead(1, seq, 1, 2), block([seq - 1]), SPEC))
        run.wait(lambda s: s["counters"]["rows_accepted"] == 4000, 30)
        acked = 0
        while acked < 4000:
            assert dealer.poll(5000), f"acknowledged up to {acked} of 4000"
            message = decode(dealer.recv_multipart()[0])
            acked = max(acked, message.seq) if isinstance(message, m.Ack) else acked
        dealer.send(encode(m.Goodbye(False, "")))
    check(run, a=[4000])


def test_every_actor_ends_on_the_last_version_however_fast_they_come(run):
    with contextlib.ExitStack() as stack:
        actors = [stack.enter_context(WireActor(run.endpoint, f"a{n}")) for n in range(4)]
        feed = Feed(32, 2, statistics=False)
        link = Link(new_hello("learner", "l"), feed, run.endpoint, NETWORK, MonotonicClock())
        stack.callback(link.close, m.Goodbye(False, ""))
        link.start()
        link.wait_welcome(20)
        for step in range(1, 101):
            feed.publish(canary_weights(SPEC, "l", feed.epoch, step))
            link.wake()
            actors[step % 4].uplink.wait(0.005)
        for actor in actors:
            steps = [actor.weights().step]
            while steps[-1] != 100:
                steps.append(actor.weights().step)
            assert steps == sorted(set(steps))
