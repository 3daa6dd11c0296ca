"""Resuming an interrupted `forget` command: running it again finishes the request that it made.

Rows are suppressed at once, so a second run finds none of them. The command's arguments are therefore remembered, as a
salted digest, from just before the rows are suppressed until the command has delivered its results. Then the digest is
erased, because a label is easily guessed from it.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence

from splitwiper.errors import RequestError
from splitwiper.service.site.site import Site
from splitwiper.store import ClientStore

_KEY = "asking"


def forget(
    site: Site,
    *,
    classes: Sequence[str | int] | None = None,
    samples: Sequence[int] | None = None,
    everything: bool = False,
) -> str:
    """Suppress rows and make the request, or find the request that an interrupted run of the same call made.

    Returns:
        The request's ticket. Call `finish` once its results are delivered.

    Raises:
        RequestError: the site does not hold what was named, and no interrupted call named the same.
    """
    client = site.client
    store = client.store
    asked = json.dumps([sorted(map(str, classes or ())), sorted(samples or ()), everything])
    try:
        choice = client.choose(classes=classes, samples=samples, everything=everything)
    except RequestError:
        if (ticket := _interrupted(store, asked)) is None:
            raise
        return ticket
    # remembered before rows are suppressed: a later run of the same call then recognises the request as its own
    salt = secrets.token_hex(16)
    made = len(store.requests("open", "sent", "done"))
    store.remember(**{_KEY: json.dumps([salt, _digest(salt, asked), made])})
    return client.forget(choice).ticket


def finish(site: Site) -> None:
    """Erase the digest of the last call."""
    store = site.client.store
    if store.database.meta(_KEY):
        store.remember(**{_KEY: ""})


def _interrupted(store: ClientStore, asked: str) -> str | None:
    """Return the ticket of the first request made after the same call was remembered, if there is one."""
    salt, known, made = json.loads(store.database.meta(_KEY) or '["", "", 0]')
    later = store.requests("open", "sent", "done")[made:]
    if not later or not hmac.compare_digest(known, _digest(salt, asked)):
        return None
    return str(later[0]["ticket"])


def _digest(salt: str, asked: str) -> str:
    return hmac.digest(bytes.fromhex(salt), asked.encode(), "sha256").hex()
