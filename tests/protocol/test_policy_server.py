"""A policy server and those who ask it, without sockets: what goes together, what is late, whose answer it is, who may ask."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers.weights import mlp_weights, observe, rich_spec, small_spec

from headrace.actor import noise
from headrace.actor.asking import Asking
from headrace.actor.config import ActorConfig
from headrace.actor.deciding import Decided
from headrace.actor.policy import make_policy, sampled
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.serving import Serving, joined
from headrace.common.clock import ManualClock
from headrace.common.errors import WireError
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, encode
from headrace.common.wire.fragments import split
from headrace.common.wire.keyring import Keyring
from headrace.common.wire.keys import Key, new_pair
from headrace.common.wire.network import NetworkConfig

SPEC = rich_spec()
NETWORK = NetworkConfig(lease_s=5.0, heartbeat_s=0.5)
GATHER_S = 0.01
NEVER = 1e9
SOON = 0.005  # an answer that does not come is waited for in true seconds


class Server:
    """A :class:`Serving` with a policy behind it; time stands still unless moved."""

    def __init__(self, spec=SPEC, **config):
        self.clock = ManualClock(100.0)
        self.serving = Serving(spec, NETWORK, PolicyServerConfig(gather_s=GATHER_S, **config))
        self.weights = mlp_weights(spec, normalise=True)
        self.policy = make_policy(self.weights, spec)
        self.serving.version = self.weights.version
        self.batches = []

    def say(self, peer, message, *frames, user=""):
        return told(self.serving.receive(peer, [encode(message), *frames], self.clock.now(), user))

    def hello(self, peer, identity=None, **changes):
        fields = {"role": "actor", "id": identity or peer.decode(), "incarnation": peer, "spec": self.serving.spec.to_dict()}
        return m.Hello(1, host="host", pid=7, **{**fields, **changes})

    def join(self, peer, **changes):
        return self.say(peer, self.hello(peer, **changes))

    def decide(self):
        """What a round of the process does: late ones, then one batch."""
        now = self.clock.now()
        out = self.serving.late(now)
        batch = self.serving.batch(now)
        if batch:
            self.batches.append([r.peer for r in batch])
            obs, rng = joined(batch)
            found = self.policy.act(obs, rng, True) if rng is None else sampled(self.policy, self.serving.spec, obs, rng)
            out += self.serving.decided(batch, found, self.serving.version)
        return told(out)


class Actor:
    """An :class:`Asking` on a server, by a connection that holds what it is told to."""

    def __init__(self, server, peer=b"a"):
        self.server, self.peer = server, peer
        self.asking = Asking(server.serving.spec, server.clock)
        assert m.Welcome in [type(message) for _, message, _ in server.join(peer)]

    def ask(self, obs, rng=None, within_s=SOON, before=None, spoil=None):
        """Ask; ``before`` happens while the answer is on its way, and ``spoil`` is done to it."""

        def wake():
            for parts in self.asking.outgoing(1 << 30):
                self.server.serving.receive(self.peer, parts, self.server.clock.now())
            if before is not None:
                before()
            self.server.clock.advance(GATHER_S / 100)
            for _, message, frames in self.server.decide():
                self.asking.received(message if spoil is None else spoil(message), frames)

        return self.asking.ask(obs, rng, within_s, wake)


def told(out):
    return [(peer, decode(parts[0]), list(parts[1:])) for peer, parts in out]


def reasons(answers):
    return [message.reason for _, message, _ in answers if hasattr(message, "reason")]


def request(server, peer, number=1, lanes=1, within_s=NEVER, rng=None, **changes):
    obs = observe(server.serving.spec, lanes, seed=number)
    head = m.Ask(number, lanes, within_s, b"" if rng is None else noise.pack(rng))
    frames = [obs[o.key].tobytes() for o in server.serving.spec.obs if o.role != "critic"]
    return server.say(peer, dataclasses.replace(head, **changes), *frames)


# --- decisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_answer_is_what_the_policy_would_have_done_and_draws_what_it_would_have_drawn(lanes):
    server = Server()
    actor, rng, own = Actor(server), np.random.default_rng(5), np.random.default_rng(5)
    for step in range(4):
        obs = observe(SPEC, lanes, seed=step)
        answer = actor.ask(obs, rng)
        assert answer.found.tobytes() == server.policy.act(obs, own, False).tobytes()
        assert answer.version == server.weights.version
        assert rng.bit_generator.state == own.bit_generator.state
    mode = actor.ask(obs)
    assert (mode.found == server.policy.act(obs, own, True)).all()
    assert actor.asking.counts == {"decided": 5}


def test_latents_come_with_the_actions_that_are_made_of_them():
    class Steered:
        def decide(self, obs, rng):
            latents = np.arange(3 * len(obs["state"]), dtype=np.float32).reshape(-1, 3)
            return Decided(latents[:, :2], latents)

        def act(self, obs, rng, deterministic):
            return np.zeros((len(obs["state"]), 2), np.float32)

    server = Server(dataclasses.replace(SPEC, latent=3))
    server.policy, found = Steered(), []
    actor = Actor(server)
    found.append(actor.ask(observe(SPEC, 2), np.random.default_rng(0)).found)
    assert isinstance(found[0], Decided)
    assert found[0].latents.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found[0].actions.tolist() == [[0, 1], [3, 4]]
    assert actor.ask(observe(SPEC, 2)).found.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_all_who_wait_are_decided_in_one_pass_and_each_draws_from_its_own_generator(kind):
    server = Server()
    server.policy = make_policy(server.weights, SPEC, ActorConfig(policy=kind))
    peers = [b"a", b"b", b"c"]
    for peer in peers:
        server.join(peer)
    rngs = [np.random.default_rng(seed) for seed in range(3)]
    for i, peer in enumerate(peers):
        request(server, peer, number=i + 1, lanes=i + 1, rng=rngs[i])
    answers = server.decide()
    assert server.batches == [peers]
    for i, (peer, head, frames) in enumerate(answers):
        assert (peer, head.number, head.reason) == (peers[i], i + 1, "")
        actions = np.frombuffer(frames[0], "<f4").reshape(i + 1, 2)
        assert np.isfinite(actions).all()
        if kind == "numpy":  # torch has one seed for all rows of a batch
            expected = server.policy.act(observe(SPEC, i + 1, seed=i + 1), rngs[i], False)
            np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=1e-6)
            assert head.noise == noise.pack(rngs[i])


def test_a_batch_waits_for_others_and_no_longer_than_it_gathers():
    server = Server(batch=2)
    for peer in (b"a", b"b", b"c"):
        server.join(peer)
    request(server, b"a")
    assert server.decide() == []
    assert server.serving.wait_s(server.clock.now()) == pytest.approx(GATHER_S)
    server.clock.advance(GATHER_S)
    assert [peer for peer, *_ in server.decide()] == [b"a"]
    request(server, b"a", number=2)
    request(server, b"b")
    assert [peer for peer, *_ in server.decide()] == [b"a", b"b"]  # as many as fit into a batch: at once
    for peer in (b"a", b"b", b"c"):
        request(server, peer, number=9)
    assert [peer for peer, *_ in server.decide()] == [b"a", b"b"]  # and no more than fit
    server.clock.advance(GATHER_S)
    assert [peer for peer, *_ in server.decide()] == [b"c"]
    request(server, b"a", number=3)
    request(server, b"b", number=2, rng=np.random.default_rng(0))
    request(server, b"c")
    assert [peer for peer, *_ in server.decide()] == [b"a", b"c"]  # modes and samples are not one pass
    assert server.serving.wait_s(server.clock.now()) > 0
    assert server.serving.wait_s(server.clock.now() + GATHER_S) == 0


# --- deadlines ------------------------------------------------------------------------------------------------------


def test_a_request_whose_time_has_passed_is_answered_late_and_never_computed():
    server = Server()
    server.join(b"a")
    request(server, b"a", within_s=0.05)
    server.clock.advance(0.05)
    assert server.serving.batch(server.clock.now()) == []
    assert reasons(server.decide()) == ["late"]
    assert server.batches == []
    request(server, b"a", number=2, within_s=-1.0)
    assert reasons(server.decide()) == ["late"]
    assert +server.serving.counts == {"asked": 2, "late": 2}


def test_an_answer_that_comes_late_is_not_used_and_draws_nothing():
    server = Server()
    actor, rng = Actor(server), np.random.default_rng(5)
    before = rng.bit_generator.state
    assert actor.ask(observe(SPEC, 1), rng, within_s=0.5, before=lambda: server.clock.advance(0.45)) is not None
    assert rng.bit_generator.state != before
    before = rng.bit_generator.state
    late = []

    def too_late(message):
        server.clock.advance(0.1)  # computed in time, and the way back takes too long
        late.append(message)
        return message

    assert actor.ask(observe(SPEC, 1), rng, within_s=0.05, spoil=too_late) is None
    assert [message.reason for message in late] == [""]
    assert rng.bit_generator.state == before
    assert actor.asking.counts["unanswered"] == 1
    assert actor.asking.heard_at == -np.inf  # so that no episode begins
    actor.asking.received(m.State(), [])
    assert actor.asking.heard_at == server.clock.now()


def test_what_answers_another_request_is_discarded():
    server = Server()
    actor, obs = Actor(server), observe(SPEC, 1)
    missed = []
    server.decide, decide = (lambda: missed.extend(decide()) or []), server.decide
    assert actor.ask(obs) is None
    server.decide = decide
    assert len(missed) == 1  # it comes when nobody waits, and then when the next request does
    actor.asking.received(*missed[0][1:])
    other = observe(SPEC, 1, seed=9)
    answer = actor.ask(other, before=lambda: actor.asking.received(*missed[0][1:]))
    assert (answer.found == server.policy.act(other, None, True)).all()
    assert actor.ask(obs, spoil=lambda message: dataclasses.replace(message, number=message.number + 1)) is None
    assert actor.asking.counts == {"unanswered": 2, "discarded": 3, "decided": 1}


def test_who_asks_again_has_given_up_what_it_asked_before():
    server = Server()
    server.join(b"a")
    request(server, b"a", number=1)
    request(server, b"a", number=2)
    assert [message.number for _, message, _ in server.decide()] == [2]
    assert +server.serving.counts == {"asked": 2, "given_up": 1, "decided": 1}


def test_no_weights_and_a_policy_that_raises_are_said_at_once():
    server = Server()
    actor = Actor(server)
    server.serving.version = Version("", 0, 0)
    assert reasons(request(server, b"a")) == ["no-weights"]
    server.serving.version = server.weights.version
    request(server, b"a", number=2)
    (_, head, frames), *_ = told(server.serving.failed(server.serving.batch(server.clock.now())))
    assert (head.number, head.reason, frames) == (2, "failed", [])
    assert actor.ask(observe(SPEC, 1), spoil=lambda message: dataclasses.replace(message, reason="failed")) is None
    assert actor.asking.counts == {"failed": 1}


# --- who may ask, and what ------------------------------------------------------------------------------------------


def test_sessions_are_those_of_any_process_that_is_dialled():
    server = Server()
    assert [type(message) for _, message, _ in server.join(b"a")] == [m.Welcome, m.State]
    assert reasons(server.join(b"b", identity="a")) == ["held"]
    assert reasons(server.join(b"c", role="evaluator")) == ["role"]
    assert reasons(server.join(b"c", spec=small_spec().to_dict())) == ["spec"]
    assert reasons(server.join(b"c", spec=None)) == ["spec"]
    assert reasons(server.join(b"c", identity="é" * 100)) == ["id"]
    assert reasons(request(server, b"c")) == ["hello-first"]
    for _ in range(3):  # heartbeats keep a lease, silence ends it
        server.clock.advance(2.0)
        server.say(b"a", m.Pulse())
        assert {type(message) for _, message, _ in told(server.serving.tick(server.clock.now()))} == {m.State, m.Received}
    server.clock.advance(5.0)
    server.serving.tick(server.clock.now())
    assert reasons(request(server, b"a")) == ["hello-first"]
    server.join(b"a")
    assert server.say(b"a", m.Goodbye(False)) == []
    assert reasons(request(server, b"a")) == ["hello-first"]
    server.serving.stop("it is enough")
    assert reasons(server.join(b"a")) == ["stopping"]
    assert server.serving.refused.by_reason == {"held": 1, "role": 1, "spec": 2, "id": 1, "stopping": 1}


BAD = {
    "no lanes": (lambda s: request(s, b"a", lanes=0), "arity"),
    "more lanes than a batch": (lambda s: request(s, b"a", lanes=65), "size"),
    "frames of another size": (lambda s: s.say(b"a", m.Ask(1, 2, 1.0), b"x", b"y"), "size"),
    "a frame too few": (lambda s: s.say(b"a", m.Ask(1, 1, 1.0), b"x"), "arity"),
    "noise of no generator": (lambda s: request(s, b"a", noise=b"\0" * 37), "malformed"),
    "noise that is short": (lambda s: request(s, b"a", noise=b"\1" * 36), "malformed"),
    "a buffer's business": (lambda s: s.say(b"a", m.WeightsGet(1, 1, 0, 10)), "direction"),
    "a learner's business": (lambda s: s.say(b"a", m.Publish(1, 1), b""), "direction"),
    "an answer": (lambda s: s.say(b"a", m.Decision(1)), "direction"),
    "no message": (lambda s: told(s.serving.receive(b"a", [b"\xc1"], 100.0)), "malformed"),
    "nothing": (lambda s: told(s.serving.receive(b"a", [], 100.0)), "arity"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_request_is_declined_counted_and_not_decided(what):
    server = Server()
    server.join(b"a")
    say, reason = BAD[what]
    assert reasons(say(server)) == [reason]
    assert server.serving.refused.by_peer == {"actor/a": {reason: 1}}
    request(server, b"a", number=7)
    assert [message.number for _, message, _ in server.decide()] == [7]


def test_long_requests_come_in_parts_and_their_bytes_are_given_back():
    server = Server()
    server.join(b"a")
    obs = observe(SPEC, 64)
    parts = [encode(m.Ask(1, 64, NEVER)), *(obs[o.key].tobytes() for o in SPEC.obs if o.role != "critic")]
    for part in split(parts, 500):
        assert server.serving.receive(b"a", part, 100.0) == []
    assert [message.number for _, message, _ in server.decide()] == [1]
    (given,) = [x for _, x, _ in told(server.serving.tick(101.0)) if isinstance(x, m.Received)]
    assert given.bytes > sum(len(part) for part in parts)
    bomb = encode(m.Fragment(0, 2, 1 << 30)), b"x" * 100
    assert reasons(told(server.serving.receive(b"a", list(bomb), 101.0))) == ["fragment"]


def test_a_key_opens_the_session_of_its_own_actor_until_it_is_revoked():
    server, halves = Server(), {name: new_pair()[0] for name in ("a", "policy-server", "learner")}
    roles = {"a": "actor"}
    known = [Key(name, roles.get(name, name), half) for name, half in halves.items()]
    server.serving.keyring = Keyring(b"here")
    server.serving.keyring.replace(known, [])
    for name, hello, reason in (
        ("a", {"identity": "b"}, "key-id"),
        ("learner", {}, "key-role"),
        ("policy-server", {}, "key-role"),
        ("a", {"role": "learner"}, "key-role"),
    ):
        assert reasons(server.say(b"x", server.hello(b"x", **hello), user=halves[name])) == [reason]
    assert reasons(server.say(b"a", server.hello(b"a"), user=halves["a"])) == []
    assert reasons(request_by(server, halves["learner"])) == ["hello-first"]
    assert reasons(request_by(server, halves["a"])) == []
    assert len(server.decide()) == 1
    server.serving.keyring.replace(known[1:], [])
    assert reasons(told(server.serving.rekeyed())) == ["key-revoked"]
    assert request_by(server, halves["a"]) == []
    assert server.serving.refused.by_peer["strangers"]["key-revoked"] == 1


def request_by(server, user):
    obs = observe(SPEC, 1)
    return server.say(b"a", m.Ask(1, 1, NEVER), *(obs[o.key].tobytes() for o in SPEC.obs if o.role != "critic"), user=user)


FORGED = {
    "actions of another shape": (lambda head: head, [b"\0" * 4], "size"),
    "no actions": (lambda head: head, [], "arity"),
    "noise of no generator": (lambda head: dataclasses.replace(head, noise=b"\0" * 37), None, "malformed"),
}


@pytest.mark.parametrize("what", FORGED)
def test_an_actor_takes_no_answer_that_is_none(what):
    server = Server()
    actor, rng = Actor(server), np.random.default_rng(1)
    spoil, frames, reason = FORGED[what]
    state, found = rng.bit_generator.state, []

    def wake():
        number = decode(next(iter(actor.asking.outgoing(1 << 30)))[0]).number
        try:
            actor.asking.received(spoil(m.Decision(number)), [b"\0" * 8] if frames is None else frames)
        except WireError as error:
            found.append(error.reason)

    assert actor.asking.ask(observe(SPEC, 1), rng, SOON, wake) is None
    assert found == [reason]
    assert rng.bit_generator.state == state


def test_a_buffer_takes_nothing_from_a_policy_server_but_what_is_for_it(buffer):
    buffer.actor()
    hello = m.Hello(1, m.POLICY_SERVER, "gpu", b"9", "host", 9)
    assert [type(message) for _, message, _ in buffer.say(b"P", hello)] == [m.Welcome, m.State]
    buffer.say(b"P", m.Pulse(0, 0, 1, 2, {"actors": 3}))
    (told_of,) = buffer.status()["policy_servers"]
    assert (told_of["id"], told_of["actors"]) == ("gpu", 3)
    (_, answer, _), *_ = buffer.say(b"P", m.State())
    assert (type(answer), answer.reason) == (m.Declined, "direction")
    assert buffer.service.refused.by_peer == {"policy-server/gpu": {"direction": 1}}
