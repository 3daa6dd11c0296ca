"""Requests to forget: signed by the client's own key, on file as they came, with stages and a deadline."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.conftest import COMMITTED
from service.processes import Running, data
from service.serving import link_of
from splitwiper.errors import DataError, IdentityError, NotFoundError
from splitwiper.service.certificate import Keyring, Keys, SignedRequest, SigningKey, check
from splitwiper.service.certificate.envelope import read_public
from splitwiper.service.certificate.signed import Registration
from splitwiper.service.records.database import service_database
from splitwiper.service.records.requests import RequestRecords
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import ServerStore
from splitwiper.wire import Request

KEY = SigningKey(bytes(32))
ASKED = Request("t1", "north", "class", COMMITTED)


def signed(key: SigningKey = KEY, signer: SigningKey | None = None, **other: str) -> dict[str, Any]:
    values = {"federation": "ward", "client": "north", "ticket": "t1", "level": "class", "commitment": COMMITTED}
    values |= {"made": "2026-01-01", **other}
    return SignedRequest(**values, key=key.public.raw.hex()).sign(signer or key)


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def cases(tmp_path: Path) -> Iterator[RequestRecords]:
    database = service_database(tmp_path)
    database.create({})
    found = RequestRecords(database)
    register(found)
    yield found
    database.close()


def register(cases: RequestRecords, key: SigningKey = KEY) -> None:
    made = Registration("ward", "north", "2026-01-01", key.public.raw.hex())
    cases.keys.keep(made, made.sign(key))


def receive(
    cases: RequestRecords, given: dict[str, Any] | None, asked: Request = ASKED, *, signed_only: bool = True
) -> Any:
    return RequestRecords(cases._database, signed_only=signed_only).receive(asked, given, federation="ward")


def test_a_request_is_on_file_as_it_was_signed(cases: RequestRecords) -> None:
    envelope = signed()
    case = receive(cases, envelope)
    assert case.signed == envelope and case == receive(cases, signed(made="2026-02-02"))  # sent again: the first stays
    assert cases.find("t1") == case == cases.of("north")["t1"] and cases.of("south") == {}
    assert SignedRequest.read(case.signed).made == "2026-01-01"


def test_what_is_not_signed_is_refused_unless_settings_allow_it(cases: RequestRecords) -> None:
    with pytest.raises(DataError, match="must be signed"):
        receive(cases, None)
    assert cases.find("t1") is None
    assert receive(cases, None, signed_only=False).signed is None


@pytest.mark.parametrize(
    "other",
    [
        {"federation": "elsewhere"},
        {"client": "south"},
        {"ticket": "t2"},
        {"level": "client"},
        {"commitment": "d0" * 32},
    ],
)
def test_what_is_signed_must_be_what_is_asked(cases: RequestRecords, other: dict[str, str]) -> None:
    with pytest.raises(DataError, match="signed request is another one"):
        receive(cases, signed(**other))
    assert cases.find("t1") is None


def test_forgeries_are_refused(cases: RequestRecords) -> None:
    envelope = signed()
    said = json.loads(base64.b64decode(envelope["payload"]))
    payload = json.dumps({**said, "level": "client"}, sort_keys=True, separators=(",", ":")).encode()
    altered = {**envelope, "payload": base64.b64encode(payload).decode()}
    with pytest.raises(DataError, match="signature is not that of the key"):
        receive(cases, altered, Request("t1", "north", "client", COMMITTED))
    with pytest.raises(DataError, match="signature is not that of the key"):
        receive(cases, signed(signer=SigningKey(b"x" * 32)))
    with pytest.raises(DataError, match="not a signed request"):
        receive(cases, {**envelope, "payloadType": "application/vnd.in-toto+json"})
    with pytest.raises(DataError, match="its field 'federation' is missing"):
        receive(cases, {**envelope, "payload": base64.b64encode(b"{}").decode()})
    assert cases.find("t1") is None


def test_only_the_registered_key_signs(cases: RequestRecords) -> None:
    receive(cases, signed())
    other = SigningKey(b"y" * 32)
    again = Request("t2", "north", "class", COMMITTED)
    with pytest.raises(IdentityError, match="another key"):
        receive(cases, signed(other, ticket="t2"), again)
    receive(cases, signed(ticket="t2"), again)
    cases.keys.drop("north", "ops", "its disk died")
    with pytest.raises(NotFoundError, match="no registered key"):
        cases.keys.drop("north", "ops", "its disk died")
    with pytest.raises(IdentityError, match="no key of 'north' is registered"):  # not: the first that asks
        receive(cases, signed(other, ticket="t3"), Request("t3", "north", "class", COMMITTED))
    register(cases, other)
    with pytest.raises(IdentityError, match="another key"):
        register(cases)
    receive(cases, signed(other, ticket="t3"), Request("t3", "north", "class", COMMITTED))
    assert cases.keys.key("north") == other.public.raw.hex()


def test_a_ticket_is_one_clients_and_of_one_level(cases: RequestRecords) -> None:
    receive(cases, signed())
    with pytest.raises(DataError, match="another request's"):
        receive(cases, signed(level="client"), Request("t1", "north", "client", COMMITTED))
    with pytest.raises(DataError, match="another request's"):
        receive(cases, None, Request("t1", "south", "class", COMMITTED), signed_only=False)


def test_a_clients_key_is_its_own(tmp_path: Path) -> None:
    own = OwnKey(tmp_path, "ward")
    assert (
        SignedRequest.read(own.sign_request(ASKED)).signer == own.key().public == OwnKey(tmp_path, "ward").key().public
    )
    assert (tmp_path / "request-key.pem").stat().st_mode & 0o077 == 0


def test_over_the_network_a_request_must_be_signed(serve, certs: Path, tmp_path: Path, run) -> None:
    url = serve(signed=True)
    with pytest.raises(DataError, match="must be signed"):
        link_of(url, certs, "north", tries=1).submit(ASKED)
    federation = link_of(url, certs, "north").federation()["run"]
    own = OwnKey(tmp_path, federation)
    north = link_of(url, certs, "north", signer=own)
    north.register("north")
    assert north.submit(ASKED).state == "settled"  # it has sent nothing
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(IdentityError, match="another key"):  # a second certificate in the same name does not help
        link_of(url, certs, "north", tries=1, signer=OwnKey(other, federation)).submit(
            Request("t2", "north", "class", COMMITTED)
        )
    with pytest.raises(DataError, match="signed request is another one"):  # signed for another store
        link_of(url, certs, "south", tries=1, signer=OwnKey(other, "elsewhere")).submit(
            Request("t3", "south", "class", COMMITTED)
        )


def test_stages_a_certificate_with_the_request_and_a_rotated_key(tmp_path: Path) -> None:
    server = Running(tmp_path)
    rows = data()
    try:
        with closing(server.site("north")) as site:
            site.learn(rows["north"])
            told = site.estimate()
            assert told is not None and set(told) == {"training_seconds", "waiting", "deadline_days"}
            ticket = site.forget(classes=["bird"])
            site.settle(patience=30)
            site.await_receipt(ticket, patience=60)
            proof = site.certificate(ticket)
            assert {"request", "signature"} <= {one.what for one in proof.checked.checks} and proof.checked.holds
            (one,) = site.link._call("GET", "/v1/requests").json()
            assert list(one["stages"]) == ["received", "accepted", "erased", "retrained", "certified"]
            assert list(one["stages"].values()) == sorted(one["stages"].values())
            assert one["stage"] == "certified" and one["signed"] and not one["overdue"]
            # a worker that died before it could certify is followed by one that does
            (kept,) = (tmp_path / "store" / "certificates").iterdir()
            kept.unlink()
            assert server.kill_worker()
            wait_for(kept.exists)
            # the operator takes another signing key: the client follows, because the old one signed it
            ring = Keyring(tmp_path / "store" / "signing")
            before, after = ring.key().public, ring.rotate().public
            second = site.forget(classes=["cat"])
            site.settle(patience=30)
            site.await_receipt(second, patience=60)
            assert site.certificate(second).checked.holds
            keys = read_public(tmp_path / "sites" / "north" / "north" / "server-keys")
            assert {before, after} == set(keys)
            # an outsider with the old key alone is told that it does not know the signer
            assert check(site.certificate(second).envelope, [before]).outcome == "mismatch"
    finally:
        server.stop()


def test_only_keys_that_known_ones_signed_are_followed(tmp_path: Path) -> None:
    ring, stranger = Keyring(tmp_path / "ring"), Keyring(tmp_path / "stranger")
    first = ring.key().public
    chain = [first, ring.rotate().public, ring.rotate().public]
    stranger.rotate()
    stranger.rotate()
    said = [*stranger.statements(), *reversed(ring.statements()), {"payload": "?"}]
    assert set(Keys.of([first], said)) == set(chain)
    assert set(Keys.of([chain[2]], said)) == {chain[2]}  # not backwards
    assert Keys.of([], said).keys == ()


def test_a_certificate_must_show_the_clients_own_request(tmp_path: Path) -> None:
    server = Running(tmp_path)
    try:
        with closing(server.site("north")) as site:
            site.learn(data()["north"])
            ticket = site.forget(classes=["bird"])
            site.settle(patience=30)
            site.await_receipt(ticket, patience=60)
            envelope, keys = site.certificate(ticket).envelope, site.keys()
    finally:
        server.stop()
    stranger = SigningKey(b"z" * 32).public
    found = check(envelope, keys, client_key=stranger)
    assert found.outcome == "mismatch" and "not by the client's" in found.reason
    assert ServerStore(tmp_path / "store").ticket(ticket).erased


def test_a_request_that_was_on_file_when_the_service_died_is_accepted(tmp_path: Path) -> None:
    server = Running(tmp_path)
    try:
        with closing(server.site("north")) as site:
            site.learn(data()["north"])
        server.kill()
        with closing(service_database(tmp_path / "store")) as database:
            RequestRecords(database, signed_only=False).receive(ASKED, None, federation="")
        server.start()
        with closing(server.site("north")) as site:
            wait_for(lambda: "t1" in [ticket.id for ticket in site.link.tickets("north")])
    finally:
        server.stop()


def test_what_cannot_be_certified_stops_nobody(tmp_path: Path) -> None:
    """A signing key that others can read is not used; training and forgetting go on, and certificates follow."""
    server = Running(tmp_path)
    try:
        with closing(server.site("north")) as site:
            site.learn(data()["north"])
            ring = tmp_path / "store" / "signing" / "private.pem"
            ring.chmod(0o640)
            first = site.forget(classes=["bird"])
            site.settle(patience=30)
            site.await_receipt(first, patience=60)
            assert server.kill_worker()  # the next one finds a ticket that it cannot certify
            second = site.forget(classes=["cat"])
            site.settle(patience=30)
            assert site.await_receipt(second, patience=60).exact
            ring.chmod(0o600)
            assert server.kill_worker()
            wait_for(lambda: len(list((tmp_path / "store" / "certificates").glob("*.json"))) == 2)
    finally:
        server.stop()


@pytest.mark.parametrize("odd", [{"config": ""}, {"key": "a\nb"}, {"fingerprint": {"": "x"}}, {"initial": "\u202e"}])
def test_what_a_certificate_could_not_repeat_is_refused(url: str, http, odd: dict[str, Any]) -> None:
    said = {"config": "c", "initial": "i", "key": "k", "fingerprint": {}, "tickets": ["t1"], **odd}
    assert http(url).post("/v1/withdraw", json=said).status_code == 422
