"""Compute until the outcome is certain, although other threads or signal handlers may have interfered.

Computations here are deterministic, so an undisturbed outcome repeats. If other threads run, a result counts when two
trials agree, or more if a thread is seen to draw or to change switches; a fault counts when it repeats. Nothing is
erased, and no shard is blamed, for a fault that happens once.
"""

from __future__ import annotations

import math
import re
import signal
import time
import traceback
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import partial
from itertools import permutations
from typing import TypeVar

import torch

from splitwiper.errors import BusyError, ResourceError, TrainingError, let_go
from splitwiper.exclusive import Company
from splitwiper.seeding import cpu_generators, same_generators

_T = TypeVar("_T")
TRIES = 12
"""Largest number of trials while other threads run."""
_SURE = 4
"""Agreeing trials required if other threads were seen to draw or to change switches; or faults required while any
other thread runs, with never a result in between, before anything may be erased for it."""
_LOOKS = 20
"""Milliseconds for which threads are watched after a fault."""
_GLANCE, _EVERY, _SUSPECT = 0.005, 0.1, 1.0
"""Seconds: how long threads are watched before a trial, the least time between such watches, and for how long a
sighting raises the bar."""
NET_FAULTS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of a net for unsuitable inputs, which may also be caused by another thread changing a setting."""


class _Watch:
    """Records, for all trials, when other threads were last watched, and when one last drew or changed a switch."""

    looked = seen = -math.inf

    def look(self, pinned: Callable[[], bool]) -> None:
        """Watch for a moment, unless that was done just now: a thread that is always active is seen, at little cost."""
        now = time.monotonic()
        if now - self.looked < _EVERY:
            return
        drawn, self.looked = cpu_generators(), now
        while time.monotonic() < now + _GLANCE:
            time.sleep(1e-4)
            if not pinned():
                self.note()
        if not same_generators(drawn, cpu_generators()):
            self.note()

    def note(self) -> None:
        """Record that a thread was seen."""
        self.seen = time.monotonic()

    @property
    def suspects(self) -> bool:
        """Whether one was seen recently."""
        return time.monotonic() - self.seen < _SUSPECT


_watch = _Watch()


class Trial:
    """One computation of a result; detects whether anything else may have interfered.

    Args:
        pinned: returns whether torch's switches are where they were put.
    """

    def __init__(self, pinned: Callable[[], bool]) -> None:
        self._pinned, self._company = pinned, Company()
        self._looks = 0
        if self._company.look():
            _watch.look(pinned)
        self.moved: list[int] = []
        """The looks at which switches were found changed."""

    def look(self) -> None:
        """Check for other threads and, if there are any, the switches; called between two steps, for example."""
        self._looks += 1
        if self._company.look() and not self._pinned():
            self.moved.append(self._looks)
            _watch.note()

    def end(self) -> None:
        """Check for the last time, including the switches that a signal handler may have changed."""
        self._looks += 1
        self._company.look()
        if not self._pinned():
            self.moved.append(self._looks)

    @property
    def beside_others(self) -> bool:
        """Whether other threads ran meanwhile."""
        return self._company.look()

    def confirms(self, other: Trial) -> bool:
        """Return whether a result of two trials is their own: nothing changed in this one, or not the same in both.

        Without other threads, a changed switch is the computation's own doing.
        """
        return not self.moved or self.moved != other.moved or not self.beside_others

    def failed_as(self, other: Trial) -> bool:
        """Return whether two trials came equally far."""
        return self._looks == other._looks

    def is_clean(self) -> bool:
        """Return whether nothing was changed, and no other thread draws or changes anything right now."""
        drawn = cpu_generators()
        for _ in range(_LOOKS if self.beside_others else 0):
            time.sleep(1e-3)
            if not self._pinned():
                return False
        return not self.moved and same_generators(drawn, cpu_generators())


def certain(
    compute: Callable[[Trial], _T],
    held: Callable[[], AbstractContextManager[object]],
    *,
    pinned: Callable[[], bool],
    key: Callable[[_T], Hashable] | None,
    what: str,
    faults: tuple[type[Exception], ...] = NET_FAULTS,
    tries: int = TRIES,
    again: Callable[[], object] = lambda: None,
    blames: bool = False,
) -> _T:
    """Compute something until it is certain: once if no other threads run, otherwise until two results agree.

    Args:
        compute: computes it, and calls the trial's `look` now and then.
        held: the context to compute in.
        pinned: returns whether torch's switches are still as that context puts them.
        key: what two results must agree in; None if any result proves itself, and only faults may come from others.
        what: names the computation in messages.
        faults: errors that may be its own, or be caused by others.
        tries: the largest number of trials.
        again: called before each repetition.
        blames: whether something may be erased because it fails: this requires more repetitions.

    Raises:
        BusyError: no two results agree, or it fails, and not always.
        Exception: a fault that repeats; or an error from a signal handler; or, if nothing else ran, a fault that does
            not repeat, which is not the computation's own.
    """
    seen = _Outcomes(what, blames=blames)
    for turn in range(tries):
        if turn:
            again()
        with held():
            trial = Trial(pinned)
            try:
                result = compute(trial)
                trial.end()
            except faults as problem:
                _pass_on(problem)
                trial.end()
                if seen.is_sure_of_fault(problem, trial):
                    raise
                continue
        if key is None or seen.is_sure_of(partial(key, result), trial):
            return result
    raise disturbed(what) from seen.fault


class _Outcomes:
    """The outcomes of repeated trials."""

    def __init__(self, what: str, *, blames: bool) -> None:
        self._what, self._blames = what, blames
        self._results: list[tuple[Hashable, Trial]] = []
        self._faults: list[tuple[Exception, Trial]] = []

    @property
    def fault(self) -> Exception | None:
        """The last fault that may have been its own."""
        return self._faults[-1][0] if self._faults else None

    def is_sure_of(self, key: Callable[[], Hashable], trial: Trial) -> bool:
        """Return whether a result is the computation's own.

        It is if no other thread ran; otherwise it must come twice, and more often than other results. If a thread is
        active right now, twice may be chance: it must then come more often.

        Raises:
            Exception: nothing else ran, and yet it failed before.
        """
        if not (trial.beside_others or trial.moved):
            # Nothing else runs, and it failed before although nothing else ran: it does not always compute the same, so
            # the fault was neither the rows' nor another thread's.
            if self._faults and not self._faults[-1][1].beside_others:
                raise once(self._faults[-1][0], self._what)
            return True
        result = key()
        self._results.append((result, trial))
        equal = [earlier for other, earlier in self._results if other == result]
        # A disturbance that comes twice at the same step gives the same wrong result twice. So at least one of the
        # equal trials must have seen no switch move, or another one than the others saw.
        confirmed = any(one.confirms(other) for one, other in permutations(equal, 2))
        # It must prevail, too: each different result is evidence that disturbances are frequent, and asks for one more.
        enough = _SURE if trial.beside_others and _watch.suspects else 2
        different = len(self._results) - len(equal)
        return confirmed and len(equal) >= enough + different

    def is_sure_of_fault(self, problem: Exception, trial: Trial) -> bool:
        """Return whether a fault is the computation's own: it comes at the same place, and often enough."""
        if trial.is_clean():  # a fault while somebody disturbs says nothing: it is not even counted
            repeats = 1
            for earlier, then in self._faults:
                repeats += same_fault(problem, earlier) and trial.failed_as(then)
            # a thread beside it may be the cause, and so ask for one repetition; what erases something asks for more
            enough = 2 if self._blames else 1
            if trial.beside_others:
                enough = _SURE if self._blames else 2
            # one good result is proof that the computation can succeed, so nothing may be blamed for failing
            if not self._results and repeats >= enough:
                return True
            self._faults.append((let_go(problem), trial))
        return False


def reproduced(compute: Callable[[], _T], expected: _T, what: str) -> _T:
    """Compute something again, to compare it; if it differs while other threads run, until two results agree."""
    company, results = Company(), list[_T]()
    for _ in range(3):
        result = compute()
        if result == expected or not company.look() or result in results:
            return result
        results.append(result)
    raise disturbed(what)


def same_fault(one: BaseException, other: BaseException) -> bool:
    """Return whether two errors have the same message, except for addresses in memory."""
    address = re.compile(r"0x[0-9a-fA-F]+")
    return type(one) is type(other) and address.sub("0x", str(one)) == address.sub("0x", str(other))


def once(problem: Exception, what: str) -> BaseException:
    """Return the error for a fault that did not repeat: its cause, which is not the rows' fault."""
    return (problem.__cause__ or disturbed(what)) if isinstance(problem, TrainingError) else problem


def by_handler(problem: BaseException) -> BaseException | None:
    """Return the error that the caller's signal handler raised, if one is behind an error."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    link: BaseException | None = problem
    seen: list[BaseException] = []
    while link is not None and link not in seen:  # a chain of causes may be a circle
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if frame.f_code in handlers:
                return link
        seen.append(link)
        link = link.__cause__ or link.__context__
    return None


def _pass_on(problem: Exception) -> None:
    """Raise errors that say nothing about the computation: a signal handler's, for example, requests an end."""
    if raised := by_handler(problem):
        raise raised
    if isinstance(problem, ResourceError | BusyError | torch.OutOfMemoryError):
        raise problem


def disturbed(what: str) -> BusyError:
    """Return the error for an outcome that other threads keep from being certain."""
    return BusyError(
        f"{what}: other threads of this program draw from the global random generators (of torch, NumPy or Python) or "
        "change torch's settings, or a signal handler does, so no result is certain. Let them use generators of their "
        "own, or pause them, and call again (settle finishes what was begun)."
    )
