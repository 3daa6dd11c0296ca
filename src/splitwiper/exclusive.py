"""Hold the state that all threads of a process share: torch's switches, and the global random generators.

Exact computations set that state, and must neither see each other's nor leave it changed. So one thread at a time
holds it. Long computations call `give_way` now and then: a waiting thread then gets its turn, and finds the
shared state as if nobody had touched it. Threads that do not ask cannot be stopped; `Company` detects whether there
were any, and `certainty` then checks the results.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

_own = weakref.WeakSet[threading.Thread]()
"""This program's own threads."""
_QUIET = (
    "IPython.core.history:HistorySavingThread",
    "ipykernel.control:ControlThread",
    "ipykernel.heartbeat:Heartbeat",
    "ipykernel.iostream:IOPubThread._thread_main",
    "ipykernel.iostream:_IOPubThread",
    "ipykernel.parentpoller:ParentPollerUnix",
    "ipykernel.shellchannel:ShellChannelThread",
    "rich.live:_RefreshThread",
    "rich.progress:_TrackThread",
    "tornado.platform.asyncio:SelectorThread._run_select",
    "tqdm._monitor:TMonitor",
    "zmq.utils.garbage:GarbageCollectorThread",
)
"""Other packages' threads, by class or target, that show progress or carry messages, and run nobody else's code."""
_RECEIVER = "execnet.gateway_base:BaseGateway._thread_receiver"
"""The same of pytest's, which starts it without a `threading.Thread`."""


class _Loan:
    """A part of the shared state that the holder has changed temporarily."""

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
    """A re-entrant lock that goes to the thread that has waited longest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0
        self.loans: list[_Loan] = []
        """The owner's loans, outermost first."""

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
        # Whoever releases the turn makes this thread its owner and then opens `called`: the turn is never free in
        # between, so no thread that comes later can overtake one that waits.
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
        # read without the guard: a thread that begins to wait just now gets its turn at the next call
        if not self._waiting or self._owner != threading.get_ident():
            return
        depth, loans = self._depth, self.loans
        # innermost first, so that the next thread finds the state as it was before this one's first change
        for loan in reversed(loans):
            loan.hand_back()
        # at depth 1, one release is enough to hand the turn over; the true depth is restored below
        self.loans, self._depth = [], 1
        self.release()
        interrupt: BaseException | None = None
        while self._owner != threading.get_ident():
            try:
                self.acquire()
            except BaseException as problem:  # loans can only be resumed once it is this thread's turn again
                interrupt = problem
        self.loans, self._depth = loans, depth
        for loan in loans:
            loan.resume()
        if interrupt is not None:
            raise interrupt


_turn = _Turn()


def _forked() -> None:
    """Reset the lock in a forked process: only the thread that forked survives, and only it can hold anything."""
    global _turn
    if _turn._owner == threading.get_ident():
        _turn._guard = threading.Lock()
        _turn._waiting.clear()
    else:
        _turn = _Turn()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def borrowed(read: Callable[[], Any], write: Callable[[Any], None]) -> Iterator[None]:
    """Hold the shared state, and restore a part of it afterwards. Nests within a thread; other threads wait.

    Args:
        read: returns this part of the state.
        write: sets it to a value that `read` returned.
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
    """Give a thread that waits for the shared state its turn; if none waits, this costs nothing."""
    _turn.give_way()


def own(thread: threading.Thread) -> threading.Thread:
    """Mark a thread as this program's own, before it starts: it neither draws random numbers nor sets switches."""
    _own.add(thread)
    return thread


def own_pool(workers: int) -> ThreadPoolExecutor:
    """Return a pool whose threads are marked as this program's own."""
    pool, all_here = ThreadPoolExecutor(workers), threading.Barrier(workers)

    def mark(_: int) -> None:
        own(threading.current_thread())
        all_here.wait()  # so that each task gets its own thread, and none starts later, unmarked

    try:
        list(pool.map(mark, range(workers)))
    except BaseException:  # an interrupt, or no more threads available
        all_here.abort()
        pool.shutdown()
        raise
    return pool


class Company:
    """Detects foreign threads since it was created: they may touch the shared state without asking.

    A thread is started by another one. So if there was none at first, only code that this program itself calls, such
    as a net's, can start one; `look` is called after each such call and finds it unless it has ended by then.
    """

    def __init__(self) -> None:
        self._known: object = None
        self._seen = False
        self.look()

    def look(self) -> bool:
        """Check the present threads; return whether one of them, or one seen before, is not this program's."""
        if self._seen:
            return True
        threads, frames = threading.enumerate(), sys._current_frames()
        if (known := (threads, set(frames))) != self._known:  # only identifiers: frames would keep their contents alive
            self._known = known
            quiet = all(map(_is_quiet, threads)) and all(map(_is_quiet_frame, _unregistered(threads, frames)))
            self._seen = not quiet
        return self._seen


def _is_quiet(thread: threading.Thread) -> bool:
    if thread is threading.current_thread() or thread in _own or isinstance(thread, threading._DummyThread):
        return True  # a dummy stands for a thread that was started otherwise: its frames are checked
    target = getattr(thread, "_target", None)
    return any(made in (type(thread), getattr(target, "__func__", target)) for made in map(_named, _QUIET) if made)


def _unregistered(threads: list[threading.Thread], frames: dict[int, FrameType]) -> list[FrameType]:
    """Return the frames of threads that `threading` did not start, except this one."""
    registered = {thread.ident for thread in threads if not isinstance(thread, threading._DummyThread)}
    return [frame for ident, frame in frames.items() if ident not in registered | {threading.get_ident()}]


def _is_quiet_frame(frame: FrameType) -> bool:
    """Return whether a thread that `threading` does not list is harmless: a receiver, or one that is about to end."""
    receiver = getattr(_named(_RECEIVER), "__code__", None)
    at: FrameType | None = frame
    while at is not None:
        if at.f_code in (receiver, threading.Thread._bootstrap.__code__):  # type: ignore[attr-defined]
            return True
        at = at.f_back
    return False


def _named(path: str) -> object:
    """Return the object named by ``MODULE:NAME`` if the module is loaded, else None."""
    module, _, name = path.partition(":")
    value: object = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
