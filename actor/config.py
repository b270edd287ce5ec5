"""Options of the actor side: which environment, how windows are cut, how an actor process runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.actor.limits import GuardConfig
from headrace.common.config import option
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import ROLES, ActionSpec, ObsSpec, TransitionSpec


@dataclass(frozen=True)
class WrapperConfig:
    """One environment wrapper with its arguments."""

    name: str = option(help="a name in gymnasium.wrappers, or module:Class")
    kwargs: dict[str, Any] = option(factory=dict, help="keyword arguments of the wrapper")


@dataclass(frozen=True)
class SuccessConfig:
    """Success by a classifier: who has it looks at each step, and success ends the episode. See docs/robots.md."""

    file: str = option("", help="as `headrace classifier train` wrote it; empty: the env says what has succeeded, and rewards")
    threshold: float | None = option(
        None, help="probability from which an image shows success; none: the file's", low=1e-6, high=1 - 1e-6
    )
    hold: int | None = option(
        None, help="images in a row that must show it; none: as the file says", unit="frames", low=1, high=1000
    )


@dataclass(frozen=True)
class EnvConfig:
    """The environment, its lanes (parallel episodes of one actor process) and how they reset."""

    # What it is
    id: str = option(help="a gymnasium id, or module:factory that returns a gymnasium Env or VectorEnv")
    kwargs: dict[str, Any] = option(factory=dict, help="keyword arguments of gymnasium.make or of the factory")
    wrappers: tuple[str | WrapperConfig, ...] = option((), help="wrappers, innermost first: a name or {name, kwargs}")
    max_episode_steps: int | None = option(None, help="truncate episodes here; none keeps the env's own limit", low=1)
    reward: str = option(
        "", help="module:function of (obs, action, next_obs, outcome) that gives each step's reward; empty: the env's own"
    )
    success: SuccessConfig = option(factory=SuccessConfig, help="reward 1 and an episode's end by a success classifier")
    roles: dict[str, Any] = option(factory=dict, help="observation key -> actor|critic|both; both where not named")

    # How its lanes run
    lanes: int = option(1, help="parallel episodes in one actor process", low=1, high=4096)
    vector: str = option("sync", help="lanes one after the other, or each in a process", choices=("sync", "async"))
    autoreset: str = option(
        "next_step", help="autoreset mode of the vector env", choices=("next_step", "same_step", "disabled")
    )

    # When it breaks
    max_restarts: int = option(10, help="crashes of one lane without a finished episode between them before giving up", low=0)
    step_timeout_s: float = option(60.0, help="longest wait for one step or reset of async lanes", unit="s", low=0.01)

    def check(self, path: str) -> None:
        """Refuse what single ranges cannot see."""
        if not self.id.strip():
            raise ConfigError(f"{path}.id: empty; name a gymnasium id such as Pendulum-v1, or module:factory")
        for key, role in self.roles.items():
            if role not in ROLES:
                raise ConfigError(f"{path}.roles.{key}: {role!r} is not one of {', '.join(ROLES)}")


@dataclass(frozen=True)
class WindowConfig:
    """What one row covers."""

    n_step: int = option(1, help="executed env steps in one row (n-step return)", unit="steps", low=1, high=4096)
    chunk: int = option(
        1, help="env steps of one decision: so many actions are chosen at once, and executed without looking", low=1, high=4096
    )
    stack: int = option(1, help="frames that one observation stacks", unit="frames", low=1, high=256)
    next_action: bool = option(False, help="whether rows hold the next action too, for learner.resample_target_action false")
    latent: int = option(
        0, help="numbers of the noise that rows hold beside the action, for model.type dsrl; 0: none", low=0, high=1 << 20
    )
    planned: bool = option(False, help="whether rows hold what the policy wanted too, beside what was executed; for people")
    prefix: str = option(
        "",
        help="directory of an exported flow policy: rows hold its prefix of each frame, for model.options.stored; empty: no",
    )

    def check(self, path: str = "window") -> None:
        """Refuse windows that rows of chunks cannot have."""
        if self.chunk > 1 and self.n_step > 1:
            raise ConfigError(
                f"{path}.n_step: {self.n_step}, but with {path}.chunk {self.chunk} a row is one decision; nearest valid: 1"
            )
        if self.chunk > 1 and self.next_action:
            raise ConfigError(
                f"{path}.next_action: true, but with {path}.chunk {self.chunk} no row knows the whole decision behind it;"
                " nearest valid: false"
            )
        if self.prefix and self.stack > 1:
            raise ConfigError(
                f"{path}.prefix: {self.prefix!r} with {path}.stack {self.stack}, but a prefix is of one frame; nearest valid: 1"
            )
        if self.latent and self.next_action:
            raise ConfigError(
                f"{path}.next_action: true, but with {path}.latent {self.latent} critics judge latents, and no row holds the"
                " next one; nearest valid: false"
            )

    def spec(self, obs: tuple[ObsSpec, ...], action: ActionSpec) -> TransitionSpec:
        """The spec of such rows, for observations and for actions of one env step.

        Raises:
            SpecError: chunks of actions that are chunks already, or what no spec may be.
        """
        if self.chunk == 1:
            columns = self.next_action, self.latent, self.planned
            return TransitionSpec(obs, action, self.n_step, "steps", self.stack, *columns)
        if len(action.shape) != 1:
            raise SpecError(f"window.chunk: {self.chunk} actions of shape {action.shape}, expected ({action.dim},)")
        whole = replace(action, shape=(self.chunk, *action.shape))
        return TransitionSpec(obs, whole, self.chunk, "chunk", self.stack, latent=self.latent, planned=self.planned)

    @classmethod
    def of(cls, spec: TransitionSpec) -> WindowConfig:
        """The window whose rows ``spec`` describes."""
        if spec.kind == "chunk":
            return cls(chunk=spec.window, stack=spec.stack, latent=spec.latent, planned=spec.planned)
        columns = spec.next_action, spec.latent, spec.planned
        return cls(spec.window, 1, spec.stack, *columns)


@dataclass(frozen=True)
class ActorConfig:
    """One actor process and how many of them this host runs."""

    count: int = option(1, help="actor processes on this host", low=0, high=1024)
    shard: int | None = option(
        None,
        help="number of the buffer in network.shards that it dials, such as one nearby; none: its id decides",
        low=0,
        resume=True,
    )
    policy: str = option(
        "auto",
        help="numpy: without torch, for mlp and pixels; auto: for mlp, and for pixels where torch is missing; server: a policy"
        " server decides (policy_server.endpoint)",
        choices=("auto", "numpy", "torch", "server"),
    )
    device: str = option("cpu", help="torch device of a torch policy")
    ema: bool = option(False, help="act by the average of the policy (learner.ema_decay)", resume=True)
    robot: bool = option(
        False, help="these are real robots: pacing never holds them, and pacing.robot_share protects their share"
    )

    # How it explores beyond its policy; random_steps of the run come first
    epsilon: float = option(
        0.0, help="share of the decisions of the first of N actors that are uniformly random; 0: none of anybody", low=0, high=1
    )
    epsilon_ladder: float = option(
        7.0, help="actor i of N takes epsilon ** (1 + epsilon_ladder * i / (N - 1)) of its decisions at random", low=0, high=100
    )

    # How rows leave: a block is cut at whichever comes first
    block_rows: int = option(32, help="rows in one block", unit="rows", low=1, high=4096, resume=True)
    flush_s: float = option(0.05, help="longest wait of a ready row for its block to fill", unit="s", low=0, resume=True)
    outbox_bytes: int = option(64 << 20, help="blocks kept until they are acknowledged", unit="bytes", low=1 << 16, resume=True)
    spool: str = option(
        "", help="directory of a file on disk that keeps blocks in place of the outbox and outlives the process; for robots"
    )
    spool_bytes: int = option(1 << 30, help="size of that file, reserved at once", unit="bytes", low=1 << 20)
    when_full: str = option(
        "auto",
        help="when no more may wait: block the loop, stop it with an error, or drop the oldest whole episodes;"
        " auto: block simulators, stop robots",
        choices=("auto", "block", "stop", "drop_oldest"),
        resume=True,
    )
    drain_bytes_per_s: float = option(
        0.0, help="most bytes of rows that are sent in a second; 0: as many as the link takes", unit="B/s", low=0, resume=True
    )
    priorities: str = option(
        "", help="module:function of a block that gives the priorities which its rows begin with; empty: the largest so far"
    )

    @property
    def chosen_when_full(self) -> str:
        """``when_full`` as it applies to this actor: ``block``, ``stop`` or ``drop_oldest``."""
        if self.when_full != "auto":
            return self.when_full
        return "stop" if self.robot else "block"

    def check(self, path: str) -> None:
        """Refuse robots that would act at random, and spools of others."""
        if self.spool and not self.robot:
            raise ConfigError(
                f"{path}.spool: {self.spool!r} with {path}.robot false: simulators wait in place and lose nothing; set"
                f" {path}.robot true, or leave it empty"
            )
        if self.robot and self.epsilon > 0:
            raise ConfigError(
                f"{path}.epsilon: {self.epsilon:g} with {path}.robot true would have robots act at random; nearest valid: 0"
            )


@dataclass(frozen=True)
class TeleopConfig:
    """The device with which people drive the robot, and how it changes hands. See docs/robots.md."""

    device: str = option("none", help="none, keyboard, gamepad, or module:factory of a Teleop")
    kwargs: dict[str, Any] = option(factory=dict, help="keyword arguments of the device")
    agree_within: float = option(
        0.05,
        help="a device that gives positions takes over where it is so near to the robot's command in each dimension",
        unit="env units",
        low=0,
    )
    agree_s: float = option(30.0, help="longest wait for that, after which the robot stops", unit="s", low=0.1)


@dataclass(frozen=True)
class RobotConfig:
    """How a robot is driven, where ``actor.robot`` is true: its control periods, what people confirm, and its guard."""

    rate_hz: float = option(20.0, help="control periods a second", unit="Hz", low=0.1, high=1000)
    act_within: float = option(
        0.5, help="share of a control period in which its action must have come; else the robot holds", low=0.05, high=0.95
    )
    ahead: bool = option(
        False,
        help="decide on a period's action while the one before is executed, from what was seen then: a whole period more for"
        " slow policies, whose actions are older by one",
    )
    realtime: bool = option(False, help="ask the kernel for real-time priority, so that load does not disturb periods")
    operator: str = option(
        "terminal", help="who says arm, ready and so on: terminal, none (a program does), or module:factory of an Operator"
    )

    # What precedes an episode
    home: tuple[float, ...] = option((), help="command that the robot is driven to first, through the guard; empty: nowhere")
    home_within: float = option(0.05, help="distance in each dimension at which it is there", unit="env units", low=0)
    home_s: float = option(20.0, help="longest way there, after which the robot stops", unit="s", low=0.1)
    gate: bool = option(False, help="wait for a human before each episode")
    gate_s: float = option(300.0, help="longest wait for a human", unit="s", low=0.1)
    gate_timeout: str = option("stop", help="what follows the longest wait", choices=("stop", "begin"))

    teleop: TeleopConfig = option(factory=TeleopConfig, help="with what people drive")
    guard: GuardConfig = option(factory=GuardConfig, help="limits, and reactions to what is old")

    def check(self, path: str) -> None:
        """Refuse a home that no command leads to."""
        if self.home and self.guard.command != "position":
            raise ConfigError(
                f"{path}.home: {list(self.home)} with {path}.guard.command {self.guard.command}, so that no command leads"
                " there; nearest valid: []"
            )
