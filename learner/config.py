"""Options of the learner and of its model; no torch here, so that every role can read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.common.config import option
from headrace.common.errors import ConfigError
from headrace.common.specs import SOURCES
from headrace.common.wire.batches import MOST_AHEAD

FORMS = ("auto_exp", "auto_log", "auto_softplus", "fixed")
MIN, MEAN = REDUCTIONS = ("min", "mean")
REPLICATED, SHARDED = STRATEGIES = ("replicated", "sharded")
CPU, CUDA = DEVICES = ("cpu", "cuda")
FP32, BF16 = PRECISIONS = ("fp32", "bf16")
SWITCHES_HELP = "dimensions of the action that are one end of their bounds or the other, such as that of a gripper"


@dataclass(frozen=True)
class ModelConfig:
    """Which networks are trained."""

    type: str = option(
        "mlp",
        help="mlp, pixels (cameras), flow (chunks out of noise), residual or dsrl (steer a flow policy that stays), or a class"
        " of your own as module:Class",
    )
    options: dict[str, Any] = option(factory=dict, help="options of that class, checked by its own Options dataclass")


@dataclass(frozen=True)
class NoOptions:
    """``model.options`` of a model that has none."""


@dataclass(frozen=True)
class MLPOptions:
    """``model.options`` of the ``mlp``: the shape of its networks."""

    hidden: tuple[int, ...] = option((256, 256), help="widths of the hidden layers of actor and critics", low=1, high=65536)
    critic_hidden: tuple[int, ...] | None = option(
        None, help="widths of the critics' hidden layers; none: those of hidden", low=1, high=65536
    )
    critics: int = option(2, help="number of critics", low=1, high=64)
    switches: tuple[int, ...] = option((), help=SWITCHES_HELP, low=0)
    critic_layer_norm: bool = option(False, help="whether the critics' hidden layers have layer norm")
    critic_dropout: float = option(
        0.0, help="share of the critics' hidden units that each pass leaves out, also for targets", low=0, high=0.9
    )
    critic_batch_norm: bool = option(
        False, help="whether the critics have batch norm, over both ends of each transition, and no targets (CrossQ)"
    )

    @property
    def steady(self) -> bool:
        """Whether the critics have what their passes by hand have not."""
        return self.critic_layer_norm or self.critic_dropout > 0 or self.critic_batch_norm


@dataclass(frozen=True)
class LearnerConfig:
    """Soft Actor-Critic, and the pace of what the learner hands out."""

    # losses
    batch_size: int = option(
        256, help="rows of one update; with several ranks each takes so many", unit="rows", low=1, high=1 << 20
    )
    gamma: float = option(0.99, help="discount of one env step", low=0, high=1)
    entropy_backup: bool = option(True, help="whether the target counts the entropy of the next action")
    resample_target_action: bool = option(
        True,
        help="whether the target's next action is the current policy's own; false: the executed one (window.next_action), and"
        " no entropy",
    )
    target_critics: int | None = option(
        None, help="critics, drawn anew for each update, whose minimum is the target (REDQ: 2); none: all", low=1, high=64
    )
    actor_reduction: str = option(
        MIN, help="what the actor climbs: the least value of all critics, or their mean", choices=REDUCTIONS
    )
    temperature: str = option(
        "auto_exp",
        help="who sets alpha: trained, as exp or softplus of a number (auto_log: exp, loss on log alpha), or fixed",
        choices=FORMS,
    )
    alpha: float = option(1.0, help="weight of the entropy: where it starts, or stays when fixed", low=0, high=1e6)
    target_entropy_per_dim: float = option(
        -1.0, help="entropy that alpha steers to, for each dimension of the executed action, all steps of a chunk together"
    )

    # for data that the policy has not made itself
    bc_weight: float = option(0.0, help="weight of the actor's distance to replayed actions (cloning)", low=0, high=1e6)
    bc_sources: tuple[str, ...] = option((), help="whose actions are cloned; empty: everybody's", choices=SOURCES)
    td3_bc_alpha: float | None = option(
        None, help="TD3+BC: weight of the values over their mean |Q| beside bc_weight; none: values as they are", low=1e-9
    )
    cql_weight: float = option(
        0.0, help="weight of CQL's penalty on values of other actions than the executed ones", low=0, high=1e6
    )
    cql_actions: int = option(
        10, help="other actions for each row: so many at random, and so many of the policy at each end", low=1, high=1024
    )
    cql_temperature: float = option(1.0, help="how soft CQL's maximum over actions is", low=1e-6, high=1e6)

    # a second policy
    ema_decay: float | None = option(
        None,
        help="share of itself that an average of the policy keeps at each step of the actor (actor.ema, eval.ema); none: none",
        low=0,
        high=0.9999999,
    )

    # optimisers
    actor_lr: float = option(3e-4, help="Adam step size of the actor", low=0, high=1, resume=True)
    critic_lr: float = option(3e-4, help="Adam step size of the critics", low=0, high=1, resume=True)
    alpha_lr: float = option(3e-4, help="Adam step size of alpha", low=0, high=1, resume=True)
    adam_beta1: float = option(0.9, help="Adam's decay of the mean", low=0, high=0.9999)
    adam_beta2: float = option(0.999, help="Adam's decay of the square", low=0, high=0.999999)
    grad_clip: float | None = option(
        None, help="largest norm of the actor's and of the critics' gradient; none: no limit", low=1e-9
    )
    critic_grad_clip: float | None = option(None, help="likewise of the critics' gradient alone; none: as grad_clip", low=1e-9)

    # schedule
    cloning_updates: int = option(
        0, help="first updates, of the actor alone and by cloning alone; the critics stay as they are", unit="updates", low=0
    )
    critic_warmup_updates: int = option(
        0, help="the next updates, of the critics alone: actor and alpha stay as they are", unit="updates", low=0
    )
    tau: float = option(0.005, help="share of the online critics that one step moves into the target", low=1e-6, high=1)
    actor_update_interval: int = option(1, help="updates per step of actor and alpha", unit="updates", low=1)
    target_update_interval: int = option(1, help="updates per step of the target", unit="updates", low=1)

    # inputs
    step_penalty: float = option(
        0.0, help="taken off the raw reward of each executed env step, of demonstrations as of all others", low=0, high=1e6
    )
    normalise_obs: bool = option(False, help="whether float observations are centred and scaled by the pool's statistics")
    normalise_rewards: bool = option(
        False, help="whether rewards are divided by the running spread of discounted returns, which the pool counts"
    )
    prefetch_batches: int = option(
        32, help="batches kept ahead of the learner, in 256 MiB or two", unit="batches", low=1, high=MOST_AHEAD, resume=True
    )
    reading: str = option(
        "auto",
        help="how batches come: the learner gathers them from the buffer's mapped files (same host), or by socket",
        choices=("auto", "mapped", "socket"),
        resume=True,
    )
    device: str = option(
        CPU, help="where networks are trained; cuda: the rank's own GPU, one a rank of a host", choices=DEVICES, resume=True
    )
    threads: int = option(
        0,
        help="threads that compute, on a CPU, in each of the ranks (of the mlp: processes); 0: what suits model and cores",
        low=0,
        high=256,
        resume=True,
    )
    strategy: str = option(
        REPLICATED,
        help="what each rank of a group holds: all of the model, or a share of it (FSDP2) that is gathered while it is needed",
        choices=STRATEGIES,
        resume=True,
    )
    micro_batch_size: int | None = option(
        None,
        help="rows that are judged at once, to save memory; the update is that of the whole batch all the same; none: all",
        unit="rows",
        low=1,
        high=1 << 20,
        resume=True,
    )
    precision: str = option(
        FP32,
        help="numbers that networks multiply: float32, or bfloat16 on a device that has its products; all else stays float32",
        choices=PRECISIONS,
        resume=True,
    )
    cuda_graphs: bool = option(
        False,
        help="record each kind of update as a CUDA graph when it is first met, and launch that, where it gives the same numbers"
        " in less time",
        resume=True,
    )
    ranks: int = option(
        1,
        help="processes that make each update together, on batches of their own; `train` starts them, by hand torchrun",
        low=1,
        high=64,
        resume=True,
    )
    rank_timeout_s: float = option(
        30.0, help="longest wait for another rank, which is then taken for lost", unit="s", low=1, high=86400, resume=True
    )

    # outputs
    publish_every_updates: int = option(
        10, help="updates between two publishes of weights, at least", unit="updates", low=1, resume=True
    )
    published: str = option(
        FP32,
        help="numbers of trained tensors on their way to actors: float32, or bfloat16, half as long and rounded",
        choices=PRECISIONS,
        resume=True,
    )
    publish_period_s: float = option(0.1, help="time between two publishes of weights, at least", unit="s", low=0, resume=True)
    checkpoint_every_updates: int = option(10_000, help="updates between two checkpoints", unit="updates", low=1, resume=True)
    checkpoint_keep: int = option(3, help="newest checkpoints that stay on disk", low=1, high=10_000, resume=True)

    @property
    def normalises(self) -> bool:
        """Whether the learner needs the pool's statistics."""
        return self.normalise_obs or self.normalise_rewards

    @property
    def return_gamma(self) -> float | None:
        """Discount of the returns whose spread the pool is to count; None where nobody needs it."""
        return self.gamma if self.normalise_rewards else None

    def check(self, path: str = "") -> None:
        """Refuse a trained temperature that starts at zero, where it would stay, parts above the whole, cloning of nothing."""
        prefix = path + "." if path else ""
        if self.temperature != "fixed" and self.alpha < 1e-6:
            raise ConfigError(
                f"{prefix}alpha: {self.alpha:g} with temperature {self.temperature} would never move;"
                " nearest valid: 1e-06, or temperature fixed"
            )
        if self.td3_bc_alpha is not None and self.bc_weight == 0:
            raise ConfigError(
                f"{prefix}td3_bc_alpha: {self.td3_bc_alpha:g} with {prefix}bc_weight 0, so nothing is cloned;"
                f" nearest valid: none, or {prefix}bc_weight 1"
            )
        if self.cloning_updates and self.bc_weight == 0:
            raise ConfigError(
                f"{prefix}cloning_updates: {self.cloning_updates} with {prefix}bc_weight 0, so nothing is cloned;"
                f" nearest valid: 0, or {prefix}bc_weight 1"
            )
        if self.cuda_graphs and (self.device != CUDA or self.ranks > 1):
            found = f"device {self.device}" if self.device != CUDA else f"ranks {self.ranks}"
            raise ConfigError(
                f"{prefix}cuda_graphs: true with {prefix}{found}, but graphs are those of one GPU; nearest valid: false"
            )
        if self.micro_batch_size is not None and self.micro_batch_size > self.batch_size:
            raise ConfigError(
                f"{prefix}micro_batch_size: {self.micro_batch_size} rows, but batch_size is {self.batch_size};"
                f" nearest valid: {self.batch_size}, or none"
            )
