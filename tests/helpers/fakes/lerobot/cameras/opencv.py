"""A camera whose pictures count up, 100 a second; ``index_or_path`` says what is wrong with it."""

import threading
import time
from dataclasses import dataclass

import numpy as np

from lerobot.cameras import CameraConfig

GATE = threading.Event()  # a camera that is held waits for it before its second picture


@CameraConfig.register_subclass("opencv")
@dataclass
class OpenCVCameraConfig(CameraConfig):
    width: int
    height: int
    fps: int = 100
    index_or_path: int | str = 0


class OpenCVCamera:
    def __init__(self, config):
        self.config, self.width, self.height = config, config.width, config.height
        self.is_connected, self.number = False, 0

    def connect(self):
        if self.config.index_or_path == "absent":
            raise ConnectionError("Failed to open camera.")
        self.is_connected = True

    def async_read(self, timeout_ms=200):
        time.sleep(1 / self.config.fps)
        self.number += 1
        if self.config.index_or_path == "held" and self.number > 1:
            GATE.wait(30)
        if self.config.index_or_path == "dies" and self.number > 5:
            raise RuntimeError("camera is gone")
        if self.config.index_or_path == "stutters" and self.number % 2:
            raise TimeoutError
        width = self.width + (self.config.index_or_path == "wide")
        return np.full((self.height, width, 3), self.number % 256, np.uint8)

    def disconnect(self):
        self.is_connected = False
