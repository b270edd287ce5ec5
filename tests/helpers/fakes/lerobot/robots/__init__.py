"""The registry of robots, and how one is made."""

import draccus


class RobotConfig(draccus.ChoiceRegistry):
    """Of any robot."""


def make_robot_from_config(config):
    from lerobot.robots.so_follower import SOFollower

    return SOFollower(config)
