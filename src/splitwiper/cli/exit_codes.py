"""Exit codes, and how errors are shown: one message that names the remedy, and no traceback.

Unexpected exceptions keep their traceback; they are bugs.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.markup import escape
from rich.text import Text

from splitwiper.cli.output import note, to_json
from splitwiper.cli.wording import translated
from splitwiper.errors import (
    BusyError,
    ConfigError,
    ForkError,
    IdentityError,
    InputError,
    MismatchError,
    NotFoundError,
    RestoredError,
    SplitWiperError,
    StoreError,
    TrainingError,
    UnreachableError,
)
from splitwiper.extras import EXTRAS

OUTCOMES = {"exact": 0, "holds": 0, "mismatch": 3, "not_comparable": 4, "unverifiable": 5}
"""Exit codes of `splitwiper verify`, by outcome."""
MISMATCH = OUTCOMES["mismatch"]
STORE = 7
# What is wrong where standard output cannot be written to.
OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
INTERRUPTED = 130
# The first kind that fits counts: a restored server is a fork to those who have not accepted it.
_KINDS: tuple[tuple[type[SplitWiperError], int], ...] = (
    (InputError, 2),
    (NotFoundError, 6),
    (StoreError, STORE),
    (BusyError, 8),
    (TrainingError, 9),
    (RestoredError, 11),
    (ForkError, MISMATCH),
    (MismatchError, MISMATCH),
    (IdentityError, 10),
    (UnreachableError, 12),
)
TABLE = """Exit codes:

    0  done; for verify: exact, or a certificate that holds
    1  an unforeseen error, with its traceback
    2  wrong usage, settings or data
    3  mismatch of recomputed bits, signature, proof or model; a forked ledger
    4  verify: not comparable; this machine computes differently
    5  verify: unverifiable, something needed is gone
    6  no such run, client, ticket, model or data set
    7  the run folder: damaged, another format, or the disk is full
    8  busy: another process works on the run
    9  training failed
   10  a certificate, token or passphrase is not accepted
   11  the server was restored from a backup: see accept-restore
   12  the server cannot be reached, or fails: try again later
  130  interrupted or declined; nothing acknowledged is lost
"""
GO_ON = "Nothing acknowledged is lost: run the same command again, and it continues from there."

_P = ParamSpec("_P")
_R = TypeVar("_R")


def exit_code(problem: BaseException) -> int:
    """Return the exit code of an error raised on purpose.

    >>> exit_code(BusyError("in use"))
    8
    """
    return next((code for kind, code in _KINDS if isinstance(problem, kind)), 1)


def words(problem: Exception) -> str:
    """Return an error's message, phrased for the command line."""
    text = str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        text = problem.strerror
        if not isinstance(problem, SplitWiperError):
            text = f"{text[:1].lower()}{text[1:]}"
            if problem.filename:
                text = f"{problem.filename}: {text}. Check the path and your rights to it."
            else:
                text = f"the output could not be written: {text}. Make room, or send it elsewhere."
    return translated(text)


def helping(text: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Append to a command's help what would bury its code: examples, and files as they are to be written."""

    def extend(command: Callable[_P, _R]) -> Callable[_P, _R]:
        command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{inspect.cleandoc(text)}"
        return command

    return extend


def guarded(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the command with errors raised on purpose turned into a message and an exit code."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        as_json = bool(kwargs.get("as_json"))  # typer passes all parameters by keyword
        try:
            return command(*args, **kwargs)
        except SplitWiperError as problem:
            code, text, kind = exit_code(problem), words(problem), type(problem).__name__
            raise _shown(code, text, kind, as_json=as_json) from problem
        except BrokenPipeError:  # the reader of a pipe has left: typer ends the program quietly
            raise
        except OSError as problem:
            # without a file name it is not the user's file; what is wrong may still be where the output goes
            if not problem.filename and problem.errno not in OUTPUT:
                raise
            raise _shown(STORE, words(problem), "OSError", as_json=as_json) from problem
        except ModuleNotFoundError as problem:
            if (extra := EXTRAS.get((problem.name or "").partition(".")[0])) is None:
                raise
            text = (
                f"this command needs the package {problem.name}, which is not installed: pip install "
                f"'splitwiper[{extra}]' (in a clone: pip install '.[{extra}]')."
            )
            raise _shown(exit_code(ConfigError()), text, "ConfigError", as_json=as_json) from problem
        except KeyboardInterrupt as stop:
            raise _shown(INTERRUPTED, str(stop) or GO_ON, "interrupted", as_json=as_json) from stop

    run.__doc__ = _flowing(inspect.cleandoc(command.__doc__ or ""))
    return run


def _shown(code: int, text: str, kind: str, *, as_json: bool) -> typer.Exit:
    """Print an error on standard error, as a sentence or as one JSON object; return the exception that exits."""
    if as_json:
        typer.echo(to_json({"error": {"kind": kind, "message": text, "exit_code": code}}), err=True)
    else:
        _print_error("interrupted" if kind == "interrupted" else "error", text)
    return typer.Exit(code)


def _flowing(text: str) -> str:
    """Join the lines of paragraphs, so that the terminal wraps them; keep indented lines, and brackets as they are."""
    lines = [""]
    for added in text.splitlines():
        in_paragraph = lines[-1] and not lines[-1].startswith(" ")
        if in_paragraph and added and not added.startswith(" "):
            lines[-1] += f" {added}"
        else:
            lines.append(added)
    return escape("\n".join(lines).strip())


@contextmanager
def when_interrupted(advice: str) -> Iterator[None]:
    """Give other advice than `GO_ON` if the user interrupts this."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(advice) from stop


def run_to_the_end(program: Callable[[], object]) -> NoReturn:
    """Run a program that ends by `SystemExit`, and leave with its code, or with 7 if its output cannot be written."""
    code: Any = 0
    try:
        program()
    except SystemExit as left:
        code = left.code
    except OSError as problem:  # help and version are not guarded commands
        if problem.errno not in OUTPUT:
            raise
        _print_error("error", words(problem))
        code = STORE
    try:
        if sys.stdout is not None:  # it is None where it was closed
            sys.stdout.flush()
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter tries once more, and complains
        if problem.errno != errno.EPIPE and code != STORE:
            _print_error("error", words(problem))
            code = STORE
    sys.exit(code)


def _print_error(kind: str, text: str) -> None:
    note(Text(f"{kind}: ", "bold red"), Text(text, "red" if kind == "error" else ""))
