"""Signing keys that were revoked: what still counts, what does not, and what a thief of a key cannot do."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from service.certificate.test_command import call, call_json
from splitwiper.errors import FormatError
from splitwiper.service.certificate import (
    Envelope,
    Keyring,
    Keys,
    Log,
    PublicKey,
    Revocation,
    SignedHead,
    SigningKey,
    certify_run,
    check,
    check_with_store,
    read_keys,
)
from splitwiper.service.certificate.heads import check_evidence, write_evidence
from splitwiper.service.certificate.log import TreeHead
from splitwiper.service.certificate.standing import succeed
from splitwiper.store import ledger


def revocation(key: SigningKey, by: SigningKey, size: int = 5) -> dict[str, Any]:
    made = Revocation("f", key.public.raw.hex(), by.public.raw.hex(), size, "2030-01-01", "stolen")
    return made.sign(by)


@pytest.fixture
def line() -> list[SigningKey]:
    return [SigningKey.generate() for _ in range(3)]


def successions(line: list[SigningKey]) -> list[dict[str, Any]]:
    return [succeed(old, new.public) for old, new in pairwise(line)]


def test_only_a_later_key_revokes(line: list[SigningKey]) -> None:
    first, second, third = line
    said = successions(line)
    found = Keys.of([first.public], [*said, revocation(first, third), revocation(second, third, 9)])
    assert found.good == (third.public,) and {r.size for r in found.revoked.values()} == {5, 9}
    for odd in (
        revocation(third, first),  # a thief of an old key
        revocation(second, second),
        revocation(second, SigningKey.generate()),
        {**revocation(first, second), "payloadType": "text/plain"},
        {**revocation(first, second), "signatures": revocation(first, third)["signatures"]},
        Envelope.sign(b'{"by":1}', [third], payload_type="application/vnd.splitwiper.revocation+json").to_dict(),
        {"payloadType": 3},
    ):
        assert Keys.of([first.public], [*said, odd]).revoked == {}
    twice = [revocation(first, second, 9), revocation(first, third, 4)]
    assert Keys.of([first.public], [*said, *twice]).revoked[first.public.id].size == 4  # the strictest counts


def test_a_thief_of_an_old_key_names_another_successor(line: list[SigningKey]) -> None:
    thief = SigningKey.generate()
    said = [*successions(line), succeed(line[0], thief.public), revocation(line[1], thief)]
    known = Keys.of([key.public for key in line[:2]], said)  # they follow what they know
    assert set(known) == {key.public for key in line} and not known.revoked
    fresh = Keys.of([line[0].public], said)  # who knows neither follows none
    assert set(fresh) == {line[0].public}
    assert not fresh.good and "two owners" in str(
        fresh.revoked[line[0].public.id]
    )  # the thief's is not believed either
    hidden = [*successions(line), revocation(line[1], line[2]), succeed(line[1], thief.public)]
    found = Keys.of([line[0].public], hidden)  # the thief hides that the key was revoked by the true successor
    assert found.good == (line[0].public,)
    back = [*successions(line), succeed(line[0], line[2].public), revocation(line[1], line[2])]
    assert set(Keys.of([key.public for key in line[:2]], back).revoked) == {line[1].public.id}


def test_a_certificate_of_a_revoked_key(issued, tmp_path: Path) -> None:
    ring, server_store = Keyring.of(issued.store), issued.store
    old, at = ring.key(), Log.of(server_store).head()
    issued.federation().unlearn("south", classes=["dog"])
    later = Log.of(server_store).head()
    for reason in ("stolen\nat night", "x" * 1001):  # no client would accept it, and a file of it would stay
        with pytest.raises(FormatError, match="reason"):
            ring.revoke(server_store, old.public, reason=reason)
    said = ring.revoke(server_store, old.public, reason="stolen", size=at.size)
    assert (said.size, ring.key() == old) == (at.size, False)
    again = ring.revoke(server_store, old.public, reason="once more")  # finishes what was begun, and changes nothing
    assert again == said and len(ring.public()) == 2
    entries = [e for e in ledger.entries(server_store.database) if e["kind"] == "key-revoked"]
    assert [(e["key"], e["size"], e["reason"]) for e in entries] == [(old.public.id, at.size, "stolen")]
    keys = Keys.of([old.public], ring.statements())  # who knew the old key alone
    assert set(keys) == set(ring.keys()) and keys.revoked == ring.keys().revoked
    # offline nobody can tell; with a head that a good key signed, and the proof, it counts
    found = check(issued.certificate, keys)
    assert found.outcome == "unverifiable" and "a thief of that key may have made it" in found.reason
    log = Log.of(server_store)
    assert check(issued.certificate, keys, pins=[log.head()], consistency=log.consistency).holds
    # a ledger that is larger than the key counts for
    thiefs = Revocation(**{**said.__dict__, "size": at.size - 1})
    strict = Keys(keys.keys, {old.public.id: thiefs})
    found = check(issued.certificate, strict, pins=[log.head()], consistency=log.consistency)
    assert found.outcome == "mismatch" and "revoked before" in found.reason
    # handed out again, it is signed by the present key, and says the same
    made = certify_run(issued.path, issued.receipt.ticket)
    assert made["payload"] == issued.certificate["payload"]
    assert check(made, keys).holds and check(made, [ring.key().public]).holds
    stored = check_with_store(issued.certificate, server_store, issued.federation().verify)  # its own ledger shows it
    assert "signing key" not in {one.what for one in stored.checks} and stored.outcome != "mismatch"
    assert later.size > at.size


def test_evidence(issued, tmp_path: Path) -> None:
    ring = Keyring.of(issued.store)
    key, other = ring.key(), SigningKey.generate()
    heads = [SignedHead.sign("f", TreeHead(7, digit * 64), "2030-01-01", key) for digit in "ab"]
    path = write_evidence(tmp_path, *heads, story="two sites compared")
    values, keys = json.loads(path.read_bytes()), ring.keys()
    proved = check_evidence(values, keys)
    assert proved.outcome == "mismatch" and "the server signed two ledgers of 7 entries" in proved.reason
    for one, two, words in (
        (heads[0], heads[0], "different roots"),
        (heads[0], SignedHead.sign("f", TreeHead(8, "b" * 64), "", key), "equal size"),
        (heads[0], SignedHead.sign("g", TreeHead(7, "b" * 64), "", key), "two servers"),
        (heads[0], SignedHead.sign("f", TreeHead(7, "b" * 64), "", other), "no key that counts"),
    ):
        odd = {**values, "heads": [one.envelope.to_dict(), two.envelope.to_dict()]}
        found = check_evidence(odd, keys)
        assert found.outcome == "unverifiable" and words in found.reason
    assert check_evidence(values, Keys()).outcome == "unverifiable"
    assert check_evidence({"heads": 3}, keys).outcome == "unverifiable"
    # a thief of a key that was revoked can make such heads
    ring.revoke(issued.store, key.public, reason="stolen")
    found = check_evidence(values, ring.keys())
    assert found.outcome == "unverifiable" and "a thief may have" in found.reason


def test_the_commands(issued, tmp_path: Path) -> None:
    store, cert = issued.path / "server", tmp_path / "old.json"
    cert.write_text(json.dumps(issued.certificate), encoding="utf-8")
    (old,) = call_json("certs", "signing", store)["keys"]
    signing = store / "signing"
    assert "takes --reason" in call("certs", "signing", store, "--revoke", old["key"], code=2).stderr
    assert "go with --revoke" in call("certs", "signing", store, "--reason", "x", code=2).stderr.replace("\n", " ")
    told = call("certs", "signing", store, "--revoke", "0" * 8, "--reason", "stolen", code=6).stderr
    assert "0 keys" in told
    shown = call_json("certs", "signing", store, "--revoke", old["key"][:12], "--reason", "stolen laptop")["keys"]
    (revoked,) = [one for one in shown if one["revoked"]]
    assert revoked["key"] == old["key"] and revoked["revoked"]["reason"] == "stolen laptop" and not revoked["signs"]
    assert "revoked from" in call("certs", "signing", store).stdout.replace("\n", " ")
    call("verify", cert, "--key", signing / "public")  # without the revocation nobody can know
    given = [word for name in ("succession", "revoked") for word in ("--key", next((signing / name).iterdir()))]
    found = call_json("verify", cert, "--key", signing / "public", *given, code=5)
    assert "stolen laptop" in found["reason"]
    call("receipt", issued.path, issued.receipt.ticket, "--certificate", tmp_path / "new.json")
    call("verify", tmp_path / "new.json", "--key", signing / "public", *given)
    heads = [SignedHead.sign("f", TreeHead(7, digit * 64), "2030-01-01", Keyring(signing).key()) for digit in "ab"]
    path = write_evidence(tmp_path, *heads, story="")
    assert "the server signed two ledgers" in call("verify", path, "--key", signing / "public", code=3).stdout.replace(
        "\n", " "
    )


def test_files_of_keys(tmp_path: Path, line: list[SigningKey]) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "a.pem").write_bytes(line[0].public.pem())
    (folder / "statements.json").write_text(json.dumps([*successions(line), revocation(line[0], line[2])]))
    found = read_keys([folder])
    assert set(found) == {key.public for key in line} and list(found.revoked) == [line[0].public.id]
    alone = read_keys([folder / "a.pem"])
    assert alone == Keys((line[0].public,), {}) and isinstance(next(iter(alone)), PublicKey)
    (folder / "odd.json").write_text("{}")

    with pytest.raises(FormatError, match="no statements about keys"):
        read_keys([folder])
