"""Critics with dropout, layer norm and batch norm."""

import pytest
import torch

from headrace.learner.critic import BATCH_NORM_MOMENTUM, Dropout, SteadyCritic


def critic(hidden=(8, 8), **options):
    torch.manual_seed(0)
    return SteadyCritic(3, hidden, **{"layer_norm": False, "dropout": 0.0, "batch_norm": False, **options})


def inputs(rows=6):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(5))


def kinds(net):
    return [type(layer).__name__ for layer in net]


def test_what_is_asked_for_stands_where_the_papers_have_it():
    assert kinds(critic(hidden=(8,))) == ["Linear", "ReLU", "Head"]
    assert kinds(critic(hidden=(8,), layer_norm=True, dropout=0.1)) == ["Linear", "Dropout", "LayerNorm", "ReLU", "Head"]
    assert kinds(critic(hidden=(8,), batch_norm=True)) == ["BatchNorm1d", "Linear", "ReLU", "BatchNorm1d", "Head"]
    assert kinds(critic(hidden=(), batch_norm=True)) == ["BatchNorm1d", "Head"]


def test_layer_norm_takes_mean_and_scale_out_of_each_rows_units():
    net, x = critic(hidden=(8,), layer_norm=True), inputs()
    units = net[0](x)
    centred = units - units.mean(dim=1, keepdim=True)
    normal = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(net(x), net[3](torch.relu(normal)))


def test_dropout_keeps_the_mean_and_leaves_out_its_share():
    dropped = Dropout(0.25)(torch.ones(1000, 200))
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.005)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)


def test_masks_come_from_the_given_generator_alone():
    net, x = critic(dropout=0.5), inputs()
    for layer in net:
        if isinstance(layer, Dropout):
            layer.generator = torch.Generator()
    passes = []
    for seed in (1, 1, 2):
        for layer in net:
            if isinstance(layer, Dropout):
                layer.generator.manual_seed(seed)
        torch.manual_seed(len(passes))
        before = torch.get_rng_state()
        passes.append(net(x))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(passes[0], passes[1])
    assert not torch.equal(passes[0], passes[2])


def test_dropout_sleeps_in_eval_mode():
    net, x = critic(dropout=0.5), inputs()
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_a_row_alone_is_judged_by_running_statistics_and_leaves_them():
    net = critic(batch_norm=True)
    for _ in range(50):
        net(inputs(64) + 1)
    net.eval()
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    torch.testing.assert_close(net(inputs()[:1]), net(inputs())[:1])
    assert all(torch.equal(buffer, before[name]) for name, buffer in net.named_buffers())


def test_running_statistics_take_a_hundredth_of_each_batch():
    net, x = critic(batch_norm=True), inputs()
    net(x)
    torch.testing.assert_close(net[0].running_mean, BATCH_NORM_MOMENTUM * x.mean(dim=0))
    torch.testing.assert_close(net[0].running_var, (1 - BATCH_NORM_MOMENTUM) + BATCH_NORM_MOMENTUM * x.var(dim=0))
    assert BATCH_NORM_MOMENTUM == 0.01
