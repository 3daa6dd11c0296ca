"""Certificates that are right, and every way to make one wrong."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NoReturn

import pytest

from service.certificate.forging import branches, changed, flip, leaves, signed, statement_of, with_payload
from splitwiper.service.audit import Audited
from splitwiper.service.certificate import (
    Envelope,
    Keyring,
    Opening,
    SigningKey,
    certify_run,
    check,
    check_with_store,
    opening,
)
from splitwiper.service.certificate.canonical import LIMIT, dumps
from splitwiper.service.site import Certified

STRANGER = SigningKey(bytes(range(32)))


def unasked(_: object) -> NoReturn:
    raise AssertionError("recomputing was not called for")


def test_offline(master) -> None:
    found = check(master.certificate, master.trusted)
    assert found.outcome == "holds" and found.holds and not found.exact and found.standing == "unknown"
    assert [c.what for c in found.checks] == ["signature", "statement", "ledger entry", "manifest", "changed"]
    assert {c.outcome for c in found.checks} == {"holds"}
    assert found.certificate["ticket"] == master.receipt.ticket
    assert "not recomputed by anybody yet" in found.reason
    for form in (json.dumps(master.certificate, indent=3).encode(), Envelope.from_dict(master.certificate)):
        assert check(form, master.trusted) == found


def test_with_the_store_it_is_recomputed(master) -> None:
    found = check_with_store(master.certificate, master.store, master.federation().verify)
    assert found.exact and found.standing == "current"
    told = [check.what for check in found.checks]
    assert {"store", "ledger", "server", "client north"} <= set(told[4:])
    assert "bit for bit" in found.reason


def test_a_check_is_as_true_as_what_it_found(master) -> None:
    held = check(master.certificate, master.trusted)
    failed = check(master.certificate, [STRANGER.public])
    assert held and not failed and failed.outcome != "holds"
    assert Certified(master.certificate, held) and not Certified(master.certificate, failed)
    assert Audited(held) and not Audited(failed)


def test_a_superseded_one_is_a_statement_about_the_past(issued) -> None:
    fed = issued.federation()
    later = fed.unlearn("south", classes=["dog"])
    assert check(issued.certificate, issued.trusted).outcome == "holds"
    found = check_with_store(issued.certificate, issued.store, fed.verify)
    assert found.outcome == "unverifiable" and found.standing == "superseded"
    assert "statement about the past" in found.reason and "erased, its salt with it" in found.reason
    assert next(c for c in found.checks if c.what == "store").outcome == "holds"
    assert check_with_store(certify_run(issued.path, later.ticket), issued.store, fed.verify).exact


def test_keys(issued) -> None:
    ring = Keyring.of(issued.store)
    assert check(issued.certificate, [STRANGER.public]).outcome == "mismatch"
    found = check(issued.certificate, [])
    assert found.outcome == "unverifiable" and "no public key was given" in found.reason
    assert found.certificate["ticket"] == issued.receipt.ticket
    ring.rotate()
    assert check(issued.certificate, ring.public()).holds
    assert check(issued.certificate, [ring.key().public]).outcome == "mismatch"
    both = Envelope.sign(dumps(statement_of(issued.certificate)), [STRANGER, ring.key()])
    assert check(both, ring.public()).holds
    forged = signed(statement_of(issued.certificate), STRANGER)
    assert check(forged, ring.public()).outcome == "mismatch"
    assert check({**issued.certificate, "signatures": []}, ring.public()).reason == "the certificate is not signed"


def test_every_value_is_under_the_signature(master) -> None:
    told = statement_of(master.certificate)
    places = list(leaves(told))
    assert len(places) > 60
    for place in places:
        altered = with_payload(master.certificate, dumps(changed(told, place, flip)))
        assert check(altered, master.trusted).outcome == "mismatch", place
    for place in leaves(master.certificate):
        assert check(changed(master.certificate, place, flip), master.trusted).outcome == "mismatch", place


def test_a_server_that_signs_something_else_is_found_out_by_its_store(master) -> None:
    """Every value altered, and signed by the right key: the form, a proof or the store contradicts it."""
    told, key, offline = statement_of(master.certificate), master.key, 0
    for place in leaves(told):
        forged = signed(changed(told, place, flip), key)
        assert check_with_store(forged, master.store, unasked).outcome == "mismatch", place
        offline += check(forged, master.trusted).outcome == "mismatch"
    assert offline > 25
    for place in branches(told):
        for change in (lambda v: {**v, "more": 1}, lambda v: {k: v[k] for k in list(v)[1:]}, lambda v: [v]):
            if place[:2] != ("predicate", "fingerprint"):
                assert check(signed(changed(told, place, change), key), master.trusted).outcome == "mismatch", place
            assert (
                check_with_store(signed(changed(told, place, change), key), master.store, unasked).outcome == "mismatch"
            )


def test_proofs_of_odd_length(master) -> None:
    told, key = statement_of(master.certificate), master.key
    for place in (("predicate", "ledger", "proof"), ("predicate", "manifest", "leaf", "proof")):
        for change in (
            lambda v: v[1:],
            lambda v: [*v[:-1], v[0][::-1]],
            lambda v: [*v, v[0]],
            lambda v: v * 99,
            lambda _: [],
        ):
            assert check(signed(changed(told, place, change), key), master.trusted).outcome == "mismatch"


def test_another_tickets_certificate(issued) -> None:
    fed = issued.federation()
    later = certify_run(issued.path, fed.unlearn("south", classes=["dog"]).ticket)
    mine, other = statement_of(issued.certificate)["predicate"], statement_of(later)["predicate"]
    mixed = statement_of(issued.certificate)
    mixed["predicate"]["ledger"], mixed["subject"][0] = other["ledger"], statement_of(later)["subject"][0]
    mixed["subject"][0] = {**mixed["subject"][0], "name": f"ticket {mine['ticket']}"}
    found = check(signed(mixed, issued.key), issued.trusted)
    assert found.outcome == "mismatch" and f"settles ticket {other['ticket']}" in found.reason
    assert check({**issued.certificate, "payload": later["payload"]}, issued.trusted).outcome == "mismatch"


def test_another_servers_certificate(issued, fresh) -> None:
    other = fresh("other")
    made = certify_run(other.path, other.unlearn("north", classes=["bird"]).ticket)
    assert check(made, issued.trusted).outcome == "mismatch"
    assert check_with_store(made, issued.store, unasked).outcome == "mismatch"
    taken = signed(statement_of(made), issued.key)  # signed by this server, about another one's ledger
    assert check(taken, issued.trusted).holds
    assert "the ledger is another one" in check_with_store(taken, issued.store, unasked).reason


@pytest.mark.parametrize(
    ("spell", "word"),
    [
        (lambda s: json.dumps(s).encode(), "canonical"),
        (lambda s: dumps(s) + b"\n", "canonical"),
        (lambda s: dumps(s).replace(b'"exact":true', b'"exact":true,"exact":true'), "'exact' is there twice"),
        (lambda s: dumps(s).replace(b'"seconds":0', b'"seconds":NaN'), "NaN is not a number"),
        (lambda s: dumps(s).replace(b'"seconds":0', b'"seconds":1e999'), "not a valid certificate"),
        (lambda s: dumps(s).replace(b'"seconds":0', b'"seconds":0.0e0'), "canonical"),
        (lambda s: dumps(s).replace(b'"north"', b'"n\\u006frth"'), "canonical"),
        (lambda s: dumps(s)[:-1], "not a valid certificate"),
        (lambda _: b"[" * 100_000, "not a valid certificate"),
        (lambda _: b"\xff\xfe", "not a valid certificate"),
        (lambda _: b"", "not a valid certificate"),
        (lambda _: b"[]", "should be an object"),
        (lambda s: dumps({**s, "_type": "https://in-toto.io/Statement/v0.1"}), "_type"),
        (lambda s: dumps({**s, "predicateType": "urn:splitwiper:certificate-of-unlearning:v3"}), "predicateType"),
    ],
)
def test_one_spelling_alone(master, spell, word: str) -> None:
    forged = Envelope.sign(spell(statement_of(master.certificate)), [master.key])
    found = check(forged, master.trusted)
    assert found.outcome == "mismatch" and word in found.reason


def test_envelopes_that_are_none(master) -> None:
    whole = json.dumps(master.certificate)
    twice = whole.replace('"payloadType"', '"payload": "", "payloadType"')
    for data in (twice.encode(), b" " * (LIMIT + 1) + whole.encode(), b"", b"{}", b"[" * 9999, whole[:-2].encode()):
        found = check(data, master.trusted)
        assert found.outcome == "mismatch" and found.checks[0].what == "envelope" and not found.certificate
    big = Envelope.sign(dumps("x" * (LIMIT + 1)), [master.key])
    assert "at most" in check(big, master.trusted).reason


def test_another_payload_type(master) -> None:
    body = Envelope.from_dict(master.certificate).payload
    for kind in ("application/json", "application/vnd.in-toto+json ", "APPLICATION/VND.IN-TOTO+JSON", ""):
        forged = Envelope.sign(body, [master.key], payload_type=kind)
        assert check(forged, master.trusted).outcome == "mismatch"


def test_the_requester_opens_its_own(issued) -> None:
    own, fed = opening(issued.store, issued.receipt.ticket), issued.federation()
    assert Opening.from_dict(json.loads(json.dumps(own.to_dict()))) == own

    def outcomes(opened: Opening, **more: Any) -> dict[str, str]:
        found = check(issued.certificate, issued.trusted, opening=opened, **more)
        return {c.what: c.outcome for c in found.checks[5:]}

    assert outcomes(own, receipt=issued.receipt) == {"own shard": "holds", "receipt": "holds"}
    assert outcomes(own) == {"own shard": "holds"}
    for wrong in ({"digest": "0" * 64}, {"salt": "0" * 64}):
        assert outcomes(dataclasses.replace(own, **wrong)) == {"own shard": "mismatch"}
    other = dataclasses.replace(issued.receipt, level="client")
    assert outcomes(own, receipt=other)["receipt"] == "mismatch"
    assert outcomes(dataclasses.replace(own, receipt_key="00"), receipt=issued.receipt)["receipt"] == "mismatch"
    spent = dataclasses.replace(issued.receipt, server_seconds=1.5)  # what the certificate itself does not say
    assert outcomes(own, receipt=spent)["receipt"] == "mismatch"
    noisy = dataclasses.replace(issued.receipt, privacy={"note": "the client's own"})
    assert outcomes(own, receipt=noisy)["receipt"] == "holds"
    fed.unlearn("north", classes=["dog"])
    late = opening(issued.store, issued.receipt.ticket)
    assert late.salt == "" and late.receipt_key == own.receipt_key
    assert outcomes(late, receipt=issued.receipt) == {"own shard": "unchecked", "receipt": "holds"}


def test_a_receipt_without_the_opening(master) -> None:
    found = check(master.certificate, master.trusted, receipt=master.receipt)
    assert found.holds and "takes the opening" in found.checks[-1].detail
    other = dataclasses.replace(master.receipt, after=master.receipt.before)
    assert "than the receipt: after" in check(master.certificate, master.trusted, receipt=other).reason


def test_other_numerics(master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitwiper.federation.verify.fingerprint", lambda *_: {"torch": "another"})
    found = check_with_store(master.certificate, master.store, master.federation().verify)
    assert found.outcome == "not_comparable" and "torch was" in found.reason and found.standing == "current"


def test_what_is_shown_on_a_terminal_is_printable(master) -> None:
    told = statement_of(master.certificate)
    for name in ("ticket", "client"):
        forged = signed(changed(told, ("predicate", name), lambda _: "\x1b[2J\ud800"), master.key)
        assert "\x1b" not in check(forged, []).reason and check(forged, []).outcome == "mismatch"
    hinted = changed(master.certificate, ("signatures", 0, "keyid"), lambda _: "\x1b[2J")
    for trusted in (master.trusted, ()):
        assert "\x1b" not in check(hinted, trusted).reason


def test_guesses_cannot_be_tested(master) -> None:
    """Without salts, the very shards and entries do not give the hashes that a certificate shows."""
    told = statement_of(master.certificate)["predicate"]
    shown = {*told["ledger"]["proof"], *told["manifest"]["leaf"]["proof"]}
    from splitwiper.store import ledger
    from splitwiper.store.merkle import leaf_hash

    guesses = set()
    for entry in ledger.entries(master.store.database):
        body = {k: v for k, v in entry.items() if k not in ("hash", "seq")}
        guesses |= {leaf_hash(dumps(value)).hex() for value in (body, {**body, "seq": entry["seq"]}, entry)}
    guesses |= {
        leaf_hash(bytes.fromhex(e["shard"])).hex() for e in ledger.entries(master.store.database) if "shard" in e
    }
    assert len(guesses) > 20 and not guesses & shown
