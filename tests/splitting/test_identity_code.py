"""A network's identity follows its code: the same module as a file, edited, moved, and in another process."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitwiper.splitting import identity

SOURCE = """
import functools
import logging
import math
import operator
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
__STEP = 0.125


def step(x):
    return x + __STEP + step.__lag__

step.__lag__ = 16


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
    __mode__ = "dunder"
    __pow__ = operator.attrgetter("real")

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
        return self.finish(self.mix(squash(step(x))))
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
import torch
from splitwiper.splitting import identity, split


def ask(net, seed):
    torch.manual_seed(seed)
    layers = net.Net(), torch.nn.Linear(4, 4), net.Net(), torch.nn.Linear(4, 3)
    halves = split(torch.nn.Sequential(*layers), at="1", example=torch.randn(seed + 1, 4), head="3")
    return f"{identity(net.Net())} {identity(halves.client)} {identity(halves.server)}"
"""
ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import net
print(ask(net, 3))
"""


def ask_elsewhere(folder: Path) -> str:
    """The identities of a model and its halves, as another process finds them in another folder."""
    folder.mkdir(parents=True)
    for name, text in (("net", "# a comment\n" + SOURCE), ("parts", PARTS), ("late", LATE)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    path = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", ASK + ELSEWHERE, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def load(
    net: str = SOURCE,
    parts: str = PARTS,
    late: str = LATE,
    *,
    folder: Path | None = None,
    ask: Callable[[Any], str] = lambda net: identity(net.Net()),
) -> str:
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
        return ask(sys.modules["net"])
    finally:
        for name in names:
            sys.modules.pop(name)
        sys.modules.update({name: module for name, module in kept.items() if module is not None})


EDITS = {
    "module constant": ("net", "FACTOR = 0.5", "FACTOR = 0.25"),
    "table": ("net", '"wide": (4, 8)', '"wide": (5, 8)'),
    "order in a table": ("net", '"wide": (4, 8), "narrow": (2, 3)', '"narrow": (2, 3), "wide": (4, 8)'),
    "module constant with underscores": ("net", "__STEP = 0.125", "__STEP = 0.25"),
    "attribute of a function": ("net", "__lag__ = 16", "__lag__ = 32"),
    "class attribute with underscores": ("net", '"dunder"', '"other"'),
    "operator in C": ("net", '"real"', '"imag"'),
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
}


@pytest.mark.parametrize("edit", LAYOUT)
def test_how_code_is_written_does_not_change_the_identity(tmp_path: Path, edit: str) -> None:
    old, new = LAYOUT[edit]
    assert old in SOURCE
    assert load(folder=tmp_path / "a") == load(SOURCE.replace(old, new), folder=tmp_path / "b")


def test_the_same_in_another_process_and_folder_with_other_weights_and_example(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(ASK, names)
    here = load(folder=tmp_path / "here", ask=lambda net: str(names["ask"](net, 0)))
    assert here == ask_elsewhere(tmp_path / "far" / "away")
    assert len(set(here.split())) == 3


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
