"""Let the same `forget` command, run again after it was interrupted, finish the request that it made.

Rows are suppressed at once, so a second run finds none of them. What was asked for is therefore remembered, as a salted
digest, from just before the rows are suppressed until the command has delivered its results. It is erased then: a label
is easily guessed from a digest.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence

from splitwiper.errors import RequestError
from splitwiper.service.home.home import Home
from splitwiper.store import ClientTree

_KEY = "asking"


def forget(
    home: Home,
    *,
    classes: Sequence[str | int] | None = None,
    samples: Sequence[int] | None = None,
    everything: bool = False,
) -> str:
    """Suppress rows and make the request, or find the request that an interrupted run of the same call has made.

    Returns:
        The request's ticket. Call `finish` once its results are delivered.

    Raises:
        RequestError: what was named is not held, and no interrupted call named the same.
    """
    tree = home.client.tree
    asked = json.dumps([sorted(map(str, classes or ())), sorted(samples or ()), everything])
    try:
        choice = home.client.choose(classes=classes, samples=samples, everything=everything)
    except RequestError:
        if (ticket := _interrupted(tree, asked)) is None:
            raise
        return ticket
    salt = secrets.token_hex(16)
    made = len(tree.requests("open", "sent", "done"))
    tree.remember(**{_KEY: json.dumps([salt, _digest(salt, asked), made])})
    return home.client.forget(choice).ticket


def finish(home: Home) -> None:
    """Erase what is remembered of the last call."""
    tree = home.client.tree
    if tree.book.meta(_KEY):
        tree.remember(**{_KEY: ""})


def _interrupted(tree: ClientTree, asked: str) -> str | None:
    """Return the ticket of the first request that was made after the same was asked for, if there is one."""
    salt, known, made = json.loads(tree.book.meta(_KEY) or '["", "", 0]')
    later = tree.requests("open", "sent", "done")[made:]
    if not later or not hmac.compare_digest(known, _digest(salt, asked)):
        return None
    return str(later[0]["ticket"])


def _digest(salt: str, asked: str) -> str:
    return hmac.digest(bytes.fromhex(salt), asked.encode(), "sha256").hex()
