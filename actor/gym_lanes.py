"""Lanes over a gymnasium vector env, sync or async, in any of its three autoreset modes."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import LaneObs, LaneStep
from headrace.actor.gym_guard import CRASH, HUMAN, SUCCESS, TASK, SubEnv
from headrace.actor.gym_human import ACTION, FLAG, human_action
from headrace.actor.gym_make import AnyVectorEnv, make_env, reason_of
from headrace.actor.gym_spaces import frames_of, leaves_of, put_frame, spec_of
from headrace.actor.gym_success import JUDGED
from headrace.actor.success import health_of
from headrace.common.errors import EnvError
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN, SOURCE_HUMAN

Array = np.ndarray[Any, Any]
CLOSE_S = 5.0
_MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP, "disabled": AutoresetMode.DISABLED}
_log = logging.getLogger(__name__)


class GymLanes:
    """:class:`headrace.actor.envs.Lanes` over gymnasium.

    Args:
        config: the environment.
        window: what one row covers; only its spec is used here.
        place: run seed and place from which the seed of every episode is derived.
    """

    def __init__(self, config: EnvConfig, window: WindowConfig, place: tuple[int | str, ...]) -> None:
        self._config = config
        self._place = place
        self._guarded = True
        self._venv = self._make()
        self._mode = _mode_of(self._venv, config)
        self._leaves = leaves_of(self._venv.single_observation_space, config)
        self.spec = spec_of(self._venv.single_observation_space, self._venv.single_action_space, config, window)
        self.count = self._venv.num_envs
        self.restarts = 0
        self._crashes = np.zeros(self.count, np.int64)  # in a row, a lane
        self._turn = np.full(self.count, -1, np.int64)  # resets seen, less one
        self._fresh = np.zeros(self.count, np.bool_)  # reset, and no step taken since
        self._ended = np.zeros(self.count, np.bool_)  # by the last step
        self._task = np.zeros(self.count, np.int64)  # of the episode that each lane is in; replaced, never written
        self._none = np.zeros(self.count, np.bool_)
        self._none.flags.writeable = False

    def reset(self) -> LaneObs:
        """Begin the next episode in every lane."""
        self._turn += 1
        try:
            frames = frames_of(self._leaves, self._reset(self._episodes(), None))
        except Exception as error:  # a dead worker or a broken vector env
            frames = self._restart(error)
        self._fresh, self._ended = ~self._none, self._none
        return LaneObs(frames, self._episodes(), self._task)

    def step(self, actions: Array) -> LaneStep:
        """Execute ``(L, A)`` actions."""
        space = self._venv.single_action_space
        shaped = np.asarray(actions).reshape(self.count, *(space.shape or ())).astype(space.dtype)
        try:
            with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, and the pool refuses it
                raw, rewards, terminated, truncated, infos = self._step(shaped)
                rewards = np.asarray(rewards).astype(np.float32)
                frames = frames_of(self._leaves, raw)
                ended = np.logical_or(terminated, truncated)
                next_obs, obs = self._cross_ends(ended, frames, infos)
        except EnvError:
            raise
        except Exception as error:  # a dead worker, a late one, or a broken vector env
            return self._all_crashed(error)
        crashed, success = self._read_ends(ended, infos)
        next_step = self._mode is AutoresetMode.NEXT_STEP
        idle = self._ended if next_step else self._none
        self._fresh = idle if next_step else ended
        self._turn = self._turn + self._fresh
        self._ended = ended
        live = ~(idle | crashed)
        executed, source = self._read_humans(actions, live, ended, infos)
        return LaneStep(
            live=live,
            rewards=np.where(live, rewards, np.float32(0)),
            terminated=live & terminated,
            truncated=live & truncated,
            next_obs=next_obs,
            crashed=crashed,
            obs=obs,
            episode=self._episodes(),
            success=success,
            task=self._task,
            executed=executed,
            health=self._read_judged(live, ended, infos),
            source=source,
        )

    def close(self) -> None:
        """Close the environments, those in processes of their own within a few seconds."""
        _close(self._venv)

    def render(self) -> Array | None:
        """The picture of lane 0, ``(height, width, 3)`` uint8, when the env was made to render arrays; else None."""
        pictures = self._venv.render() if self._venv.render_mode == "rgb_array" else None
        return None if not pictures else np.asarray(pictures[0])

    @property
    def render_fps(self) -> int:
        """Pictures a second that the env declares, 30 when it does not."""
        return int(self._venv.metadata.get("render_fps", 30))

    @property
    def bare(self) -> Any:
        """The env of lane 0 without wrappers, for scripts that see all of it; lanes are sync.

        Raises:
            EnvError: lanes have processes of their own, or are those of a factory's VectorEnv.
        """
        if not isinstance(self._venv, SyncVectorEnv):
            raise EnvError(f"env.id: {self._config.id!r} plays in a {type(self._venv).__name__}, into which nobody sees")
        return self._venv.envs[0].unwrapped

    def get_state(self) -> dict[str, Any]:
        """The turn that each lane's next :meth:`reset` begins, and the restart counter."""
        return {"turns": (self._turn + ~self._fresh).tolist(), "restarts": self.restarts}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`; call :meth:`reset` next."""
        turns = [int(turn) for turn in state["turns"]]
        if len(turns) != self.count:
            raise EnvError(f"lanes: the state holds {len(turns)} lanes, env.lanes is {self.count}")
        self._turn = np.array(turns, np.int64) - 1
        self._fresh = self._none.copy()
        self.restarts = int(state["restarts"])
        self._tell_turns(turns)

    def check_valid(self) -> tuple[bool, str]:
        """Whether counters are where they can be."""
        if (self._turn < -1).any():
            return False, f"a lane has begun {int(self._turn.min()) + 1} episodes"
        if (self._crashes > self._config.max_restarts).any():
            return False, f"a lane crashed {int(self._crashes.max())} times in a row, allowed {self._config.max_restarts}"
        return True, ""

    # Making and resetting

    def _make(self) -> AnyVectorEnv:
        config = self._config
        if ":" in config.id:  # a factory says only by what it returns whether it is a vector env
            env = make_env(config)
            if isinstance(env, VectorEnv):
                self._guarded = False
                if env.num_envs != config.lanes:
                    env.close()
                    raise EnvError(f"env.lanes: {config.lanes}, but {config.id} returned a VectorEnv of {env.num_envs}")
                return env
            env.close()
        makers = [SubEnv(config, self._place, lane, os.getpid()) for lane in range(config.lanes)]
        mode = _MODES[config.autoreset]
        try:
            if config.vector == "async":  # spawn: forking a process with sockets and BLAS threads is not safe
                return AsyncVectorEnv(makers, copy=False, context="spawn", autoreset_mode=mode)
            return SyncVectorEnv(makers, copy=False, autoreset_mode=mode)
        except EnvError:
            raise
        except Exception as error:
            raise EnvError(f"env.id: {config.id!r}: its vector env could not be made: {reason_of(error)}") from error

    def _tell_turns(self, turns: list[int]) -> None:
        if isinstance(self._venv, (SyncVectorEnv, AsyncVectorEnv)) and self._guarded:
            self._venv.set_attr("turn", turns)

    def _reset(self, episodes: Array, mask: Array | None) -> Any:
        """Reset all lanes, or those under ``mask``, to ``episodes``; the raw observations of all lanes."""
        options = None if mask is None else {"reset_mask": mask}
        # A guard seeds its own resets, those of an autoreset too. Any: VectorEnv declares an int, though all take a list.
        seeds: Any = None if self._guarded else [derive_seed(int(self._place[0]), *self._place[1:], int(e)) for e in episodes]
        if isinstance(self._venv, AsyncVectorEnv):
            self._venv.reset_async(options=options)
            obs, infos = self._venv.reset_wait(timeout=self._config.step_timeout_s)
        else:
            obs, infos = self._venv.reset(seed=seeds, options=options)
        self._note_tasks(infos)
        return obs

    def _step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        if isinstance(self._venv, AsyncVectorEnv):
            self._venv.step_async(actions)
            found = self._venv.step_wait(timeout=self._config.step_timeout_s)
        else:
            found = self._venv.step(actions)
        self._note_tasks(found[4])  # of the lanes that this step has reset
        return found

    def _note_tasks(self, infos: Mapping[str, Any]) -> None:
        told = [lane for lane in range(self.count) if _has(infos, TASK, lane)] if TASK in infos else []
        if told:
            self._task = self._task.copy()
            self._task[told] = infos[TASK][told]

    def _episodes(self) -> Array:
        return self._turn * self.count + np.arange(self.count)

    # Ends and crashes

    def _cross_ends(
        self, ended: Array, frames: dict[str, Array], infos: Mapping[str, Any]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The true last observations of this step, and what the policy acts on next."""
        if self._mode is AutoresetMode.NEXT_STEP or not ended.any():
            return frames, frames
        if self._mode is AutoresetMode.DISABLED:
            return frames, frames_of(self._leaves, self._reset(self._episodes() + self.count, ended))
        final = {key: frame.copy() for key, frame in frames.items()}
        for lane in np.flatnonzero(ended):
            if not _has(infos, "final_obs", lane):
                raise EnvError(f"env {self._config.id}: lane {lane} ended in same-step mode without its final_obs in infos")
            put_frame(self._leaves, final, int(lane), infos["final_obs"][lane])
        return final, frames

    def _read_ends(self, ended: Array, infos: Mapping[str, Any]) -> tuple[Array, Array]:
        """Which lanes crashed, and the outcome of those that ended."""
        crashed, success = np.zeros(self.count, np.bool_), np.full(self.count, OUTCOME_UNKNOWN, np.uint8)
        last = infos.get("final_info", {}) if self._mode is AutoresetMode.SAME_STEP else infos
        for lane in np.flatnonzero(ended):
            if _has(last, CRASH, lane):
                crashed[lane] = True
                self._count(np.arange(self.count) == lane, str(last[CRASH][lane]))
                continue
            self._crashes[lane] = 0
            for name in (SUCCESS, "success", "is_success"):  # the last two from a VectorEnv that has no guards
                if _has(last, name, lane):
                    success[lane] = OUTCOME_SUCCESS if last[name][lane] else OUTCOME_FAILURE
                    break
        return crashed, success

    def _read_humans(
        self, asked: Array, live: Array, ended: Array, infos: Mapping[str, Any]
    ) -> tuple[Array | None, Array | None]:
        """Where people took over: what was executed in all lanes, and who acted; none and none where nobody did."""
        name = HUMAN if self._guarded else ACTION
        executed, source = None, None
        for lane in np.flatnonzero(live):
            told = self._told(int(lane), ended, infos)
            if not _has(told, name, lane):
                continue
            said = {ACTION: told[name][lane]} | ({FLAG: told[FLAG][lane]} if FLAG in told else {})
            action = human_action(said, self.spec.action.dim)
            if action is not None:
                if executed is None or source is None:
                    executed, source = np.array(asked, np.float32).reshape(self.count, -1), np.zeros(self.count, np.uint8)
                executed[lane], source[lane] = action, SOURCE_HUMAN
        return executed, source

    def _read_judged(self, live: Array, ended: Array, infos: Mapping[str, Any]) -> Array | None:
        """What a success classifier said of the lanes' steps, as bits of health; none where there is none."""
        if not self._config.success.file:
            return None
        health = np.zeros(self.count, np.uint8)
        for lane in np.flatnonzero(live):
            told = self._told(int(lane), ended, infos)
            if _has(told, JUDGED, lane):
                health[lane] = health_of(bool(told[JUDGED][lane]))
        return health

    def _told(self, lane: int, ended: Array, infos: Mapping[str, Any]) -> Mapping[str, Any]:
        """Where the infos of a lane's step are: a reset in the same step has brought its own."""
        same_step = self._mode is AutoresetMode.SAME_STEP and ended[lane]
        found: Mapping[str, Any] = infos.get("final_info", {}) if same_step else infos
        return found

    def _all_crashed(self, error: Exception) -> LaneStep:
        frames = self._restart(error)
        self._fresh, self._ended = ~self._none, self._none
        no, unknown = self._none, np.full(self.count, OUTCOME_UNKNOWN, np.uint8)
        rewards = np.zeros(self.count, np.float32)
        return LaneStep(no, rewards, no, no, frames, ~no, frames, self._episodes(), unknown, self._task)

    def _restart(self, error: Exception) -> dict[str, Array]:
        """Make the whole vector env anew and begin each lane's next episode, until it works or the limit is met."""
        while True:
            self._count(~self._none, reason_of(error))
            _close(self._venv)
            try:
                self._venv = self._make()
                self._turn += 1
                self._tell_turns(self._turn.tolist())
                return frames_of(self._leaves, self._reset(self._episodes(), None))
            except Exception as again:  # counted like the first
                error = again

    def _count(self, lanes: Array, reason: str) -> None:
        self.restarts += 1
        self._crashes[lanes] += 1
        limit, worst = self._config.max_restarts, int(np.argmax(self._crashes))
        _log.warning("env %s: lanes %s crashed and restart: %s", self._config.id, np.flatnonzero(lanes).tolist(), reason)
        if self._crashes[worst] > limit:
            raise EnvError(
                f"env {self._config.id}: lane {worst} crashed {self._crashes[worst]} times without finishing an episode, "
                f"env.max_restarts allows {limit}; last error: {reason}"
            )


def _has(infos: Mapping[str, Any], name: str, lane: int | np.integer[Any]) -> bool:
    """Whether ``infos[name][lane]`` was given by this lane (gymnasium marks that in a mask named with an underscore)."""
    return name in infos and (f"_{name}" not in infos or bool(infos[f"_{name}"][lane]))


def _mode_of(venv: AnyVectorEnv, config: EnvConfig) -> AutoresetMode:
    mode = venv.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(m.value for m in AutoresetMode)
        raise EnvError(f"env {config.id}: its metadata names autoreset_mode {mode!r}; known are {known}") from None


def _close(venv: AnyVectorEnv) -> None:
    """Close for good; gymnasium's own close of async lanes waits without a deadline."""
    if not isinstance(venv, AsyncVectorEnv):
        with contextlib.suppress(Exception):  # a broken env may not close
            venv.close()
        return
    if venv.closed:
        return
    venv.closed = True
    pipes = [pipe for pipe in venv.parent_pipes if pipe is not None and not pipe.closed]
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.send(("close", None))
    late = False
    for process in venv.processes:
        process.join(0.1 if late else CLOSE_S)
        if process.is_alive():
            late = True
            process.kill()
            process.join(CLOSE_S)
    for pipe in pipes:
        pipe.close()
