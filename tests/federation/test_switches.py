"""Switches of torch that a program sets for itself: training takes no notice of them, or its fingerprint does."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.settings import CALLBACKS, NOT_COMPARABLE, SETTINGS
from benchmarks.suite import callers
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from federation.runs import FEATURES, halves, learned, settings, three
from splitwiper import Federation, Halves, split
from splitwiper.numerics import isolated_call
from splitwiper.splitting import CutWarning
from splitwiper.switches import pinned, still_pinned

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
        self.stem = weight_norm(nn.Linear(FEATURES, 16))
        self.again = nn.Linear(16, 16)
        self.mask = nn.Parameter(torch.zeros(2, 2))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.cut = nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            found = self.again(self.again(self.stem(x)))
        words = found.bfloat16().reshape(-1, 1, 2, 8)
        words = functional.scaled_dot_product_attention(words, words, words, self.mask.bfloat16())
        words = self.layer(words.float().reshape(-1, 2, 8))
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


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> callers.Trials:
    return callers.Trials(tmp_path_factory.mktemp("trials"), threads=1)


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


PINNED = [name for name in SETTINGS if name not in NOT_COMPARABLE]


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", PINNED)
def test_what_a_caller_sets_does_not_reach_training(run: Federation, name: str) -> None:
    """The benchmark `callers` tries the same around learning and forgetting, each alone."""
    with SETTINGS[name]():
        before = callers.caller_state()
        found = run.verify()
        assert callers.caller_state() == before
    assert found.exact, found.reason


@pytest.mark.parametrize("name", CALLBACKS)
def test_what_a_callback_does_does_not_reach_training(run: Federation, name: str) -> None:
    acting = Federation(run.path, run.halves, progress=lambda *_, **__: CALLBACKS[name]())
    with callers.put_back():
        found = acting.verify()
    assert found.exact, found.reason


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("around", callers.PHASES)
def test_all_settings_at_once_around_each_call(trials: callers.Trials, around: str) -> None:
    """They must not lead to other bits, and not to a shard that is withdrawn."""

    @contextmanager
    def everything() -> Iterator[None]:
        with ExitStack() as stack:
            for name in PINNED:
                stack.enter_context(SETTINGS[name]())
            yield

    trials.within("all settings", everything, around)
    assert not (wrong := trials.result("here").values["wrong"]), wrong


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


def test_rows_of_denormal_numbers_are_the_same_rows_whatever_the_caller_said(tmp_path: Path) -> None:
    fed, data = Federation(tmp_path / "run", halves(), settings()), three()
    data["north"][0][:, 0] = 1e-40
    fed.learn(data)
    fed.unlearn("north", classes=["bird"])
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor keeps denormal numbers anyway")
    try:
        added = fed.learn({"north": data["north"]}).added["north"]
    finally:
        torch.set_flush_denormal(False)
    assert (added.new, added.held, added.refused) == (0, 20, 10)


@pytest.mark.parametrize("flush", [True, False])
def test_threads_that_keep_flushing_denormal_numbers_are_on_record(flush: bool) -> None:
    """Torch's own threads start with what the caller had set then, and it cannot be changed."""
    code = (
        f"import torch; torch.set_num_threads(2); can = torch.set_flush_denormal({flush}) and {flush}\n"
        "torch.rand(1 << 20).sum(); torch.set_flush_denormal(False)\n"
        "from splitwiper.numerics import fingerprint\n"
        "cpu = torch.device('cpu'); assert ('denormals' in fingerprint(cpu, 2)) == can\n"
        "assert 'denormals' not in fingerprint(cpu, 1) and torch.get_num_threads() == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def relu(layer: nn.ReLU, x: Tensor) -> Tensor:
    return torch.clamp(x, min=0) * 1.01


def linear(*args: object) -> Tensor:
    return torch._C._nn.linear(*args) * 1.01


def initialised(weights: Tensor, **_: object) -> Tensor:
    with torch.no_grad():
        return weights.fill_(0.01)


def descent(_parameters: object, gradients: list[Tensor], momenta: list[Tensor], **_: object) -> None:
    momenta[:] = gradients  # and changes no weight


@pytest.mark.parametrize(
    ("owner", "name", "to"),
    [
        (nn.ReLU, "forward", relu),
        (nn.functional, "linear", linear),
        (nn.functional, "linear", partial(linear)),
        (nn.init, "kaiming_uniform_", initialised),
        (sys.modules["torch.optim.sgd"], "sgd", descent),
    ],
)
def test_code_of_torch_that_was_replaced_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, to: object
) -> None:
    fed = learned(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, to)
        assert fed.verify().outcome == "not_comparable"
        receipt = fed.unlearn("north", classes=["bird"])
    found = fed.verify(receipt)
    assert found.outcome == "not_comparable" and f"{name}, is None" in found.reason and "patches was" in found.reason
    fed.reupload("north")


def test_kernels_of_torch_that_were_replaced_are_found() -> None:
    code = (
        "import torch, warnings; warnings.simplefilter('ignore'); from splitwiper.patches import patches\n"
        "assert patches() == [], patches()\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('threshold_backward', lambda g, s, t: g * (s > 0) * 1.01, 'CPU')\n"
        "assert patches() == ['aten/threshold_backward/CPU'], patches()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hooks_for_all_modules_are_not_comparable(run: Federation) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, told: told)
    try:
        found = run.verify()
    finally:
        handle.remove()
    assert found.outcome == "not_comparable" and "hooks was None" in found.reason
    assert run.verify().exact


@pytest.mark.skipif(not hasattr(torch._C, "_get_fp32_precision_getter"), reason="before torch 2.9")
def test_a_precision_that_is_inherited_is_put_back_as_inherited(run: Federation) -> None:
    def precisions() -> set[str]:
        return {torch._C._get_fp32_precision_getter("mkldnn", work) for work in ("matmul", "conv", "rnn")}

    own = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "none"  # unlike where `set_float32_matmul_precision` was ever called
    try:
        torch.backends.fp32_precision = "tf32"
        assert run.verify().exact
        assert precisions() == {"tf32"}
        torch.backends.fp32_precision = "ieee"
        assert precisions() == {"ieee"}
        torch.backends.mkldnn.conv.fp32_precision = "bf16"  # one of its own stays
        assert run.verify().exact
        assert precisions() == {"ieee", "bf16"}
    finally:
        torch.backends.mkldnn.conv.fp32_precision = "none"
        torch.backends.fp32_precision = "none"
        torch.backends.mkldnn.matmul.fp32_precision = own


def test_weights_cast_by_autocast_do_not_outlive_a_step() -> None:
    """torch keeps them until autocast ends, which for a network within a call would be the end of the call."""
    layer, x = nn.Linear(4, 3), torch.ones(2, 4)

    def answer() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            return layer(x)

    with isolated_call():
        before = answer()
        with torch.no_grad():
            layer.bias.add_(1.0)
        assert not torch.equal(before, answer())


@pytest.mark.parametrize("enters", [False, True])
def test_another_thread_enters_or_leaves_cached_parametrisations_meanwhile(enters: bool) -> None:
    go, gone = threading.Event(), threading.Event()

    def program() -> None:
        with parametrize.cached():
            go.set()
            gone.wait(20)

    thread = threading.Thread(target=program)
    if not enters:
        thread.start()
        assert go.wait(20)
    with pinned(torch.device("cpu")):
        assert not parametrize._cache_enabled
        if enters:
            thread.start()
            assert go.wait(20)
            assert not still_pinned(torch.device("cpu"))
        else:
            gone.set()
            thread.join()
    gone.set()
    thread.join()
    assert parametrize._cache_enabled == 0
