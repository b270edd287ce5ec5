"""A policy's deterministic action as one torch module, traced for programs that know neither headrace nor its models."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headrace.actor.policy import Box
from headrace.actor.torch_policy import TorchPolicy, make_torch_policy
from headrace.common.errors import ConfigError, HeadraceError
from headrace.common.exported import inputs_of
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet

TORCHSCRIPT, ONNX = "policy.pt", "policy.onnx"
TRACED_ROWS, CHECKED_ROWS = 2, (1, 2, 5)
TOLERANCE = 1e-6  # of the half width of the action's box


class PolicyModule(nn.Module):
    """Observations ``(B, *shape)`` or ``(B, h, *shape)``, one argument a key -> actions ``(B, *action.shape)`` in env units.

    Args:
        weights: description and tensors.
        spec: observations and actions.

    Raises:
        SpecError: they do not fit each other.
    """

    def __init__(self, weights: WeightSet, spec: TransitionSpec) -> None:
        super().__init__()
        self._policy = make_torch_policy(weights, spec, "cpu")
        if isinstance(self._policy, TorchPolicy):
            self.model = self._policy.model
        self._keys, self._shape = inputs_of(spec), spec.action.shape
        box = Box(spec.action)
        self.low: Tensor
        self.high: Tensor
        for name, bound in (("low", box.low), ("high", box.high)):
            self.register_buffer(name, torch.tensor(bound))
        self.eval().requires_grad_(False)

    def forward(self, *obs: Tensor) -> Tensor:
        """The mode of the policy, inside the box."""
        unit = self._policy.mode(dict(zip(self._keys, obs, strict=True))).reshape(-1, *self._shape)
        half = self.high * 0.5 - self.low * 0.5
        return torch.minimum(torch.maximum(self.low + (unit + 1) * half, self.low), self.high)


def torchscript_file(weights: WeightSet, spec: TransitionSpec) -> tuple[str, bytes]:
    """Name and content of the policy in TorchScript.

    Raises:
        ConfigError: the model cannot be traced, or the trace acts otherwise than the model.
    """
    return TORCHSCRIPT, _quietly("torchscript", lambda: _scripted(PolicyModule(weights, spec), spec))


def onnx_file(weights: WeightSet, spec: TransitionSpec) -> tuple[str, bytes]:
    """Name and content of the policy in ONNX, its inputs named as the observations, its output ``action``.

    Raises:
        ConfigError: the package ``onnx`` is not installed, or the model cannot be expressed in it.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ConfigError("--format onnx: the package onnx is not installed; pip install onnx, or choose --format torchscript")
    return ONNX, _quietly("onnx", lambda: _onnx(PolicyModule(weights, spec), spec))


def _quietly(form: str, make: Callable[[], bytes]) -> bytes:
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing is called deprecated, and warns of every shape that it takes for a constant: the check below sees those.
        warnings.simplefilter("ignore")
        try:
            return make()
        except ConfigError as error:
            raise ConfigError(f"--format {form}: {error}") from error
        except HeadraceError:
            raise
        except Exception as error:  # a model of one's own may do what no trace can follow
            first = next(iter(str(error).strip().splitlines()), "")
            raise ConfigError(f"--format {form}: this model cannot be traced: {type(error).__name__}: {first}") from error


def _scripted(module: PolicyModule, spec: TransitionSpec) -> bytes:
    traced = _traced(module, spec)
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    return buffer.getvalue()


def _onnx(module: PolicyModule, spec: TransitionSpec) -> bytes:
    _traced(module, spec)  # the check
    buffer, names = io.BytesIO(), inputs_of(spec)
    torch.onnx.export(
        module,
        tuple(_examples(spec, TRACED_ROWS)),
        buffer,  # type: ignore[arg-type]  # the declared type leaves out the open files that it takes
        input_names=names,
        output_names=["action"],
        dynamic_axes={name: {0: "rows"} for name in (*names, "action")},
        dynamo=False,  # the other one wants a further package
    )
    return buffer.getvalue()


def _traced(module: PolicyModule, spec: TransitionSpec) -> Any:
    traced = torch.jit.trace(module, tuple(_examples(spec, TRACED_ROWS)), check_trace=False)  # type: ignore[no-untyped-call]  # torch's
    half = (module.high - module.low).double() / 2
    for rows in CHECKED_ROWS:
        obs = _examples(spec, rows)
        try:
            actions = traced(*obs)
        except RuntimeError as error:  # an operation of a size that the examples had
            raise ConfigError(f"its trace fails with {rows} rows, so something in the model is taken for fixed") from error
        off = float(((actions.double() - module(*obs).double()).abs() / half).max())
        if not off <= TOLERANCE:
            raise ConfigError(
                f"actions of {rows} rows are {off:g} of the box off, so something in the model is taken for fixed"
            )
    return traced


def _examples(spec: TransitionSpec, rows: int) -> list[Tensor]:
    """Made-up observations that fit the spec, in the order of the module's arguments."""
    rng, out = np.random.default_rng(0), []
    for o in (o for o in spec.obs if o.role != "critic"):
        shape = (rows, *([spec.stack] if spec.stack > 1 else []), *o.shape)
        values = rng.standard_normal(shape) if o.dtype == "<f4" else rng.integers(0, 2 if o.dtype == "|b1" else 128, shape)
        out.append(torch.tensor(np.asarray(values).astype(o.dtype).reshape(shape)))
    return out
