"""The temperature over time."""

import pytest
import torch

from headrace.learner.config import LearnerConfig
from headrace.learner.temperature import Temperature

GO = torch.zeros(())


@pytest.mark.parametrize("form", ["auto_exp", "auto_log", "auto_softplus", "fixed"])
@pytest.mark.parametrize("alpha", [0.01, 1.0, 5.0])
def test_alpha_starts_where_it_was_told(form, alpha):
    temperature = Temperature(LearnerConfig(temperature=form, alpha=alpha), -1.0)
    assert temperature.alpha().item() == pytest.approx(alpha, rel=1e-5)


@pytest.mark.parametrize("form", ["auto_exp", "auto_log", "auto_softplus"])
def test_alpha_follows_the_entropy(form):
    up, down = (Temperature(LearnerConfig(temperature=form), -1.0) for _ in range(2))
    for _ in range(10):
        up.update(torch.tensor(2.0), GO)
        down.update(torch.tensor(-2.0), GO)
    assert down.alpha() < 1 < up.alpha()
    kept = up.alpha()
    up.update(torch.tensor(2.0), torch.ones(()))
    assert torch.equal(up.alpha(), kept)


@pytest.mark.parametrize("form", ["auto_exp", "auto_log", "auto_softplus"])
@pytest.mark.parametrize(("log_prob", "rises"), [(0.5, False), (1.5, True)])
def test_alpha_rises_where_the_entropy_is_below_the_target_itself_and_not_below_zero(form, log_prob, rises):
    temperature = Temperature(LearnerConfig(temperature=form), -1.0)  # entropies of -0.5 and -1.5
    temperature.update(torch.tensor(log_prob), GO)
    assert (temperature.alpha() > 1) == rises


def test_fixed_alpha_stays():
    temperature = Temperature(LearnerConfig(temperature="fixed", alpha=0.2), -1.0)
    temperature.update(torch.tensor(5.0), GO)
    assert temperature.alpha().item() == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("form", "lr", "steps"), [("auto_log", 3e-4, 100_000), ("auto_exp", 0.03, 1000), ("auto_softplus", 0.03, 1000)]
)
def test_alpha_stays_positive_for_ever(form, lr, steps):
    temperature = Temperature(LearnerConfig(temperature=form, alpha_lr=lr), -1.0)
    low = torch.tensor(-2.0)  # the entropy is always too high, so that alpha always falls
    for _ in range(steps):
        temperature.update(low, GO)
    assert 0 < temperature.alpha() < 0.01
