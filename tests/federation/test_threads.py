"""Threads of one process: trainings take turns, predictions get theirs, and what others draw changes no bit."""

import dataclasses
import io
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

from federation.runs import FEATURES, assert_same, learned, settings, three
from federation.test_pitfalls import Noisy, cut_of
from splitwiper import Federation, Halves, exclusive
from splitwiper.client.embed import Sending
from splitwiper.errors import BusyError
from splitwiper.exclusive import Company, borrowed, give_way
from splitwiper.numerics import reproducible, thread_count
from splitwiper.training.stepping import Step

PATIENCE = 60.0


def dropping() -> Halves:
    """A network that draws random numbers on both sides while it trains."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )
    return cut_of(model, "2", torch.zeros(1, FEATURES))


def draw() -> None:
    torch.rand(3), np.random.rand(3), random.random()


def in_thread(work: Callable[[], Any]) -> Any:
    """Do some work in another thread, and wait for what it returns or raises."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as problem:
            found.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Have another thread do some work again and again."""
    stop, begun = threading.Event(), threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()
            begun.set()
            stop.wait(1e-4)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(PATIENCE)
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)


@contextmanager
def idle_thread() -> Iterator[None]:
    with beside(lambda: None):
        yield


def test_two_trainings_in_two_threads_are_both_exact(tmp_path: Path) -> None:
    cut = dropping()
    quiet = Federation(tmp_path / "quiet", cut, settings(slices=2))
    quiet.learn(three())
    pair = [quiet.twin(tmp_path / str(n)) for n in range(2)]
    torch.set_default_dtype(torch.float64)
    before, state = torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    try:
        threads = [threading.Thread(target=fed.learn, args=(three(),)) for fed in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.are_deterministic_algorithms_enabled() == before and torch.equal(torch.get_rng_state(), state)
    for fed in pair:
        assert_same(quiet, fed)
        assert fed.verify().exact


def test_threads_that_draw_do_not_matter_to_a_net_that_does_not(tmp_path: Path) -> None:
    quiet = learned(tmp_path / "quiet", settings(slices=2, codec="int8"))
    loud = quiet.twin(tmp_path / "loud")
    with beside(draw):
        loud.learn(three())
        assert loud.verify(loud.unlearn("north", classes=["bird"])).exact
    quiet.unlearn("north", classes=["bird"])
    assert_same(quiet, loud)


@pytest.mark.parametrize("beside_it", [idle_thread, nullcontext])
@pytest.mark.parametrize("where", ["client", "server"])
def test_a_draw_of_another_thread_in_the_middle_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, beside_it: Callable[[], AbstractContextManager[None]]
) -> None:
    """The thread that draws may be there from the beginning, or start in the middle."""
    quiet = Federation(tmp_path / "quiet", dropping(), settings())
    quiet.learn(three())
    loud, real, drawn = quiet.twin(tmp_path / "loud"), Step.__call__, []

    def step(self: Step, *batch: Any) -> None:
        real(self, *batch)
        if not drawn and where in self._what:
            drawn.append(where)
            in_thread(draw)
            stack.enter_context(idle_thread())

    monkeypatch.setattr(Step, "__call__", step)
    with ExitStack() as stack, beside_it():
        loud.learn(three())
    assert drawn
    assert_same(quiet, loud)


def test_settings_that_another_thread_changes_in_the_middle_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = Federation(tmp_path / "quiet", dropping(), settings())
    quiet.learn(three())
    loud, real, changed = quiet.twin(tmp_path / "loud"), Step.__call__, []

    def step(self: Step, *batch: Any) -> None:
        if not changed:
            changed.append(1)
            in_thread(lambda: torch.set_default_dtype(torch.float64))
            raise RuntimeError("expected float, got double")
        real(self, *batch)

    monkeypatch.setattr(Step, "__call__", step)
    with idle_thread():
        loud.learn(three())
    assert torch.get_default_dtype() == torch.float32
    assert_same(quiet, loud)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_half_that_draws_when_evaluating_beside_a_thread_that_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The other thread draws before the half does, or after it, when only the next batch could be shifted."""
    monkeypatch.setattr("splitwiper.client.embed.BATCH", 8)
    cut = cut_of(nn.Sequential(nn.Linear(FEATURES, 8), Noisy(), nn.Linear(8, 3)), "1", torch.zeros(1, FEATURES))
    quiet = Federation(tmp_path / "quiet", cut, settings())
    quiet.learn(three())
    loud, real, drawn = quiet.twin(tmp_path / "loud"), Noisy.forward, []

    def forward(self: Noisy, x: torch.Tensor) -> torch.Tensor:
        first = not drawn
        drawn.append(1)
        if first and before:
            in_thread(draw)
        out = real(self, x)
        if first and not before:
            in_thread(draw)
        return out

    in_batch = Sending._batch

    def batch(self: Sending, embedder: nn.Module, *rest: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Noisy, "forward", forward)
            return in_batch(self, embedder, *rest)

    monkeypatch.setattr(Sending, "_batch", batch)
    with idle_thread():
        loud.learn(three())
    assert drawn
    assert_same(quiet, loud)


def test_a_thread_that_never_stops_drawing_is_refused_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No wrong bit is called exact: either two results agree, or there is none."""
    fed = Federation(tmp_path / "run", dropping(), settings())
    fed.learn(three())
    rows, real = len(fed.rows("north")), Step.__call__

    def step(self: Step, *batch: Any) -> None:
        in_thread(lambda: torch.rand(1 + secrets.randbelow(10**6)))
        real(self, *batch)

    with idle_thread(), monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", step)
        with pytest.raises(BusyError, match=r"accepted as ticket .*other threads of this program draw"):
            fed.unlearn("north", classes=["bird"])
    assert any(client == "north" for client, _, _ in fed.uploads())  # as it was
    assert len(fed.settle()) == 1
    assert len(fed.rows("north")) == rows - 10 and fed.verify().exact


def test_predictions_get_their_turn_within_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = learned(tmp_path / "answering")
    expected = answering.predict("north", three()["north"][0])
    one_by_one = dataclasses.replace(settings(), client=dataclasses.replace(settings().client, batch=1))
    quiet = Federation(tmp_path / "quiet", dropping(), one_by_one)
    quiet.learn(three())
    busy, real = quiet.twin(tmp_path / "busy"), Step.__call__
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(answering.predict("north", three()["north"][0])))
    steps = list[bool]()

    def step(self: Step, *batch: Any) -> None:
        real(self, *batch)
        if not steps:
            thread.start()
        if len(steps) < len(three()["north"][0]):  # of the first epoch
            steps.append(bool(answers))
            thread.join(0 if answers else 0.1)  # it waits for its turn meanwhile

    monkeypatch.setattr(Step, "__call__", step)
    busy.learn(three())
    assert steps[-1] and answers == [expected]
    assert_same(quiet, busy)


def test_giving_way_hands_over_what_the_caller_had() -> None:
    seen: list[str] = []
    shared = ["caller's"]

    def hold(name: str) -> None:
        def write(value: str) -> None:
            shared[0] = value

        with borrowed(lambda: shared[0], write):
            seen.append(shared[0])
            shared[0] = name
            for _ in range(50):
                assert shared[0] == name
                give_way()

    threads = [threading.Thread(target=hold, args=(f"mine {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == ["caller's"] * 4 and shared == ["caller's"]


def test_progress_bars_are_not_suspected() -> None:
    """Checking costs a second computation: threads that only show something must not cause it."""
    others = {thread for thread in threading.enumerate() if not thread.name.startswith("MainThread")}
    before = Company()
    assumed = before.look()
    with Progress(console=Console(file=io.StringIO(), force_terminal=True)):
        assert set(threading.enumerate()) - others  # it has a thread of its own
        assert Company().look() == before.look() == assumed
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert Company().look() and before.look()
    finally:
        stop.set()
        thread.join()
    assert before.look()


def test_an_interrupt_while_another_thread_has_its_turn_leaves_that_turn_alone() -> None:
    value, entered, seen = ["outside"], threading.Event(), list[str]()
    begin, leave = threading.Event(), threading.Event()

    def write(new: str) -> None:
        value[0] = new

    def other() -> None:
        begin.set()
        with borrowed(lambda: value[0], write):
            value[0] = "other's"
            entered.set()
            leave.wait(PATIENCE)
            seen.append(value[0])

    thread = threading.Thread(target=other)
    with pytest.raises(KeyboardInterrupt), borrowed(lambda: value[0], write):
        value[0] = "ours"
        thread.start()
        begin.wait(PATIENCE)
        while not exclusive._turn._waiting:
            time.sleep(0.01)
        acquire = exclusive._turn.acquire

        def interrupted() -> None:
            exclusive._turn.acquire = acquire  # type: ignore[method-assign]
            entered.wait(PATIENCE)
            leave.set()
            raise KeyboardInterrupt

        exclusive._turn.acquire = interrupted  # type: ignore[method-assign]
        give_way()
    thread.join(PATIENCE)
    assert seen == ["other's"] and value == ["outside"] and exclusive._turn._owner is None
    third = threading.Thread(target=lambda: seen.append(_held()))
    third.start()
    third.join(PATIENCE)
    assert seen[-1] == "held"


def _held() -> str:
    with borrowed(lambda: None, lambda _: None):
        return "held"


def test_a_thread_that_gets_its_turn_finds_the_callers_number_of_threads() -> None:
    """A thread that uses torch for the first time starts with the number that was set last, by whichever thread."""
    before = torch.get_num_threads()
    held, given = threading.Event(), threading.Event()
    seen: list[int] = []

    def waits() -> None:
        held.wait(PATIENCE)
        given.set()
        with reproducible(torch.device("cpu"), 0):
            seen.append(torch.get_num_threads())

    thread = threading.Thread(target=waits)
    thread.start()
    with reproducible(torch.device("cpu"), before + 1):
        held.set()
        given.wait(PATIENCE)
        while not seen:
            give_way()
        assert torch.get_num_threads() == before + 1
    thread.join(PATIENCE)
    assert seen == [thread_count(0)] and torch.get_num_threads() == before
