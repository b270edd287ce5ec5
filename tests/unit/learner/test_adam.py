"""Adam against torch's own, and what a voided step leaves."""

import pytest
import torch

from headrace.common.errors import CheckpointError, SpecError
from headrace.learner.adam import Adam

GO, SKIP = torch.zeros(()), torch.ones(())


def make():
    generator = torch.Generator().manual_seed(0)
    return [("a", torch.randn(4, 3, generator=generator)), ("b", torch.randn(3, generator=generator))]


def gradients(i):
    generator = torch.Generator().manual_seed(i)
    return [torch.randn(4, 3, generator=generator), torch.randn(3, generator=generator)]


def test_steps_are_those_of_torch():
    ours, theirs = make(), [torch.nn.Parameter(p) for _, p in make()]
    optimizer, reference = Adam(ours, 0.01, (0.5, 0.9)), torch.optim.Adam(theirs, 0.01, (0.5, 0.9))
    for i in range(5):
        optimizer.step(gradients(i), GO)
        for p, g in zip(theirs, gradients(i), strict=True):
            p.grad = g
        reference.step()
    for (_, p), q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q.detach())


def test_a_voided_step_changes_nothing_at_all():
    parameters = make()
    optimizer = Adam(parameters, 0.01)
    optimizer.step(gradients(0), GO)
    kept, state = [p.clone() for _, p in parameters], optimizer.get_state()
    optimizer.step([torch.full_like(g, torch.nan) for g in gradients(1)], SKIP)
    assert all(torch.equal(p, k) for (_, p), k in zip(parameters, kept, strict=True))
    assert all(torch.equal(value, state[name]) for name, value in optimizer.get_state().items())
    assert optimizer.check_valid() == (True, "")


def test_gradients_of_any_layout_step_alike():
    first, second = make(), make()
    g = gradients(0)
    Adam(first, 0.01).step(g, GO)
    Adam(second, 0.01).step([g[0].t().contiguous().t(), g[1]], GO)
    assert torch.equal(first[0][1], second[0][1])
    expanded = [("a", torch.zeros(4, 3))]
    Adam(expanded, 0.01).step([torch.tensor(2.0).expand(4, 3)], GO)
    torch.testing.assert_close(expanded[0][1], torch.full((4, 3), -0.01))


@pytest.mark.parametrize("parameter", [torch.zeros(4, 3)[:, :2], torch.zeros(3, dtype=torch.float64), torch.zeros(1).expand(3)])
def test_what_the_kernel_cannot_step_through_is_refused(parameter):
    with pytest.raises(SpecError, match="parameter a: .*only dense float32"):
        Adam([("a", parameter)], 0.01)


def test_state_is_copied_out_and_in():
    first, second = Adam(make(), 0.01), Adam(make(), 0.01)
    first.step(gradients(0), GO)
    state = first.get_state()
    first.step(gradients(1), GO)
    assert state["count"] == 1
    second.set_state(state)
    assert second.get_state()["count"] == 1
    with pytest.raises(CheckpointError, match=r"'mean\.b' is missing"):
        second.set_state({name: t for name, t in state.items() if name != "mean.b"})
    assert torch.equal(second.get_state()["mean.a"], state["mean.a"])


def test_check_valid_names_the_parameter():
    optimizer = Adam(make(), 0.01)
    state = optimizer.get_state()
    state["square.b"][0] = -1
    optimizer.set_state(state)
    assert optimizer.check_valid() == (False, "moments of b are not finite")
