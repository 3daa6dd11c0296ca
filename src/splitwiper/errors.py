"""Every error SplitWiper raises on purpose.

The tree::

    SplitWiperError
    ├── InputError            (ValueError)   something the caller gave is wrong
    │   ├── ConfigError                      a setting, or a configuration file
    │   ├── CutError                         a cut of the model that cannot work
    │   ├── DataError                        rows, labels, shapes, dtypes
    │   │   └── LargeError                   more was sent than one call to the server takes
    │   └── RequestError                     an unlearning request for something that does not exist
    ├── NotFoundError         (LookupError)  no such run, client, ticket or model
    │   └── AbsentClientError                the client is known, its folder is not here
    ├── StoreError            (OSError)      the run folder
    │   ├── CorruptError                     bytes that are not what was written
    │   ├── SealError                        the key that would reveal edits of a database is missing
    │   ├── FormatError                      another or a newer format, unknown feature flags
    │   └── DiskFullError                    no room; nothing acknowledged was lost
    ├── IdentityError         (PermissionError) a certificate, token or passphrase that is not accepted
    │   └── ForbiddenError                   it is accepted, but not for this
    ├── BusyError             (RuntimeError) another process holds the lease, or other threads disturb
    │   ├── FencedError                      this process lost its lease and must stop
    │   ├── QuotaError                       a client asks for more than its share
    │   └── WithdrawnError                   the model is forgetting; it answers again when it has
    ├── UnreachableError      (ConnectionError) the server cannot be reached
    │   ├── FailingError                     it was reached, and cannot do its work: no room, a damaged store
    │   └── SlowError                        it was reached, but the data came too slowly
    ├── TrainingError         (RuntimeError) training ran and went wrong
    │   ├── UntrainableError                 because of the rows: loss or weights are not finite, or a layer failed
    │   └── ResourceError                    for lack of memory or the like, not because of the rows
    ├── ForkError             (RuntimeError) the server shows another ledger than it did before
    │   └── RestoredError                    because its operator restored a backup, and says so
    └── MismatchError         (RuntimeError) the server's answer is not what it committed to

Each message gives the offending value and the remedy. Only the command line turns errors into exit codes.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Sequence
from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)


class SplitWiperError(Exception):
    """Base of all errors raised on purpose."""


class InputError(SplitWiperError, ValueError):
    """Something the caller gave is wrong."""


class ConfigError(InputError):
    """A setting or a configuration file is wrong."""


class CutError(InputError):
    """The model cannot be cut there."""


class DataError(InputError):
    """Rows, labels, shapes or dtypes are wrong."""


class LargeError(DataError):
    """More was sent in one call than it accepts."""


class RequestError(InputError):
    """An unlearning request names something that does not exist."""


class NotFoundError(SplitWiperError, LookupError):
    """There is no such run, client, ticket or model."""


class AbsentClientError(NotFoundError):
    """The client is known, but its folder is not here."""


class StoreError(SplitWiperError, OSError):
    """The run folder cannot be used as it is."""


class CorruptError(StoreError):
    """Stored bytes are not what was written."""


class SealError(StoreError):
    """The key that would reveal edits of a database is missing."""


class FormatError(StoreError):
    """Another format, a newer version, or unknown feature flags."""


class DiskFullError(StoreError):
    """There is no room left; nothing acknowledged was lost."""


class IdentityError(SplitWiperError, PermissionError):
    """A certificate, token or passphrase is not accepted, or a key is not kept private."""


class ForbiddenError(IdentityError):
    """The caller is known, but may not do this."""


class BusyError(SplitWiperError, RuntimeError):
    """Another process holds the lease, or other threads of this one keep a result from being certain."""


class FencedError(BusyError):
    """This process lost its lease to another one and must stop."""


class QuotaError(BusyError):
    """A client asks for more than its share of the server; later there may be room again."""


class WithdrawnError(BusyError):
    """The model knows what a request asks to forget, and does not answer until it has forgotten."""


class UnreachableError(SplitWiperError, ConnectionError):
    """The server cannot be reached, or does not answer as a SplitWiper server does."""


class FailingError(UnreachableError):
    """The server was reached and cannot do its work now: its disk is full, or its store damaged."""


class SlowError(UnreachableError):
    """The data came so slowly that the server did not wait for the rest."""


class TrainingError(SplitWiperError, RuntimeError):
    """Training failed."""


class UntrainableError(TrainingError):
    """These rows cannot be trained on: the loss or the weights stopped being finite, or a layer failed on them."""


class ResourceError(TrainingError):
    """Training lacked memory; its input is not at fault, and trying again may work."""


class ForkError(SplitWiperError, RuntimeError):
    """The server's ledger does not extend the one it showed before."""


class RestoredError(ForkError):
    """The server's operator restored a backup and recorded that; a person has to accept it at each site."""


class MismatchError(SplitWiperError, RuntimeError):
    """The server answers with something other than what it committed to."""


def nearest(word: str, known: Iterable[str], *, most: int = 2) -> str:
    """Return a clause that suggests the known words closest to ``word``; empty if none is close.

    >>> nearest("brid", ["bird", "cat"])
    " Did you mean 'bird'?"
    """
    close = difflib.get_close_matches(word, [str(k) for k in known], n=most, cutoff=0.65)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(c) for c in close)}?"


def check_keys(given: Iterable[str], known: Sequence[str], *, where: str = "") -> None:
    """Refuse unknown keys of a table, and suggest the nearest known one; ``where`` is the table's name and a dot."""
    for key in given:
        if key not in known:
            hint = nearest(key, known) or f" Known keys: {', '.join(known)}."
            raise ConfigError(f"unknown key {where + key!r}.{hint}")


def let_go(problem: _Error) -> _Error:
    """Strip from an error everything its frames hold (open files, rows, weights), so that it can be raised later."""
    # a traceback keeps the frames of all functions that the error passed, and with them their variables
    link: BaseException | None = problem
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    return problem
