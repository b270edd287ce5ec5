"""Making environments by name: gymnasium ids, factories, wrappers, and one clear line when it fails."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.envs import registration
from gymnasium.vector import VectorEnv

from headrace.actor.config import EnvConfig, WindowConfig, WrapperConfig
from headrace.actor.gym_spaces import spec_of
from headrace.actor.gym_success import SuccessReward
from headrace.actor.success import find_classifier
from headrace.common.errors import ConfigError, EnvError
from headrace.common.naming import is_factory
from headrace.common.specs import TransitionSpec

AnyEnv = gym.Env[Any, Any]
AnyVectorEnv = VectorEnv[Any, Any, Any]
MAX_REASON = 500
_log = logging.getLogger(__name__)


def make_env(config: EnvConfig) -> AnyEnv | AnyVectorEnv:
    """Make what ``config.id`` names, with its wrappers.

    Raises:
        EnvError: one line that names the id and the reason, with the nearest ids when it is unknown.
    """
    try:
        with _known_warnings(config.id):
            env = _create(config)
            if isinstance(env, VectorEnv):
                _refuse_for_vector(config)
                return env
            for wrapper in config.wrappers:
                env = _wrap(env, wrapper)
            return SuccessReward(env, config) if config.success.file else env
    except (EnvError, ConfigError):
        raise
    except Exception as error:  # whatever a foreign constructor raises becomes our one line
        raise EnvError(f"env.id: {config.id!r} could not be made: {reason_of(error)}") from error


def check_env(config: EnvConfig) -> None:
    """Refuse what names alone tell: an id that gymnasium does not know, a module, attribute or wrapper that is not there.

    Modules are imported, and nothing is made.

    Raises:
        EnvError: as :func:`make_env`.
    """
    try:
        if is_factory(config.id):
            resolve(config.id, "env.id")
        else:
            _check_registered(config.id)
        for wrapper in config.wrappers:
            _find_wrapper(wrapper if isinstance(wrapper, str) else wrapper.name)
        if config.success.file:
            find_classifier(config.success)
    except (EnvError, ConfigError):
        raise
    except Exception as error:  # a foreign module may raise anything while it is imported
        raise EnvError(f"env.id: {config.id!r} could not be made: {reason_of(error)}") from error


def probe_spec(config: EnvConfig, window: WindowConfig) -> TransitionSpec:
    """Make the environment once, read its spaces, and close it."""
    env = make_env(config)
    try:
        if isinstance(env, VectorEnv):
            return spec_of(env.single_observation_space, env.single_action_space, config, window)
        return spec_of(env.observation_space, env.action_space, config, window)
    finally:
        env.close()


def resolve(name: str, field: str) -> Any:
    """The object that ``module:attribute`` names; ``field`` is where the config says it.

    Raises:
        EnvError: no such module or attribute.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise EnvError(f"{field}: {name!r} could not be imported: {reason_of(error)}") from error
    return found


def reason_of(error: BaseException) -> str:
    """An exception as one bounded line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MAX_REASON]


def _create(config: EnvConfig) -> AnyEnv | AnyVectorEnv:
    name = config.id
    if is_factory(name):
        env: Any = resolve(name, "env.id")(**config.kwargs)
        if not isinstance(env, (gym.Env, VectorEnv)):
            raise EnvError(f"env.id: {name!r} returned a {type(env).__name__}, expected a gymnasium Env or VectorEnv")
        if config.max_episode_steps is not None and isinstance(env, gym.Env):
            return gym.wrappers.TimeLimit(env, config.max_episode_steps)
        return env
    try:
        # The checker would warn about float64 observations and the like; what matters is refused by our own spec.
        made: AnyEnv = gym.make(name, config.max_episode_steps, disable_env_checker=True, **config.kwargs)
        return made
    except gym.error.UnregisteredEnv as error:
        raise _unknown(name) from error


def _check_registered(name: str) -> None:
    """Look a gymnasium id up as ``gymnasium.make`` does: a module before it is imported, and no version means the newest."""
    module, _, env_id = name.rpartition(":")
    if module:
        importlib.import_module(module)
    namespace, stem, version = registration.parse_env_id(env_id)
    newest = registration.find_highest_version(namespace, stem)
    if env_id not in gym.registry and (version is not None or newest is None):
        raise _unknown(name)


def _unknown(name: str) -> EnvError:
    near = difflib.get_close_matches(name, list(gym.registry), n=3, cutoff=0.55)
    hint = f"nearest: {', '.join(near)}" if near else "write module:factory for an env of your own"
    return EnvError(f"env.id: {name!r} is unknown to gymnasium; {hint}")


def _wrap(env: AnyEnv, wrapper: str | WrapperConfig) -> AnyEnv:
    name, kwargs = (wrapper, {}) if isinstance(wrapper, str) else (wrapper.name, wrapper.kwargs)
    cls = _find_wrapper(name)
    try:
        wrapped: AnyEnv = cls(env, **kwargs)
    except Exception as error:
        raise EnvError(f"env.wrappers: {name} refused its arguments {kwargs}: {reason_of(error)}") from error
    return wrapped


def _find_wrapper(name: str) -> Any:
    """The wrapper behind a name in gymnasium.wrappers or module:Class."""
    if ":" in name:
        return resolve(name, "env.wrappers")
    known = [n for n in gym.wrappers.__all__ if n[0].isupper()]
    if name in known:
        return getattr(gym.wrappers, name)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"nearest: {', '.join(near)}" if near else "write module:Class for a wrapper of your own"
    raise EnvError(f"env.wrappers: {name!r} is not in gymnasium.wrappers; {hint}")


def _refuse_for_vector(config: EnvConfig) -> None:
    for option, value in (
        ("wrappers", config.wrappers),
        ("max_episode_steps", config.max_episode_steps),
        ("success.file", config.success.file),
    ):
        if value:
            raise EnvError(f"env.{option}: {config.id} returns a VectorEnv; apply this inside the factory")


@contextlib.contextmanager
def _known_warnings(env_id: str) -> Iterator[None]:
    """Leave out three warnings that tell a user nothing he can act on; all others pass.

    gymnasium calls the -v4 MuJoCo tasks out of date, but published results that we compare with are on -v4. Its
    RescaleAction warns about bounds that are not float32, which no config file can write. MuJoCo 4 deprecates the
    ``settotalmass`` attribute in gymnasium's own model files, prints that on each make, and writes
    ``MUJOCO_LOG.TXT`` into the working directory.
    """
    with warnings.catch_warnings(), _mujoco_handler(env_id):
        warnings.filterwarnings("ignore", r".*The environment \S+-v4 is out of date", DeprecationWarning)
        warnings.filterwarnings("ignore", r".*Box (low|high)'s precision lowered by casting to float32", UserWarning)
        yield


@contextlib.contextmanager
def _mujoco_handler(env_id: str) -> Iterator[None]:
    spec = gym.registry.get(env_id)
    if spec is None or "mujoco" not in str(spec.entry_point):
        yield
        return
    try:
        import mujoco
    except ImportError:  # gymnasium's own message then says what to install
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_mujoco_warning)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _mujoco_warning(text: str) -> None:
    if "settotalmass" not in text:
        _log.warning("mujoco: %s", text.strip())
