"""A torch model by name, as a user would write one for the learner's contract."""

from __future__ import annotations

from typing import Any

import torch

from headrace.common.specs import TransitionSpec


class Linear(torch.nn.Module):
    """Acts by one linear layer; its critic is no part of acting."""

    def __init__(self, spec: TransitionSpec, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        width = sum(int(torch.tensor(o.shape).prod()) for o in spec.obs) * spec.stack
        self.actor = torch.nn.Linear(width, spec.action.dim)
        self.critic = torch.nn.Linear(width, 1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def sac_state_features(self, obs: dict[str, Any], role: str) -> Any:
        return torch.cat([obs[key].float().flatten(1) for key in sorted(obs)], 1)

    def sac_forward_actor(self, features: Any, generator: Any, deterministic: bool) -> tuple[Any, None, None]:
        if torch.is_grad_enabled() or self.training:
            raise RuntimeError("acting needs inference mode and eval mode")
        u = self.actor(features) * self.gain
        if not deterministic:
            u = u + torch.randn(u.shape, generator=generator)
        return torch.tanh(u), None, None


class NotAModel:
    """Lacks everything."""

    def __init__(self, spec: TransitionSpec) -> None:
        pass
