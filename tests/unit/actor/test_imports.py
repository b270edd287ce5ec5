"""The robot side imports where torch, gymnasium and uvloop are not installed."""

import subprocess
import sys

CODE = """
import sys
for name in ("torch", "gymnasium", "uvloop", "mujoco", "imageio"):
    sys.modules[name] = None  # any import of it now raises ImportError
import headrace.actor, headrace.actor.assembler, headrace.actor.config, headrace.actor.envs, headrace.actor.evaluate
import headrace.actor.policy, headrace.actor.stacking, headrace.actor.tape
import headrace.actor.loop, headrace.actor.robot_lanes, headrace.actor.fake_arm
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_spec as probe
assert probe(EnvConfig("headrace.actor.fake_arm:FakeArm"), WindowConfig(), robot=True).action.dim == 6
from headrace.actor.policy import make_policy
from headrace.common.errors import SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
spec = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
try:
    make_policy(WeightSet(Version("a", 1, 1), {"type": "torch"}, {}), spec)
except SpecError as error:
    print(error)
eye = TransitionSpec((ObsSpec("eye", (9, 9, 3), "|u1"),), ActionSpec((1,), (-1.0,), (1.0,)))
pixels = {"type": "torch", "class": "headrace.learner.pixels:Pixels"}
pixels["options"] = {"channels": [2], "strides": [2], "projection": 3, "hidden": [4]}
import numpy as np
from headrace.actor.pixel_policy import PixelLayout
tensors = {name: np.ones(shape, np.float32) for name, shape in PixelLayout.of(pixels, eye).shapes.items()}
policy = make_policy(WeightSet(Version("a", 1, 1), pixels, tensors), eye)
print(type(policy).__name__, policy.act({"eye": np.zeros((2, 9, 9, 3), np.uint8)}, np.random.default_rng(0), True).shape)
print(sorted(m for m in ("torch", "gymnasium", "uvloop", "scipy", "matplotlib") if sys.modules.get(m)))
"""


def test_import_without_the_heavy_packages():
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "a policy of type 'torch' runs in torch, which this machine lacks" in lines[0]
    assert lines[1:] == ["PixelPolicy (2, 1)", "[]"]
