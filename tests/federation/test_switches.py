"""Switches of torch that a program sets for itself: training takes no notice of them, or its fingerprint does."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from federation.runs import FEATURES, settings, three
from splitwiper import Federation, Halves, split
from splitwiper.splitting import CutWarning

SDP = torch.backends.cuda  # its switches hold for the CPU, too
SWITCHES: dict[str, tuple[Callable[[Any], object], Any, Any, Callable[[], Any]]] = {  # setter, other, usual, getter
    "flash": (SDP.enable_flash_sdp, False, True, SDP.flash_sdp_enabled),
    "math": (SDP.enable_math_sdp, False, True, SDP.math_sdp_enabled),
    "fast path": (
        torch.backends.mha.set_fastpath_enabled,
        False,
        True,
        torch.backends.mha.get_fastpath_enabled,
    ),
    "device": (torch.set_default_device, "meta", None, lambda: torch.get_default_device().type),
}


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, 16)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.cut = nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        words = self.layer(self.stem(x).reshape(-1, 2, 8))
        words = functional.scaled_dot_product_attention(words, words, words)
        return self.head(torch.relu(self.cut(words.reshape(-1, 16))))


def attending() -> Halves:
    torch.manual_seed(0)
    with pytest.warns(CutWarning, match="has dropout"):  # of rate 0
        return split(Attending(), at="cut", example=torch.zeros(1, FEATURES))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    fed = Federation(tmp_path_factory.mktemp("switches") / "run", attending(), settings())
    fed.learn(three())
    fed.unlearn("north", classes=["bird"])
    return fed


@pytest.fixture
def _usual() -> Iterator[None]:
    yield
    for setter, _, usual, _ in SWITCHES.values():
        setter(usual)


@pytest.mark.usefixtures("_usual")
@pytest.mark.parametrize("name", SWITCHES)
def test_a_callers_switch_does_not_reach_training(run: Federation, name: str) -> None:
    setter, other, _, getter = SWITCHES[name]
    setter(other)
    assert run.verify().exact
    assert getter() == other  # and is as the caller left it


def test_denormal_numbers_are_kept_whatever_the_caller_said(tmp_path: Path) -> None:
    class Small(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1e-40 * 1e20 * 1e20

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), Small(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    fed = Federation(tmp_path / "run", split(model, at="1", example=torch.zeros(1, FEATURES)), settings())
    fed.learn(three())
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor keeps denormal numbers anyway")
    try:
        assert fed.verify().exact
    finally:
        torch.set_flush_denormal(False)


def test_hooks_for_all_modules_are_not_comparable(run: Federation) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, told: told)
    try:
        found = run.verify()
    finally:
        handle.remove()
    assert found.outcome == "not_comparable" and "hooks was None" in found.reason
    assert run.verify().exact
