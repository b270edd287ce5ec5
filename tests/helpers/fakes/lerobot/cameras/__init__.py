"""The registry of cameras, and how some are made."""

import draccus


class CameraConfig(draccus.ChoiceRegistry):
    """Of any camera."""


def make_cameras_from_configs(configs):
    from lerobot.cameras.opencv import OpenCVCamera

    return {name: OpenCVCamera(config) for name, config in configs.items()}
