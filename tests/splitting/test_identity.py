"""A network's identity: what must change it, what must not, and that it is the same in every process."""

from __future__ import annotations

import functools
import subprocess
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
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
    "weight norm's dimension": (
        lambda: parametrizations.weight_norm(nn.Linear(4, 4), dim=0),
        lambda: parametrizations.weight_norm(nn.Linear(4, 4), dim=1),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_network_changes_its_identity(change: str) -> None:
    before, after = CHANGES[change]
    assert identity(before()) == identity(before())
    assert identity(after()) == identity(after())
    assert identity(before()) != identity(after())


# --- source: the same module as a file, edited -----------------------------------------------------------------

SOURCE = """
import functools
import logging
import math
import sys

import torch
from torch import nn
from pathlib import Path

import parts
from parts import squash

FACTOR = 0.5
SIZES = {"wide": (4, 8), "narrow": (2, 3)}
HERE = Path(__file__).parent
log = logging.getLogger(__name__)


def checked(function):
    @functools.wraps(function)
    def run(self, x):
        return function(self, x)
    return run


class Base(nn.Module):
    def finish(self, x):
        return x - 1


class Net(Base):
    kind = "plain"

    def __init__(self, width=4, tags=("b", "a", "c")):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.tags = set(tags)
        self.table = {name: len(name) for name in tags}
        self.act = lambda x: torch.tanh(x) * FACTOR

    @property
    def gain(self):
        return 1.5

    @staticmethod
    def mix(x, rate=0.25):
        return x * rate

    @torch.no_grad()
    def peek(self, x):
        return x + 4

    @checked
    def forward(self, x):
        log.debug("in %s of %s", HERE, sys.platform)
        x = self.act(self.layer(x)) * self.gain + parts.SHIFT
        x = x + SIZES["wide"][0] + math.pi
        return self.finish(self.mix(squash(x)))
"""
PARTS = """
SHIFT = 3
POWER = 2


def squash(x):
    return _inner(x) + 1


def _inner(x):
    from late import LATE
    return x ** POWER + LATE
"""
LATE = "LATE = 7\n"
ASK = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, net
from splitwiper.splitting import identity, split
torch.manual_seed(int(sys.argv[2]))
model = net.Net()
halves = split(torch.nn.Sequential(net.Net(), torch.nn.Linear(4, 4), net.Net(), torch.nn.Linear(4, 3)), at="1",
               example=torch.randn(int(sys.argv[2]) + 1, 4), head="3")
print(identity(model), identity(halves.client), identity(halves.server))
"""


def ask(
    folder: Path, *, hashes: str = "0", seed: int = 0, net: str = SOURCE, parts: str = PARTS, late: str = LATE
) -> str:
    """The identities of a model whose source lies in a folder, as another process finds them."""
    folder.mkdir(parents=True)
    for name, text in (("net", net), ("parts", parts), ("late", late)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", ASK, str(folder), str(seed)]
    path = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": hashes, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(net: str = SOURCE, parts: str = PARTS, late: str = LATE, *, folder: Path | None = None) -> str:
    """The identity of the model in this process, from files or, without a folder, from no file at all."""
    names = {"late": late, "parts": parts, "net": net}
    kept = {name: sys.modules.pop(name, None) for name in names}
    try:
        for name, text in names.items():
            module = types.ModuleType(name)
            file = str(folder / f"{name}.py") if folder else f"<{name}>"
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{name}.py").write_text(text, encoding="utf-8")
            module.__dict__["__file__"] = file
            sys.modules[name] = module
            exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
        return identity(sys.modules["net"].Net())
    finally:
        for name in names:
            sys.modules.pop(name)
        sys.modules.update({name: module for name, module in kept.items() if module is not None})


EDITS = {
    "module constant": ("net", "FACTOR = 0.5", "FACTOR = 0.25"),
    "table": ("net", '"wide": (4, 8)', '"wide": (5, 8)'),
    "class attribute": ("net", '"plain"', '"fancy"'),
    "base class": ("net", "x - 1", "x - 2"),
    "default argument": ("net", "rate=0.25", "rate=0.75"),
    "property": ("net", "return 1.5", "return 2.5"),
    "decorated method": ("net", "self.finish(self.mix", "self.finish(-self.mix"),
    "method behind a decorator of torch": ("net", "x + 4", "x + 5"),
    "decorator": ("net", "return function(self, x)", "return -function(self, x)"),
    "lambda": ("net", "torch.tanh(x) * FACTOR", "torch.sigmoid(x) * FACTOR"),
    "constant of another module": ("parts", "SHIFT = 3", "SHIFT = 4"),
    "function of another module": ("parts", "+ 1", "+ 2"),
    "function behind a function": ("parts", "** POWER", "* POWER"),
    "constant behind functions": ("parts", "POWER = 2", "POWER = 3"),
    "constant imported in a function": ("late", "7", "8"),
}


@pytest.mark.parametrize("with_files", [True, False], ids=["source", "bytecode"])
def test_edits_of_code_change_the_identity(tmp_path: Path, with_files: bool) -> None:
    def loaded(name: str, **texts: str) -> str:
        return load(**texts, folder=tmp_path / name.replace(" ", "-") if with_files else None)

    texts = {"net": SOURCE, "parts": PARTS, "late": LATE}
    found = {"": loaded("plain")}
    for name, (file, old, new) in EDITS.items():
        assert old in texts[file]
        found[name] = loaded(name, **{**texts, file: texts[file].replace(old, new)})
    assert len(set(found.values())) == len(found), found


LAYOUT = {
    "comment": ("return x - 1", "return x - 1  # one less"),
    "docstring": ("def finish(self, x):", 'def finish(self, x):\n        """Finish."""'),
    "docstring of the class": ("class Net(Base):", 'class Net(Base):\n    """A net."""'),
    "white space": ("x * rate", "(x   *\n            rate)"),
    "annotation": ("def finish(self, x):", "def finish(self, x: 'Tensor') -> 'Tensor':"),
    "lines before": ("FACTOR = 0.5", "\n\n\nUNUSED = 1\nFACTOR = 0.5"),
    "order of attributes": (
        "        self.layer = nn.Linear(width, width)\n        self.tags = set(tags)\n",
        "        self.layer = nn.Linear(width, width); self.tags = set(tags)\n",
    ),
    "order in a table": ('"wide": (4, 8), "narrow": (2, 3)', '"narrow": (2, 3), "wide": (4, 8)'),
}


@pytest.mark.parametrize("edit", LAYOUT)
def test_how_code_is_written_does_not_change_the_identity(tmp_path: Path, edit: str) -> None:
    old, new = LAYOUT[edit]
    assert old in SOURCE
    assert load(folder=tmp_path / "a") == load(SOURCE.replace(old, new), folder=tmp_path / "b")


def test_the_same_in_another_process_and_folder_with_other_weights_and_example(tmp_path: Path) -> None:
    one = ask(tmp_path / "one", hashes="1")
    assert one == ask(tmp_path / "far" / "away", hashes="2", seed=3, net="# a comment\n" + SOURCE)
    assert len(set(one.split())) == 3
    assert load(folder=tmp_path / "here") == one.split()[0]


def test_a_file_edited_after_its_import_is_not_taken_for_what_runs(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    text = "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return x * {}\n"
    found = []
    for running, on_disk in ((2, 2), (2, 3), (3, 3)):
        module = types.ModuleType("edited")
        exec(compile(text.format(running), str(file), "exec", dont_inherit=True), module.__dict__)
        file.write_text(text.format(on_disk), encoding="utf-8")
        found.append(identity(module.Net()))
    assert found[1] != found[2]


SAME: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "weights": (lambda: nn.Linear(4, 4), lambda: nn.Linear(4, 4)),
    "values of buffers": (lambda: buffered(0.0, persistent=True), lambda: buffered(1.0, persistent=True)),
    "mode": (lambda: nn.Dropout(0.1), lambda: nn.Dropout(0.1).eval()),
    "order of attributes": (lambda: Act(a=1, b=2), lambda: Act(b=2, a=1)),
    "order in a dict": (lambda: Act(k={"a": 1, "b": 2}), lambda: Act(k={"b": 2, "a": 1})),
    "gradients": (lambda: nn.Linear(2, 2), lambda: with_gradient(nn.Linear(2, 2))),
    "lists of weights": (lambda: nn.LSTM(2, 3), lambda: nn.LSTM(2, 3)),
    "number of hooks so far": (lambda: hooked(first_hook), lambda: without_first(hooked(second_hook, first_hook))),
    "handles of hooks": (lambda: Act(k=hook_handle()), lambda: Act(k=hook_handle())),
    "layers without shapes yet": (lambda: nn.LazyLinear(3), lambda: nn.LazyLinear(3)),
    "what is computed from weights": (
        lambda: Act(k=nn.Linear(2, 2).weight * 2),
        lambda: Act(k=nn.Linear(2, 2).weight * 2),
    ),
    "a cycle": (lambda: cyclic(), lambda: cyclic()),
    "an object of the process": (lambda: Act(k=[object(), iter([1])]), lambda: Act(k=[object(), iter([1])])),
}


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


@pytest.mark.parametrize("case", SAME)
def test_what_does_not_change_the_network_does_not_change_its_identity(case: str) -> None:
    one, two = SAME[case]
    assert identity(one()) == identity(two())


# --- halves ----------------------------------------------------------------------------------------------------


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
