"""Whether this machine can compute on a torch device; torch is imported for other devices than the CPU only."""

from __future__ import annotations

from headrace.common.errors import ConfigError


def require_device(name: str, key: str = "actor.device") -> None:
    """Refuse a device that torch does not have here.

    Args:
        name: as torch calls it, such as ``cpu`` or ``cuda:1``.
        key: config key for the message.

    Raises:
        ConfigError: naming the key, the reason and the nearest valid device.
    """
    if name == "cpu":
        return
    try:
        import torch
    except ImportError as error:
        raise ConfigError(f"{key}: {name!r} needs torch, which this machine lacks; nearest valid: cpu") from error
    try:
        torch.ones(1, device=name).item()
    except Exception as error:  # RuntimeError, AssertionError or NotImplementedError, as the build of torch has it
        cards = torch.cuda.device_count() if name.startswith("cuda") else 0
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        nearest = f"cuda:{cards - 1}" if cards else "cpu"
        raise ConfigError(f"{key}: {name!r} cannot be used here: {reason}; nearest valid: {nearest}") from error
