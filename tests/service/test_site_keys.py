"""A site's own key: registered when it joins, and needed for whatever is said in its name.

The attacker here has the site's TLS key, so that it can connect in its name, and not the site's own key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.conftest import COMMITTED, said, shard
from service.processes import MODEL
from service.scene import Scene
from service.serving import link_of
from splitwiper.config import ClientConfig, ModelConfig
from splitwiper.errors import ConfigError, DataError, FormatError, IdentityError
from splitwiper.service.certificate import Envelope, SigningKey
from splitwiper.service.certificate.attestation import Attestation
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.certificate.signed import Registration, ShardStatement, SignedMessage
from splitwiper.service.site import SiteConfig, join
from splitwiper.service.site.link import HttpsLink
from splitwiper.service.site.own_key import OwnKey
from splitwiper.store import ledger
from splitwiper.store.files import file_digest
from splitwiper.wire import Request, Statement

KEY = SigningKey(bytes(32))


@pytest.fixture
def scene(tmp_path: Path, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, certs)
    yield made
    made.close()


def thief(scene: Scene, **more: object) -> HttpsLink:
    """Somebody with north's TLS key and a key of its own."""
    (scene.folder / "thief").mkdir(exist_ok=True)
    federation = scene.server_store.database.meta("run") or ""
    return link_of(scene.url, scene.certs, "north", signer=OwnKey(scene.folder / "thief", federation), tries=1, **more)


def test_with_the_tls_key_alone_nothing_can_be_done_in_a_sites_name(scene: Scene, tmp_path: Path) -> None:
    before, other = scene.server_store.shards(), shard(tmp_path / "other")
    salted = said()
    for link in (thief(scene), link_of(scene.url, scene.certs, "north", tries=1)):
        for call in (
            lambda link=link: link.upload("north", other, salted),
            lambda link=link: link.withdraw("north", salted),
            lambda link=link: link.submit(Request("t1", "north", "client", COMMITTED)),
        ):
            with pytest.raises((IdentityError, DataError), match=r"another key|must be signed"):
                call()
    with pytest.raises(IdentityError, match="another key"):
        thief(scene).register("north")
    assert scene.server_store.shards() == before and not scene.server_store.tickets()


def test_what_a_site_signed_before_cannot_be_sent_again(scene: Scene) -> None:
    """The thief has an old shard, and what the site signed about it: forgotten rows do not come back by that."""
    record = scene.server_store.shard("north")
    old = scene.folder / "old"
    old.write_bytes((scene.store / "shards" / record.file).read_bytes())
    signed = json.loads(record.signed)
    scene.forget()
    newest = scene.server_store.shard("north")
    replay = link_of(scene.url, scene.certs, "north", tries=1)
    statement = {"config": "c", "initial": "i", "key": "k", "fingerprint": {}, "salt": record.salt.hex()}
    begin = {"size": old.stat().st_size, "mark": record.digest, "statement": statement, "signed": signed}
    with pytest.raises(DataError, match="was accepted before: it is an old one"):
        replay._call("POST", "/v1/uploads", json=begin)
    assert scene.server_store.shard("north") == newest


def test_a_signature_is_for_one_shard_and_one_statement(scene: Scene, tmp_path: Path) -> None:
    own, other = scene.north.own_key, shard(tmp_path / "other")
    scene.north.link._signer = None
    serial = scene.north.link._call("GET", "/v1/site-key").json()["serial"]
    statement = {"config": "c", "initial": "i", "key": "k", "fingerprint": {}, "salt": "ab" * 32}
    told = Statement("c", "i", "k", {}, salt="ab" * 32)
    signed = own.sign_shard("north", "d0" * 32, told, serial=serial + 1)
    begin = {"size": other.stat().st_size, "mark": file_digest(other), "statement": statement, "signed": signed}
    call = scene.north.link._call
    place = f"/v1/uploads/{call('POST', '/v1/uploads', json=begin).json()['id']}"
    call("PATCH", place, content=other.read_bytes(), headers={"Upload-Offset": "0"})
    with pytest.raises(DataError, match="not the shard that the site signed"):
        call("POST", f"{place}/finish", json={"digest": file_digest(other)})
    for odd in ({"tickets": ["t1"]}, {"codebook": "ef" * 32}, {"salt": "cd" * 32}):
        with pytest.raises(DataError, match="differs from the one sent with the shard"):
            call("POST", "/v1/uploads", json={**begin, "statement": {**statement, **odd}})
    with pytest.raises(DataError, match="about a new shard"):
        call("POST", "/v1/withdraw", json={**statement, "signed": signed})


def test_keys_are_in_the_ledger_and_signatures_go_with_their_shards(scene: Scene) -> None:
    entries = ledger.entries(scene.server_store.database)
    joined = {entry["client"]: entry["key"] for entry in entries if entry["kind"] == "joined"}
    assert joined == {site.config.name: site.own_key.public.raw.hex() for site in (scene.north, scene.south)}
    first = scene.server_store.shard("north")
    made = ShardStatement.read(json.loads(first.signed))
    assert (made.client, made.digest, made.key) == ("north", first.digest, joined["north"])
    scene.forget()
    assert first.signed.encode() not in (scene.store / "server.db").read_bytes()
    assert ShardStatement.read(json.loads(scene.server_store.shard("north").signed)).serial > made.serial


def test_the_name_is_the_certificates(scene: Scene, tmp_path: Path) -> None:
    certs = str(scene.certs / "clients" / "north")
    for name, folder in (("east", certs), ("tuv", str(scene.certs / "auditors" / "tuv"))):
        config = SiteConfig(name=name, url=scene.url, certs=folder, model=ModelConfig(**MODEL))
        with pytest.raises(ConfigError, match="the certificate in"):
            join(tmp_path / "new", config, ClientConfig())
    registered = OwnKey(tmp_path / "thief", scene.server_store.database.meta("run") or "")
    (tmp_path / "thief").mkdir()
    with pytest.raises(DataError, match="must be the one in its certificate"):
        scene.north.link._call("POST", "/v1/site-key", json=registered.register("south"))


def test_statements_have_one_form() -> None:
    raw = KEY.public.raw.hex()
    made = Registration("ward", "north", "2026-01-01", raw)
    assert Registration.read(made.sign(KEY)) == made
    told = ShardStatement("ward", "north", 1, "d0" * 32, COMMITTED, "", 0, ("t1",), "2026-01-01", raw)
    assert ShardStatement.read(told.sign(KEY)) == told
    for wrong in (
        made.sign(SigningKey(b"x" * 32)),
        Registration("ward", "north", "2026-01-01", raw.upper()).sign(KEY),
        Registration("ward", "", "2026-01-01", raw).sign(KEY),
        told.sign(KEY),
        {"payload": "?"},
    ):
        with pytest.raises(FormatError):
            Registration.read(wrong)
    for odd in ({"serial": -1}, {"serial": True}, {"outputs": 1.5}, {"tickets": (1,)}, {"digest": "\n"}):
        with pytest.raises(FormatError):
            ShardStatement.read(ShardStatement(**{**told.__dict__, **odd}).sign(KEY))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda fields: {**fields, "more\x1b": 1}, r"field 'more\\x1b' is unknown"),
        (lambda fields: {name: fields[name] for name in fields if name != "made"}, "field 'made' is missing"),
        (lambda fields: {**fields, "client": "north\x1b"}, r"field 'client' is 'north\\x1b'"),
        (lambda fields: {**fields, "client": ["north"]}, "field 'client' is"),
        (lambda fields: [fields], "should be an object"),
    ],
    ids=["unknown", "missing", "unprintable", "mistyped", "list"],
)
def test_a_message_has_its_fields_and_no_others(change: Callable[[dict], Any], words: str) -> None:
    fields = {"federation": "ward", "client": "north", "made": "2026-01-01", "key": KEY.public.raw.hex()}
    assert Registration.unpack(Envelope.sign(dumps(fields), [KEY], payload_type=Registration.PAYLOAD_TYPE))
    with pytest.raises(FormatError, match=words):
        Registration.unpack(Envelope.sign(dumps(change(fields)), [KEY], payload_type=Registration.PAYLOAD_TYPE))


def test_a_message_has_one_spelling() -> None:
    canonical = dumps({"federation": "ward", "client": "north", "made": "2026-01-01", "key": KEY.public.raw.hex()})
    for payload in (
        canonical + b" ",
        canonical.replace(b'"client"', b'"client":"south","client"'),
        canonical.replace(b":", b": "),
    ):
        with pytest.raises(FormatError, match=r"canonical|there twice"):
            Registration.unpack(Envelope.sign(payload, [KEY], payload_type=Registration.PAYLOAD_TYPE))


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Attestation, "epochs", [[]] * 32_000),
        (ShardStatement, "tickets", [0] * 32_000),
        (Registration, "more", {str(n): 0 for n in range(32_000)}),
    ],
)
def test_thousands_of_wrong_elements_are_one_error(kind: type[SignedMessage], field: str, value: Any) -> None:
    """Collecting an error for each took seconds, in which nobody else was served."""
    others = {other.name: "0" * 64 for other in fields(kind)}
    with pytest.raises(FormatError) as caught:
        kind.unpack(Envelope.sign(dumps(others | {field: value}), [KEY], payload_type=kind.PAYLOAD_TYPE))
    assert len(str(caught.value)) < 400
    problem = caught.value.__cause__
    assert not isinstance(problem, ValidationError) or problem.error_count() < 20


def test_a_missing_field_is_reported_without_copying_the_others() -> None:
    """Pydantic's error for each missing field held a copy of the whole message: thirteen of an attestation."""
    envelope = Envelope.sign(dumps({"epochs": [[]] * 32_000}), [KEY], payload_type=Attestation.PAYLOAD_TYPE)
    with pytest.raises(FormatError, match="'federation' is missing") as caught:
        Attestation.unpack(envelope)
    assert caught.value.__cause__ is None
