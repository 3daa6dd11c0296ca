"""The halves together are the model: outputs, gradients, one step, statistics, names."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from splitting.zoo import CASES, Case
from splitwiper.splitting import CutWarning, Halves, call_with, split
from splitwiper.splitting.trees import leaves, map_leaves, same


def each(test: Callable[[Case], None]) -> Callable[[Case], None]:
    """A third of the networks each day."""
    return pytest.mark.share(3)(pytest.mark.parametrize("case", CASES, ids=str)(test))


def cut(case: Case) -> tuple[nn.Module, Halves]:
    model = case.factory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        halves = split(model, case.at, case.inputs(1), shared=case.shared, allow_data_dependent=case.allow)
    return model, halves


def loss_of(output: Any) -> Tensor:
    tensors = [leaf for _, leaf in leaves(output) if isinstance(leaf, Tensor)]
    return sum((t.square().mean() for t in tensors), start=torch.zeros(()))


def both(halves: Halves) -> dict[str, Tensor]:
    return {**halves.client.state_dict(), **halves.server.state_dict()}


@each
def test_evaluation_is_the_same_for_any_number_of_rows(case: Case) -> None:
    model, halves = cut(case)
    model.eval()
    halves.client.eval()
    halves.server.eval()
    for rows in (1, 2, 5, 8):
        inputs = case.inputs(rows)
        for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
            with mode():
                sent = call_with(halves.client, inputs)
                assert same(halves.server(sent), call_with(model, inputs))
        assert tuple(sent) == case.boundary == tuple(spec.name for spec in halves.boundary)
        for spec in halves.boundary:
            assert tuple(sent[spec.name].shape) == (rows, *spec.shape)
            assert sent[spec.name].dtype == spec.dtype


@each
def test_training_is_the_same(case: Case) -> None:
    model, halves = cut(case)
    model.train()
    halves.client.train()
    halves.server.train()
    parameters = [*halves.client.parameters(), *halves.server.parameters()]
    whole_sgd, half_sgd = (torch.optim.SGD(p, 0.1, momentum=0.9) for p in (model.parameters(), parameters))
    for step, rows in enumerate((4, 3)):
        inputs = case.inputs(rows)
        torch.manual_seed(step)
        whole = call_with(model, inputs)
        torch.manual_seed(step)
        parts = halves.server(call_with(halves.client, inputs))
        assert same(parts, whole)
        whole_sgd.zero_grad()
        half_sgd.zero_grad()
        loss_of(whole).backward()
        loss_of(parts).backward()
        grads = {n: p.grad for half in (halves.client, halves.server) for n, p in half.named_parameters()}
        assert same(
            {name: grads[name] for name, _ in model.named_parameters()},
            {name: p.grad for name, p in model.named_parameters()},
        )
        whole_sgd.step()
        half_sgd.step()
        state = model.state_dict()
        assert same({name: both(halves)[name] for name in state}, dict(state))
    test = case.inputs(6)
    model.eval()
    halves.client.eval()
    halves.server.eval()
    assert same(halves.server(call_with(halves.client, test)), call_with(model, test))


@each
def test_states_are_disjoint_complete_and_keep_their_names(case: Case) -> None:
    model, halves = cut(case)
    client, server = set(halves.client.state_dict()), set(halves.server.state_dict())
    assert not client & server
    assert client | server == set(model.state_dict())
    assert client and server
    held = sum(p.numel() for half in (halves.client, halves.server) for p in half.parameters())
    assert held == sum(p.numel() for p in model.parameters())
    mine = {p.data_ptr() for p in model.parameters()}
    assert not mine & {p.data_ptr() for half in (halves.client, halves.server) for p in half.parameters()}


@each
def test_halves_survive_copies_loading_and_casts(case: Case) -> None:
    model, halves = cut(case)
    model.eval()
    client, server = copy.deepcopy(halves.client).eval(), copy.deepcopy(halves.server).eval()
    inputs = case.inputs(3)
    expected = call_with(model, inputs)
    assert same(server(call_with(client, inputs)), expected)
    for half, other in ((client, halves.client), (server, halves.server)):
        assert not {p.data_ptr() for p in half.parameters()} & {p.data_ptr() for p in other.parameters()}
        with torch.no_grad():
            for parameter in half.parameters():
                parameter.zero_()
        half.load_state_dict(dict(other.state_dict()))  # without torch's own notes, as from a file
        with pytest.raises(RuntimeError, match="Unexpected key"):
            half.load_state_dict(model.state_dict())
    assert same(server(call_with(client, inputs)), expected)
    model.to(torch.float64)
    client.to(torch.float64)
    server.to(torch.float64)
    wide = map_leaves(lambda _, leaf: leaf.double() if leaf.is_floating_point() else leaf, inputs)
    assert same(server(call_with(client, wide)), call_with(model, wide))


@each
def test_split_leaves_the_model_and_the_generators_alone(case: Case) -> None:
    model = case.factory()
    model.train()
    children = list(model.children())
    children[0].eval()
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    buffers = copy.deepcopy(dict(model.named_buffers()))
    inputs = case.inputs(2)
    before = copy.deepcopy(inputs)
    generator = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        halves = split(model, case.at, inputs, shared=case.shared, allow_data_dependent=case.allow)
    assert torch.equal(generator, torch.get_rng_state())
    assert modes == [module.training for module in model.modules()]
    assert same(dict(model.state_dict()), dict(state)) and same(dict(model.named_buffers()), buffers)
    assert same(inputs, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert halves.server.training == model.training
