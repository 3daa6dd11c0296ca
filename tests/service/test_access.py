"""Who may do what: every endpoint, every identity, and objects of others."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import shutil
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.conftest import COMMITTED, announced, finished, said, shard
from service.serving import certificates, connected, link_of
from splitwiper.errors import IdentityError, QuotaError, UnreachableError, WithdrawnError
from splitwiper.server import Server
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.identity import Authority
from splitwiper.service.logs import _LIMITED, to_stderr
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import ServerStore, ledger
from splitwiper.wire import Request

OPEN = {("GET", "/healthz"), ("GET", "/readyz")}
ANYBODY = {("GET", "/v1/federation"), ("GET", "/v1/initial")}
OPERATOR = {
    ("GET", "/v1/status"),
    ("GET", "/metrics"),
    ("POST", "/v1/operator/keep-serving"),
    ("POST", "/v1/operator/drop-key"),
    ("POST", "/v1/operator/evict"),
    ("POST", "/v1/operator/admit"),
    ("GET", "/v1/operator/requests"),
    ("GET", "/v1/operator/overrides"),
}


def routes(client: httpx.Client) -> list[tuple[str, str]]:
    """Every call that the OpenAPI document tells of, and HEAD wherever there is GET."""
    paths = client.get("/openapi.json").json()["paths"]
    listed = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    return listed + [("HEAD", path) for method, path in listed if method == "GET"]


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: {"upload": "0" * 32, "ticket": "t1"}.get(found[1], "0"), path)


def may(kind: str, call: tuple[str, str]) -> bool:
    """Who may do what."""
    if call in OPEN | ANYBODY:
        return True
    if call in OPERATOR:
        return kind == "operator"
    if call[1].startswith("/v1/audit/"):
        return kind == "auditor"
    published = call[0] == "GET" and call[1].startswith(("/v1/keys", "/v1/ledger/"))
    return kind == "client" or (kind == "auditor" and published)


def test_the_whole_matrix(url: str, http) -> None:
    people = {"client": http(url), "operator": http(url, "ops", "operators"), "auditor": http(url, "tuv", "auditors")}
    listed = routes(people["client"])
    assert len(listed) >= 15
    for method, path in listed:
        for kind, person in people.items():
            status = person.request(method, filled(path), params={"topic": "labels/1"}).status_code
            call = ("GET" if method == "HEAD" else method, path)
            assert (status != 403) == may(kind, call), (method, path, kind, status)
            assert status < 500, (method, path, kind, status)


def test_head_is_get_without_a_body(url: str, http, certs: Path) -> None:
    people = {
        kind: http(url, name, kind) for kind, name in (("clients", "north"), ("operators", "ops"), ("auditors", "tuv"))
    }
    for method, path in routes(people["clients"]):
        if method == "GET":
            for person in people.values():
                how = {"url": filled(path), "params": {"topic": "labels/1", "old": 0, "new": 0}}
                whole, bare = person.get(**how), person.head(**how)
                assert (bare.status_code, bare.content) == (whole.status_code, b"") and whole.content, path
                assert bare.headers["content-type"] == whole.headers["content-type"], path
                assert path == "/metrics" or bare.headers["content-length"] == str(len(whole.content)), path
    assert people["clients"].head("/v1/predict").status_code == 405
    with connected(url, certs) as peer:  # two calls on one connection, and not a byte between the answers
        call = b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n%s\r\n"
        peer.sendall(call % b"" + call % b"Connection: close\r\n")
        data = b"".join(iter(lambda: peer.recv(4096), b""))
    first, second, rest = data.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200") and second.startswith(b"HTTP/1.1 200") and not rest


def test_nobody_comes_in_without_a_certificate(url: str, certs: Path) -> None:
    context = ssl.create_default_context(cafile=str(certs / "server" / "ca.pem"))
    with httpx.Client(base_url=url, verify=context, trust_env=False) as stranger, pytest.raises(httpx.TransportError):
        stranger.get("/healthz")


def test_certificates_that_do_not_count(serve, tmp_path: Path) -> None:
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other", ("north",))
    trusted = [(folder / "clients" / "north" / "ca.pem").read_bytes() for folder in (own, other)]
    assert trusted[0] != trusted[1]  # two authorities
    url = serve(certs=own)
    assert link_of(url, own, "north").tickets("north") == ()
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name in ("certificate.pem", "key.pem"):  # another authority's certificate, this one's trust
        shutil.copy(other / "clients" / "north" / name, mixed / name)
    (mixed / "ca.pem").write_bytes((own / "clients" / "north" / "ca.pem").read_bytes())
    with pytest.raises(UnreachableError):
        link_of(url, tmp_path, "mixed", kind=".", tries=1).tickets("north")
    with pytest.raises(UnreachableError, match=r"(?i)certificate"):
        link_of(url, other, "north", tries=1).tickets("north")  # does not believe the server


def test_revoking_takes_effect_at_once(serve, tmp_path: Path, http) -> None:
    own = certificates(tmp_path / "own")
    url = serve(certs=own)
    north = http(url, certs=own)  # one connection, kept open
    assert north.get("/v1/requests").status_code == 200
    Authority(own).revoke("north")
    told = north.get("/v1/requests")
    assert told.status_code == 401 and "revoked" in told.json()["message"]
    assert http(url, "south", certs=own).get("/v1/requests").status_code == 200


def test_a_revoked_client_is_told_that_it_is(serve, tmp_path: Path, http) -> None:
    """Also one that connects anew; it gets nothing else, not even a sign of life."""
    own = certificates(tmp_path / "own")
    url = serve(certs=own)
    Authority(own).revoke("north")
    with pytest.raises(IdentityError, match=r"of client 'north' was revoked: ask the server's operator"):
        link_of(url, own, "north").tickets("north")
    guard = LedgerGuard(tmp_path / "north", "f", tmp_path)
    with pytest.raises(IdentityError, match="was revoked"):
        link_of(url, own, "north", guard=guard).tickets("north")
    for path in ("/healthz", "/openapi.json", "/v1/nowhere"):
        answer = http(url, certs=own).get(path)
        assert answer.status_code == 401 and answer.headers["connection"] == "close"


def test_files_of_the_servers_own_are_not_named_to_callers(serve, tmp_path: Path, http, caplog) -> None:
    own = certificates(tmp_path / "own")
    north = http(serve(certs=own), certs=own)
    assert north.get("/v1/requests").status_code == 200
    (own / "server" / "revoked.pem").unlink()
    answer = north.get("/v1/requests")
    assert answer.status_code == 500 and "revoked.pem" not in answer.text and "server" in answer.json()["message"]
    assert "there is no revoked.pem" in caplog.text  # for the operator
    assert north.get("/healthz").status_code == 200


def test_a_client_touches_its_own_alone(url: str, http, certs: Path, tmp_path: Path) -> None:
    north, south = http(url), http(url, "south")
    path = shard(tmp_path / "s")
    place = f"/v1/uploads/{north.post('/v1/uploads', json=announced(path)).json()['id']}"
    for answer in (
        south.get(place),
        south.patch(place, content=b"x", headers={"Upload-Offset": "0"}),
        south.post(f"{place}/finish", json=finished(path)),
        south.delete(place),
    ):
        assert answer.status_code == 404 and answer.json()["kind"] == "NotFoundError"
    assert north.get(place).json()["offset"] == 0
    link = link_of(url, certs, "north")
    link.upload("north", path, said())
    link.submit(Request("t1", "north", "class", COMMITTED))
    assert south.get("/v1/requests").json() == [] and south.get("/v1/requests/t1/receipt").status_code == 404
    stolen = south.post("/v1/requests", json={"ticket": "t1", "level": "class", "commitment": COMMITTED})
    assert stolen.status_code == 404 and "not yours" in stolen.json()["message"]
    link_of(url, certs, "south").upload("south", shard(tmp_path / "o", 8), said("t1"))  # answers another's ticket
    assert [t.state for t in link.tickets("north")] == ["accepted"]


def test_the_relay_is_for_those_who_joined(serve, http, certs: Path, tmp_path: Path) -> None:
    url = serve(signed=True)
    message = {"body": base64.b64encode(b"sealed").decode()}

    def statuses() -> list[int]:
        client = http(url)
        return [
            client.put("/v1/board/messages/0?topic=labels/1", json=message).status_code,
            client.get("/v1/board/messages?topic=labels/1").status_code,
            client.get("/v1/board/topic").status_code,
            client.post("/v1/board/end", json={"topic": "labels/1"}).status_code,
        ]

    assert statuses() == [403] * 4
    federation = http(url).get("/v1/federation").json()["run"]
    link_of(url, certs, "north", signer=OwnKey(tmp_path, federation)).register("north")
    assert statuses() == [204, 200, 200, 204]


def test_requests_have_a_quota(serve, certs: Path) -> None:
    url = serve(requests=2)
    link = link_of(url, certs, "north", tries=1)
    for number in range(2):
        link.submit(Request(f"t{number}", "north", "class", COMMITTED))
    with pytest.raises(QuotaError, match="made 2 requests within a day"):
        link.submit(Request("t2", "north", "class", COMMITTED))
    assert link.submit(Request("t1", "north", "class", COMMITTED)).state == "settled"  # repeating is no new one
    assert link_of(url, certs, "south").submit(Request("s1", "south", "class", COMMITTED)).state == "settled"


@pytest.mark.parametrize("path", ["/v1/requests", "/openapi.json", "/healthz", "/readyz", "/nowhere"])
def test_calls_have_a_rate(serve, http, path: str) -> None:
    url = serve(rate=0.001, burst=5)
    north = http(url)
    codes = [north.get(path).status_code for _ in range(8)]
    assert 429 not in codes[:5] and codes[5:] == [429] * 3
    assert north.get(path).headers["retry-after"] == "1"
    assert http(url, "south").get(path).status_code == codes[0]


def test_one_that_floods_with_calls_keeps_nobody_waiting(serve, http, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread answers all short queries: it has few of one caller's at a time to answer."""
    answered, tickets = list[str](), Server.tickets

    def slowly(server: Server, client: str) -> object:
        answered.append(client)
        time.sleep(0.02)
        return tickets(server, client)

    def noting(app: Any) -> Any:
        async def noted(scope: Any, receive: Any, send: Any) -> None:
            if (b"x-caller", b"south") in scope.get("headers", ()):
                came.append(len(answered))
            await app(scope, receive, send)

        return noted

    came = list[int]()  # how many were answered when south's call arrived, however long it was on its way
    monkeypatch.setattr(Server, "tickets", slowly)
    url = serve(wrap=noting)
    south, clients = http(url, "south"), [http(url) for _ in range(24)]
    for one in (south, *clients):
        assert one.get("/v1/federation").status_code == 200  # so that it is connected
    with ThreadPoolExecutor(24) as pool:
        flood = [pool.submit(one.get, "/v1/requests") for one in clients * 3]
        while len(answered) < 3:
            time.sleep(0.005)
        assert south.get("/v1/requests", headers={"X-Caller": "south"}).status_code == 200
        assert answered.index("south") - came[0] < 12  # and not behind more than twenty of north's
        assert {call.result().status_code for call in flood} == {200}


def test_few_refused_calls_are_logged(serve, http, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    logs = [logging.getLogger(name) for name in ("splitwiper", "splitwiper.service.refused", *_LIMITED)]
    before = [(log, log.handlers[:], log.propagate, log.level) for log in logs]
    to_stderr()
    try:
        north = http(serve(rate=0.001, burst=5))
        for _ in range(100):
            north.get("/v1/requests")
    finally:
        for log, log.handlers[:], log.propagate, level in before:
            log.setLevel(level)
    calls = [json.loads(line) for line in written.getvalue().splitlines() if '"call"' in line]
    assert [one["status"] for one in calls] == [200] * 5 + [429] * 30


def test_a_model_that_is_to_forget_does_not_answer(serve, certs: Path, run, http) -> None:
    import torch

    from federation.runs import three

    run.learn(three())
    url = serve(withdraw=True)
    link = link_of(url, certs, "north", tries=1)
    rows = {"activation": torch.zeros(2, 8)}
    assert link.predict("north", rows).logits.shape == (2, 4)
    link.submit(Request("t1", "north", "class", COMMITTED))
    for ask in (lambda: link.predict("north", rows), lambda: link.model("north")):
        with pytest.raises(WithdrawnError, match="1 request is carried out"):
            ask()
    ops = http(url, "ops", "operators")
    assert ops.post("/v1/operator/keep-serving", json={"ticket": "t1", "reason": "short"}).status_code == 422
    assert ops.post("/v1/operator/keep-serving", json={"ticket": "t2", "reason": "long enough"}).status_code == 404
    reason = {"ticket": "t1", "reason": "patients depend on it until tonight"}
    assert ops.post("/v1/operator/keep-serving", json=reason).status_code == 201
    assert link.predict("north", rows).logits.shape == (2, 4)
    (kept,) = ops.get("/v1/operator/overrides").json()
    assert (kept["operator"], kept["reason"]) == ("ops", reason["reason"]) and kept["time"]
    link_of(url, certs, "south").submit(Request("t2", "south", "class", COMMITTED))  # another client's stops it again
    with pytest.raises(WithdrawnError):
        link.predict("north", rows)


def test_probabilities_are_off_unless_allowed(serve, certs: Path, run) -> None:
    import torch

    from federation.runs import three

    run.learn(three())
    rows = {"activation": torch.rand(6, 8)}
    shy, frank = (link_of(serve(probabilities=p), certs, "north") for p in (False, True))
    told, known = shy.predict("north", rows), frank.predict("north", rows)
    assert torch.equal(told.logits.argmax(1), known.logits.argmax(1))
    assert set(told.logits.unique().tolist()) == {0.0, -30.0}


def test_operators_see_every_request_and_drop_lost_keys(serve, run, certs: Path, tmp_path: Path, http) -> None:
    url = serve(signed=True)
    federation = link_of(url, certs, "north").federation()["run"]
    for number, name in enumerate(("north", "south")):
        (tmp_path / name).mkdir()
        own = link_of(url, certs, name, signer=OwnKey(tmp_path / name, federation))
        own.register(name)
        own.submit(Request(f"t{number}", name, "class", COMMITTED))
    ops = http(url, "ops", "operators")
    told = ops.get("/v1/operator/requests").json()
    assert [(one["client"], one["stage"], one["signed"]) for one in told] == [
        ("north", "settled", True),
        ("south", "settled", True),
    ]
    assert ops.post("/v1/operator/drop-key", json={"client": "west", "reason": "never seen"}).status_code == 404
    (tmp_path / "north" / "request-key.pem").unlink()  # its site was lost
    own = link_of(url, certs, "north", signer=OwnKey(tmp_path / "north", federation), tries=1)
    for call in (lambda: own.register("north"), lambda: own.submit(Request("t9", "north", "class", COMMITTED))):
        with pytest.raises(IdentityError, match="another key"):
            call()
    dropped = ops.post("/v1/operator/drop-key", json={"client": "north", "reason": "its disk died"})
    assert dropped.status_code == 204
    with pytest.raises(IdentityError, match="no key of 'north' is registered"):
        own.submit(Request("t9", "north", "class", COMMITTED))
    own.register("north")
    assert own.submit(Request("t9", "north", "class", COMMITTED)).state == "settled"
    entries = ledger.entries(ServerStore(run.path / "server").database)
    kinds = [entry["kind"] for entry in entries if entry.get("client") == "north" and "key" in entry]
    assert kinds == ["joined", "key-dropped", "joined"]
    assert next(entry for entry in entries if entry["kind"] == "key-dropped")["operator"] == "ops"
