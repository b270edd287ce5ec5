"""The tanh Gaussian against closed forms and quadrature."""

import math

import pytest
import torch

from headrace.common.errors import SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.learner.distribution import ActionBox, TanhGaussian, log_prob, squash_correction


def test_density_at_a_point():
    value = log_prob(torch.tensor([0.5]), torch.tensor([0.0]), torch.tensor([0.0]))
    assert value.item() == pytest.approx(-0.803710, abs=1e-6)


def test_squashing_correction_is_exact_far_out():
    assert squash_correction(torch.tensor(20.0)).item() == pytest.approx(-38.6137, abs=1e-4)
    near = torch.linspace(-4, 4, 81, dtype=torch.float64)
    torch.testing.assert_close(squash_correction(near), torch.log(1 - torch.tanh(near).square()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("u", [-50.0, -8.0, 0.0, 8.0, 50.0])
def test_finite_everywhere(u):
    mean = torch.tensor([[u, 0.0]]).requires_grad_()  # the log standard deviation 0, u far out through the mean
    policy = TanhGaussian(mean)
    action, density = policy.sample(torch.Generator().manual_seed(0))
    gradient = torch.autograd.grad(density.sum() + action.sum(), mean)[0]
    assert torch.isfinite(density).all()
    assert torch.isfinite(gradient).all()
    given = torch.tensor([u]).requires_grad_()
    density = log_prob(given, torch.tensor([0.0]), torch.tensor([0.0]))
    assert torch.isfinite(torch.autograd.grad(density, given)[0]).all()


@pytest.mark.parametrize(("low", "high", "mean", "log_std"), [(-2.0, 2.0, 0.3, -0.5), (0.0, 5.0, -0.8, -1.0)])
def test_density_integrates_to_one_over_the_box(low, high, mean, log_std):
    box = ActionBox(ActionSpec((1,), (low,), (high,)))
    n = 20_000
    actions = low + (torch.arange(n, dtype=torch.float64) + 0.5) * (high - low) / n
    u = torch.atanh((actions - box.centre.double()) / box.half.double()).unsqueeze(1)
    density = log_prob(u, torch.tensor([mean]).double(), torch.tensor([log_std]).double(), box.half.double()).exp()
    assert density.sum().item() * (high - low) / n == pytest.approx(1.0, abs=1e-3)


def test_density_integrates_to_one_over_a_box_of_two_dimensions():
    low, high, n = torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 5.0]), 400
    box = ActionBox(ActionSpec((2,), tuple(low.tolist()), tuple(high.tolist())))
    grid = (torch.arange(n) + 0.5) / n
    actions = low + torch.cartesian_prod(grid, grid) * (high - low)
    u = torch.atanh((actions - box.centre) / box.half)
    density = log_prob(u, torch.tensor([0.2, -0.3]), torch.tensor([-0.7, -0.9]), box.half).exp()
    assert density.sum().item() * 20.0 / n**2 == pytest.approx(1.0, abs=1e-3)


def test_a_wider_box_lowers_the_density_by_its_log_scale():
    u = torch.tensor([0.3, -0.4])
    unit = log_prob(u, torch.zeros(2), torch.zeros(2))
    wide = log_prob(u, torch.zeros(2), torch.zeros(2), torch.tensor([2.0, 2.5]))
    assert (unit - wide).item() == pytest.approx(math.log(2.0) + math.log(2.5), abs=1e-6)


def test_actions_never_leave_the_box():
    box = ActionBox(ActionSpec((2,), (-2.0, 0.0), (2.0, 5.0)))
    parameters = torch.tensor([[0.0, 0.0, 2.0, 2.0]]).expand(20_000, 4)  # standard deviation e^2
    action, _ = TanhGaussian(parameters).sample(torch.Generator().manual_seed(0))
    env = box.to_env(action)
    assert (env >= torch.tensor([-2.0, 0.0])).all()
    assert (env <= torch.tensor([2.0, 5.0])).all()
    assert env[:, 1].max() == 5.0  # the test reaches the edge


@pytest.mark.parametrize("high", [math.inf, math.nan])
def test_infinite_bounds_are_refused(high):
    with pytest.raises(SpecError, match="bounds"):
        TransitionSpec((ObsSpec("obs", (1,), "<f4"),), ActionSpec((1,), (-1.0,), (high,)))


def test_sample_scores_itself():
    parameters = torch.tensor([[0.4, -0.2, -1.0, 0.3]]).expand(64, 4)
    policy = TanhGaussian(parameters)
    action, density = policy.sample(torch.Generator().manual_seed(3))
    torch.testing.assert_close(policy.log_prob(action), density, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(policy.mode(), torch.tanh(parameters[:, :2]))


def test_pull_back_is_the_gradient():
    generator = torch.Generator().manual_seed(0)
    parameters = (torch.randn(32, 6, generator=generator) * 3).requires_grad_()  # some log deviations beyond the clamp
    assert (parameters[:, 3:] > 2).any()
    policy = TanhGaussian(parameters)
    action, density = policy.sample(generator)
    d_action, d_density = torch.randn(32, 3, generator=generator), torch.tensor(0.7)
    wanted = torch.autograd.grad((action, density), parameters, (d_action, d_density.expand(32)))[0]
    torch.testing.assert_close(policy.pull_back(d_action, d_density), wanted, rtol=1e-5, atol=1e-6)


def test_the_box_clips_and_counts_what_was_executed_outside():
    box = ActionBox(ActionSpec((2,), (-2.0, 0.0), (2.0, 5.0)))
    executed = torch.tensor([[2.0, 5.0], [-2.0, 0.0], [0.0, 2.5], [3.0, 2.5], [-9.0, 9.0]])
    unit, outside = box.normalise(executed)
    torch.testing.assert_close(unit, torch.tensor([[1, 1], [-1, -1], [0, 0], [1, 0], [-1, 1]], dtype=torch.float32))
    assert outside.item() == 2


def test_rounding_at_the_edge_is_not_counted():
    box = ActionBox(ActionSpec((3,), (-0.1, 0.1, -0.7), (0.3, 0.7, 1.1)))
    _, outside = box.normalise(torch.tensor([[0.3, 0.7, 1.1], [-0.1, 0.1, -0.7]]))
    assert outside.item() == 0


def test_a_chunk_repeats_the_bounds():
    box = ActionBox(ActionSpec((2, 2), (-2.0, 0.0), (2.0, 4.0)))
    unit, _ = box.normalise(torch.tensor([[2.0, 4.0, -2.0, 0.0]]))
    assert unit.tolist() == [[1, 1, -1, -1]]
