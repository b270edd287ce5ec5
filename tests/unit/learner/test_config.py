"""Options of the learner."""

import subprocess
import sys

import pytest

from headrace.common.config import load
from headrace.common.errors import ConfigError
from headrace.learner.config import LearnerConfig


def test_defaults_are_those_of_the_papers():
    c = LearnerConfig()
    assert (c.actor_lr, c.critic_lr, c.alpha_lr, c.gamma, c.tau, c.batch_size, c.alpha) == (
        3e-4,
        3e-4,
        3e-4,
        0.99,
        0.005,
        256,
        1,
    )
    assert load(LearnerConfig, {}) == c


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": "auto"}, "learner.temperature: 'auto' is not one of auto_exp, auto_log, auto_softplus, fixed"),
        ({"alpha": 0}, "learner.alpha: 0 with temperature auto_exp would never move; nearest valid: 1e-06"),
        ({"micro_batch_size": 300}, "learner.micro_batch_size: 300 rows, but batch_size is 256; nearest valid: 256, or none"),
        ({"tau": 0}, "learner.tau: 0 is below the smallest allowed value"),
        (
            {"td3_bc_alpha": 2.5},
            "learner.td3_bc_alpha: 2.5 with learner.bc_weight 0, so nothing is cloned; nearest valid: none",
        ),
        ({"bc_sources": ["robot"]}, "learner.bc_sources[0]: 'robot' is not one of policy, human, demo"),
        ({"ema_decay": 1}, "learner.ema_decay: 1 is above the largest allowed value"),
        ({"target_entropy": -2}, "learner.target_entropy: unknown key; did you mean 'target_entropy_per_dim'"),
        ({"actor_update_intervall": 2}, "did you mean 'actor_update_interval'"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(ConfigError) as caught:
        load(LearnerConfig, values, "learner")
    assert message in str(caught.value)


def test_options_and_sinks_import_no_torch():
    code = "import sys; sys.modules['torch'] = None; import headrace.learner.config, headrace.learner.sinks"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
