"""The buffer's service without sockets: sessions, inserts, draws, weights, pacing and the end of a run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headrace.buffer.backups import Backups, wait_for
from headrace.buffer.config import PoolConfig, SamplingConfig, SetConfig
from headrace.buffer.epochs import Epochs
from headrace.buffer.fleet import Fleet
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.service import Service
from headrace.buffer.shelf import Shelf
from headrace.buffer.status import Watch
from headrace.buffer.view import PoolView
from headrace.buffer.worker import PoolWorker
from headrace.common.block import Block
from headrace.common.process import kernel
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.staging import Staging
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.batches import Incoming, parse_drawn, rate_message
from headrace.common.wire.codec import block_parts, decode, encode
from headrace.common.wire.network import NetworkConfig

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
OTHER = TransitionSpec((ObsSpec("obs", (4,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
NETWORK = NetworkConfig(lease_s=5.0, heartbeat_s=0.5)


class Buffer:
    """A service with its pool worker, run in one thread; time stands still unless moved."""

    def __init__(self, directory, sampling=None, **pacing):
        self.now = 100.0
        config = PoolConfig(capacity=64, max_actors=2)
        rng = np.random.default_rng(0)

        def make(spec):
            return SACReplayPool(64, path=directory, spec=spec, config=config, sampling=sampling, rng=rng)

        pool = make(None) if (directory / "manifest.json").exists() else None
        self.worker = PoolWorker(pool, make, Shelf(directory))
        watch = Watch("run", self.now)
        for actor, streams in self.worker.streams().items():
            watch.record(actor).streams.update(streams)
        fleet = Fleet(Epochs(directory), lease_s=5.0, heartbeat_s=0.5, most=8)
        options = {"min_fill": 4, "env_steps": 1000, "random_steps": 0, "lead_steps": 16, **pacing}
        pacing_state = Pacing(PacingConfig(**options))
        self.service = Service(fleet, pacing_state, NETWORK, watch, self.worker.totals(), self.worker.shelf.read, most_actors=2)

    def say(self, peer, message, *frames):
        """Send one message; every answer to anybody, decoded, with its frames."""
        return self.raw(peer, [encode(message), *frames])

    def raw(self, peer, parts):
        out = self.service.receive(peer, parts, self.now)
        while work := self.service.take_work():
            out += self.service.finish(*self.worker.run(work), self.now)
        return [(to, decode(parts[0]), list(parts[1:])) for to, parts in out]

    def tick(self, seconds):
        self.now += seconds
        return [(to, decode(parts[0])) for to, parts in self.service.tick(self.now)]

    def status(self):
        return self.service.watch.status(self.service, self.now)

    def actor(self, peer=b"A", identity="a", incarnation=b"1", spec=SPEC):
        hello = m.Hello(1, "actor", identity, incarnation, "host", 7, spec.to_dict())
        answers = self.say(peer, hello)
        if kinds(answers) == [m.Refused] and answers[0][1].reason == "opening":
            answers = self.say(peer, hello)
        return answers

    def learner(self, peer=b"L", incarnation=b"2"):
        return self.say(peer, m.Hello(1, "learner", "l", incarnation, "host", 8))

    def block(self, peer, seq, *times, stream=1, value=1.0, **labels):
        made = block(times, value)
        for name, label in labels.items():
            made.rows[name] = label
        head = m.BlockHead(stream, seq, made.n_rows, made.n_frames)
        return self.raw(peer, block_parts(head, made, SPEC))


def block(times, value=1.0):
    rows = np.zeros(len(times), SPEC.row_dtype)
    rows["t"], rows["steps"], rows["rewards"] = times, 1, value
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(len(times)), np.arange(1, len(times) + 1)
    frames = np.zeros((len(times) + 1, 3), np.float32)
    frames[:, 2] = [*times, times[-1] + 1]
    return Block(rows, {"obs": frames})


def kinds(answers):
    return [type(a[1]) for a in answers]


def first(answers, kind):
    return next(a[1] for a in answers if isinstance(a[1], kind))


@pytest.fixture
def buffer(tmp_path):
    made = Buffer(tmp_path)
    yield made
    made.worker.close()


def test_the_first_actor_declares_the_spec_and_others_must_agree(buffer):
    assert first(buffer.learner(), m.Refused).reason == "no-spec"
    assert first(buffer.actor(), m.Welcome).epoch == 1
    refused = first(buffer.actor(b"B", "b", spec=OTHER), m.Refused)
    assert (refused.reason, refused.retry_s) == ("spec", 0.0)
    assert "spec.obs[0].shape[0]: 3 != 4" in refused.detail
    welcome = first(buffer.learner(), m.Welcome)
    assert TransitionSpec.from_dict(welcome.spec) == SPEC


def test_rows_are_acknowledged_after_commit_and_counted_once(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 1, 0, 1, 2), m.Ack) == m.Ack(1, 3)
    assert first(buffer.block(b"A", 1, 0, 1, 2), m.Ack) == m.Ack(1, 3)  # a lost ack: sent again
    assert first(buffer.block(b"A", 4, 3), m.Ack) == m.Ack(1, 4)
    assert buffer.service.totals.size == 4
    assert buffer.service.totals.counters["rows_duplicate"] == 3


def test_nothing_is_acknowledged_while_the_block_waits(buffer):
    buffer.actor()
    made = block((0,))
    parts = block_parts(m.BlockHead(1, 1, made.n_rows, made.n_frames), made, SPEC)
    waiting = buffer.service.receive(b"A", parts, buffer.now)
    assert m.Ack not in [type(decode(answer[0])) for _, answer in waiting]
    done = buffer.service.finish(*buffer.worker.run(buffer.service.take_work()), buffer.now)
    assert m.Ack(1, 1) in [decode(answer[0]) for _, answer in done]


def test_a_gap_is_taken_and_counted(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 11, 0), m.Ack) == m.Ack(1, 11)
    assert buffer.service.totals.counters["lost_before"] == 10


def test_a_poison_block_is_rejected_and_blocks_nothing(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 1, 0, 1, value=float("nan")), m.Reject) == m.Reject(
        1, 1, 2, "non-finite", "non-finite: rewards holds NaN or infinity"
    )
    assert first(buffer.block(b"A", 3, 2), m.Ack) == m.Ack(1, 3)
    assert buffer.service.totals.size == 1
    assert buffer.service.rejected == {"non-finite": 2}
    assert buffer.service.totals.counters["lost_before"] == 0


def test_of_a_long_block_only_the_poison_rows_are_rejected(buffer):
    buffer.actor()
    made = block(range(10))
    made.rows["rewards"][[3, 4]] = np.nan
    made.frames["obs"][9, 0] = np.inf  # the last frame but one: of row 8 as next_obs, and of row 9 as obs
    answers = buffer.raw(b"A", block_parts(m.BlockHead(1, 1, 10, 11), made, SPEC))
    rejects = [(a[1].first, a[1].last, a[1].reason) for a in answers if isinstance(a[1], m.Reject)]
    assert rejects == [(4, 5, "non-finite"), (9, 10, "non-finite")]
    assert first(answers, m.Ack) == m.Ack(1, 10)
    assert buffer.service.totals.counters["rows_accepted"] == 6
    assert buffer.service.totals.counters["rows_rejected"] == 4
    assert buffer.service.totals.counters["lost_before"] == 0
    assert first(buffer.block(b"A", 11, 10), m.Ack) == m.Ack(1, 11)


def test_only_an_actor_with_a_session_inserts(buffer):
    buffer.actor()
    buffer.learner()
    assert kinds(buffer.block(b"L", 1, 0)) == []
    assert first(buffer.block(b"X", 1, 0), m.Refused).reason == "hello-first"
    assert buffer.service.totals.size == 0


def test_garbage_is_counted_and_unanswered(buffer):
    buffer.actor()
    for parts in ([], [b""], [b"\xc1"], [encode(m.BlockHead(1, 1, 1, 1))], [encode(m.Welcome(1, 1.0, 1.0, 1, 1, 1))]):
        assert buffer.raw(b"A", parts) == []
    assert sum(buffer.service.refused.values()) >= 5
    assert first(buffer.block(b"A", 1, 0), m.Ack) == m.Ack(1, 1)


def test_a_defect_that_a_message_finds_stops_nobody(buffer, monkeypatch):
    buffer.actor()
    monkeypatch.setattr(buffer.service.watch, "pulse", lambda *_: 1 / 0)
    assert buffer.say(b"A", m.Pulse()) == []
    assert buffer.service.refused["defect"] == 1
    assert first(buffer.block(b"A", 1, 0), m.Ack) == m.Ack(1, 1)


def test_one_id_has_one_writer_and_the_zombie_is_fenced(buffer):
    buffer.actor(b"A", incarnation=b"1")
    assert first(buffer.actor(b"B", incarnation=b"9"), m.Refused).reason == "held"
    buffer.tick(5.1)
    assert first(buffer.actor(b"B", incarnation=b"9"), m.Welcome).epoch == 2
    assert first(buffer.block(b"A", 1, 0), m.Refused).reason == "hello-first"
    assert first(buffer.block(b"B", 1, 5, stream=1), m.Ack) == m.Ack(1, 1)  # it may go on with its predecessor's stream


def test_batches_follow_the_credit_and_carry_the_rows(buffer):
    buffer.actor()
    buffer.learner()
    assert kinds(buffer.say(b"L", m.Draw(10, 4))) == []
    answers = buffer.block(b"A", 1, *range(7))  # 7 steps, 4 fill: 3 updates
    ((head, frames),) = [(h, f) for _, h, f in answers if isinstance(h, m.BatchHead)]
    assert (head.number, head.batches) == (3, 3)
    batch = Incoming(head, frames, Staging(SPEC, 12).take(), SPEC).batch
    assert [len(set(batch.ids[low : low + 4].tolist())) for low in (0, 4, 8)] == [4, 4, 4]
    assert np.array_equal(batch.obs["obs"][:, 2], batch.rows["t"])
    assert np.array_equal(batch.next_obs["obs"][:, 2], batch.rows["t"] + 1)
    assert kinds(buffer.say(b"L", m.Draw(10, 4))) == []


def test_who_has_mapped_the_pool_gets_ids_and_may_ask_for_others(buffer, tmp_path):
    buffer.actor()
    assert first(buffer.actor(b"B", "b"), m.Welcome).directory == ""
    welcome = first(buffer.learner(), m.Welcome)
    assert (welcome.directory, welcome.kernel) == (str(tmp_path), kernel())
    view = PoolView(tmp_path, welcome.nonce)
    buffer.say(b"L", m.Draw(10, 4, mapped=True))
    answers = buffer.block(b"A", 1, *range(9))  # 9 steps, 4 fill: 5 updates
    ((head, frames),) = [(h, f) for _, h, f in answers if isinstance(h, m.DrawnHead)]
    assert (head.number, head.batches, head.rows, head.nonce) == (5, 5, 4, welcome.nonce)
    ids, weights, sets = parse_drawn(head, frames)
    batch, bad = view.gather(ids)
    assert not bad.any()
    assert (weights, sets) == (None, None)
    assert np.array_equal(batch.obs["obs"][:, 2], batch.rows["t"])
    ((_, other, frames),) = buffer.say(b"L", m.Redraw(7, 2))
    assert (type(other), other.ticket, other.rows) == (m.DrawnHead, 7, 2)
    assert len(parse_drawn(other, frames)[0]) == 2
    ((_, whole, frames),) = buffer.say(b"L", m.Redraw(8, 4, gather=True))
    assert (type(whole), whole.ticket, whole.rows, len(frames)) == (m.BatchHead, 8, 4, 4)
    assert buffer.service.totals.updates == 5  # other rows are no grant


def test_a_set_is_waited_for_with_its_name_and_nobody_is_held(tmp_path):
    sets = {"demo": SetConfig(0.5, source=("demo",), when_small="replace", min_fill=2), "online": SetConfig(0.5)}
    buffer = Buffer(tmp_path, SamplingConfig(sets=sets))
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(10, 4))
    sent = 0
    while sent < 60:  # far more than min_fill and lead_steps: the actor may go on
        granted = max(s.granted for to, s in buffer.tick(1.0) if to == b"A" and isinstance(s, m.State))
        assert granted > sent
        assert m.BatchHead not in kinds(buffer.block(b"A", sent + 1, *range(sent, granted)))
        sent = granted
    assert buffer.service.phase == "filling"
    why = "set 'demo' holds 0 rows of the 2 that it must hold before the first batch"
    assert why in buffer.status()["waiting"]
    answers = buffer.block(b"A", sent + 1, 90, 91, source=2)
    heads = [h for _, h, _ in answers if isinstance(h, m.BatchHead)]
    assert sum(h.batches for h in heads) == 10
    status = buffer.status()
    assert why not in status["waiting"]
    assert status["phase"] == "training"
    assert status["sampling"]["sets"] == {"demo": 2, "online": 64}
    assert status["sampling"]["mixes"]["critic"]["demo"]["realised"] == 0.5
    assert buffer.service.watch.summary(buffer.service, buffer.now)["critic_share/demo"] == 0.5
    buffer.worker.close()


def test_sets_that_overlap_too_much_are_tried_again_each_tick_and_no_more(tmp_path):
    buffer = Buffer(tmp_path, SamplingConfig(sets={"all": SetConfig(0.5), "same": SetConfig(0.5)}))
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(2, 12))
    buffer.block(b"A", 1, *range(8))  # 16 rows by their sizes, 8 in truth
    assert not buffer.service.pacing.drawable
    assert buffer.service.take_work() == []
    assert m.BatchHead not in kinds(buffer.block(b"A", 9, *range(8, 12)))
    buffer.tick(0.05)
    assert m.BatchHead in kinds(buffer.say(b"L", m.Draw(2, 12)))
    assert buffer.service.pacing.drawable
    buffer.worker.close()


def test_a_learner_is_told_how_many_batches_an_update_takes(tmp_path):
    sets = {"a": SetConfig(0.5, actor_share=0.25), "b": SetConfig(0.5, actor_share=0.75)}
    buffer = Buffer(tmp_path, SamplingConfig(sets=sets))
    buffer.actor()
    assert first(buffer.learner(), m.Welcome).mixes == 2
    buffer.say(b"L", m.Draw(3, 4))
    answers = buffer.block(b"A", 1, *range(8))
    head = first(answers, m.BatchHead)
    assert (head.rows, head.batches, head.sets) == (8, 3, True)
    assert buffer.service.totals.updates == 3
    buffer.worker.close()


def test_a_redraw_that_the_pool_cannot_serve_yet_is_served_later(buffer):
    buffer.actor()
    buffer.learner()
    buffer.block(b"A", 1, 0, 1)
    assert kinds(buffer.say(b"L", m.Redraw(1, 3))) == []
    assert m.DrawnHead not in kinds(buffer.block(b"A", 3, 2))
    buffer.tick(0.1)
    answers = buffer.block(b"A", 4, 3)
    assert first(answers, m.DrawnHead).ticket == 1


@pytest.fixture
def prioritised(tmp_path):
    buffer = Buffer(tmp_path, sampling=SamplingConfig("prioritised", priority_exponent=1.0, priority_eps=1e-12))
    buffer.actor()
    buffer.learner()
    buffer.block(b"A", 1, *range(6))
    yield buffer
    buffer.worker.close()


def rate(buffer, ids, errors, epoch=None, peer=b"L"):
    epoch = buffer.worker._pool.epoch if epoch is None else epoch
    return buffer.raw(peer, rate_message(epoch, np.array(ids, "<i8"), np.array(errors, "<f4")))


def drawn(answers):
    ((head, frames),) = [(h, f) for _, h, f in answers if isinstance(h, (m.DrawnHead, m.BatchHead))]
    return head, frames


@pytest.mark.parametrize("mapped", [True, False])
def test_batches_by_priority_carry_weights_and_the_epoch_of_their_ids(prioritised, mapped):
    head, frames = drawn(prioritised.say(b"L", m.Draw(2, 4, mapped=mapped)))
    assert (type(head), head.weights, head.pool_epoch) == (m.DrawnHead if mapped else m.BatchHead, True, 1)
    if mapped:
        ids, weights, _ = parse_drawn(head, frames)
    else:
        batch = Incoming(head, frames, Staging(SPEC, 8).take(), SPEC).batch
        ids, weights = batch.ids, batch.weights
        assert batch.epoch == 1
    assert weights.tolist() == [1.0] * 8
    rate(prioritised, ids, np.full(8, 0.5))
    assert prioritised.service.totals.sampling["priority_mean"] < 1.0


def test_ratings_change_what_is_drawn_and_stale_ones_are_counted(prioritised):
    rate(prioritised, [0, 1, 2, 3, 4, 5], [0, 0, 0, 9, 0, 0])
    head, frames = drawn(prioritised.say(b"L", m.Draw(2, 4, mapped=True)))
    assert set(parse_drawn(head, frames)[0].tolist()) == {3}
    rate(prioritised, [3, 3], [1, 2], epoch=7)
    rate(prioritised, [-5, 3], [1, 2])
    prioritised.tick(0.1)
    status = json.loads(prioritised.service.watch.status_json(prioritised.service, prioritised.now))
    assert status["counters"]["stale_updates"] == 3
    assert status["sampling"]["method"] == "prioritised"
    assert status["sampling"]["priority_mean"] == pytest.approx(2 / 6)
    assert status["sampling"]["priority_max"] == pytest.approx(9)


def test_ratings_that_are_none_are_refused_by_reason(prioritised):
    before = prioritised.worker._pool.sampling_info()
    for errors in ([np.nan, 1], [-1, 1], [np.inf, 1]):
        rate(prioritised, [0, 1], errors)
    rate(prioritised, [0, 6], [1, 1])
    whole = rate_message(1, np.zeros(2, "<i8"), np.zeros(2, "<f4"))
    for parts in (whole[:2], [*whole, b""], [whole[0], whole[1][:-1], whole[2]], [whole[0], whole[1], whole[1]]):
        prioritised.raw(b"L", parts)
    prioritised.raw(b"A", whole)
    refused = prioritised.service.refused
    expected = {"priority-value": 3, "priority-id": 1, "arity": 2, "size": 2, "direction": 1}
    assert {reason: refused[reason] for reason in expected} == expected
    assert prioritised.worker._pool.sampling_info() == before


def test_nobody_rates_rows_of_a_pool_without_priorities(buffer):
    buffer.actor()
    buffer.learner()
    buffer.block(b"A", 1, 0, 1)
    rate(buffer, [0], [1.0])
    assert buffer.service.refused["priority-unwanted"] == 1


def test_demands_without_bounds_are_refused(buffer):
    buffer.actor()
    buffer.learner()
    for message in (m.Draw(257, 4), m.Draw(1, 0), m.Draw(1, 1 << 21), m.Redraw(1, 0), m.Redraw(1, 1 << 21)):
        assert kinds(buffer.say(b"L", message)) == []
    assert buffer.service.refused["malformed"] == 5
    assert kinds(buffer.say(b"A", m.Redraw(1, 1))) == []
    assert buffer.service.refused["direction"] == 1


def test_updates_lost_with_a_learner_are_not_refunded(tmp_path):
    buffer = Buffer(tmp_path)
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(3, 4))
    buffer.block(b"A", 1, *range(9))
    assert buffer.service.totals.updates == 3
    buffer.worker.close()
    again = Buffer(tmp_path)  # the buffer was killed too
    again.learner()
    answers = again.say(b"L", m.Draw(50, 4))
    assert [(h.number, h.batches) for _, h, _ in answers if isinstance(h, m.BatchHead)] == [(5, 2)]
    again.worker.close()


def test_a_restarted_buffer_tells_each_actor_where_it_stands(tmp_path):
    buffer = Buffer(tmp_path)
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    buffer.worker.close()
    again = Buffer(tmp_path)
    assert first(again.actor(), m.Welcome).streams == ((1, 2),)
    assert first(again.block(b"A", 1, 0, 1), m.Ack) == m.Ack(1, 2)
    assert again.service.totals.size == 2
    again.worker.close()


def restarted_near_the_goal(directory):
    """A buffer that knows two actors, 16 env steps before the end, with a lead of 16."""
    options = {"env_steps": 20, "hold_actors": False, "lead_steps": 16}
    buffer = Buffer(directory, **options)
    buffer.actor()
    buffer.actor(b"B", "b", b"3")
    buffer.block(b"A", 1, 0, 1)
    buffer.block(b"B", 1, 0, 1)
    buffer.worker.close()
    return Buffer(directory, **options)


def test_a_restarted_buffer_keeps_steps_for_actors_that_have_not_come_back(tmp_path):
    again = restarted_near_the_goal(tmp_path)
    hello = m.Hello(1, "actor", "a", b"1", "host", 7, SPEC.to_dict(), executed=2)
    again.say(b"A", hello)
    granted = {to: state.granted for to, state in again.tick(0.6) if isinstance(state, m.State)}
    assert granted == {b"A": 2}  # 16 steps are left, and b may have as many under way
    hello = m.Hello(1, "actor", "b", b"3", "host", 7, SPEC.to_dict(), executed=9, pending=7)
    again.say(b"B", hello)
    granted = {to: state.granted for to, state in again.tick(0.6) if isinstance(state, m.State)}
    assert granted[b"A"] - 2 + granted[b"B"] - 2 == 16
    again.worker.close()


def test_an_actor_that_stays_away_is_waited_for_one_lease(tmp_path):
    again = restarted_near_the_goal(tmp_path)
    again.say(b"A", m.Hello(1, "actor", "a", b"1", "host", 7, SPEC.to_dict(), executed=2))
    again.tick(0.6)
    again.say(b"A", m.Pulse(2, 2))
    again.tick(4.0)
    again.say(b"A", m.Pulse(2, 2))
    granted = {to: state.granted for to, state in again.tick(1.5) if isinstance(state, m.State)}
    assert granted[b"A"] == 2 + 16
    again.worker.close()


def publish(buffer, peer, epoch, step):
    weights = WeightSet(Version("l", epoch, step), {"type": "mlp"}, {"w": np.full(3, step, np.float32)})
    return buffer.say(peer, m.Publish(epoch, step), weights.pack())


def test_weights_go_to_the_shelf_and_every_actor_hears_of_them(buffer):
    buffer.actor()
    buffer.learner()
    answers = publish(buffer, b"L", 1, 7)
    assert first(answers, m.Published) == m.Published(1, 7)
    assert {(to, s.step) for to, s, _ in answers if isinstance(s, m.State)} == {(b"A", 7)}
    _, part, frames = buffer.say(b"A", m.WeightsGet(1, 7, 0, 1 << 20))[0]
    assert WeightSet.unpack(bytes(frames[0])).tensors["w"].tolist() == [7, 7, 7]
    assert part.total == len(frames[0])
    late = buffer.actor(b"B", "b")
    assert first(late, m.State).step == 7


def test_a_fenced_learner_publishes_nothing(buffer):
    buffer.actor()
    buffer.learner(b"L", b"2")
    publish(buffer, b"L", 1, 7)
    for _ in range(6):
        buffer.tick(1.0)
        buffer.say(b"A", m.Pulse())
    assert first(buffer.learner(b"M", b"3"), m.Welcome).epoch == 2
    assert first(publish(buffer, b"L", 1, 8), m.Refused).reason == "hello-first"
    assert first(publish(buffer, b"M", 1, 9), m.Published).reason == "stale"
    assert first(publish(buffer, b"M", 2, 1), m.Published) == m.Published(2, 1)
    assert buffer.service.totals.version == Version("l", 2, 1)


def test_an_actor_may_not_publish(buffer):
    buffer.actor()
    assert kinds(publish(buffer, b"A", 1, 1)) == []
    assert buffer.service.refused["direction"] == 1


def test_the_run_ends_when_steps_and_updates_are_reached(tmp_path):
    buffer = Buffer(tmp_path, env_steps=10, min_fill=4, lead_steps=64)
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(100, 4))
    buffer.block(b"A", 1, *range(10))
    assert buffer.service.totals.updates == 6
    assert buffer.service.phase == "finishing"
    assert (b"L", m.Stop(True, "the run has reached its env steps and updates")) in buffer.tick(0.6)
    buffer.say(b"L", m.Goodbye(True))
    assert buffer.service.phase == "done"
    buffer.worker.close()


def test_more_actors_than_declared_are_refused_by_name(buffer):
    for i in range(2):
        buffer.actor(bytes([i]), f"a{i}")
    refused = first(buffer.actor(b"C", "a2"), m.Refused)
    assert (refused.reason, refused.retry_s) == ("actor-limit", 0.0)
    assert "pool.max_actors 2" in refused.detail
    assert first(buffer.actor(bytes([0]), "a0"), m.Welcome).epoch == 1


def test_a_silent_client_loses_its_session(buffer):
    buffer.actor()
    buffer.tick(5.1)
    assert buffer.service.fleet.sessions() == []
    assert first(buffer.block(b"A", 1, 0), m.Refused).reason == "hello-first"


def test_byte_credit_is_given_back_only_for_what_no_longer_waits(buffer):
    buffer.actor()
    made = block(range(40))
    size, out = 0, []
    for i in range(400):
        head = m.BlockHead(1, 1 + 40 * i, 40, 41)
        size += len(encode(head)) + made.nbytes
        out += buffer.service.receive(b"A", block_parts(head, made, SPEC), buffer.now)
    assert size >= NETWORK.credit_bytes // 8
    assert sum(decode(parts[0]).bytes for _, parts in out if isinstance(decode(parts[0]), m.Received)) < size // 10
    out = buffer.service.finish(*buffer.worker.run(buffer.service.take_work()), buffer.now)
    out += buffer.service.tick(buffer.now + 1.0)
    received = [decode(parts[0]).bytes for _, parts in out if isinstance(decode(parts[0]), m.Received)]
    assert received == sorted(received)
    assert received[-1] == size


def test_a_snapshot_is_made_for_an_observer_that_asks(buffer, tmp_path):
    buffer.say(b"O", m.Hello(1, "observer", "o", b"3", "host", 9))
    buffer.say(b"O", m.Query("snapshot"))
    assert buffer.service.refused["query"] == 1  # no place for one
    backups = buffer.service.backups = Backups(tmp_path / "snapshots", 0.0, 2, buffer.now)
    assert json.loads(buffer.say(b"O", m.Query("snapshot"))[-1][2][0]) == {"number": 1}
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    backups.tick(buffer.worker.pool, buffer.now)
    wait_for(backups.report, 1, 20.0, lambda done, total: None)
    assert SACReplayPool.from_path(tmp_path / "snapshots").size == 2
    assert json.loads(buffer.say(b"O", m.Query("status"))[-1][2][0])["snapshots"]["written"] == 1


def test_status_is_one_json_object_that_says_what_is_missing(buffer):
    hello = m.Hello(1, "observer", "o", b"3", "host", 9)
    buffer.say(b"O", hello)
    status = json.loads(buffer.say(b"O", m.Query("status"))[-1][2][0])
    assert status["phase"] == "waiting"
    assert "no learner is connected" in status["waiting"]
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    status = json.loads(buffer.say(b"O", m.Query("status"))[-1][2][0])
    assert status["env_steps"] == 2
    assert status["actors"][0]["acked"] == {"1": 2}
    assert status["pool"]["rows"] == 2


def answers(out):
    return [message for _, message, _ in out if isinstance(message, m.Labelled)]


def test_an_actor_labels_its_own_rows_and_is_answered(buffer):
    buffer.actor()
    buffer.actor(b"B", "b", b"2")
    buffer.block(b"A", 1, 0, 1, 2)
    buffer.block(b"B", 1, 0, 1, 2)
    assert answers(buffer.say(b"A", m.LabelHead(1, 1, 1, 1, 2, 1))) == [m.Labelled(1, 2)]
    rewards = np.array([5, 6], "<f4").tobytes()
    assert answers(buffer.say(b"A", m.LabelHead(2, 2, 1, 2, 3), rewards)) == [m.Labelled(2, 2)]
    assert answers(buffer.say(b"B", m.LabelHead(1, 3, 1, 3, 3))) == [m.Labelled(1, 1)]
    assert answers(buffer.say(b"B", m.LabelHead(1, 3, 1, 3, 3))) == [m.Labelled(1, 0)]  # sent again
    pool = buffer.worker.pool
    rows = pool.gather(np.arange(6)).rows
    assert rows["outcome"].tolist() == [1, 1, 0, 0, 0, 0]
    assert rows["rewards"][:, 0].tolist() == [1, 5, 6, 1, 1, 1]
    assert [row["discarded"] for row in pool.dump()] == [False] * 5 + [True]
    assert buffer.service.totals.size == 5
    assert buffer.service.totals.env_steps == 6
    assert buffer.service.totals.counters["rows_discarded"] == 1


def test_only_rows_of_the_named_episode_are_labelled(buffer):
    buffer.actor()
    made = block((0, 1, 2, 3))
    made.rows["episode"] = (7, 8, 7, 8)
    buffer.raw(b"A", block_parts(m.BlockHead(1, 1, 4, made.n_frames), made, SPEC))
    assert answers(buffer.say(b"A", m.LabelHead(1, 1, 1, 1, 4, 2, 8))) == [m.Labelled(1, 2)]
    assert [row["outcome"] for row in buffer.worker.pool.dump()] == [0, 2, 0, 2]


def test_labels_that_cannot_be_true_are_refused_and_counted(buffer):
    buffer.actor()
    buffer.block(b"A", 1, 0, 1, 2)
    infinite = np.array([np.inf], "<f4").tobytes()
    for reason, head, frames in [
        ("ahead", m.LabelHead(4, 1, 1, 1, 4, 1), ()),
        ("stream", m.LabelHead(4, 1, 9, 1, 4, 1), ()),
        ("stream", m.LabelHead(4, 1, (1 << 64) - 1, 1, 4, 1), ()),
        ("sequence", m.LabelHead(4, 3, 1, 0, 2), ()),
        ("sequence", m.LabelHead(4, 3, 1, 1, (1 << 64) - 1), ()),
        ("non-finite", m.LabelHead(4, 2, 1, 1, 1), (infinite,)),
    ]:
        (answer,) = answers(buffer.say(b"A", head, *frames))
        assert (answer.number, answer.reason) == (4, reason)
    assert buffer.service.refused["label-stream"] == 2
    assert [row["outcome"] for row in buffer.worker.pool.dump()] == [0, 0, 0]


def test_labels_that_are_no_labels_are_counted_and_unanswered(buffer):
    buffer.actor()
    buffer.block(b"A", 1, 0, 1, 2)
    buffer.learner()
    for reason, peer, head, frames in [
        ("malformed", b"A", m.LabelHead(1, 0, 1, 1, 2), ()),
        ("arity", b"A", m.LabelHead(1, 2, 1, 1, 2), ()),
        ("arity", b"A", m.LabelHead(1, 1, 1, 1, 2), (b"1234",)),
        ("size", b"A", m.LabelHead(1, 2, 1, 1, 1 << 40), (b"1234",)),
        ("direction", b"L", m.LabelHead(1, 1, 1, 1, 2), ()),
    ]:
        before = buffer.service.refused[reason]
        assert buffer.say(peer, head, *frames) == []
        assert buffer.service.refused[reason] == before + 1
