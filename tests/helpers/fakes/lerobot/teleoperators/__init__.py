"""The registry of teleoperators, and how one is made."""

import draccus


class TeleoperatorConfig(draccus.ChoiceRegistry):
    """Of any."""


def make_teleoperator_from_config(config):
    from lerobot.teleoperators.so_leader import SOLeader

    return SOLeader(config)
