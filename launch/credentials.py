"""The keys of a run: in which directory they are, and which of them ``train`` makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.common.config import load, merge, parse_overrides, replace
from headrace.common.errors import ConfigError
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keys import BOUND, BUFFER, LEARNER, OPERATOR
from headrace.common.wire.messages import POLICY_SERVER, SHARD
from headrace.common.wire.network import NetworkConfig, is_loopback
from headrace.launch.config import parse_value, read_config
from headrace.launch.rundir import RunDir
from headrace.launch.supervision import RolePlan


def keyed(network: NetworkConfig, run: RunDir) -> NetworkConfig:
    """``network`` as the roles of ``run`` use it: with the keys that ``train`` made there, unless it names others."""
    return replace(network, keys=str(run.keys)) if not network.keys and run.keys.is_dir() else network


def absolute(network: NetworkConfig) -> NetworkConfig:
    """``network`` with a path of its keys that means the same in any working directory."""
    return replace(network, keys=str(Path(network.keys).expanduser().absolute())) if network.keys else network


def make_keys(network: NetworkConfig, run: RunDir, plans: Sequence[RolePlan]) -> NetworkConfig:
    """Make the keys that the roles of ``train`` lack: where ``network.keys`` says, else in the run where others could come in.

    Returns:
        The network as those roles use it.

    Raises:
        ConfigError: they cannot be made.
    """
    network = keyed(network, run)
    if not network.keys:
        if network.insecure or is_loopback(network.endpoint):
            return network
        network = replace(network, keys=str(run.keys))
    files = KeyFiles.of(network)
    named = {plan.name: plan.kind for plan in plans if plan.kind in (*BOUND, POLICY_SERVER)}
    if sum(plan.kind == BUFFER for plan in plans) > 1:
        named[SHARD] = SHARD
    for name, role in {BUFFER: BUFFER, LEARNER: LEARNER, OPERATOR: OPERATOR, **named}.items():
        if not files.secret_path(name).exists():
            files.new(name, role)
    return network


def network_of(target: str, overrides: Sequence[str] = ()) -> NetworkConfig:
    """How to reach the buffer of TARGET, a run or an endpoint.

    Args:
        target: as people say it.
        overrides: words such as ``--network.keys DIR``.

    Raises:
        ConfigError: an override is of another section, or the run cannot be read.
    """
    asked = parse_overrides(overrides, parse_value)
    if others := sorted(set(asked) - {"network"}):
        raise ConfigError(f"--{others[0]}: to look at a run takes the keys of network alone, such as --network.keys DIR")
    run = None if "://" in target else RunDir.open(Path(target))
    own = read_config(run.config).get("network") or {} if run is not None else {}
    network = load(NetworkConfig, merge(own, asked.get("network", {})), "network")
    return network if run is None else keyed(network, run)
