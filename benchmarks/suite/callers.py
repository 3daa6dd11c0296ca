"""Callers' settings: whatever a program set around learning, forgetting or verifying, bits and verdict are the same.

Every setting is tried around each of the three calls, and around all of them: torch's switches and modes, hooks,
what a callback may do, and, in processes of their own, environment variables. The run must have the bits of one made
without any setting, `verify` must call it exact, the caller's settings must be as they were, and no shard may be gone.
A few settings cannot be pinned: for these, listed in `benchmarks/settings.py`, `not comparable` is right, too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from benchmarks.harness import Check, Result, in_child
from benchmarks.settings import CALLBACKS, CHOOSES_KERNELS, ENVIRONMENTS, NOT_COMPARABLE, SETTINGS, switched
from benchmarks.suite.tampering import bits
from splitwiper import ClientConfig, Config, Federation, Halves, ServerConfig, split

FEATURES = 12
PHASES = ("learn", "unlearn", "verify")
QUICK = ("autocast", "dispatch mode", "global forward hook")


class Net(nn.Module):
    """Attention, batch norm, dropout, half precision and very small numbers: settings choose how they are computed.

    No convolution: under OMP_DYNAMIC on a busy machine torch itself may never return from its backward pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.turn = weight_norm(nn.Linear(FEATURES, FEATURES))
        self.mask = nn.Parameter(torch.zeros(3, 3))  # attention with a mask that is trained has another kernel
        self.cut = nn.Linear(FEATURES, 8)
        self.wide = nn.Linear(8, 24)
        self.norm = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of three labels."""
        words = self.layer(x.reshape(-1, 3, 4))
        words = nn.functional.scaled_dot_product_attention(words, words, words)
        with torch.autocast("cpu"):
            words = self.turn(self.turn(words.reshape(-1, FEATURES))).reshape(-1, 1, 3, 4)
        words = words.bfloat16()
        words = nn.functional.scaled_dot_product_attention(words, words, words, self.mask.bfloat16()).float()
        small = self.cut(words.reshape(-1, FEATURES)) * 1e-40 * 1e20 * 1e20
        return self.head(self.drop(torch.relu(self.norm(self.wide(small)))))


@cache
def network() -> tuple[Net, Tensor]:
    """A network and an example, made before anything is set."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return Net(), torch.zeros(1, FEATURES)


def cut() -> Halves:
    """The network's halves."""
    net, example = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dropout before the cut
        return split(net, at="cut", example=example)


halves = cache(cut)


def settings(threads: int) -> Config:
    """Keys follow from the seed, so that runs can be compared."""
    return Config(
        seed=3,
        server=ServerConfig(epochs=2, batch=8, threads=threads),
        client=ClientConfig(
            epochs=2, batch=8, head_width=4, slices=2, threads=threads, codec="int8", standardise=True, keys="seeded"
        ),
    )


def data() -> dict[str, tuple[Any, list[str]]]:
    """Rows of two clients."""
    draw = np.random.default_rng(5)
    names = {"north": "aabbccaabbcc", "south": "bbccbbcc"}
    return {
        name: (draw.normal(size=(len(labels), FEATURES)) * 1e-3, list(labels))  # float64, as NumPy makes it
        for name, labels in names.items()
    }


def carry_out(phase: str, path: Path, threads: int, progress: Callable[..., Any] | None = None) -> str:
    """Do one of the three calls on a run, as a program of its own would; what `verify` says, where it is asked."""
    if phase == "learn":
        Federation(path, cut(), settings(threads), progress=progress).learn(data())
        return ""
    fed = Federation(path, halves(), progress=progress)
    if phase == "unlearn":
        fed.unlearn("north", classes=["a"])
        return ""
    return fed.verify(fed.receipts()[-1]).outcome


def run(*, quick: bool) -> Iterator[Result]:
    """Try every setting around every call."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="splitwiper-", dir=memory if memory.is_dir() else None) as folder:
        trials = Trials(Path(folder) / "process", threads=1)
        tried = ("all",) if quick else (*PHASES, "all")
        for name, setting in SETTINGS.items():
            for around in tried if not quick or name in QUICK else ():
                trials.within(name, setting, around)
        for name, act in list(CALLBACKS.items())[: 1 if quick else None]:
            for around in tried:
                trials.called_back(name, act, around)
        yield trials.result("in one process")
        trials = Trials(Path(folder) / "processes", threads=2)
        for name, value in list(ENVIRONMENTS.items())[: 1 if quick else None]:
            trials.in_environment(name, value)
        yield trials.result("in processes of their own")


class Trials:
    """Tries settings, and counts what comes out."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._counts, self._wrong = Counter[str](), list[str]()
        self._number = 0
        for phase in PHASES[:2]:
            carry_out(phase, folder / "plain", threads)
            shutil.copytree(folder / "plain", folder / phase)  # as it is after that call
        self._expected = bits(folder / "plain")

    def result(self, where: str) -> Result:
        """Everything that was tried so far."""
        return Result(
            {"where": where},
            {"counts": dict(self._counts), "wrong": self._wrong},
            [
                Check(
                    f"settings of callers that changed bits or verdict, {where}",
                    "0",
                    str(len(self._wrong)),
                    not self._wrong,
                ),
                Check(
                    f"settings around calls, {where}",
                    "reported",
                    ", ".join(f"{number} {what}" for what, number in self._counts.most_common()),
                    True,
                ),
            ],
        )

    def within(self, name: str, setting: Callable[[], AbstractContextManager[Any]], around: str) -> None:
        """Try a setting that a context makes."""

        def set_for(phase: str) -> AbstractContextManager[Any]:
            return setting() if around in (phase, "all") else nullcontext()

        self._try(f"{name} around {around}", set_for, None, name in NOT_COMPARABLE)

    def called_back(self, name: str, act: Callable[[], object], around: str) -> None:
        """Try what a callback does."""

        def set_for(phase: str) -> AbstractContextManager[Any]:
            return put_back()

        self._try(f"{name} while {around}", set_for, {around: act}, False)

    def _try(self, name: str, set_for: Any, acts: dict[str, Callable[[], object]] | None, excused: bool) -> None:
        self._number += 1
        path = self._folder / str(self._number)
        try:
            for phase in PHASES:
                act = (acts or {}).get(phase) or (acts or {}).get("all")
                with set_for(phase):
                    before = caller_state()
                    outcome = carry_out(phase, path, self._threads, (lambda *_, act=act, **__: act()) if act else None)
                    if not act and caller_state() != before:
                        self._note(name, "settings not as they were", wrong=True)
        except Exception as problem:
            self._note(name, f"{type(problem).__name__}: {problem}", wrong=True)
        else:
            self._judge(name, path, outcome, excused)
        shutil.rmtree(path, ignore_errors=True)

    def in_environment(self, name: str, value: str) -> None:
        """Try a variable: a process with it learns one run, forgets in another, and verifies a third."""
        paths = {phase: self._folder / f"{name}-{phase}" for phase in PHASES}
        shutil.copytree(self._folder / "learn", paths["unlearn"])
        shutil.copytree(self._folder / "unlearn", paths["verify"])
        excused = name in CHOOSES_KERNELS
        with _variable(name, value):
            folders = {phase: str(path) for phase, path in paths.items()}
            outcome = in_child("callers", folders=folders, threads=self._threads)["outcome"]
        self._judge(f"{name}={value} around verify", paths["verify"], outcome, excused)
        carry_out("unlearn", paths["learn"], self._threads)
        for phase in ("learn", "unlearn"):
            self._judge(
                f"{name}={value} around {phase}",
                paths[phase],
                carry_out("verify", paths[phase], self._threads),
                excused,
            )

    def _judge(self, name: str, path: Path, outcome: str, excused: bool) -> None:
        kept = {client for client, _, _ in Federation(path, halves()).uploads()}
        same = bits(path) == self._expected
        if kept != data().keys():
            self._note(name, "a shard is gone", wrong=True)
        elif outcome == "exact":
            self._note(name, "exact" if same else "exact, other bits", wrong=not same and not excused)
        else:
            self._note(name, outcome, wrong=outcome != "not_comparable" or not excused)

    def _note(self, name: str, what: str, *, wrong: bool) -> None:
        self._counts["wrong" if wrong else what.replace("_", " ")] += 1
        if wrong:
            self._wrong.append(f"{name}: {what}")


def child(folders: dict[str, str], threads: int) -> dict[str, Any]:
    """Do each call on a run of its own, in a process whose environment was set."""
    return {"outcome": [carry_out(phase, Path(folders[phase]), threads) for phase in PHASES][-1]}


def caller_state() -> list[Any]:
    """What a caller may look at to see whether its settings are as they were."""
    return [
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_deterministic_debug_mode(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.is_anomaly_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(),
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        np.geterr(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # type: ignore[index, call-overload]
    ]


@contextmanager
def put_back() -> Iterator[None]:
    """Put back what callbacks set."""
    with (
        switched(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        switched(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads()),
        switched(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 0),
        switched(lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on), False),
        switched(lambda: False, torch.set_flush_denormal, False),
        switched(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, True),
        switched(lambda: None, torch.set_default_device, None),
        torch.enable_grad(),
        torch.random.fork_rng(),
    ):
        yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
