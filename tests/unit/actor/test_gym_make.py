"""Environments by name: real ones run, unknown ones are one clear line."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from headrace.actor.config import ActorConfig, EnvConfig, WindowConfig, WrapperConfig
from headrace.actor.envs import check_env, make_lanes, make_spec
from headrace.actor.policy import RandomPolicy
from headrace.common.config import dump, load
from headrace.common.errors import ConfigError, EnvError

REAL = {
    "Pendulum-v1": (3, 1),
    "HalfCheetah-v4": (17, 6),
    "HalfCheetah-v5": (17, 6),
    "Hopper-v5": (11, 3),
    "Reacher-v5": (10, 2),
}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_real_environments_step(name, autoreset, capfd, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    config = EnvConfig(name, lanes=2, autoreset=autoreset, max_episode_steps=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lanes = make_lanes(config, WindowConfig(), run_seed=0, actor="a", epoch=1)
    assert (lanes.spec.obs[0].shape[0], lanes.spec.action.dim) == REAL[name]
    policy, rng, live, ends = RandomPolicy(lanes.spec), np.random.default_rng(0), 0, 0
    obs = lanes.reset().obs
    for _ in range(10):
        step = lanes.step(policy.act(obs, rng, False))
        live, ends, obs = live + step.live.sum(), ends + step.truncated.sum(), step.obs
        assert np.isfinite(step.next_obs["obs"]).all()
    lanes.close()
    assert (live, ends) == ((16, 4) if autoreset == "next_step" else (20, 4))
    assert capfd.readouterr().err == ""
    assert list(Path().iterdir()) == [], "MuJoCo logs its warnings into the working directory"


def test_the_same_seed_gives_the_same_run():
    def run(seed):
        lanes = make_lanes(EnvConfig("Pendulum-v1", lanes=2), WindowConfig(), run_seed=seed, actor="a", epoch=1)
        first = lanes.reset().obs["obs"]
        after = lanes.step(np.zeros((2, 1), np.float32)).obs["obs"]
        lanes.close()
        return np.stack([first, after])

    one, again, other = run(1), run(1), run(2)
    assert (one == again).all()
    assert (one != other).any()
    assert (one[0, 0] != one[0, 1]).any()


UNKNOWN = [
    ("Pendulum-v9", r"env.id: 'Pendulum-v9' is unknown to gymnasium; nearest: Pendulum-v1"),
    ("HalfCheeta-v5", "nearest: HalfCheetah-v"),
    ("Qqqq-v3", "is unknown to gymnasium; write module:factory"),
    ("no such id", "env.id: 'no such id' could not be made: Error: Malformed environment ID"),
    ("no_such_module:make", "env.id: 'no_such_module:make' could not be imported: ModuleNotFoundError"),
    ("headrace.launch.chaos.scripted:mak", "'headrace.launch.chaos.scripted:mak' could not be imported: AttributeError"),
]


@pytest.mark.parametrize(("name", "message"), UNKNOWN)
def test_names_alone_tell_what_cannot_be_made(name, message):
    with pytest.raises(EnvError, match=message) as caught:
        check_env(EnvConfig(name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Pendulum-v1", "Pendulum", "gymnasium.envs:Pendulum-v1", "helpers.driving:Row"])
def test_nothing_is_made_to_look_a_name_up(name, monkeypatch):
    """Also of a factory that would refuse its arguments."""
    monkeypatch.setattr("gymnasium.make", None)
    check_env(EnvConfig(name, wrappers=("RescaleAction", "gymnasium.wrappers:FlattenObservation")))
    with pytest.raises(EnvError, match=r"env.wrappers: 'RescaleActoin' is not in gymnasium.wrappers"):
        check_env(EnvConfig(name, wrappers=("RescaleActoin",)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *UNKNOWN,
        ("helpers.driving:Row", "env.id: 'helpers.driving:Row' could not be made: TypeError"),
        ("builtins:dict", "env.id: 'builtins:dict' returned a dict, expected a gymnasium Env or VectorEnv"),
    ],
)
@pytest.mark.parametrize(
    "make", [make_spec, lambda e, w: make_lanes(e, w, run_seed=0, actor="a", epoch=1)], ids=["spec", "lanes"]
)
def test_one_clear_line(name, message, make):
    with pytest.raises(EnvError, match=message) as caught:
        make(EnvConfig(name), WindowConfig())
    assert "\n" not in str(caught.value)


def test_kwargs_reach_the_environment():
    with pytest.raises(EnvError, match="TypeError: .*gravity"):
        make_spec(EnvConfig("Pendulum-v1", kwargs={"gravity": 3}), WindowConfig())
    make_spec(EnvConfig("Pendulum-v1", kwargs={"g": 3.0}), WindowConfig())


def test_wrappers_innermost_first():
    box = {"name": "RescaleAction", "kwargs": {"min_action": -1.0, "max_action": 1.0}}
    config = load(EnvConfig, {"id": "Pendulum-v1", "wrappers": [box, "gymnasium.wrappers:FlattenObservation"]}, "env")
    assert config.wrappers == (WrapperConfig("RescaleAction", box["kwargs"]), "gymnasium.wrappers:FlattenObservation")
    assert load(EnvConfig, dump(config), "env") == config
    spec = make_spec(config, WindowConfig())
    assert (spec.action.low, spec.action.high) == ((-1.0,), (1.0,))
    with pytest.raises(EnvError, match=r"env.wrappers: 'RescaleActoin' is not in gymnasium.wrappers; nearest: RescaleAction"):
        make_spec(EnvConfig("Pendulum-v1", wrappers=("RescaleActoin",)), WindowConfig())
    with pytest.raises(EnvError, match=r"env.wrappers: RescaleAction refused its arguments \{\}: TypeError"):
        make_spec(EnvConfig("Pendulum-v1", wrappers=("RescaleAction",)), WindowConfig())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id": " "}, "env.id: empty"),
        ({}, "env.id: required"),
        ({"id": "A-v0", "lane": 2}, "env.lane: unknown key; did you mean 'lanes'"),
        ({"id": "A-v0", "vector": "asink"}, "env.vector: 'asink' is not one of sync, async; nearest: async"),
        ({"id": "A-v0", "roles": {"obs": "critik"}}, "env.roles.obs: 'critik' is not one of both, actor, critic"),
        ({"id": "A-v0", "lanes": 0}, "env.lanes: 0 is below .* nearest valid: 1"),
        ({"id": "A-v0", "max_episode_steps": 0}, "env.max_episode_steps: 0 is below"),
    ],
)
def test_config_errors_name_the_key(values, message):
    with pytest.raises(ConfigError, match=message):
        load(EnvConfig, values, "env")


def test_defaults():
    assert load(ActorConfig, {}).block_rows == 32
    assert load(WindowConfig, {}) == WindowConfig(1, 1)
    assert load(EnvConfig, {"id": "A-v0", "max_episode_steps": None}).autoreset == "next_step"
