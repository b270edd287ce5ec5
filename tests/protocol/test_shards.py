"""Several buffers in one run, without sockets: the home shard's pacing, loans to further shards, losses and returns."""

from __future__ import annotations

from math import floor

import pytest
from helpers.sharded import Actor, committed, move, sharded
from helpers.simulated import Learner

from headrace.buffer.lent import LentPacing, Loan
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.buffer.satellites import Satellites
from headrace.launch.config import make_config
from headrace.launch.placing import own_shard, shard_of
from headrace.learner.updates import Updates

ROUNDS = 3000
BASE = {
    "env": {"id": "none", "lanes": 1},
    "pool": {"capacity": 1000},
    "learner": {"batch_size": 8},
    "pacing": {"min_fill": 20, "env_steps": 300, "random_steps": 50, "lead_steps": 16},
}


def config_of(**changes):
    return make_config({key: {**value, **changes.get(key, {})} for key, value in BASE.items()})


class Granted(Learner):
    """A learner that makes each update that it is granted, on no rows."""

    def __post_init__(self):
        super().__post_init__()
        self.role = Updates(self.config.learner.batch_size, 4)
        self.role.start_drawing()

    def act(self):
        while self.role.granted:
            self.role.use()
            self.made += 1


def begin(directory, config, actors=(1, 1), speeds=(8.0, 8.0)):
    """A run with so many actors at each shard, and a learner."""
    home, others = sharded(config, directory, len(actors) - 1)
    number = 0
    for shard, (count, speed) in enumerate(zip(actors, speeds, strict=True)):
        for _ in range(count):
            (home, *others)[shard].add(Actor(f"actor-{number}", number, config, speed))
            number += 1
    learner = home.add(Granted(config))
    return home, others, learner


def drive(home, others, until, rounds=ROUNDS):
    for _ in range(rounds):
        if until():
            return
        move(home, others)
    pytest.fail(f"{home.service.phase}: {home.service.watch.status(home.service, home.now)}")


def check_end(home, others, learner, lanes=1, actors=2, late=0):
    goal, config = home.config.pacing.env_steps, home.config.pacing
    assert home.pacing.env_steps == sum(committed(home, *others))
    assert goal <= home.pacing.env_steps <= goal + actors * (lanes - 1) + late
    assert learner.made == home.pacing.updates == floor(config.ratio * (home.pacing.env_steps - config.min_fill))
    for run in (home, *others):
        assert run.service.refused.by_reason == {}
        assert run.service.phase == "done"
        run.worker.close()


@pytest.mark.parametrize(
    ("actors", "lanes", "lead", "ratio", "speed"),
    [
        ((1, 1, 1), 1, 16, 1.0, 8.0),
        ((0, 2, 0), 1, 16, 1.0, 8.0),  # none at home
        ((0, 0, 1), 3, 1, 1.0, 8.0),
        ((2, 0, 0), 2, 7, 2.0, 8.0),
        ((1, 2, 1), 3, 1, 0.3, 0.5),
        ((2, 1, 2), 2, 64, 0.3, 3.0),
    ],
)
def test_a_run_of_three_shards_reaches_its_goal_as_one_of_one_buffer_does(tmp_path, actors, lanes, lead, ratio, speed):
    config = config_of(env={"lanes": lanes}, pacing={"lead_steps": lead, "ratio": ratio})
    home, others, learner = begin(tmp_path, config, actors, (8.0, speed, 8.0))
    drive(home, others, lambda: all(run.service.phase == "done" for run in (home, *others)))
    check_end(home, others, learner, lanes, sum(actors))


def test_each_shard_is_let_as_far_ahead_as_its_actors_are_many(tmp_path):
    config = config_of(pacing={"lead_steps": 60, "min_fill": 100, "ratio": 1})
    home, others, learner = begin(tmp_path, config, (1, 2))
    learner.role.stop_drawing()  # nobody goes beyond the minimum fill and the lead
    for _ in range(200):
        move(home, others)
    mine, theirs = committed(home, *others)
    assert mine + theirs == pytest.approx(160, abs=4)  # a lane holds its newest row back
    assert others[0].pacing.loan.limit - theirs <= 60
    told = home.service.watch.summary(home.service, home.now)  # the run's one metrics hold the actors of all shards
    assert (told["actors_connected"], list(told["actors"])) == (3, ["actor-0", "actor-1", "actor-2"])
    assert told["pool_rows"] == mine + theirs


def test_what_a_shard_cannot_use_goes_to_the_others(tmp_path):
    config = config_of(pacing={"env_steps": 0, "lead_steps": 40})
    home, others, _ = begin(tmp_path, config, (1, 1))
    drive(home, others, lambda: home.pacing.env_steps > 60)
    other = others[0]
    other.clients[b"actor-1"].heard = False  # as if it was killed, with steps that it was granted
    drive(home, others, lambda: not other.service.fleet.sessions("actor"))
    drive(home, others, lambda: other.role._returned > 0)
    before = committed(home)[0]
    drive(home, others, lambda: committed(home)[0] > before + 200)
    assert home.pacing._accounts["\0shard-1"].outstanding == 0


def test_a_lost_shard_leaves_the_run_going_and_its_rows_count_when_it_is_back(tmp_path):
    config = config_of(pacing={"env_steps": 600})
    home, others, learner = begin(tmp_path, config)
    other = others[0]
    drive(home, others, lambda: home.pacing.env_steps > 150)
    said, other.heard = home.service.satellites.env_steps, False
    drive(home, others, lambda: "shard/shard-1 has not come back: silent" in warnings_of(home))
    had = home.pacing.env_steps
    assert home.service.satellites.env_steps >= said > 0
    assert had <= sum(committed(home, other))  # what it said last is kept
    drive(home, others, lambda: home.pacing.env_steps > had + 100)
    assert committed(other)[0] <= other.pacing.loan.limit  # nobody goes beyond a loan
    other.heard = True
    drive(home, others, lambda: "shard-1" in [s["id"] for s in status_of(home)["shards"]])
    drive(home, others, lambda: all(run.service.phase == "done" for run in (home, other)))
    check_end(home, others, learner)


def status_of(run):
    return run.service.watch.status(run.service, run.now)


def warnings_of(run):
    return status_of(run)["warnings"]


def test_a_home_shard_that_was_started_again_knows_what_all_have_done(tmp_path):
    config = config_of(pacing={"env_steps": 0})
    home, others, _ = begin(tmp_path, config)
    drive(home, others, lambda: home.pacing.env_steps > 100 and committed(*others)[0] > 20)
    drive(home, others, lambda: home.service.satellites._changed is False)  # a second at most
    steps = others[0].worker.pool.env_steps
    again = Satellites(Pacing(PacingConfig()), tmp_path / "home")
    assert again.env_steps == steps
    assert again.names == ["\0shard-1"]


def test_a_pause_at_any_shard_is_one_of_the_run_and_robots_there_hold(tmp_path):
    config = config_of(pacing={"env_steps": 0})
    home, others, _ = begin(tmp_path, config)
    other = others[0]
    drive(home, others, lambda: home.pacing.env_steps > 60)
    other.service.live.pause("actor/actor-1")
    drive(home, others, lambda: home.service.phase == "paused")
    assert home.service.live.paused_by == ["shard/shard-1"]
    robot = other.clients[b"actor-1"].role
    drive(home, others, lambda: robot.paused)
    other.service.live.resume("actor/actor-1")
    drive(home, others, lambda: home.service.phase == "training" and not robot.paused)
    home.service.live.pause("the operator")
    drive(home, others, lambda: robot.paused)
    before = sum(committed(home, other))
    for _ in range(100):
        move(home, others)
    assert sum(committed(home, other)) - before <= 2 * config.pacing.lead_steps
    home.service.live.resume()
    drive(home, others, lambda: sum(committed(home, other)) > before + 100)


def test_a_loan_is_shared_out_only_while_the_run_goes_on_and_everybody_is_known():
    for phase, absent, granted in (("training", False, 40), ("paused", False, 0), ("training", True, 0)):
        lent = LentPacing(PacingConfig(lead_steps=16))
        lent.observe(100, 0)
        lent.join("a", executed=0, pending=0)
        lent.hear(Loan(140, 0, False, phase, 900))
        lent.absent = absent
        assert lent.allowances()["a"].granted == granted
        assert lent.simulators == (0 if absent else 1)


def test_random_steps_are_the_first_of_the_run_wherever_they_are_done(tmp_path):
    config = config_of(pacing={"random_steps": 50, "env_steps": 200})
    home, others, _ = begin(tmp_path, config)
    drive(home, others, lambda: all(run.service.phase == "done" for run in (home, *others)))
    said = [run.clients[peer].role.allowance.random for run, peer in ((home, b"actor-0"), (others[0], b"actor-1"))]
    assert 50 <= sum(said) <= 50 + config.pacing.lead_steps  # what was granted when they ran out


def test_an_actor_has_its_shard_by_its_id_and_few_move_when_shards_come_and_go():
    names = [f"tcp://host-{n}:5555" for n in range(8)]
    actors = [f"arm-{n}" for n in range(2000)]
    of = {actor: shard_of(actor, names) for actor in actors}
    assert all(150 < list(of.values()).count(n) < 350 for n in range(8))
    fewer = {actor: shard_of(actor, names[:-1]) for actor in actors}
    assert {actor for actor in actors if of[actor] != fewer[actor]} == {actor for actor in actors if of[actor] == 7}
    assert shard_of("arm-0", names) == shard_of("arm-0", list(names))


def test_what_a_config_says_of_an_actors_shard():
    here = config_of(buffer={})
    assert own_shard(here, "arm") == 0
    two = make_config({**BASE, "buffer": {"shards": 2}})
    assert [own_shard(two, f"actor-{n}") for n in range(4)] == [0, 1, 0, 1]
    fixed = make_config({**BASE, "buffer": {"shards": 2}, "actor": {"shard": 1}})
    assert own_shard(fixed, "actor-0") == 1
    with pytest.raises(Exception, match="actor.shard: 5, but the run has the shards 0 to 1"):
        own_shard(make_config({**BASE, "buffer": {"shards": 2}, "actor": {"shard": 5}}), "actor-0")
