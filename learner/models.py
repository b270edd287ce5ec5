"""Models by name: built-in ones, or a class of one's own as ``module:Class``."""

from __future__ import annotations

import importlib

import torch

from headrace.common.config import load
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import TransitionSpec
from headrace.learner.config import ModelConfig
from headrace.learner.contract import REQUIRED, SupportSACTraining

BUILT_IN = {
    "mlp": "headrace.learner.mlp:MLP",
    "pixels": "headrace.learner.pixels:Pixels",
    "flow": "headrace.learner.flow_policy:FlowPolicy",
    "residual": "headrace.learner.residual:Residual",
    "dsrl": "headrace.learner.noise_policy:NoisePolicy",
}


def make_model(spec: TransitionSpec, config: ModelConfig, seed: int) -> SupportSACTraining:
    """The model that ``config`` names, with its initial weights drawn from ``seed``; the global generator is as before.

    Raises:
        ConfigError: the class cannot be imported, lacks a part of the contract, or refuses an option.
        SpecError: the class cannot work with this spec.
    """
    cls = check_model(config)
    if spec.latent and not cls.LATENT:
        raise SpecError(f"window.latent: {spec.latent}, but model.type {config.type} decides on no latents; nearest valid: 0")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return cls(spec, **config.options)


def check_model(config: ModelConfig) -> type[SupportSACTraining]:
    """The class that ``config`` names, which takes its options; nothing is made.

    Raises:
        ConfigError: as :func:`make_model`.
    """
    cls = find_model(config.type)
    load(cls.Options, config.options, "model.options")
    return cls


def find_model(name: str) -> type[SupportSACTraining]:
    """The class behind a ``model.type``.

    Raises:
        ConfigError: there is none, or it lacks a part of the contract.
    """
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not module or not attribute:
        raise ConfigError(f"model.type: {name!r} is neither one of {', '.join(BUILT_IN)} nor module:Class")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a foreign module may raise anything while it is imported
        raise ConfigError(f"model.type: {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, type) or not issubclass(found, SupportSACTraining):
        raise ConfigError(f"model.type: {name!r} does not extend headrace.learner.contract.SupportSACTraining")
    missing = [name for name in REQUIRED if getattr(found, name) is getattr(SupportSACTraining, name)]
    if missing:
        raise ConfigError(f"model.type: {name!r} does not define {', '.join(missing)} of the SupportSACTraining contract")
    return found
