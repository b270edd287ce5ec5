"""A leader arm of three motors, which the test moves."""

from dataclasses import dataclass

from lerobot.teleoperators import TeleoperatorConfig


@TeleoperatorConfig.register_subclass("so101_leader")
@dataclass
class SOLeaderConfig(TeleoperatorConfig):
    port: str
    id: str | None = None


class SOLeader:
    def __init__(self, config):
        self.config, self.is_connected, self.joints = config, False, [0.0, 0.0, 0.0]

    @property
    def action_features(self):
        return dict.fromkeys(("shoulder.pos", "elbow.pos", "gripper.pos"), float)

    @property
    def is_calibrated(self):
        return self.config.id is not None

    def connect(self, calibrate=True):
        assert not calibrate
        if not self.config.port.startswith("/"):
            raise ConnectionError(f"Could not connect on port '{self.config.port}'.")
        self.is_connected = True

    def get_action(self):
        assert self.is_connected
        return dict(zip(self.action_features, self.joints, strict=True))

    def disconnect(self):
        self.is_connected = False
