"""Sites that hide labels, brought to agree by turns in one thread, and everything that they send."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from federation.runs import Table, table
from service.processes import Running
from splitwiper.client.agreeing import Gathering
from splitwiper.config import Masking
from splitwiper.errors import AbsentClientError
from splitwiper.service.site import Site
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore

SECRET = "a secret that was passed by telephone"
PARTITION = Masking(mode="partition", gamma=3)
NAMES = ("measles", "influenza", "rubella", "scarlatina")


def wards() -> dict[str, Table]:
    """Three clients; 'measles' lies with north alone. The names are long enough not to come about by chance."""
    return {
        "north": table(1, ("measles", "influenza", "rubella"), 30),
        "south": table(2, ("influenza", "rubella")),
        "west": table(3, ("influenza", "scarlatina")),
    }


@contextmanager
def sites(
    server: Running, names: tuple[str, ...] = ("north", "south", "west"), **how: Any
) -> Iterator[dict[str, Site]]:
    """Joined sites that hide labels."""
    how = {"masking": PARTITION, **how}
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(server.site(name, **how))) for name in names}


def together(sites: Mapping[str, Site], rows: Mapping[str, Table], *, members: tuple[str, ...] = ()) -> int:
    """Have sites learn and agree, each going on a little in its turn; how often they were called."""
    left, calls, end = list(sites), 0, time.monotonic() + 60
    while left:
        assert time.monotonic() < end, f"{left} did not agree"
        for name in list(left):
            calls += 1
            try:
                sites[name].learn(rows[name], gathering=Gathering(members=members or tuple(sites), patience=0))
                left.remove(name)
            except AbsentClientError as problem:
                assert "waits for" in str(problem)
    return calls


def shards(store: Path) -> dict[str, bytes]:
    server_store = ServerStore(store)
    return {s.client: (store / "shards" / s.file).read_bytes() for s in server_store.shards()}


@contextmanager
def overheard(patch: pytest.MonkeyPatch) -> Iterator[bytearray]:
    """Every byte of what clients send, as it is before TLS."""
    heard, once = bytearray(), HttpsLink._once

    def listening(link: HttpsLink, method: str, place: str, **how: Any) -> Any:
        if "content" in how and not isinstance(how["content"], bytes):
            how["content"] = b"".join(how["content"])
        heard.extend(how.get("content", b""))
        plain = {key: value for key, value in how.items() if key in ("json", "params", "headers")}
        heard.extend(f"{method} {place} {json.dumps(plain)}".encode())
        return once(link, method, place, **how)

    with patch.context() as changed:
        changed.setattr(HttpsLink, "_once", listening)
        yield heard
