"""Who lends a signature another meaning: keys of nobody or of another role, names that are paths, odd answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.scene import Scene
from splitwiper.errors import SplitWiperError
from splitwiper.service.certificate import Attestation, Envelope, PublicKey, SigningKey, check
from splitwiper.service.certificate.attestation import MOST
from splitwiper.service.site.verifying import fingerprint_of


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("forgers"), certs)
    yield made
    made.close()


def test_nobody_attests_in_a_role_that_is_not_theirs(scene: Scene) -> None:
    ticket = scene.forget()
    scene.north.attest("exact", fingerprint_of(scene.north))
    made = scene.certificate(ticket).envelope
    (own,) = made["attestations"]
    told = Attestation.read(own)

    def attested(by: SigningKey, role: str, *, keys: tuple[PublicKey, ...] = ()) -> str:
        changed = dataclasses.replace(told, role=role, epochs=(1,), of=1, key=by.public.raw.hex())
        beside = {**made, "attestations": [own, changed.sign(by)]}
        return check(beside, scene.keys(), attesters=[scene.north.own_key.public, *keys]).outcome

    north, auditor, server = scene.north.own_key.key(), SigningKey.generate(), _signing_key(scene)
    assert attested(auditor, "auditor", keys=(auditor.public,)) == "exact"
    assert attested(north, "auditor") == "holds"  # a site is not its own auditor
    assert attested(server, "auditor", keys=(server.public,)) == "holds"  # nor is the server its own
    forged = dataclasses.replace(told, key=auditor.public.raw.hex()).sign(auditor)
    whole = Attestation(**{**told.__dict__, "role": "auditor", "epochs": (1,), "of": 1, "key": _hex(auditor)})
    beside = {**made, "attestations": [forged, whole.sign(auditor)]}  # nor is the auditor the site
    assert check(beside, scene.keys(), attesters=[auditor.public]).outcome == "holds"


def test_attestations_of_others_displace_none_from_a_certificate(scene: Scene) -> None:
    ticket = scene.forget()
    own = Attestation.read(scene.north.attest("exact", fingerprint_of(scene.north)))
    key = scene.south.own_key.key()
    for number in range(MOST + 6):
        other = dataclasses.replace(own, name="south", shard=f"{number:064x}", key=_hex(key))
        scene.south.link.attest(other.sign(key))
    (kept,) = scene.certificate(ticket).envelope["attestations"]
    assert Attestation.read(kept) == own


def _hex(key: SigningKey) -> str:
    return key.public.raw.hex()


def _signing_key(scene: Scene) -> SigningKey:
    return SigningKey.from_pem((scene.store / "signing" / "private.pem").read_bytes())


@pytest.mark.parametrize("first", ["00", "01", "ec", "ed", "ee"])
def test_a_key_of_small_order_verifies_nothing(first: str) -> None:
    """Anybody can make signatures for such a key, so whoever registers one can deny all that it signed."""
    points = ["00" * 32, "01" + "00" * 31, *(one + "ff" * 30 + "7f" for one in ("ec", "ed", "ee"))]
    key = PublicKey(bytes.fromhex(next(point for point in points if point.startswith(first))))
    messages, forged = [bytes([n]) for n in range(64)], [bytes.fromhex(point) + bytes(32) for point in points]
    assert not any(key.verifies(signature, message) for message in messages for signature in forged)
    made = Envelope.sign(b"{}", [SigningKey.generate()])
    assert not made.signers([key])


def test_a_ticket_that_the_server_invents_names_no_file(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = scene.forget()
    listed, certificate = scene.north.requests(), scene.north.link.certificate(ticket)
    odd = str(scene.folder / "escaped")
    invented = [dataclasses.replace(listed[-1], id=name) for name in (odd, "../../escaped")]
    with monkeypatch.context() as lie:
        link = scene.north.link
        lie.setattr(link, "tickets", lambda _: (*listed, *invented))
        lie.setattr(link, "certificate", lambda _: certificate)
        honest = link.receipt(ticket), link.opening(ticket)
        lie.setattr(link, "receipt", lambda _: honest[0])
        lie.setattr(link, "opening", lambda _: honest[1])
        assert ticket in scene.north.certificates() and odd not in scene.north.certificates()
        stranger = [dataclasses.replace(listed[-1], id=name) for name in ("b" * 300, 5, None)]
        lie.setattr(link, "tickets", lambda _: (*listed, *stranger))
        assert scene.north.certificates(missing=True) == {}  # its own is stored, and the others are not asked about
        lie.setattr(link, "tickets", lambda _: (*listed, *invented))
        for one in invented:  # also where somebody asks for it by its name
            assert scene.north.certificate(one.id).checked.outcome == "mismatch"
    assert not list(scene.folder.glob("escaped*")) and not list((scene.folder / "north").glob("escaped*"))


ANSWERS = (b"", b"null", b"[]", b"{}", b"3", b"\xff\xfe", b'[{"id":3}]', b'{"a":NaN}', b"[" * 100_000)


@pytest.mark.parametrize("place", ["requests", "receipt", "certificate", "opening", "model", "predict", "consistency"])
def test_answers_that_cannot_be_read_are_told(scene: Scene, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Whatever a server answers, under a head that is right, ends in an error of ours or is refused; never a crash."""
    (ticket, *_), ask = [one.id for one in scene.north.requests()] or [scene.forget()], httpx.Client.request
    for body in ANSWERS:

        def odd(self: httpx.Client, method: str, url: str, body: bytes = body, **more: Any) -> httpx.Response:
            answer = ask(self, method, url, **more)
            if str(url).endswith(place):
                answer._content = body
            return answer

        with monkeypatch.context() as lie:
            lie.setattr(httpx.Client, "request", odd)
            with suppress(SplitWiperError):
                scene.north.certificate(ticket)
            with suppress(SplitWiperError):
                scene.north.predict("north", scene.rows["north"][0])
            with suppress(SplitWiperError):
                scene.north.settle(patience=0)
