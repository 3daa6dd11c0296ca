"""A network's identity: what must change it, and what must not."""

from __future__ import annotations

import functools
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from splitting import zoo
from splitwiper import Halves, split
from splitwiper.splitting import identity

SCALE = 2.0
TABLE = {"sizes": [3, 5]}


def helper(x: Tensor) -> Tensor:
    return x * SCALE + len(TABLE["sizes"])


def other(x: Tensor) -> Tensor:
    return x + SCALE


class Act(nn.Module):
    """Prints the same whatever it applies."""

    def __init__(self, function: Callable[..., Any] = F.relu, **constants: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in constants.items():
            setattr(self, name, value)

    def forward(self, x: Tensor, shift: float = 0.0) -> Tensor:
        return helper(self.function(x)) + shift


class Tied(nn.Module):
    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        if tied:
            self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x))


class Options:
    __slots__ = ("rate",)

    def __init__(self, rate: float) -> None:
        self.rate = rate


class Private:
    __slots__ = ("__rate",)

    def __init__(self, rate: float) -> None:
        self.__rate = rate


class OwnFloat(float): ...


class OwnInt(int): ...


class OwnStr(str): ...


class OwnError(Exception): ...


class OwnDeque(deque[float]): ...


class OwnList(list[float]): ...


class OwnTuple(tuple[float, ...]): ...


class OwnSet(set[float]): ...


class OwnArray(np.ndarray): ...  # type: ignore[type-arg]


def marked(value: Any, mark: float = 1.0) -> nn.Module:
    """A module that holds an object with an attribute of its own."""
    value.mark = mark
    return Act(k=value)


class Scripted(nn.Module):
    def __init__(self, gain: float, table: tuple[float, ...] = (1.0, 2.0)) -> None:
        super().__init__()
        self.layer, self.gain, self.table = nn.Linear(2, 2), gain, torch.tensor(table)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.gain + self.table


def scripted(gain: float = 1.0, *, last: float = 2.0, freeze: bool = False) -> nn.Module:
    torch.manual_seed(0)
    module = torch.jit.script(Scripted(gain, (1.0, last)).eval())
    return nn.Sequential(torch.jit.freeze(module) if freeze else module)


def traced(last: float, *, rows: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(torch.jit.trace(Scripted(1.0, (1.0, last)), torch.ones(rows, 2)))


def with_marked_weight(mark: float) -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.weight.mark = mark  # type: ignore[attr-defined]
    return layer


def with_hooked_weight(factor: float | None) -> nn.Module:
    layer = nn.Linear(2, 2)
    if factor is not None:
        layer.weight.register_hook(lambda grad: grad * factor)
    return layer


def partial_with(mark: float) -> Any:
    made = functools.partial(F.relu)
    made.mark = mark  # type: ignore[attr-defined]
    return made


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Triple(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


def frozen() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.bias.requires_grad_(False)
    return layer


def buffered(value: float, *, persistent: bool = False) -> nn.Module:
    module = nn.Module()
    module.register_buffer("mask", torch.full((2,), value), persistent=persistent)
    return module


def hooked(*hooks: Callable[..., Any], **options: Any) -> nn.Module:
    layer = nn.Linear(4, 4)
    for hook in hooks:
        layer.register_forward_hook(hook, **options)
    return layer


def first_hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output + 1


def second_hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output - 1


def with_backward_hook() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.register_full_backward_hook(lambda module, inputs, outputs: None)
    return layer


def captured(k: float) -> nn.Module:
    return Act(lambda x: x * k)


def one_of_a_line(place: int) -> nn.Module:
    functions = (lambda x: x + 1, lambda x: x - 1)
    return Act(functions[place])


def overridden(function: Callable[..., Any]) -> nn.Module:
    module = Act()
    module.forward = types.MethodType(function, module)  # type: ignore[method-assign]
    return module


def parametrized(module: nn.Module | None) -> nn.Module:
    layer = nn.Linear(4, 4)
    if module is not None:
        parametrize.register_parametrization(layer, "weight", module)
    return layer


def holding(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Act(unregistered=[nn.Linear(2, 2)])


def computed(factor: float) -> Tensor:
    return torch.ones(1, requires_grad=True) * factor


CHANGES: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "heads": (lambda: nn.MultiheadAttention(8, 2), lambda: nn.MultiheadAttention(8, 4)),
    "dropout": (lambda: nn.Dropout(0.1), lambda: nn.Dropout(0.2)),
    "eps": (lambda: nn.LayerNorm(4), lambda: nn.LayerNorm(4, eps=1e-6)),
    "momentum": (lambda: nn.BatchNorm1d(4), lambda: nn.BatchNorm1d(4, momentum=0.2)),
    "padding mode": (lambda: nn.Conv1d(1, 1, 3), lambda: nn.Conv1d(1, 1, 3, padding_mode="circular")),
    "dilation": (lambda: nn.Conv1d(1, 1, 3), lambda: nn.Conv1d(1, 1, 3, dilation=2)),
    "class of torch": (lambda: nn.ReLU(), lambda: nn.SiLU()),
    "own class": (lambda: Double(), lambda: Triple()),
    "order of layers": (
        lambda: nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh())),
        lambda: nn.Sequential(OrderedDict(b=nn.Tanh(), a=nn.ReLU())),
    ),
    "name of a layer": (lambda: nn.ModuleDict({"a": nn.ReLU()}), lambda: nn.ModuleDict({"b": nn.ReLU()})),
    "shape": (lambda: nn.Linear(4, 4), lambda: nn.Linear(4, 5)),
    "bias": (lambda: nn.Linear(4, 4), lambda: nn.Linear(4, 4, bias=False)),
    "dtype": (lambda: nn.Linear(4, 4), lambda: nn.Linear(4, 4, dtype=torch.float64)),
    "requires_grad": (lambda: nn.Linear(4, 4), frozen),
    "tie removed": (Tied, lambda: Tied(tied=False)),
    "constant": (lambda: Act(k=1.0), lambda: Act(k=1.0 + 2**-52)),
    "type of a constant": (lambda: Act(k=1), lambda: Act(k=True)),
    "string": (lambda: Act(k="mean"), lambda: Act(k="sum")),
    "constant deep inside": (lambda: Act(k={"a": [(1, 2)]}), lambda: Act(k={"a": [(1, 3)]})),
    "constant in slots": (lambda: Act(k=Options(0.1)), lambda: Act(k=Options(0.2))),
    "constant of type dtype": (lambda: Act(k=torch.float32), lambda: Act(k=torch.float16)),
    "plain tensor": (lambda: Act(k=torch.zeros(3)), lambda: Act(k=torch.ones(3))),
    "array": (lambda: Act(k=np.zeros(3)), lambda: Act(k=np.ones(3))),
    "set": (lambda: Act(k={"a", "b"}), lambda: Act(k={"a", "c"})),
    "weights not registered": (lambda: holding(0), lambda: holding(1)),
    "non-persistent buffer": (lambda: buffered(0.0), lambda: buffered(1.0)),
    "persistence": (lambda: buffered(0.0), lambda: buffered(0.0, persistent=True)),
    "function of torch": (lambda: Act(F.relu), lambda: Act(F.gelu)),
    "function in C": (lambda: Act(torch.sin), lambda: Act(torch.cos)),
    "method in C": (lambda: Act(Tensor.sin), lambda: Act(Tensor.cos)),
    "own function": (lambda: Act(helper), lambda: Act(other)),
    "captured value": (lambda: captured(1.0), lambda: captured(2.0)),
    "lambda on the same line": (lambda: one_of_a_line(0), lambda: one_of_a_line(1)),
    "partial": (
        lambda: Act(functools.partial(F.leaky_relu, negative_slope=0.1)),
        lambda: Act(functools.partial(F.leaky_relu, negative_slope=0.2)),
    ),
    "hook": (hooked, lambda: hooked(first_hook)),
    "another hook": (lambda: hooked(first_hook), lambda: hooked(second_hook)),
    "order of hooks": (lambda: hooked(first_hook, second_hook), lambda: hooked(second_hook, first_hook)),
    "hook's options": (lambda: hooked(first_hook), lambda: hooked(first_hook, always_call=True)),
    "backward hook": (hooked, with_backward_hook),
    "parametrization": (lambda: parametrized(None), lambda: parametrized(Double())),
    "another parametrization": (lambda: parametrized(Double()), lambda: parametrized(Triple())),
    "method of an instance": (lambda: overridden(lambda self, x: x), lambda: overridden(lambda self, x: -x)),
    "order in a dict": (lambda: Act(k={"a": 1, "b": 2}), lambda: Act(k={"b": 2, "a": 1})),
    "scripted attribute": (lambda: scripted(1.0), lambda: scripted(2.0)),
    "scripted tensor": (scripted, lambda: scripted(last=2.0 + 1e-6)),
    "frozen tensor": (lambda: scripted(freeze=True), lambda: scripted(last=2.0 + 1e-6, freeze=True)),
    "traced tensor": (lambda: traced(2.0), lambda: traced(2.0 + 1e-6)),
    "attribute of a list": (lambda: marked(OwnList([1])), lambda: marked(OwnList([1]), 2.0)),
    "attribute of a tuple": (lambda: marked(OwnTuple([1])), lambda: marked(OwnTuple([1]), 2.0)),
    "attribute of a set": (lambda: marked(OwnSet([1])), lambda: marked(OwnSet([1]), 2.0)),
    "attribute of an array": (
        lambda: marked(np.ones(1).view(OwnArray)),
        lambda: marked(np.ones(1).view(OwnArray), 2.0),
    ),
    "attribute of a tensor": (lambda: marked(torch.ones(1)), lambda: marked(torch.ones(1), 2.0)),
    "attribute of a weight": (lambda: with_marked_weight(1.0), lambda: with_marked_weight(2.0)),
    "hook of a weight": (lambda: with_hooked_weight(None), lambda: with_hooked_weight(2.0)),
    "what a weight's hook captures": (lambda: with_hooked_weight(1.0), lambda: with_hooked_weight(2.0)),
    "attribute of a partial": (lambda: Act(partial_with(1.0)), lambda: Act(partial_with(2.0))),
    "value of a float with attributes": (lambda: marked(OwnFloat(1.5)), lambda: marked(OwnFloat(2.5))),
    "value of an int with attributes": (lambda: marked(OwnInt(1)), lambda: marked(OwnInt(2))),
    "value of a string with attributes": (lambda: marked(OwnStr("a")), lambda: marked(OwnStr("b"))),
    "items of a deque with attributes": (lambda: marked(OwnDeque([1])), lambda: marked(OwnDeque([2]))),
    "arguments of an error with attributes": (lambda: marked(OwnError(1)), lambda: marked(OwnError(2))),
    "tensor with a gradient function": (lambda: Act(k=[computed(1.0)]), lambda: Act(k=[computed(2.0)])),
    "attribute with underscores": (lambda: Act(__k__=1.0), lambda: Act(__k__=2.0)),
    "attribute named like ours": (lambda: Act(_role=1.0), lambda: Act(_role=2.0)),
    "attribute named like Hugging Face's": (
        lambda: Act(k=types.SimpleNamespace(num_labels=1)),
        lambda: Act(k=types.SimpleNamespace(num_labels=2)),
    ),
    "private slot": (lambda: Act(k=Private(0.1)), lambda: Act(k=Private(0.2))),
    "memory": (lambda: Act(k=memoryview(b"a")), lambda: Act(k=memoryview(b"b"))),
    "seed of a generator": (
        lambda: Act(k=torch.Generator().manual_seed(1)),
        lambda: Act(k=torch.Generator().manual_seed(2)),
    ),
    "default of a context variable": (
        lambda: Act(k=ContextVar("k", default=1)),
        lambda: Act(k=ContextVar("k", default=2)),
    ),
    "repeated value": (lambda: Act(k=itertools.repeat(1)), lambda: Act(k=itertools.repeat(2))),
    "count": (lambda: Act(k=itertools.count(1)), lambda: Act(k=itertools.count(2))),
    "weight norm's dimension": (
        lambda: parametrizations.weight_norm(nn.Linear(4, 4), dim=0),
        lambda: parametrizations.weight_norm(nn.Linear(4, 4), dim=1),
    ),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_network_changes_its_identity(change: str) -> None:
    before, after = CHANGES[change]
    assert identity(before()) == identity(before())
    assert identity(after()) == identity(after())
    assert identity(before()) != identity(after())


SAME: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "weights": (lambda: nn.Linear(4, 4), lambda: nn.Linear(4, 4)),
    "values of buffers": (lambda: buffered(0.0, persistent=True), lambda: buffered(1.0, persistent=True)),
    "mode": (lambda: nn.Dropout(0.1), lambda: nn.Dropout(0.1).eval()),
    "order of attributes": (lambda: Act(a=1, b=2), lambda: Act(b=2, a=1)),
    "gradients": (lambda: nn.Linear(2, 2), lambda: with_gradient(nn.Linear(2, 2))),
    "lists of weights": (lambda: nn.LSTM(2, 3), lambda: nn.LSTM(2, 3)),
    "number of hooks so far": (lambda: hooked(first_hook), lambda: without_first(hooked(second_hook, first_hook))),
    "handles of hooks": (lambda: Act(k=hook_handle()), lambda: Act(k=hook_handle())),
    "layers without shapes yet": (lambda: nn.LazyLinear(3), lambda: nn.LazyLinear(3)),
    "a cycle": (lambda: cyclic(), lambda: cyclic()),
    "an object of the process": (lambda: Act(k=[object(), iter([1])]), lambda: Act(k=[object(), iter([1])])),
    "order of an object's attributes": (lambda: Act(k=holder(a=1, b=2)), lambda: Act(k=holder(b=2, a=1))),
    "dispatch so far": (lambda: Act(dispatched), lambda: called(Act(dispatched))),
    "cached property": (lambda: Caching(), lambda: called(Caching())),
    "scripted again": (scripted, scripted),
    "traced with another example": (lambda: traced(2.0), lambda: traced(2.0, rows=5)),
    "draws of a generator": (lambda: Act(k=drawn(0)), lambda: Act(k=drawn(3))),
}


@functools.singledispatch
def dispatched(x: Any) -> Any:
    return x


@dispatched.register
def _(x: Tensor) -> Tensor:
    return x + 1


class Caching(nn.Module):
    @functools.cached_property
    def gain(self) -> float:
        return SCALE

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


class Holder: ...


def holder(**held: Any) -> Holder:
    made = Holder()
    made.__dict__.update(held)
    return made


def called(module: nn.Module) -> nn.Module:
    module(torch.ones(1, 2))
    return module


def drawn(number: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(0)
    torch.rand(number, generator=generator)
    return generator


def with_gradient(layer: nn.Module) -> nn.Module:
    layer(torch.ones(1, 2)).sum().backward()
    return layer


def hook_handle() -> Any:
    return nn.Linear(2, 2).register_forward_hook(first_hook)


def without_first(module: nn.Module) -> nn.Module:
    module._forward_hooks.popitem(last=False)
    return module


def cyclic() -> nn.Module:
    module = Act(k=[])
    module.k.append(module.k)
    module.__dict__["parent"] = module
    return module


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("case", SAME)
def test_what_does_not_change_the_network_does_not_change_its_identity(case: str) -> None:
    one, two = SAME[case]
    assert identity(one()) == identity(two())


# --- halves ----------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore::splitwiper.splitting.CutWarning")
@pytest.mark.parametrize("case", zoo.CASES, ids=str)
def test_all_halves_of_the_zoo_have_identities(case: zoo.Case) -> None:
    if case.factory is zoo.bert:
        pytest.importorskip("transformers")

    def made(seed: int) -> tuple[str, str]:
        torch.manual_seed(seed)
        model = case.factory()
        torch.manual_seed(9)
        halves = split(model, at=case.at, example=case.inputs(2), shared=case.shared, allow_data_dependent=case.allow)
        return identity(halves.client), identity(halves.server)

    assert made(0) == made(1)
    assert len(set(made(0))) == 2


def cut(*layers: nn.Module, at: str = "1") -> Halves:
    return split(nn.Sequential(*layers), at=at, example=torch.zeros(2, 4))


def changed(one: Halves, two: Halves) -> tuple[bool, bool]:
    return identity(one.client) != identity(two.client), identity(one.server) != identity(two.server)


def test_each_half_has_what_it_executes() -> None:
    def net(first: nn.Module, second: nn.Module) -> Halves:
        return cut(nn.Linear(4, 4), first, nn.Linear(4, 4), second, nn.Linear(4, 3))

    plain = net(Act(k=1), Act(k=1))
    assert changed(plain, net(Act(k=1), Act(k=1))) == (False, False)
    assert changed(plain, net(Act(k=2), Act(k=1))) == (True, False)
    assert changed(plain, net(Act(k=1), Act(k=2))) == (False, True)


def test_the_cut_is_part_of_both_halves() -> None:
    layers = nn.Linear(4, 4), nn.ReLU(), nn.ReLU(), nn.Linear(4, 3)
    assert changed(cut(*layers, at="1"), cut(*layers, at="2")) == (True, True)


def test_the_number_of_outputs_is_part_of_neither_half() -> None:
    three = cut(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    assert changed(three, cut(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 7))) == (False, False)
    assert changed(three, cut(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3, bias=False))) == (False, True)


@pytest.mark.filterwarnings("ignore::splitwiper.splitting.CutWarning")
def test_nor_is_it_where_a_configuration_tells_it() -> None:
    pytest.importorskip("transformers")
    one, two = (
        split(zoo.bert(labels), at="bert.embeddings", example=zoo.text(2), shared=["attention_mask"])
        for labels in (3, 5)
    )
    assert changed(one, two) == (False, False)


def test_clients_with_halves_of_their_own() -> None:
    halves = cut(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    found = [
        identity(halves.with_clients({"north": half}).client_for("north"))
        for half in (nn.Sequential(nn.Linear(4, 4), Act(k=1)), nn.Sequential(nn.Linear(4, 4), Act(k=2)))
    ]
    assert found[0] != found[1]
