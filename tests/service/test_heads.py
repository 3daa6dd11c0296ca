"""Every answer carries the ledger's signed head, and a site uses no answer whose head is not right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.conftest import COMMITTED, said, shard
from service.serving import link_of
from splitwiper.errors import ForkError, UnreachableError
from splitwiper.service.calls.guard import LedgerGuard
from splitwiper.service.certificate import Envelope, Keyring, Log, PublicKey, SignedHead, SigningKey, TreeHead
from splitwiper.service.certificate.heads import HEAD_HEADER, PROOF_HEADER, SIZE_HEADER, proof_from_header
from splitwiper.service.certificate.log import follows
from splitwiper.service.certificate.standing import succeed
from splitwiper.service.site.link import HttpsLink
from splitwiper.store import ServerStore, ledger
from splitwiper.wire import Request


class Tampering:
    """Stands between a service and its callers, and changes the head of every answer."""

    def __init__(self) -> None:
        self.change: Callable[[dict[bytes, bytes]], None] = lambda headers: None
        self.calls: list[str] = []

    def wrap(self, app: Any) -> Any:
        async def wrapped(scope: Any, receive: Any, send: Any) -> None:
            async def changed(message: Any) -> None:
                if message["type"] == "http.response.start":
                    self.calls.append(f"{scope['method']} {scope['path']}")
                    headers = dict(message["headers"])
                    self.change(headers)
                    message = {**message, "headers": list(headers.items())}
                await send(message)

            await app(scope, receive, changed if scope["type"] == "http" else send)

        return wrapped


@pytest.fixture
def between() -> Tampering:
    return Tampering()


@pytest.fixture
def store(run) -> ServerStore:
    return ServerStore(run.path / "server")


@pytest.fixture
def site(serve, between: Tampering, certs: Path, store: ServerStore, tmp_path: Path) -> HttpsLink:
    """North's link, with a guard and nothing pinned yet."""
    url = serve(wrap=between.wrap)
    guard = LedgerGuard(tmp_path / "north", store.database.meta("run"), tmp_path)
    return link_of(url, certs, "north", guard=guard, tries=1)


def grow(store: ServerStore, entries: int = 1) -> None:
    with store.database.change() as db:
        for _ in range(entries):
            ledger.append(db, {"kind": "shard", "client": "nobody"})


def shown(answer: httpx.Response) -> SignedHead:
    return SignedHead.from_header(answer.headers[HEAD_HEADER])


def test_every_answer_to_somebody_known(serve, http, store: ServerStore) -> None:
    url = serve(rate=1.0, burst=9)
    north, ops = http(url), http(url, "ops", "operators")
    answers = [
        (north.get("/v1/federation"), 200),
        (north.head("/v1/requests"), 200),
        (north.get("/v1/nowhere"), 404),
        (north.post("/v1/requests", json={}), 422),
        (north.get("/v1/status"), 403),
        (north.get("/v1/model"), 404),
        (north.post("/v1/predict", content=b"nonsense"), 422),
        (north.patch("/v1/uploads/0", content=b""), 422),
        (north.put("/v1/requests"), 405),
        (north.get("/v1/requests"), 429),
        (ops.get("/v1/status"), 200),
    ]
    public, federation = Keyring.of(store).public(), store.database.meta("run")
    for answer, status in answers:
        assert answer.status_code == status, answer.text
        head = shown(answer)
        assert head.envelope.signers(public) and head.federation == federation
        assert head.head == Log.of(store).head()
        assert PROOF_HEADER not in answer.headers
    assert len({answer.headers[HEAD_HEADER] for answer, _ in answers}) == 1, "signed once for one state of the ledger"
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert HEAD_HEADER not in ops.get(path).headers


def test_the_head_covers_what_the_answer_tells_of(site: HttpsLink, store: ServerStore, tmp_path: Path) -> None:
    answers = list[httpx.Response]()
    site._http.event_hooks["response"] = [answers.append]
    site.upload("north", shard(tmp_path / "s"), said())
    finished = shown(answers[-1])
    assert answers[-1].url.path.endswith("/finish")
    assert (
        finished.head.size == len(ledger.entries(store.database))
        and ledger.entries(store.database)[-1]["kind"] == "shard"
    )
    site.submit(Request("t1", "north", "class", COMMITTED))
    assert shown(answers[-1]).head.size > finished.head.size


def test_proofs_for_every_pair_of_sizes(serve, http, store: ServerStore) -> None:
    north = http(serve())
    heads: dict[int, TreeHead] = {}
    for _ in range(9):
        now = shown(north.get("/v1/federation")).head
        heads[now.size] = now
        for old in heads.values():
            answer = north.get("/v1/federation", headers={SIZE_HEADER: str(old.size)})
            assert follows(old, shown(answer).head, proof_from_header(answer.headers[PROOF_HEADER]))
            assert north.get("/v1/ledger/head", params={"size": old.size}).json()["root"] == old.root
            for new in heads.values():
                if old.size <= new.size:
                    proof = north.get("/v1/ledger/consistency", params={"old": old.size, "new": new.size}).json()
                    assert follows(old, new, proof)
        grow(store)
    for odd in (str(now.size + 5), "-1", "x", "9" * 40, "0"):
        answer = north.get("/v1/federation", headers={SIZE_HEADER: odd})
        assert answer.status_code == 200 and PROOF_HEADER not in answer.headers and HEAD_HEADER in answer.headers


def test_a_site_pins_and_checks_each_head_once(
    site: HttpsLink, store: ServerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, real = list[bytes](), PublicKey.verifies

    def verifies(self: PublicKey, signature: bytes, message: bytes) -> bool:
        checked.append(message)
        return real(self, signature, message)

    site.tickets("north")
    monkeypatch.setattr(PublicKey, "verifies", verifies)
    for _ in range(20):
        site.tickets("north")
    assert checked == []
    for _ in range(20):
        grow(store)
        site.tickets("north")
    assert len(checked) == 20
    pins = site._guard.pins
    assert pins.newest() == Log.of(store).head() and len(pins.heads()) == 16
    assert pins.signed(pins.newest()).envelope.signers(Keyring.of(store).public())


def changed_payload(headers: dict[bytes, bytes], old: bytes, new: bytes) -> None:
    made = SignedHead.from_header(headers[HEAD_HEADER.lower().encode()].decode()).envelope
    assert old in made.payload
    forged = Envelope(made.payload.replace(old, new), made.payload_type, made.signatures)
    headers[HEAD_HEADER.lower().encode()] = _header(forged)


def _header(envelope: Envelope) -> bytes:
    return SignedHead("", TreeHead(0, ""), "", "", envelope).to_header().encode()


def test_heads_that_are_refused(site: HttpsLink, between: Tampering, store: ServerStore, tmp_path: Path) -> None:
    name, key = HEAD_HEADER.lower().encode(), Keyring.of(store).key()
    site.tickets("north")
    replayed = dict[bytes, bytes]()
    between.change = lambda headers: replayed.update({n: v for n, v in headers.items() if n.startswith(b"ledger-")})
    site.tickets("north")
    grow(store, 3)
    between.change = lambda headers: None
    site.tickets("north")
    before = site._guard.pins.newest()
    root = before.root.encode()

    def signed(by: SigningKey, federation: str, head: TreeHead) -> bytes:
        return SignedHead.sign(federation, head, "2030-01-01", by).to_header().encode()

    federation = store.database.meta("run")
    cases: dict[str, Callable[[dict[bytes, bytes]], Any]] = {
        "without the signed head": lambda h: h.pop(name),
        "cannot be read": lambda h: h.update({name: b"nonsense"}),
        "by no key": lambda h: changed_payload(h, root, b"0" * 64),
        "signed by no key": lambda h: h.update({name: signed(SigningKey.generate(), federation, before)}),
        "another federation": lambda h: h.update({name: signed(key, "elsewhere", before)}),
        "rolled back": lambda h: h.update(replayed),
        "forked": lambda h: h.update({name: signed(key, federation, TreeHead(before.size, "0" * 64))}),
        "not the beginning": lambda h: h.update({name: signed(key, federation, TreeHead(before.size + 1, "0" * 64))}),
    }
    for words, change in cases.items():
        between.change = change
        between.calls.clear()
        with pytest.raises(ForkError, match=words):
            site.tickets("north")
        assert not [one for one in between.calls[1:] if not one.startswith("GET /v1/")], words
        assert site._guard.pins.newest() == before, words
    evidence = list(tmp_path.glob("evidence-*.json"))
    assert len(evidence) == 1  # of two heads of one size, both signed by the server
    between.change = lambda headers: None
    assert site.tickets("north") == ()  # the real server is believed as before


def test_nothing_is_sent_before_the_first_look(site: HttpsLink, between: Tampering, store: ServerStore) -> None:
    site.tickets("north")
    again = link_again(site)
    between.change = lambda headers: headers.pop(HEAD_HEADER.lower().encode())
    between.calls.clear()
    with pytest.raises(ForkError, match="without the signed head"):
        again.submit(Request("t1", "north", "class", COMMITTED))
    assert between.calls == ["GET /v1/ledger/head"] and store.tickets() == ()


def link_again(site: HttpsLink) -> HttpsLink:
    """The same site in another process."""
    guard = site._guard
    site._guard = LedgerGuard(guard.pins.folder.parent, guard.federation, guard.site)
    return site


def test_errors_on_the_way_are_not_the_servers(site: HttpsLink, certs: Path, run) -> None:
    site.tickets("north")

    async def gateway(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 502, "headers": []})
        await send({"type": "http.response.body", "body": b'{"kind": "NotFoundError", "message": "gone"}'})

    from service.serving import service_over

    with service_over(run.path / "server", run.halves.server, certs, wrap=lambda _: gateway) as url:
        other = link_of(url, certs, "north", guard=site._guard, tries=1)
        with pytest.raises(UnreachableError, match="502 without the head"):
            other.tickets("north")


def test_a_rotated_key_is_followed_and_another_is_not(site: HttpsLink, store: ServerStore) -> None:
    site.tickets("north")
    ring = Keyring.of(store)
    ring.rotate()
    site.tickets("north")
    assert set(site._guard.server_keys.read()) == set(ring.public()) and len(ring.public()) == 2
    shutil.rmtree(ring.folder)  # a server that lost its keys, or an impostor
    before = site._guard.pins.newest()
    with pytest.raises(ForkError, match="by no key"):
        site.tickets("north")
    assert site._guard.pins.newest() == before


def test_a_thief_of_a_revoked_key_is_refused(site: HttpsLink, between: Tampering, store: ServerStore) -> None:
    site.tickets("north")
    ring, name, federation = Keyring.of(store), HEAD_HEADER.lower().encode(), store.database.meta("run")
    stolen = ring.key()
    ring.revoke(store, stolen.public, reason="a stolen laptop")
    site.tickets("north")  # signed by the key after it, which is followed, and so is the revocation
    keys = site._guard.server_keys.read()
    assert keys.good == (ring.key().public,) and keys.revoked[stolen.public.id].reason == "a stolen laptop"
    head, thief = Log.of(store).head(), SigningKey.generate()
    successor = store.root / "signing" / "succession" / "thief.json"
    successor.write_bytes(json.dumps(succeed(stolen, thief.public)).encode())
    for by, words in ((stolen, r"by a key that was revoked at .*\(a stolen laptop\)"), (thief, "by no key")):
        forged = SignedHead.sign(federation, head, "2030-01-01", by).to_header().encode()
        between.change = lambda headers, forged=forged: headers.update({name: forged})
        with pytest.raises(ForkError, match=words):
            site.tickets("north")
    assert site._guard.server_keys.read().good == keys.good


def test_a_server_that_cannot_sign_says_so(site: HttpsLink, store: ServerStore, http) -> None:
    """A key that others can read is not used: clients go on trying, and operators still see how things stand."""
    site.tickets("north")
    private = store.root / "signing" / "private.pem"
    private.chmod(0o640)
    grow(store)
    site.tickets("north")  # the running server has it in memory
    private.touch()
    with pytest.raises(UnreachableError, match="500 without the head"):
        site.tickets("north")
    assert http(site.url).get("/v1/requests").json()["kind"] == "FailingError"
    assert http(site.url, "ops", "operators").get("/v1/status").status_code == 200
    private.chmod(0o600)
    site.tickets("north")


def test_an_empty_folder_of_keys_locks_nobody_out(site: HttpsLink, store: ServerStore) -> None:
    site._guard.server_keys.folder.mkdir(parents=True)  # killed between making it and writing to it
    site.tickets("north")
    assert site._guard.server_keys.read().keys == Keyring.of(store).public()


def test_two_processes_of_one_site(site: HttpsLink, certs: Path, between: Tampering, store: ServerStore) -> None:
    """One of them pins while an answer to the other is under way: that is no rollback."""
    site.tickets("north")
    other = link_of(
        site.url,
        certs,
        "north",
        guard=LedgerGuard(site._guard.pins.folder.parent, site._guard.federation, site._guard.site),
    )
    nested = list[bool]()

    def meanwhile(answer: httpx.Response) -> None:
        if not nested:
            nested.append(True)
            grow(store, 3)
            other.tickets("north")

    grow(store)
    site._http.event_hooks["response"] = [meanwhile]
    site.tickets("north")
    assert nested and site._guard.pins.newest() == Log.of(store).head()
