"""Losses by numbers that can be checked by hand."""

import math

import pytest
import torch

from headrace.common.errors import SpecError
from headrace.learner import losses
from headrace.learner.distribution import TanhGaussian


def f32(*values):
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(
    ("rewards", "steps", "terminated", "expected"),
    [
        ([1, 2, 3], 3, 0, (5.23, 0.729)),  # 1 + 1.8 + 2.43
        ([1, 2, 0], 2, 1, (2.8, 0.0)),
        ([1, 2, 0], 2, 0, (2.8, 0.81)),  # truncated at the second: bootstraps from its own next observation
    ],
)
def test_n_step_return_and_bootstrap(rewards, steps, terminated, expected):
    powers = losses.discounts(0.9, 3)
    assert losses.discounted_return(f32(rewards), powers).item() == pytest.approx(expected[0], abs=1e-6)
    weight = losses.bootstrap(torch.tensor([steps]), torch.tensor([terminated], dtype=torch.uint8), powers)
    assert weight.item() == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize(("terminated", "weight"), [(1, 0.0), (0, 0.81)])
def test_chunk_of_four_that_ended_after_two(terminated, weight):
    powers = losses.discounts(0.9, 4)
    assert losses.discounted_return(f32([1, 1, 0, 0]), powers).item() == pytest.approx(1.9)
    found = losses.bootstrap(torch.tensor([2]), torch.tensor([terminated]), powers).item()
    assert found == pytest.approx(weight)  # 0.81 = 0.9^2; 0.6561 would be the chunk's length, not what was executed


@pytest.mark.parametrize(("terminated", "truncated", "expected"), [(0, 0, 10.9), (1, 0, 1.0), (0, 1, 10.9), (1, 1, 1.0)])
def test_target_of_the_four_kinds_of_ends(terminated, truncated, expected):
    weight = losses.bootstrap(torch.tensor([1]), torch.tensor([terminated]), losses.discounts(0.9, 1))
    target = losses.td_target(f32(1), weight, f32([10, 12]), f32(-2), 0.5)  # 1 + .9 (10 - .5 * -2)
    assert target.item() == pytest.approx(expected, abs=1e-6)


def test_target_without_entropy_backup():
    target = losses.td_target(f32(1), f32(0.9), f32([10, 12]), None, 0.5)
    assert target.item() == pytest.approx(10.0)


def test_targets_stay_exact_under_bfloat16_autocast():
    powers = losses.discounts(0.9, 1)
    with torch.autocast("cpu", torch.bfloat16):
        q = torch.nn.functional.linear(f32([1.0]), f32([10.0], [12.0]))
        assert q.dtype == torch.bfloat16
        weight = losses.bootstrap(torch.tensor([1]), torch.tensor([0]), powers)
        target = losses.td_target(f32(1), weight, q, f32(-2).bfloat16(), f32(0.5)[0])
    assert target.dtype == torch.float32
    assert target.item() == pytest.approx(10.9, abs=1e-6)


def test_bfloat16_scalars_would_be_seen():
    assert torch.tensor(0.99, dtype=torch.bfloat16).item() == pytest.approx(0.98828, abs=1e-5)
    assert torch.tensor(0.995, dtype=torch.bfloat16).item() == pytest.approx(0.99609, abs=1e-5)
    weight = losses.bootstrap(torch.tensor([1]), torch.tensor([0]), losses.discounts(0.9, 1).bfloat16())
    assert losses.td_target(f32(1), weight, f32([10, 12]), f32(-2), 0.5).item() != pytest.approx(10.9, abs=1e-3)


def test_critic_loss_sums_over_critics_and_averages_over_rows():
    q, target = f32([1, 2], [3, 4]), f32(0, 1)
    assert losses.critic_loss(q, target).item() == pytest.approx((1 + 4) / 2 + (4 + 9) / 2)


def test_importance_weights_multiply_each_rows_loss():
    q, target = f32([1, 2], [3, 4]), f32(0, 1)
    assert losses.critic_loss(q, target, f32(1, 0.5)).item() == pytest.approx((1 + 2) / 2 + (4 + 4.5) / 2)
    with pytest.raises(SpecError, match="importance"):
        losses.critic_loss(q, target, f32([1], [1]))


def test_td_error_is_the_mean_over_the_critics():
    assert losses.td_error(f32([1, 2], [3, -4]), f32(0, 1)).tolist() == [1.5, 3.5]
    with pytest.raises(SpecError):
        losses.td_error(f32([1, 2], [3, -4]), f32([0], [1]))


def test_actor_loss_takes_the_minimum_of_each_row():
    q, log_prob = f32([1, 2], [4, 3]), f32(-1, -3)
    assert losses.actor_loss(q, log_prob, 0.5).item() == pytest.approx(((-0.5 - 1) + (-1.5 - 3)) / 2)
    assert losses.actor_loss(q, None, 0.0).item() == pytest.approx(-2.0)


def test_actor_loss_may_take_the_mean_of_each_row():
    q, log_prob = f32([1, 2], [4, 3]), f32(-1, -3)
    assert losses.actor_loss(q, log_prob, 0.5, "mean").item() == pytest.approx(((-0.5 - 1.5) + (-1.5 - 3.5)) / 2)


def test_gradients_by_hand_are_those_of_autograd():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(16, 3, generator=generator, requires_grad=True)
    log_prob = torch.randn(16, generator=generator, requires_grad=True)
    target, alpha = torch.randn(16, generator=generator), torch.tensor(0.3)
    d_q = torch.autograd.grad(losses.critic_loss(q, target), q)[0]
    torch.testing.assert_close(losses.critic_loss_gradient(q.detach(), target, len(q)), d_q)
    weights = torch.rand(16, generator=generator)
    d_q = torch.autograd.grad(losses.critic_loss(q, target, weights), q)[0]
    torch.testing.assert_close(losses.critic_loss_gradient(q.detach(), target, len(q), weights), d_q)
    for reduction in ("min", "mean"):
        d_q, d_log_prob = torch.autograd.grad(losses.actor_loss(q, log_prob, alpha, reduction), (q, log_prob))
        by_hand = losses.actor_loss_gradient(q.detach(), alpha, len(q), reduction)
        torch.testing.assert_close(by_hand[0], d_q)
        torch.testing.assert_close(by_hand[1].expand(16), d_log_prob)


def test_what_does_not_count_is_zero_in_the_mean_of_the_cloning():
    action, executed = f32([0.5, -0.5], [1, 2]), f32([0, 0], [0, 0])
    assert losses.cloning_loss(action, executed, f32([1, 1], [1, 1])).item() == pytest.approx((0.25 + 0.25 + 1 + 4) / 4)
    assert losses.cloning_loss(action, executed, f32([1, 1], [1, 0])).item() == pytest.approx((0.25 + 0.25 + 1) / 4)
    halves = [losses.cloning_loss(action[i : i + 1], executed[i : i + 1], f32([1, 1 - i])) for i in (0, 1)]
    assert sum(halves).item() / 2 == pytest.approx((0.25 + 0.25 + 1) / 4)


def test_td3_bc_weighs_the_values_by_alpha_over_their_mean():
    assert losses.value_scale(torch.tensor(5.0), 2.5).item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (1.0, (math.log(4) - 1) + (math.log(2) - 2)),  # mean of 1 / .5 and 3 / .5 is 4; of 1 / .5 and 1 / .5 is 2
        (2.0, (2 * math.log(1 + math.sqrt(3)) - 1) + (2 * math.log(2) - 2)),
    ],
)
def test_conservative_penalty_by_hand(temperature, expected):
    q, other_q = f32([1, 2]), f32([[0, 0]], [[math.log(3), 0]])
    penalty = losses.conservative_penalty(q, other_q, torch.full((2, 1), math.log(0.5)), temperature)
    assert penalty.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("drawn", ["uniform", "policy"])
def test_the_soft_maximum_is_the_integral_whatever_the_actions_were_drawn_from(drawn):
    generator, c = torch.Generator().manual_seed(0), 2.0
    if drawn == "uniform":
        action = torch.rand(200_000, 1, generator=generator) * 2 - 1
        log_density = torch.full((200_000,), -math.log(2))
    else:
        action, log_density = TanhGaussian(f32([0.3, math.log(1.5)]).expand(200_000, 2)).sample(generator)
    penalty = losses.conservative_penalty(torch.zeros(1, 1), (c * action).unsqueeze(1), log_density.unsqueeze(1), 1.0)
    assert penalty.item() == pytest.approx(math.log(2 * math.sinh(c) / c), abs=0.01)  # of exp(c a) over [-1, 1]


def test_the_penalty_pushes_other_actions_down_and_executed_ones_up():
    q, other_q = torch.zeros(2, 1, requires_grad=True), torch.zeros(3, 2, 1, requires_grad=True)
    d_q, d_other = torch.autograd.grad(losses.conservative_penalty(q, other_q, torch.zeros(3, 2), 1.0), (q, other_q))
    torch.testing.assert_close(d_q, torch.full((2, 1), -1 / 2))
    torch.testing.assert_close(d_other, torch.full((3, 2, 1), 1 / 6))


@pytest.mark.parametrize(
    ("form", "raw", "expected"),
    [("auto_log", -0.7, -1.0), ("auto_exp", math.log(0.5), -0.5), ("auto_softplus", 0.5, -0.6224593)],
)
def test_alpha_rises_when_the_entropy_is_too_low(form, raw, expected):
    leaf = torch.tensor(raw, requires_grad=True)
    loss = losses.temperature_loss(leaf, form, f32(2, 2), -1.0)  # log pi = 2, H = -1: excess 1
    gradient = torch.autograd.grad(loss, leaf)[0]
    assert gradient.item() == pytest.approx(expected, abs=1e-6)  # -1, -alpha, -sigmoid(rho)
    by_hand = losses.temperature_gradient(leaf.detach(), form, torch.tensor(1.0))
    assert by_hand.item() == pytest.approx(expected, abs=1e-6)


def test_no_gradient_flows_into_log_pi_through_the_temperature():
    log_prob = f32(2, 2).requires_grad_()
    loss = losses.temperature_loss(torch.tensor(0.0, requires_grad=True), "auto_exp", log_prob, -1.0)
    assert torch.autograd.grad(loss, log_prob, allow_unused=True)[0] is None


column, row, pair = torch.zeros(4, 1), torch.zeros(4), torch.zeros(4, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: losses.td_target(row, row, row, row, 0.1),
        lambda: losses.td_target(row, row, pair, column, 0.1),
        lambda: losses.td_target(row, column, pair, row, 0.1),
        lambda: losses.critic_loss(pair, column),
        lambda: losses.critic_loss(row, row),
        lambda: losses.actor_loss(pair, column, 0.1),
        lambda: losses.actor_loss(row, row, 0.1),
        lambda: losses.temperature_loss(torch.zeros(()), "auto_exp", column, -1.0),
        lambda: losses.cloning_loss(pair, column, pair),
        lambda: losses.cloning_loss(pair, pair, column),
        lambda: losses.cloning_loss(row, row, row),
        lambda: losses.value_scale(row, 1.0),
        lambda: losses.conservative_penalty(row, pair, row, 1.0),
        lambda: losses.conservative_penalty(pair, pair, row, 1.0),
        lambda: losses.conservative_penalty(pair, pair.unsqueeze(0), column, 1.0),
    ],
)
def test_columns_and_rows_never_mix(call):
    with pytest.raises(SpecError, match=r"shape \(4,( [12])?\), expected"):
        call()
