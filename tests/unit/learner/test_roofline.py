"""What one update costs in products, and what the machine could do."""

import pytest
import torch
from helpers.learner import make_spec

from headrace.common.clock import ManualClock, MonotonicClock
from headrace.common.specs import ObsSpec
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.roofline import gemm_rate, roofline, update_flop

HALFCHEETAH = make_spec(action=(6,), obs=(ObsSpec("obs", (17,), "<f4"),))


@pytest.mark.parametrize(("interval", "macs"), [(1, 1_135_872), (2, 1_135_872 - (2 * 143_360 + 3 * 72_960 - 17 * 256) / 2)])
def test_the_products_of_one_update_by_hand(interval, macs):
    """23 x 256 + 256 x 256 + 256 = 71,680 weights a critic, 17 x 256 + 256 x 256 + 256 x 12 = 72,960 of the actor."""
    model = make_model(HALFCHEETAH, ModelConfig(), 0)
    assert update_flop(model, LearnerConfig(batch_size=256, actor_update_interval=interval)) == 2 * 256 * macs


def test_the_roofline_is_the_measured_rate_over_what_an_update_costs():
    class Clock(ManualClock):
        def now(self):
            self.advance(0.05)  # a product takes so long
            return super().now()

    rate = gemm_rate(torch.device("cpu"), 8, 16, Clock())
    assert rate == pytest.approx(2 * 8 * 16 * 16 / 0.05)
    model, config = make_model(HALFCHEETAH, ModelConfig(options={"hidden": [16]}), 0), LearnerConfig(batch_size=8)
    assert roofline(model, config, MonotonicClock()) > 0
    ideal = 2 * 8 * 16 * 16 / 0.05 / update_flop(model, config)
    assert roofline(model, config, Clock()) == pytest.approx(ideal)
    model.use_threads(2)
    try:
        assert roofline(model, config, Clock()) == pytest.approx(2 * ideal)
    finally:
        model.close()
    gemm_rate(torch.device("cpu"), 8, 16, ManualClock())  # ends, whatever the clock says


def test_of_other_models_nobody_knows():
    model = make_model(make_spec(), ModelConfig("helpers.learner:OwnModel", {}), 0)
    assert roofline(model, LearnerConfig(), ManualClock()) is None
