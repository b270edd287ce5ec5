"""The feed: batches by socket and by mapping, rows that went before they were read, sessions that come and go; no sockets."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove

from headrace.buffer import SACReplayPool, SamplingConfig, SetConfig
from headrace.buffer.demand import Demand
from headrace.buffer.drawing import Again, Drawing
from headrace.buffer.view import PoolView
from headrace.common.boot import kernel
from headrace.common.errors import ConfigError, SpecError, WireError
from headrace.common.staging import batch_nbytes
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.batches import parse_rate
from headrace.common.wire.codec import decode
from headrace.learner.config import LearnerConfig
from headrace.learner.feed import Feed

SPEC = lane_spec(stack=2)
B = 8


class Buffer:
    """A pool that answers a feed in this thread."""

    def __init__(self, path, feed, capacity=32, sampling=None):
        self.path, self.feed, self.capacity, self.sampling = path, feed, capacity, sampling
        self.lane = Lane(SPEC, 1)
        self.asked: list[m.Message] = []
        self.open()

    def open(self, sampling=None):
        rng = np.random.default_rng(0)
        self.pool = SACReplayPool(self.capacity, path=self.path, spec=SPEC, sampling=sampling or self.sampling, rng=rng)
        self.drawing, self.demand = Drawing(self.pool, SPEC), Demand()

    def insert(self, rows):
        self.pool.insert(self.lane.block(rows), "a", 1, self.lane.seq - rows)

    def welcome(self, **changes):
        told = {"directory": str(self.path), "nonce": self.pool.nonce, "kernel": kernel(), **changes}
        self.demand = Demand()
        self.feed.welcomed(m.Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 28, SPEC.to_dict(), **told))

    def answer(self, most=256):
        """Take what the feed says, and answer it."""
        for parts in self.feed.outgoing(1 << 20):
            message = decode(parts[0])
            self.asked.append(message)
            if isinstance(message, m.Draw):
                self.demand.ask(message)
            elif isinstance(message, m.Rate):
                self.pool.update_priorities(*parse_rate(message, parts[1:]), message.pool_epoch)
            else:
                self.send(self.drawing.again(self.demand.again(b"", message))[0])
        work = self.demand.work(b"", most, self.pool.size, SPEC, offline=False)
        if work is not None:
            done, out, _ = self.drawing.draw(work)
            self.demand.done(work, done)
            self.send(out)

    def send(self, messages):
        for parts in messages:
            self.feed.received(decode(parts[0]), list(map(memoryview, parts[1:])))


@pytest.fixture
def make(tmp_path):
    made = []

    def build(reading="auto", prefetch=4, rows=32, batch_size=B, sampling=None):
        feed = Feed(batch_size, prefetch, statistics=False, reading=reading, open_view=PoolView)
        buffer = Buffer(tmp_path / "pool", feed, sampling=sampling)
        buffer.insert(rows)
        made.append(buffer)
        buffer.welcome()
        feed.start_drawing()
        return feed, buffer

    yield build
    for buffer in made:
        buffer.pool.close()


def take(feed, batch_size=B):
    """The next batch, which must prove itself and hold no row twice."""
    batches = feed.get(0)
    assert batches is not None
    (batch,) = batches
    assert len(set(batch.ids.tolist())) == len(batch) == batch_size
    prove(batch, SPEC)
    return batch


@pytest.mark.parametrize("reading", ["mapped", "socket"])
def test_an_update_takes_the_critics_batch_and_the_actors_own(make, reading):
    feed, buffer = make(reading)
    buffer.pool.close()
    sets = {
        "old": SetConfig(0.75, actor_share=0.25, actor=("a",)),
        "new": SetConfig(0.25, actor_share=0.75, newest_rows=16),
    }
    buffer.open(SamplingConfig(sets=sets))
    buffer.welcome(mixes=2)
    buffer.answer()
    feed.gather(0)
    for _ in range(3):
        seen, again, given = feed.peek(), feed.peek(), feed.get(0)
        assert all(a is b is c for a, b, c in zip(seen, again, given, strict=True))  # so that copies can be begun
        for batch, old in zip(given, (6, 2), strict=True):
            assert len(batch) == len(set(batch.ids.tolist())) == B
            assert np.bincount(batch.sets, minlength=2).tolist() == [old, B - old]
            assert (batch.ids[batch.sets == 1] >= buffer.pool.head - 16).all()
            prove(batch, SPEC)
    drawn = buffer.drawing.again(Again(b"", 1, 2 * B, gather=False))[0]
    assert decode(drawn[0][0]).rows == 2 * B


def asked(feed):
    """How many batches in all the feed asks for now, if it asks."""
    return [message.wanted for message in map(decode, (parts[0] for parts in feed.outgoing(1 << 20)))]


def test_more_is_asked_for_when_half_of_what_is_kept_ahead_is_used_up(make):
    feed, buffer = make("mapped", prefetch=6)
    buffer.answer()
    feed.gather(0)
    for taken, wanted in ((1, []), (2, []), (3, [9]), (4, []), (5, []), (6, [12])):
        take(feed)
        assert feed.must_draw is bool(wanted), taken
        assert asked(feed) == wanted, taken


def test_what_was_asked_for_and_not_granted_can_be_withdrawn(make):
    feed, buffer = make("mapped", prefetch=6)
    buffer.answer(most=2)
    feed.stop_drawing()
    buffer.answer()
    feed.gather(0)
    assert [len(take(feed)) for _ in range(2)] == [B, B]
    assert feed.get(0) is None
    assert not feed.must_draw
    assert [message.wanted for message in buffer.asked] == [6, 2]
    assert asked(feed) == []


def test_the_most_that_the_config_lets_a_learner_keep_ahead_is_what_a_buffer_takes(make):
    (most,) = (f.metadata["high"] for f in fields(LearnerConfig) if f.name == "prefetch_batches")
    feed, buffer = make("mapped", prefetch=most)
    buffer.answer()
    for _ in range(most):
        feed.gather(0)
        take(feed)
    with pytest.raises(WireError, match="malformed"):
        buffer.demand.ask(m.Draw(2 * most + 1, B, False, True))


def test_what_is_kept_ahead_is_bounded_in_bytes_but_for_two_batches(make, monkeypatch):
    feed, buffer = make("mapped", prefetch=6)
    one = batch_nbytes(SPEC, B)
    for limit, most in ((1, 2), (5 * one - 1, 4), (5 * one, 5), (7 * one, 6)):
        monkeypatch.setattr("headrace.learner.feed.AHEAD_BYTES", limit)
        buffer.welcome()
        assert asked(feed) == [most]
    monkeypatch.setattr("headrace.learner.feed.AHEAD_BYTES", 4 * one)
    buffer.welcome(mixes=2)
    assert asked(feed) == [2]


@pytest.mark.parametrize("reading", ["mapped", "socket"])
def test_batches_are_kept_ahead_and_prove_themselves(make, reading):
    feed, buffer = make(reading)
    kept = []
    for _ in range(5):
        buffer.answer()
        assert feed.gather(0) is False
        assert feed.pulse().report["batches_ahead"] == 4
        assert feed.pulse().report["reading"] == reading
        kept += [take(feed) for _ in range(4)]
        assert feed.get(0) is None
    assert buffer.pool.updates == 20
    for batch in kept:  # what is still held was not written over
        prove(batch, SPEC)
    assert {type(x) for x in buffer.asked} == {m.Draw}


def test_rows_that_went_before_the_gather_are_drawn_anew(make):
    feed, buffer = make("mapped")
    buffer.answer()
    buffer.insert(12)  # a third of what was drawn is gone
    assert feed.gather(0) is True
    assert feed.pulse().report["batches_redrawn"] == 4
    buffer.answer()
    redraws = [x for x in buffer.asked if isinstance(x, m.Redraw)]
    assert len(redraws) == 4
    assert all(0 < x.rows < B and not x.gather for x in redraws)
    while feed.gather(0):  # a row that the batch holds already may have come again
        buffer.answer()
    for _ in range(8):
        feed.gather(0)
        buffer.answer()
    batches = [take(feed) for _ in range(4)]
    assert all(batch.ids.min() >= buffer.pool.tail for batch in batches)


def test_after_three_redraws_the_buffer_gathers(make):
    feed, buffer = make("mapped", prefetch=1)
    buffer.answer()
    for _ in range(4):
        buffer.insert(32)  # all of it is gone again
        assert feed.gather(0) is True
        buffer.answer()
    assert [x.gather for x in buffer.asked if isinstance(x, m.Redraw)] == [False, False, False, True]
    take(feed)
    assert buffer.pool.updates == 1


def test_a_batch_with_weights_is_drawn_anew_as_a_whole(make):
    feed, buffer = make("mapped", prefetch=1)
    weights = np.arange(B, dtype="<f4")
    plain = buffer.pool.draw
    buffer.pool.draw = lambda n, mix, batches: type(plain(n))(plain(n).ids, weights[:n], np.zeros(n, "|u1"))
    buffer.answer()
    buffer.insert(12)
    assert feed.gather(0) is True
    buffer.answer()
    assert [x.rows for x in buffer.asked if isinstance(x, m.Redraw)] == [B]
    assert feed.gather(0) is False
    batch = take(feed)
    assert batch.weights.tolist() == weights.tolist()
    assert batch.sets.tolist() == [0] * B


def test_a_restarted_buffer_is_mapped_anew_and_what_was_granted_is_not_lost(make):
    feed, buffer = make("mapped")
    buffer.answer()
    buffer.pool.close()
    buffer.open()
    assert feed.gather(0) is True  # the files have another owner, who has not greeted us yet
    assert feed.pulse().report["reading"] == "socket"
    buffer.welcome()
    assert feed.pulse().report["reading"] == "mapped"
    buffer.answer()
    assert [x.rows for x in buffer.asked if isinstance(x, m.Redraw)] == [B] * 4
    for _ in range(4):
        feed.gather(0)
    for _ in range(4):
        take(feed)
    assert buffer.pool.updates == 4


def test_answers_that_a_lost_session_swallowed_are_asked_for_again(make):
    feed, buffer = make("mapped", prefetch=1)
    buffer.answer()
    buffer.insert(32)
    assert feed.gather(0) is True
    list(feed.outgoing(1 << 20))  # sent, but the buffer never saw it
    buffer.welcome()
    buffer.answer()
    assert feed.gather(0) is False
    take(feed)


@pytest.mark.parametrize("changes", [{"directory": ""}, {"directory": "/nowhere"}, {"kernel": "another"}, {"nonce": 1}])
def test_what_cannot_be_mapped_comes_by_socket_unless_mapping_is_forced(make, changes):
    feed, buffer = make("auto")
    buffer.welcome(**changes)
    assert feed.pulse().report["reading"] == "socket"
    buffer.answer()
    take(feed)
    forced = Feed(B, 4, statistics=False, reading="mapped", open_view=PoolView)
    buffer.feed = forced
    with pytest.raises(ConfigError, match="learner.reading: mapped, but"):
        buffer.welcome(**changes)


def test_a_batch_in_pieces_that_a_lost_session_cut_is_not_waited_for(make, monkeypatch):
    monkeypatch.setattr("headrace.common.wire.batches.PIECE_BYTES", 64)
    feed, buffer = make("socket", prefetch=2)
    sent = []
    buffer.send = sent.extend
    buffer.answer()
    assert len(sent) > 10
    Buffer.send(buffer, sent[:5])
    del buffer.send
    buffer.welcome()
    buffer.answer()
    take(feed)
    take(feed)
    assert feed.get(0) is None


def test_messages_that_were_not_asked_for_are_refused(make):
    feed, _ = make("mapped")
    for head, frames in (
        (m.DrawnHead(1, B, 1, ticket=9), [bytes(8 * B)]),
        (m.BatchHead(1, B, 1, ticket=9), []),
        (m.DrawnHead(1, B + 1, 1), [bytes(8 * B + 8)]),
        (m.DrawnHead(1, B, 0), [b""]),
        (m.DrawnHead(1, B, 1 << 30), [b""]),
        (m.BatchHead(1, B, 1 << 30), []),
        (m.BatchPiece(0, 0), [b"x"]),
    ):
        with pytest.raises(WireError):
            feed.received(head, frames)
    assert feed.get(0) is None
    assert feed.gather(0) is False


def test_a_failure_of_the_gathering_thread_ends_the_learner(make):
    feed, _ = make("mapped")
    feed.fail(MemoryError("no room"))
    with pytest.raises(MemoryError):
        feed.get(0)


def test_weights_that_a_dead_buffer_did_not_take_are_published_under_the_next_sessions_epoch(tmp_path):
    # otherwise the buffer refuses them as stale, and actors without weights wait for ever where the pool is not yet full
    feed = Feed(B, 2, statistics=False)
    feed.welcomed(m.Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 28, SPEC.to_dict()))
    feed.publish(WeightSet(Version("learner", 1, 0), {"type": "mlp"}, {"head.bias": np.zeros(2, "<f4")}))
    assert decode(next(iter(feed.outgoing(1 << 20)))[0]) == m.Publish(1, 0)
    feed.welcomed(m.Welcome(2, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 28, SPEC.to_dict()))
    head, blob = next(iter(feed.outgoing(1 << 20)))
    assert decode(head) == m.Publish(2, 0)
    assert WeightSet.unpack(blob).version == Version("learner", 2, 0)


@pytest.mark.parametrize("reading", ["mapped", "socket"])
def test_ratings_travel_with_the_epoch_of_their_batch(make, reading):
    feed, buffer = make(reading, sampling=SamplingConfig("prioritised", priority_exponent=1.0))
    buffer.answer()
    while feed.gather(0.0):
        buffer.answer()
    (batch,) = feed.get(1.0)
    assert (batch.epoch, batch.weights.tolist()) == (buffer.pool.epoch, [1.0] * B)
    errors = batch.ids.astype(np.float32)
    errors[0] = np.nan
    feed.rate(batch.epoch, batch.ids, errors)
    feed.rate(batch.epoch - 1, batch.ids, errors)
    feed.rate(batch.epoch - 1, batch.ids[:1], errors[:1])
    buffer.answer()
    assert [a.rows for a in buffer.asked if isinstance(a, m.Rate)] == [B - 1, B - 1]
    assert buffer.pool.counters()["stale_updates"] == B - 1
    column = buffer.pool._store.files.columns["priority"]
    known = batch.ids[1:]
    np.testing.assert_allclose(column[known % len(column)], known, rtol=1e-5, atol=1e-5)


def test_ratings_that_nobody_fetches_are_bounded(make):
    feed, buffer = make(sampling=SamplingConfig("prioritised"))
    for i in range(1000):
        feed.rate(1, np.full(1000, i % 32), np.ones(1000, np.float32))
    buffer.answer()
    sizes = [a.rows for a in buffer.asked if isinstance(a, m.Rate)]
    assert sum(sizes) == 64_000
    assert max(sizes) <= 1 << 14


@pytest.mark.parametrize("reason", ["policy", "learner"])
def test_a_learner_whose_weights_are_foreign_to_the_run_ends(make, reason):
    feed, _ = make("mapped")
    feed.publish(WeightSet(Version("l", 1, 3), {"type": "mlp"}, {"w": np.zeros(1, "<f4")}))
    list(feed.outgoing(1 << 20))
    feed.received(m.Published(1, 3, reason, "hidden is [32], here [16]"), [])
    for wait in (feed.wait_published, feed.get):
        with pytest.raises(SpecError, match=f"the run's weights are of another {reason}: hidden is .* own config and --id"):
            wait(0.0)


@pytest.mark.parametrize(("halved", "bytes_a_number"), [((), 4), (["w"], 2)])
def test_weights_travel_as_long_as_they_were_asked_to(make, halved, bytes_a_number):
    feed, _ = make("mapped")
    weights = WeightSet(Version("l", 1, 3), {"type": "mlp"}, {"w": np.linspace(-1, 1, 1000).astype("<f4")})
    feed.publish(weights, halved)
    blob = next(bytes(parts[1]) for parts in feed.outgoing(1 << 20) if len(parts) == 2)
    assert 1000 * bytes_a_number < len(blob) < 1000 * bytes_a_number + 200
    np.testing.assert_allclose(WeightSet.unpack(blob).tensors["w"], weights.tensors["w"], rtol=2**-8)


def test_a_publish_that_came_too_late_ends_nobody(make):
    feed, _ = make("mapped")
    feed.publish(WeightSet(Version("l", 1, 3), {"type": "mlp"}, {"w": np.zeros(1, "<f4")}))
    list(feed.outgoing(1 << 20))
    feed.received(m.Published(1, 3, "stale", ""), [])
    assert feed.wait_published(0.0)
    assert feed.refused_publishes == 1
