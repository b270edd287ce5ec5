"""An arm of three motors that is at once where it is told to be; what happens to it is in files beside its port."""

from dataclasses import dataclass
from pathlib import Path

from lerobot.robots import RobotConfig

MOTORS = ("shoulder", "elbow", "gripper")


@RobotConfig.register_subclass("so101_follower")
@dataclass
class SOFollowerConfig(RobotConfig):
    port: str
    id: str | None = None
    max_relative_target: float | None = None
    use_degrees: bool = False


class SOFollower:
    def __init__(self, config):
        self.config = config
        self.is_connected, self.calibrated, self.disconnected = False, config.id is not None, 0
        self.joints = dict.fromkeys((f"{motor}.pos" for motor in MOTORS), 0.0)
        self.sent, self.most = [], None

    @property
    def observation_features(self):
        return dict.fromkeys(self.joints, float)

    @property
    def action_features(self):
        return dict.fromkeys(self.joints, float)

    @property
    def is_calibrated(self):
        assert self.is_connected
        return self.calibrated

    def connect(self, calibrate=True):
        assert not calibrate  # that moves, and asks at the terminal
        if not self.config.port.startswith("/"):
            raise ConnectionError(f"\nCould not connect on port '{self.config.port}'.\nTry another one.\n")
        self.is_connected = True

    def get_observation(self):
        assert self.is_connected
        return dict(self.joints)

    def send_action(self, action):
        assert self.is_connected
        assert list(action) == list(self.joints)
        self.sent.append(dict(action))
        self.joints = {name: x if self.most is None else max(-self.most, min(self.most, x)) for name, x in action.items()}
        if Path(self.config.port).suffix == ".log":
            with Path(self.config.port).open("a") as log:
                print(*self.joints.values(), file=log)
        return dict(self.joints)

    def disconnect(self):
        assert self.is_connected
        self.is_connected, self.disconnected = False, self.disconnected + 1
