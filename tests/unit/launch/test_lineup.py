"""Which processes a run has, and how the ranks of a learner are told of each other."""

from pathlib import Path

import pytest

from headrace.launch import lineup as lineups
from headrace.launch.children import THREAD_VARIABLES, TUNABLES
from headrace.launch.config import make_config
from headrace.launch.lineup import Lineup
from headrace.launch.rundir import RunDir
from headrace.learner.place import Place


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(lineups, "usable_cores", lambda: 8)

    def lineup(*words, init_from=None):
        config = make_config({"env": {"id": "Pendulum-v1"}, "actor": {"count": 2}}, words)
        return Lineup(config, RunDir(tmp_path / "run"), init_from)

    return lineup


def words(lineup, name, again=False):
    (plan,) = [plan for plan in lineup.plans() if plan.name == name]
    command = lineup.command(plan, again)
    return command[command.index("headrace") + 1 :]


def test_a_run_has_a_learner_a_buffer_its_actors_and_an_evaluator(make):
    lineup = make("--eval.every", "100")
    plans = [(plan.name, plan.kind) for plan in lineup.plans()]
    actors = [("actor-0", "actor"), ("actor-1", "actor")]
    assert plans == [("learner", "learner"), ("buffer", "buffer"), *actors, ("evaluator", "evaluator")]
    assert words(lineup, "evaluator")[-3:] == ["--id", "evaluator", "--evaluate"]
    assert "evaluator" not in [plan.name for plan in make("--eval.every", "0").plans()]


def test_a_run_whose_actors_ask_a_policy_server_has_one_unless_somebody_else_starts_it(make, tmp_path):
    asks = ("--actor.policy", "server", "--policy_server.endpoint", "tcp://127.0.0.1:7")
    (server,) = [plan for plan in make(*asks).plans() if plan.kind == "policy-server"]
    assert words(make(*asks), server.name) == ["policy-server", str(tmp_path / "run"), "--id", "policy-server"]
    for more in (("--policy_server.start", "false"), ("--actor.policy", "auto")):
        assert "policy-server" not in [plan.kind for plan in make(*asks, *more).plans()]


def test_a_buffer_that_is_started_again_listens_where_it_did(make, tmp_path):
    lineup, run = make(), RunDir(tmp_path / "run")
    run.path.mkdir()
    run.write_endpoint("tcp://127.0.0.1:7")
    assert words(lineup, "buffer") == ["buffer", str(run.path)]
    assert words(lineup, "buffer", again=True) == ["buffer", str(run.path), "--bind", "tcp://127.0.0.1:7"]


def test_ranks_are_the_same_learner_at_places_of_one_group(make, tmp_path, monkeypatch):
    lineup = make("--learner.ranks", "3", init_from=Path("policy.hrw"))
    ranks = [plan for plan in lineup.plans() if plan.fate == "learner"]
    assert [(plan.name, plan.kind) for plan in ranks] == [("learner", "learner"), ("learner-1", "rank"), ("learner-2", "rank")]
    for rank, plan in enumerate(ranks):
        said = words(lineup, plan.name)
        assert said == ["learner", str(tmp_path / "run"), "--id", "learner", "--init-from", "policy.hrw"]
        with monkeypatch.context() as there:
            for name, value in lineup.environment(plan).items():
                there.setenv(name, value)
            assert Place.here() == Place.of_one_host(rank, 3, str(tmp_path / "run" / ".ranks"))


def test_ranks_share_out_the_cores_and_a_learner_alone_has_all(make):
    def threads(lineup, name):
        (plan,) = [plan for plan in lineup.plans() if plan.name == name]
        return {lineup.environment(plan).get(variable) for variable in THREAD_VARIABLES}

    assert threads(make(), "learner") == {None}
    assert threads(make("--learner.ranks", "3"), "learner-2") == {"2"}
    assert threads(make("--learner.ranks", "20"), "learner") == {"1"}
    for name in ("actor-0", "buffer"):
        assert threads(make("--learner.ranks", "3"), name) == {"1"}


def test_learners_on_gpus_copy_past_the_cache_unless_the_user_says_how(make, monkeypatch):
    def said(*words):
        lineup = make(*words)
        return {plan.name: lineup.environment(plan).get(TUNABLES) for plan in lineup.plans()}

    monkeypatch.delenv(TUNABLES, raising=False)
    gpu = ("--learner.device", "cuda")
    for ranks, names in (("1", ["learner"]), ("2", ["learner", "learner-1"])):
        found = said(*gpu, "--learner.ranks", ranks)
        assert [name for name in found if found[name] == "glibc.cpu.x86_non_temporal_threshold=32768"] == names
        assert {found[name] for name in found if name not in names} == {None}
        assert set(said("--learner.ranks", ranks).values()) == {None}
    monkeypatch.setenv(TUNABLES, "glibc.malloc.arena_max=2")
    assert said(*gpu)["learner"] == "glibc.malloc.arena_max=2"


def test_a_learner_alone_is_alone_whatever_started_train(make, monkeypatch):
    """Such as a launcher of jobs that counts processes of its own."""
    lineup = make()
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    for name, value in lineup.environment(lineup.plans()[0]).items():
        monkeypatch.setenv(name, value)
    assert Place.here() == Place()
