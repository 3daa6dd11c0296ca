"""Calls that come twice, late or out of order, recorded from a real client: nothing forgotten comes back by them."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx

from service.conftest import COMMITTED, said, shard
from service.processes import Running, data
from service.serving import link_of
from splitwiper.errors import UnreachableError
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore
from splitwiper.wire import Request

Call = tuple[str, str, dict[str, Any]]


def record(link: HttpsLink) -> list[Call]:
    """Everything that a link sends from now on."""
    calls: list[Call] = []
    request = link._http.request

    def noted(method: str, url: str, **how: Any) -> httpx.Response:
        if not isinstance(how.get("content", b""), bytes):
            how["content"] = b"".join(how["content"])
        calls.append((method, url, how))
        return request(method, url, **how)

    link._http.request = noted
    return calls


def test_a_recorded_session_brings_nothing_back(tmp_path: Path) -> None:
    """Learn, forget, settle; then every call again, as it was and shuffled."""
    server = Running(tmp_path)
    try:
        rows, store = data(), ServerStore(tmp_path / "store")
        with closing(server.site("north")) as north:
            calls = record(north.link)
            north.learn(rows["north"])
            ticket = north.forget(classes=["bird"])
            north.settle(patience=30)
            receipt = north.await_receipt(ticket, patience=60)
            kept, session = store.shards(), [call for call in calls if call[0] != "GET"]
            assert [(s.rows, s.generation) for s in kept] == [(20, 2)] and len(session) >= 7
            draw = random.Random(3)
            with closing(link_of(server.url, server.certs, "north")) as again:
                for order in (session, session[::-1], draw.sample(session, len(session))):
                    for method, url, how in order:
                        assert again._http.request(method, url, **how).status_code < 500, (method, url)
            assert store.shards() == kept and "bird" not in {label.name for label in store.model().labels}
            assert [t.state for t in store.tickets()] == ["settled"] and north.link.receipt(ticket) == receipt
            north.settle(patience=30)  # the client itself goes on as ever
            assert store.shards() == kept
    finally:
        server.stop()


def test_a_piece_that_comes_twice_counts_once(url: str, certs: Path, run, tmp_path: Path) -> None:
    link, path = link_of(url, certs, "north"), shard(tmp_path / "s", 50)
    calls, once = record(link), link._once

    def twice(method: str, place: str, **how: Any) -> httpx.Response:
        answer = once(method, place, **how)
        if method == "PATCH":
            _, _, same = calls[-1]
            late = link._http.request(method, place, **same)
            assert late.status_code == 422 and f"is at {path.stat().st_size}" in late.json()["message"]
        return answer

    link._once = twice
    assert link.upload("north", path, said()).generation == 1
    assert ServerStore(run.path / "server").shard("north").rows == 50
    finish = calls[-1]
    assert link._http.request(finish[0], finish[1], **finish[2]).status_code == 404  # finished is finished
    assert link.upload("north", path, said()).generation == 1  # the same file is no new generation


def test_an_old_upload_is_not_finished_after_a_newer_shard(url: str, certs: Path, run, tmp_path: Path) -> None:
    """The call that finishes an upload is held up on its way; meanwhile the client forgets."""
    link, store = link_of(url, certs, "north"), ServerStore(run.path / "server")
    calls, call = list[Call](), link._call

    def held(method: str, place: str, **how: Any) -> httpx.Response:
        if place.endswith("/finish"):
            calls.append((method, place, how))
            raise UnreachableError("held up")
        return call(method, place, **how)

    link._call = held
    with suppress(UnreachableError):
        link.upload("north", shard(tmp_path / "old", 9), said())
    link._call = call
    link.submit(Request("t1", "north", "class", COMMITTED))
    link.upload("north", shard(tmp_path / "new", 6), said("t1"))
    ((method, place, how),) = calls
    assert link._http.request(method, place, **how).status_code == 404
    assert store.shard("north").rows == 6
