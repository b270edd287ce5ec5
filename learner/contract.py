"""SupportSACTraining: the one door between the algorithm and a model.

A model holds actor and critics; they may share features or not. It must define what ``REQUIRED`` names; everything else
has a default that works for any torch code. Actions are always normalised to [-1, 1], ``(B, D)`` with D the product of
the executed action's shape, or, where rows hold latents, as many numbers as these have: then SAC decides on latents, and
critics judge them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import dump, load
from headrace.common.cores import usable_cores
from headrace.common.specs import TransitionSpec
from headrace.learner.autograd import detached, expected, gradients_of, in_eval_mode, or_executed
from headrace.learner.code import code_of
from headrace.learner.config import FP32, MIN, NoOptions
from headrace.learner.gradients import ActorGradients, Branch, Cloning, Conservatism, CriticGradients
from headrace.learner.losses import actor_loss, cloning_loss, conservative_penalty, critic_loss, require_shape
from headrace.learner.precision import multiplying, require_native, require_whole, warn_if_slower
from headrace.learner.shards import held
from headrace.learner.switched import ends

if TYPE_CHECKING:
    from headrace.learner.sharding import Sharding

REQUIRED = (
    "sac_state_features",
    "sac_forward_actor",
    "sac_forward_critic",
    "actor_params",
    "critic_params",
    "critic_network_heads",
    "target_network_heads",
)
PASSES = (  # methods that run networks
    "sac_state_features",
    "sac_target_features",
    "sac_next_features",
    "sac_actor_step_features",
    "sac_forward_actor",
    "sac_forward_critic",
    "sac_branches",
    "_get_logprobs",
    "bc_loss",
)
ONLINE, TARGET = "online", "target"
TASK = "row.task"  # among the observations of models that tell tasks apart, ``(B,)`` int64


class SupportSACTraining(nn.Module):
    """Base of every model that SAC trains.

    Args:
        spec: observations and actions.
        options: values for the class's own ``Options`` dataclass (made with ``headrace.common.config.option``).

    Raises:
        ConfigError: an option is unknown or out of range.
    """

    Options: ClassVar[type[Any]] = NoOptions
    LATENT: ClassVar[bool] = False  # whether it decides on latents (window.latent)
    CAPTURABLE: ClassVar[bool] = False  # whether its steps are the same kernels each time (learner.cuda_graphs)

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__()
        self.spec = spec
        self.options = load(self.Options, options, "model.options")
        self.precision = FP32
        self._class = type(self)  # another once it is divided
        self._code = code_of(self._class)  # once: somebody may edit the file while a run goes on
        self.sharding: Sharding | None = None
        self._target_pairs: tuple[list[Tensor], list[Tensor], list[tuple[Tensor, Tensor]]] | None = None
        self.action_dim = spec.latent or math.prod(spec.action.shape)

    # --- what a model defines ---------------------------------------------------------------------------------------

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Any:
        """Features of a batch of observations.

        Args:
            obs: key -> ``(B, *shape)`` or ``(B, h, *shape)``, normalised if the learner normalises, otherwise raw.
            role: ``actor`` or ``critic``; a model may look at other keys, or through other encoders, for each.

        Returns:
            Anything that the two methods below take.
        """
        raise NotImplementedError

    def sac_forward_actor(
        self, features: Any, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The current policy's action.

        Args:
            features: of role ``actor``.
            generator: source of all noise.
            deterministic: the mode of the policy in place of a sample.

        Returns:
            action ``(B, D)`` in [-1, 1], differentiable in the actor's parameters; log pi(action) ``(B,)`` summed over
            the executed dimensions, None for a policy without a density; and a latent that belongs to the action, or None.
        """
        raise NotImplementedError

    def sac_forward_critic(self, features: Any, action: Tensor, twin: str = ONLINE) -> Tensor:
        """Values of all N critics, ``(B, N)``.

        Args:
            features: of role ``critic``.
            action: ``(B, D)`` in [-1, 1].
            twin: ``online`` or ``target``.
        """
        raise NotImplementedError

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """(name, parameter) of all that the actor's loss trains; the names are those of the policy's tensors."""
        raise NotImplementedError

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """(name, parameter) of all that the critics' loss trains."""
        raise NotImplementedError

    # --- target -----------------------------------------------------------------------------------------------------

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        """Modules of the online critics."""
        raise NotImplementedError

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        """Modules of the target critics, one for one copies of :attr:`critic_network_heads`, without gradients.

        A model without any learns by :meth:`sac_joint_values` (CrossQ), and makes no target values.
        """
        raise NotImplementedError

    @property
    def sac_is_joint(self) -> bool:
        """Whether the online critics judge both ends of a transition in one pass, for want of target critics."""
        return not self.target_network_heads

    @torch.no_grad()
    def sac_update_target_network(self, tau: float) -> None:
        """target <- target + tau (online - target), parameter by parameter; buffers are copied. Nothing without a target."""
        if self.sac_is_joint:
            return
        if self._target_pairs is None:  # walking the modules costs twice what the step itself does
            heads = list(zip(self.critic_network_heads, self.target_network_heads, strict=True))
            self._target_pairs = (
                [held(p) for online, _ in heads for p in online.parameters()],
                [held(p) for _, target in heads for p in target.parameters()],
                [pair for online, target in heads for pair in zip(online.buffers(), target.buffers(), strict=True)],
            )
        online, target, buffers = self._target_pairs
        torch._foreach_lerp_(target, online, tau)
        for source, copy in buffers:
            copy.copy_(source)

    def train(self, mode: bool = True) -> SupportSACTraining:
        """Training mode for everything but the target, which never leaves eval mode."""
        super().train(mode)
        for head in self.target_network_heads:
            head.eval()
        return self

    # --- optional ---------------------------------------------------------------------------------------------------

    @property
    def sac_entropy_dim(self) -> int:
        """Over how many numbers log pi is a sum; the target entropy is so many times that of one. Here the action's.

        Switches are left out: theirs is between 0 and log 2, and a sure choice has none.
        """
        return self.action_dim - len(self.sac_switches)

    @property
    def sac_switches(self) -> Sequence[int]:
        """Which of the D numbers of an action are -1 or 1 and nothing between, such as a gripper; here none."""
        return ()

    def sac_branches(self, features: Any, generator: torch.Generator | None) -> Sequence[Branch]:
        """Actions of the policy that the actor's loss is an expectation over; here one sample.

        Values have no slope from one end of a switch to the other, so that no gradient would reach the choice through a sample:
        a policy that has some gives each way of setting them, with its chance.
        """
        action, log_prob = self._act(features, generator)
        return (Branch(action, log_prob),)

    @property
    def sac_tasks(self) -> int:
        """Of how many tasks critics want to know which a row is of, by :data:`TASK` among the observations; 0 for none."""
        return 0

    def shard_units(self) -> Sequence[nn.Module]:
        """Modules whose parameters ``learner.strategy: sharded`` gathers together, inner ones first; here the largest ones.

        A large model names its blocks. They are run by calling them, and what is in none of them by this contract's methods.
        """
        from headrace.learner.sharding import units_of  # imports a part of torch that nobody else waits for

        return units_of(self)

    def shard(self, ranks: int) -> None:
        """Hold only this rank's rows of each parameter from now on.

        Raises:
            ConfigError: a parameter has none.
        """
        from headrace.learner.sharding import Sharding

        self.sharding, self._target_pairs = Sharding(self, self.shard_units(), PASSES, ranks), None

    def _get_logprobs(self, features: Any, action: Tensor) -> Tensor:
        """log pi(action) ``(B,)`` of given actions ``(B, D)``."""
        raise NotImplementedError(f"{type(self).__name__} gives no density of given actions")

    def bc_loss(self, features: Any, action: Tensor, counts: Tensor) -> Tensor:
        """How far the policy is from replayed actions ``(B, D)``, (), a mean over the rows; here by the square from its mode.

        Their numbers count where ``counts`` ``(B, D)`` is 1 and not 0: executed, and by those who are cloned. The mode and not
        the density: of an action at the edge of the box a squashed Gaussian's has no bound.
        """
        mode, _, _ = self.sac_forward_actor(features, None, True)
        require_shape("sac_forward_actor: action", mode, (len(action), self.action_dim))
        return cloning_loss(mode, action, counts)

    def sac_execute(self, features: Any, action: Tensor) -> Tensor:
        """What a robot executes, ``(B, D)`` in [-1, 1], where the policy decided on a latent; only acting asks."""
        raise NotImplementedError(f"{type(self).__name__} decides on no latents")

    def frozen_tensors(self) -> set[str]:
        """Names in ``state_dict()`` of what comes from a local directory and stays: neither saved nor sent; here nothing."""
        return set()

    def learned_tensors(self) -> dict[str, Tensor]:
        """All of ``state_dict()`` that a checkpoint has to hold."""
        frozen = self.frozen_tensors()
        return {name: tensor for name, tensor in self.state_dict().items() if name not in frozen}

    def sac_augment(self, obs: Mapping[str, Tensor], generator: torch.Generator | None) -> Mapping[str, Tensor]:
        """Observations of a training batch as they are learned from; here as they came.

        Called once for a batch's observations and once for its next ones, before their features; acting never sees it.

        Args:
            obs: key -> ``(B, *shape)`` or ``(B, h, *shape)``, not to be changed in place.
            generator: source of all noise.
        """
        return obs

    def sac_target_features(self, obs: Mapping[str, Tensor]) -> Any:
        """Features for the target critics; another than role ``critic`` where encoders have slow copies too."""
        return self.sac_state_features(obs, "critic")

    def sac_next_features(self, obs: Mapping[str, Tensor]) -> tuple[Any, Any]:
        """Features of the next observations, for the actor and for the target critics; asked without gradients.

        Here one after the other; a model that encodes alike for both does so once.
        """
        return self.sac_state_features(obs, "actor"), self.sac_target_features(obs)

    def sac_actor_step_features(self, obs: Mapping[str, Tensor]) -> tuple[Any, Any]:
        """Features for the actor's step: the actor's, and the critics', into which no gradient flows; likewise."""
        with torch.no_grad():
            critic_features = self.sac_state_features(obs, "critic")
        return self.sac_state_features(obs, "actor"), critic_features

    def use_threads(self, threads: int) -> None:
        """Compute with so many threads on a CPU; 0: one up to two cores, else half of them, at most 8.

        Here these are torch's own, which need cores to themselves: two of them made 176 updates/s on an idle machine of two
        cores, 110 beside actors and buffer, and 3 beside a busy process, where one made 115 each time.
        """
        cores = usable_cores()
        torch.set_num_threads(threads or (1 if cores <= 2 else min(8, cores // 2)))

    def use_precision(self, precision: str) -> None:
        """Multiply numbers of ``fp32`` or ``bf16`` in training, here by autocast around the methods above.

        Values, losses, gradients and optimisers are float32 all the same, and a density must be: make it of the float32 of what
        a network puts out.

        Raises:
            ConfigError: the device of the model would only imitate them.
        """
        device = next(self.parameters()).device
        require_native(precision, device)
        warn_if_slower(precision, device)
        self.precision = precision

    def use_generator(self, generator: torch.Generator) -> None:
        """Draw noise inside networks, such as dropout's, from ``generator``, whose state is saved with the run; none here."""

    def close(self) -> None:
        """Give back what :meth:`use_threads` took; nothing here."""

    # --- the three steps of one update, here by autograd; a model may do the same sums faster --------------------------

    @torch.no_grad()
    def sac_next_values(
        self,
        actor_features: Any,
        critic_features: Any,
        generator: torch.Generator | None,
        executed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Target values ``(B, N)`` at the current policy's own action, and log pi ``(B,)`` of it.

        ``executed`` ``(B, D)`` actions take the place of the policy's own, except where they are NaN.
        """
        action, log_prob = self._act(actor_features, generator)
        return self._criticise(critic_features, or_executed(action, executed), TARGET), log_prob

    @torch.no_grad()
    def sac_other_actions(
        self, features: Sequence[Any], count: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Actions that stand for all others, ``(M, B, D)``, and the log density of each, ``(M, B)``.

        They are ``count`` of the current policy at each of ``features`` (of role ``actor``), and ``count`` uniform ones. Those
        of a policy without a density count as uniform.
        """
        drawn = [self._act(each, generator) for each in features for _ in range(count)]
        policy = torch.stack([action.float() for action, _ in drawn])
        uniform = torch.rand((count, *policy.shape[1:]), generator=generator, device=policy.device).mul_(2).sub_(1)
        if switches := list(self.sac_switches):  # 1 / 2 is the chance of an end, and the density of the others
            uniform[..., switches] = ends(uniform[..., switches])
        flat = policy.new_full(policy.shape[1:2], -self.action_dim * math.log(2.0))
        densities = [flat if log_prob is None else log_prob.float() for _, log_prob in drawn]
        return torch.cat((policy, uniform)), torch.stack(densities + [flat] * count)

    def sac_critic_gradients(
        self,
        features: Any,
        action: Tensor,
        target: Tensor,
        importance: Tensor | None = None,
        conservatism: Conservatism | None = None,
    ) -> CriticGradients:
        """Critic loss at executed actions ``(B, D)`` against targets ``(B,)``, and its gradients.

        ``importance`` ``(B,)`` multiplies each row's loss; None is 1. ``conservatism`` adds its penalty.
        """
        q = self._criticise(features, action, ONLINE)
        if conservatism is None:
            return self.sac_gradients_at(q, target, importance)
        other_q = torch.stack([self._criticise(features, other, ONLINE) for other in conservatism.actions])
        penalty = conservative_penalty(q, other_q, conservatism.log_density, conservatism.temperature)
        return self._critic_gradients(q, critic_loss(q, target, importance) + conservatism.weight * penalty, penalty)

    def sac_joint_values(
        self,
        actor_features: Any,
        critic_features: Any,
        action: Tensor,
        generator: torch.Generator | None,
        executed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values of both ends of each transition in one pass of the online critics, so that batch norm sees both alike.

        Args:
            actor_features: of the B next observations.
            critic_features: of the B observations and, behind them, the B next ones.
            action: ``(B, D)``, the executed ones.
            generator: of the next action's noise.
            executed: next actions, as of :meth:`sac_next_values`.

        Returns:
            Values ``(B, N)`` of the executed actions; those of the current policy's own next actions, through which no gradient
            flows; and log pi ``(B,)`` of these.
        """
        with torch.no_grad():
            after, log_prob = self._act(actor_features, generator)
            after = or_executed(after, executed)
        q, next_q = self._criticise(critic_features, torch.cat((action, after)), ONLINE).chunk(2)
        return q, next_q.detach(), log_prob

    def sac_gradients_at(self, q: Tensor, target: Tensor, importance: Tensor | None = None) -> CriticGradients:
        """Critic loss of values ``(B, N)`` that a pass of the online critics gave, and its gradients."""
        return self._critic_gradients(q, critic_loss(q, target, importance))

    def sac_actor_gradients(
        self,
        actor_features: Any,
        critic_features: Any,
        alpha: Tensor,
        generator: torch.Generator | None,
        reduction: str = MIN,
        cloning: Cloning | None = None,
    ) -> ActorGradients:
        """Actor loss and its gradients in the actor's parameters only; no critic weight gets a gradient.

        ``reduction`` of the critics is ``min`` or ``mean``; ``cloning`` adds :meth:`bc_loss`.
        """
        branches = self._branches(actor_features, generator)
        judges = self.critic_network_heads if self.sac_is_joint else ()  # by their running statistics, which they keep
        with in_eval_mode(judges, self.training):
            values = [self._criticise(critic_features, branch.action, ONLINE) for branch in branches]
        found = [
            actor_loss(q, branch.log_prob, alpha, reduction, branch.chance) for q, branch in zip(values, branches, strict=True)
        ]
        loss, q = torch.stack(found).sum(), expected(values, branches)
        log_prob = expected([branch.log_prob for branch in branches], branches)
        cloned: Tensor | None = None
        if cloning is not None:
            cloned = self._clone(actor_features, cloning)
            loss = cloning.scale * loss + cloning.weight * cloned
        gradients = gradients_of(loss, self.actor_params(), "actor", self.sharding)
        return ActorGradients(loss.detach(), detached(q), detached(log_prob), gradients, detached(cloned))

    def sac_cloning_gradients(self, actor_features: Any, cloning: Cloning) -> ActorGradients:
        """The cloning loss alone and its gradients in the actor's parameters, 0 in those that it does not reach."""
        cloned = self._clone(actor_features, cloning)
        loss = cloning.weight * cloned
        gradients = gradients_of(loss, self.actor_params(), "actor", self.sharding, all_reached=False)
        return ActorGradients(loss.detach(), None, None, gradients, cloned.detach())

    # --- the policy as it travels ---------------------------------------------------------------------------------------

    def policy_description(self) -> dict[str, Any]:
        """Plain values from which an actor rebuilds the policy."""
        cls = self._class
        about = {"type": "torch", "class": f"{cls.__module__}:{cls.__qualname__}", "options": dump(self.options)}
        return {**about, "code": self._code} if self._code else about

    def policy_tensors(self) -> dict[str, Tensor]:
        """What acting needs, by its name in ``state_dict()``: actor parameters, and buffers outside the critics."""
        actor = {id(p) for _, p in self.actor_params()}
        critic = {id(b) for head in (*self.critic_network_heads, *self.target_network_heads) for b in head.buffers()}
        out = {name: p.detach() for name, p in self.named_parameters() if id(p) in actor}
        frozen = self.frozen_tensors()
        out.update({name: b for name, b in self.named_buffers() if id(b) not in critic and name not in frozen})
        return out

    # --- the door -------------------------------------------------------------------------------------------------------

    def state_features(self, obs: Mapping[str, Tensor], role: str) -> Any:
        """:meth:`sac_state_features` in the precision of training."""
        with self._multiplying():
            return self.sac_state_features(obs, role)

    @torch.no_grad()
    def next_features(self, obs: Mapping[str, Tensor]) -> tuple[Any, Any]:
        """:meth:`sac_next_features` in the precision of training."""
        with self._multiplying():
            return self.sac_next_features(obs)

    def actor_step_features(self, obs: Mapping[str, Tensor]) -> tuple[Any, Any]:
        """:meth:`sac_actor_step_features` in the precision of training."""
        with self._multiplying():
            return self.sac_actor_step_features(obs)

    def _act(self, features: Any, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        with self._multiplying():
            action, log_prob, _ = self.sac_forward_actor(features, generator, False)
        self._require_action("sac_forward_actor", action, log_prob)
        return action, log_prob

    def _require_action(self, name: str, action: Tensor, log_prob: Tensor | None) -> None:
        require_shape(f"{name}: action", action, (None, self.action_dim))
        if log_prob is not None:
            require_shape(f"{name}: log_prob", log_prob, (len(action),))
            require_whole(f"{name}: log_prob", log_prob)

    def _branches(self, features: Any, generator: torch.Generator | None) -> Sequence[Branch]:
        with self._multiplying():
            branches = self.sac_branches(features, generator)
        for branch in branches:
            self._require_action("sac_branches", branch.action, branch.log_prob)
            if branch.chance is not None:
                require_shape("sac_branches: chance", branch.chance, (len(branch.action),))
        return branches

    def _clone(self, features: Any, cloning: Cloning) -> Tensor:
        with self._multiplying():
            cloned = self.bc_loss(features, cloning.action, cloning.counts)
        require_shape("bc_loss", cloned, ())
        return cloned

    def _criticise(self, features: Any, action: Tensor, twin: str) -> Tensor:
        with self._multiplying():
            q = self.sac_forward_critic(features, action, twin)
        require_shape(f"sac_forward_critic({twin})", q, (len(action), None))
        return q.float()

    def _multiplying(self) -> contextlib.AbstractContextManager[Any]:
        return multiplying(self.precision, next(self.parameters()).device)

    def _critic_gradients(self, q: Tensor, loss: Tensor, penalty: Tensor | None = None) -> CriticGradients:
        gradients = gradients_of(loss, self.critic_params(), "critic", self.sharding)
        return CriticGradients(loss.detach(), q.detach(), gradients, detached(penalty))
