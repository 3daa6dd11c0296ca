"""Hold the state that all threads of a process share: torch's switches, and the global random generators.

Exact computations set that state, and must neither meet each other's nor leave it changed. So one thread at a time
holds it. Long computations call `give_way` now and then: if another thread waits, it gets its turn, and finds the
shared state as if nobody had touched it. Threads that do not ask cannot be stopped; `Company` tells whether there were
any, and `loop` and `client.embed` then check what they computed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_HELPERS = ("lease-", "read-ahead", "transcript", "write-behind")
"""How the names of this program's own threads begin, where they belong to a pool."""
_QUIET = frozenset({"splitwiper", "IPython", "execnet", "ipykernel", "rich", "tornado", "tqdm", "zmq"})
"""Packages whose threads show progress or carry messages, and neither draw random numbers nor set torch's switches."""


class _Loan:
    """A part of the shared state that the holder has changed for a while."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self._read, self._write = read, write
        self._outside, self._inside = read(), None

    def hand_back(self) -> None:
        self._inside = self._read()
        self._write(self._outside)

    def resume(self) -> None:
        self._outside = self._read()
        self._write(self._inside)

    def end(self) -> None:
        self._write(self._outside)


class _Turn:
    """A re-entrant lock that goes to whoever has waited longest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0
        self.loans: list[_Loan] = []
        """Of the owner, outermost first."""

    def acquire(self) -> None:
        me = threading.get_ident()
        with self._guard:
            if self._owner in (None, me):
                self._owner = me
                self._depth += 1
                return
            called = threading.Lock()
            called.acquire()
            self._waiting.append((me, called))
        try:
            called.acquire()
        except BaseException:  # interrupted while waiting
            with self._guard:
                if (me, called) in self._waiting:
                    self._waiting.remove((me, called))
                    raise
            self.release()  # it was handed over at that very moment
            raise

    def release(self) -> None:
        with self._guard:
            if self._owner != threading.get_ident():
                raise RuntimeError("a thread gives a turn back that is another's")
            self._depth -= 1
            if self._depth:
                return
            self._owner = None
            if self._waiting:
                self._owner, called = self._waiting.popleft()
                self._depth = 1
                called.release()

    def give_way(self) -> None:
        if not self._waiting or self._owner != threading.get_ident():
            return
        depth, loans = self._depth, self.loans
        for loan in reversed(loans):
            loan.hand_back()
        self.loans, self._depth = [], 1
        self.release()
        interrupt: BaseException | None = None
        while self._owner != threading.get_ident():
            try:
                self.acquire()
            except BaseException as problem:  # what is lent can be put back only once it is this thread's turn again
                interrupt = problem
        self.loans, self._depth = loans, depth
        for loan in loans:
            loan.resume()
        if interrupt is not None:
            raise interrupt


_turn = _Turn()


def _forked() -> None:
    """In a forked process only the thread that forked lives on, and only it can hold anything."""
    global _turn
    if _turn._owner == threading.get_ident():
        _turn._guard = threading.Lock()
        _turn._waiting.clear()
    else:
        _turn = _Turn()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def borrowed(read: Callable[[], Any], write: Callable[[Any], None]) -> Iterator[None]:
    """Hold the shared state, and put a part of it back afterwards. Nests within a thread; other threads wait.

    Args:
        read: returns that part of the state.
        write: sets it to what `read` returned.
    """
    _turn.acquire()
    try:
        loan = _Loan(read, write)
        _turn.loans.append(loan)
        try:
            yield
        finally:
            _turn.loans.pop()
            loan.end()
    finally:
        _turn.release()


def give_way() -> None:
    """Let a thread that waits for the shared state have its turn; where none does, this costs nothing."""
    _turn.give_way()


class Company:
    """Tells whether threads that are not this program's ran since it was made: they may touch the shared state unasked.

    A thread is started by another one. So where there was none at first, only code that the program itself calls, such
    as a net's, can start one; `look` is called after each such call and finds it unless it has ended by then.
    """

    def __init__(self) -> None:
        self._threads, self._seen = list[threading.Thread](), False
        self.look()

    def look(self) -> bool:
        """Look at the threads there are now; return whether one of them, or one seen before, is not this program's."""
        if not self._seen and (threads := threading.enumerate()) != self._threads:
            me, self._threads = threading.current_thread(), threads
            self._seen = any(thread is not me and not _is_helper(thread) for thread in threads)
        return self._seen


def _is_helper(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    module = str(getattr(target, "__module__", "") or type(thread).__module__)
    return module.partition(".")[0] in _QUIET or thread.name.startswith(_HELPERS)
