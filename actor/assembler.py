"""The assembler: consecutive steps of one lane become rows (1-step or n-step windows, or chunks) and self-contained blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.actor.rating import Rate, rated
from headrace.actor.tape import Tape
from headrace.common.block import Block
from headrace.common.errors import EnvError
from headrace.common.specs import SOURCE_DEMO, SOURCE_POLICY, TransitionSpec
from headrace.common.weights import Version

Array = np.ndarray[Any, Any]
MAX_WAITING = 16384
_RUNNING = np.iinfo(np.int64).max
_SCALARS = {  # columns of one executed step, in the order of Assembler.step
    "episode": "<u8",
    "t": "<u4",
    "task": "<u4",
    "learner": "<u8",
    "learner_epoch": "<u4",
    "learner_step": "<u8",
    "reward": "<f4",
    "terminated": "u1",
    "truncated": "u1",
    "source": "u1",
    "health": "u1",
    "action_age": "<f4",
    "frame": "<i8",  # id of the step's observation; the next one is the frame after it
    "first": "<i8",  # id of its episode's first frame
    "stop": "<i8",  # id of its episode's last step, once known
    "begins": "?",  # whether a decision begins with it, and so a row
    "decides": "?",  # whether a policy has made that decision
}
_COPIED = ("episode", "t", "task", "learner", "learner_epoch", "learner_step", "health", "action_age")


class Assembler:
    """Steps of one lane in, blocks out.

    Where rows are ``steps``, every step starts one. Its window covers the steps from there to the episode's end, at most
    ``spec.window``, so the tail of an episode has rows of fewer steps. Where they are ``chunk``s, each decision is one, and
    covers the steps up to the next decision or the episode's end; the actions that were not executed stay as decided.

    A row is ready when its window cannot change any more: one step after the window is full, or at the episode's end. The
    newest window is held back that long because a crash may still make its last step the truncated end of the episode
    (:meth:`abort`).

    Args:
        spec: of the rows.
        limit: most steps kept at once.
        rate: gives the rows of each block the priorities that they begin with, see :mod:`headrace.actor.rating`.

    Raises:
        EnvError: a method is called out of order, or more than ``limit`` steps wait for :meth:`take`.
    """

    def __init__(self, spec: TransitionSpec, limit: int = MAX_WAITING, rate: Rate | None = None) -> None:
        self._spec, self._rate, self._chunks = spec, rate, spec.kind == "chunk"
        actions = {"action": (spec.action.shape[-1:] if self._chunks else spec.action.shape, "<f4")}
        self._action_shape = actions["action"][0]
        self._keeps = self._chunks or spec.planned  # decisions
        if self._keeps:
            actions["decided"] = (spec.action.shape, "<f4")
        if spec.latent:
            actions["latent"] = ((spec.latent,), "<f4")
        self._steps = Tape({name: ((), dtype) for name, dtype in _SCALARS.items()} | actions, limit)
        self._frames = Tape({o.key: (o.shape, o.dtype) for o in spec.obs}, 2 * limit + spec.stack)
        self._episode = 0
        self._task = 0
        self._running = False
        self._t = 0
        self._first_step = 0  # of the current episode
        self._first_frame = 0
        self._taken = 0  # steps whose rows are out
        self._ready = 0  # steps whose rows may go out
        self._begun = 0  # step with which the newest decision began
        self._version: Version | None = None
        self._stamp = (0, 0, 0)

    @property
    def ready(self) -> int:
        """Rows that :meth:`take` can give now."""
        return len(self._starts()) if self._chunks else self._ready - self._taken

    @property
    def running(self) -> bool:
        """Whether an episode has begun and not ended."""
        return self._running

    @property
    def may_go_on(self) -> bool:
        """Whether the next step may belong to the decision that runs; where rows are steps, each is one of its own."""
        begun = self._running and self._steps.end > self._first_step
        return self._chunks and begun and self._steps.end - self._begun < self._spec.window

    def begin(self, episode: int, obs: Mapping[str, Array], task: int = 0) -> None:
        """Start an episode of a task with its first observation (key -> ``(*shape)``, copied).

        Raises:
            EnvError: one runs, or the observation is not as declared; so from :meth:`step`, which then has kept nothing.
        """
        if self._running:
            raise EnvError(f"assembler: episode {episode} begins while episode {self._episode} runs; end or abort() that one")
        if episode < 0:
            raise EnvError(f"assembler: episode {episode}, expected 0 or more")
        self._first_frame = self._frames.append(self._observed(obs))
        self._first_step = self._steps.end
        self._episode, self._task, self._t, self._running = episode, task, 0, True

    def step(
        self,
        action: Array,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: Mapping[str, Array],
        *,
        version: Version,
        decided: Array | None = None,
        source: int = SOURCE_POLICY,
        health: int = 0,
        action_age: float = 0.0,
        latent: Array | None = None,
    ) -> None:
        """Add one executed step; everything is copied.

        Args:
            action: as executed, env units: ``action.shape``, or ``(A,)`` where that is the shape of a chunk.
            reward: raw.
            terminated: the task ended here.
            truncated: the episode was cut here.
            next_obs: key -> ``(*shape)``, the true observation after the step.
            version: weights that chose the action; of a chunk those of its first step count.
            decided: ``action.shape``, the decision that begins with this step; None goes on with the last one of chunks, and is
                nobody's where every step begins one.
            source: ``SOURCE_*``.
            health: bits of the step's health.
            action_age: age of the action when it was executed, in seconds.
            latent: ``(spec.latent,)``, what the policy decided on, NaN or None where it did not; of a chunk that of its first
                step counts.
        """
        if not self._running:
            raise EnvError("assembler: a step without an episode; begin() it with its first observation")
        begins = decided is not None or not self._chunks
        if not begins and not self.may_go_on:
            raise EnvError(f"assembler: step {self._t} of episode {self._episode} needs a decision, a chunk of its own")
        if version is not self._version:
            self._version, self._stamp = version, (version.learner_hash, version.epoch, version.step)
        for name, value, shape in (("action", action, self._action_shape), ("decided", decided, self._spec.action.shape)):
            if value is not None and np.shape(value) != shape:
                raise EnvError(f"assembler: {name}: {np.shape(value)}, declared {shape}")
        observed = self._observed(next_obs)  # before the step is kept: both are, or neither
        frame, last = self._frames.end - 1, self._steps.end
        scalars = (
            reward,
            terminated,
            truncated,
            source,
            health,
            action_age,
            frame,
            self._first_frame,
            _RUNNING,
            begins,
            decided is not None and source != SOURCE_DEMO,
        )
        plan: list[Any] = [0 if decided is None else decided] if self._keeps else []
        plan += [np.nan if latent is None else latent] if self._spec.latent else []
        self._steps.append((self._episode, self._t, self._task, *self._stamp, *scalars, action, *plan))
        self._frames.append(observed)
        self._t += 1
        if begins:
            self._begun = last
        if terminated or truncated:
            self._end(last)
        elif begins:
            self._ready = max(self._ready, last if self._chunks else last + 1 - self._spec.window)

    def _observed(self, obs: Mapping[str, Array]) -> list[Array]:
        """The declared observations, each of its shape, and of a dtype that becomes the declared one and means the same."""
        values = []
        for o in self._spec.obs:
            if o.key not in obs:
                raise EnvError(f"assembler: observation {o.key!r} is missing; there are {sorted(obs)}")
            value = np.asarray(obs[o.key])
            if value.shape != o.shape or not (value.dtype == o.dtype or np.can_cast(value.dtype, o.dtype, "same_kind")):
                declared = f"{np.dtype(o.dtype)} {o.shape}"
                raise EnvError(f"assembler: observation {o.key!r}: {value.dtype} {value.shape}, declared {declared}")
            values.append(value)
        return values

    def abort(self) -> None:
        """End the running episode, if any, at its last complete step, which becomes truncated; no observation is invented."""
        if not self._running:
            return
        last = self._steps.end - 1
        if last >= self._first_step:
            self._steps.write("truncated", last, last + 1, True)
            self._end(last)
        self._running = False

    def take(self, max_rows: int) -> Block | None:
        """The oldest ready rows, at most ``max_rows``, with every frame they refer to once; None when there are none."""
        starts = self._starts()
        count = min(len(starts), max_rows)
        if count < 1:
            return None
        following = np.append(starts[1:], self._ready)[:count]
        block = self._block(starts[:count], following)
        self._taken = int(following[-1])
        self._steps.forget(self._taken)
        oldest = self._steps.column("frame", np.array(self._taken)) if self._taken < self._steps.end else self._frames.end - 1
        self._frames.forget(int(oldest) - self._spec.stack + 1)
        return block if self._rate is None else rated(block, self._rate)

    def get_state(self) -> dict[str, Any]:
        """Everything not yet taken, as plain values and arrays."""
        own = {name: getattr(self, name) for name in self._OWN}
        return {**own, "steps": self._steps.get_state(), "frames": self._frames.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state` of an assembler with the same spec."""
        self._steps.set_state(state["steps"])
        self._frames.set_state(state["frames"])
        for name in self._OWN:
            setattr(self, name, state[name])

    def check_valid(self) -> tuple[bool, str]:
        """Whether the cursors are in order and the frames of all kept steps are kept."""
        if not self._steps.start <= self._taken <= self._ready <= self._steps.end:
            return False, f"cursors {self._steps.start} <= {self._taken} <= {self._ready} <= {self._steps.end} are out of order"
        if self._taken < self._steps.end:
            frames = self._steps.column("frame", np.arange(self._taken, self._steps.end))
            if frames.min() < self._frames.start or frames.max() + 1 >= self._frames.end:
                return False, "a kept step refers to a frame that is not kept"
        return True, ""

    _OWN = ("_episode", "_task", "_running", "_t", "_first_step", "_first_frame", "_taken", "_ready", "_begun")

    def _starts(self) -> Array:
        """Steps with which rows begin that may go out."""
        steps = np.arange(self._taken, self._ready)
        return steps[self._steps.column("begins", steps)] if self._chunks else steps

    def _end(self, last: int) -> None:
        here = max(self._first_step, self._taken)
        self._steps.write("stop", here, last + 1, last)
        self._ready = last + 1
        self._running = False

    def _block(self, ids: Array, following: Array) -> Block:
        """Rows that begin with the steps ``ids``, and the next ones with ``following``."""
        spec, step = self._spec, self._steps.column
        last = following - 1 if self._chunks else np.minimum(ids + spec.window - 1, step("stop", ids))
        window = ids[:, None] + np.arange(spec.window)
        inside = window <= last[:, None]
        window = np.minimum(window, last[:, None])
        rows = np.zeros(len(ids), spec.row_dtype)
        for name in _COPIED:
            rows[name] = step(name, ids)
        if self._chunks:
            rows["health"] = np.bitwise_or.reduce(np.where(inside, step("health", window), 0), axis=1)  # of all its own steps
            rows["action"] = np.where(inside[:, :, None], step("action", window), step("decided", ids))
        else:
            rows["action"] = step("action", ids)
        rows["steps"] = last - ids + 1
        rows["rewards"] = np.where(inside, step("reward", window), 0)
        rows["source"] = np.where(inside, step("source", window), 0)
        rows["terminated"], rows["truncated"] = step("terminated", last), step("truncated", last)
        if spec.latent:
            own = rows["source"] if self._chunks else rows["source"][:, :1]
            latent = step("latent", ids)
            known = np.isfinite(latent).all(axis=1) & (own == SOURCE_POLICY).all(axis=1)
            rows["latent"], rows["has_latent"] = np.where(known[:, None], latent, 0), known
        if spec.planned:
            rows["has_planned"] = step("decides", ids)
            rows["planned"] = np.where(rows["has_planned"].reshape(-1, *(1,) * len(spec.action.shape)), step("decided", ids), 0)
        if spec.next_action:
            follows = last < step("stop", ids)  # its step is here: the newest window is held back
            rows["next_action"][follows] = step("action", last[follows] + 1)
        back = np.arange(1 - spec.stack, 1)  # a stack that reaches before the episode repeats its first frame
        frames = np.stack([step("frame", ids), step("frame", last) + 1], axis=1)[:, :, None] + back
        used, offsets = np.unique(np.maximum(frames, step("first", ids)[:, None, None]), return_inverse=True)
        offsets = offsets.reshape(frames.shape)
        rows["obs"], rows["next_obs"] = offsets[:, 0], offsets[:, 1]
        return Block(rows, {o.key: self._frames.column(o.key, used) for o in spec.obs})
