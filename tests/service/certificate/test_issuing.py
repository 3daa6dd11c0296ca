"""What certificates say, what they never say, and that they are made once."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federation.runs import halves, settings, three
from splitwiper import Federation
from splitwiper.errors import CorruptError, InputError, NotFoundError
from splitwiper.service.certificate import Envelope, Keyring, SigningKey, certify, certify_run, check, check_with_store
from splitwiper.service.certificate.issuing import kept_at
from splitwiper.service.certificate.statement import PREDICATE, STATEMENT
from splitwiper.store import ServerStore
from splitwiper.wire import Request


def payload(certificate: dict[str, Any]) -> bytes:
    return base64.b64decode(certificate["payload"])


def said(certificate: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload(certificate))["predicate"]
    return found


def test_it_says_what_the_receipt_says(master) -> None:
    whole = json.loads(payload(master.certificate))
    assert (whole["_type"], whole["predicateType"]) == (STATEMENT, PREDICATE)
    assert [s["name"] for s in whole["subject"]] == [f"ticket {master.receipt.ticket}", "server model"]
    values, receipt = whole["predicate"], master.receipt.to_dict()
    for name in ("ticket", "client", "level", "exact", "settled", "before", "after", "context", "fingerprint"):
        assert values[name] == receipt[name], name
    assert values["others"] == {"contacted": 0, "bytes": 0, "seconds": 0}
    assert values["deadline"] is None
    assert values["ledger"]["entry"]["seq"] == receipt["ledger"]["seq"] <= values["ledger"]["size"]
    assert values["manifest"]["size"] == 3
    words = " ".join(values["says"]["proves"] + values["says"]["does_not_prove"])
    for word in ("recompute", "exports", "predictions", "dishonest server", "past"):
        assert word in words


def spellings(secret: bytes) -> list[bytes]:
    """A secret as it is, in hex, and in base64 wherever it may begin."""
    found = [secret, secret.hex().encode()]
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + secret)
        whole = (
            coded[-(-shift * 4 // 3) : len(coded) - 4] if len(secret) > 6 else coded
        )  # without what neighbours change
        found.append(whole.rstrip(b"="))
    return found


def test_the_scan_finds_what_is_there() -> None:
    for before in range(6):
        text = base64.b64encode(b"x" * before + b"rare-diagnosis" + b"yz")
        assert any(spelling in text for spelling in spellings(b"rare-diagnosis"))


def test_it_names_nobody_else_and_nothing_forgotten(tmp_path: Path) -> None:
    names = {"bird": "rare-diagnosis", "cat": "common-diagnosis", "dog": "third-diagnosis", "eel": "fourth-diagnosis"}
    data = {f"clinic-of-{c}": (x, np.array([names[label] for label in y])) for c, (x, y) in three().items()}
    fed = Federation(tmp_path / "ward", halves(), settings())
    fed.learn(data)
    inputs, _ = data["clinic-of-north"]
    ids = [i for i, label in fed.rows("clinic-of-north").items() if label == "rare-diagnosis"]
    store = ServerStore(fed.path / "server")
    old = [*store.shards()]
    receipt = fed.unlearn("clinic-of-north", classes=["rare-diagnosis"])
    made, model = certify_run(fed.path, receipt.ticket), store.model()
    assert model is not None
    secrets = [f"clinic-of-{name}".encode() for name in ("south", "west")] + [n.encode() for n in names.values()]
    secrets += [row.tobytes()[:8] for row in inputs] + [json.dumps(row.tolist())[:16].encode() for row in inputs]
    for record in (*old, *store.shards()):
        secrets += [bytes.fromhex(record.digest), record.salt]
    secrets += [bytes.fromhex(model.digest), bytes.fromhex(model.manifest), model.salt, json.dumps(ids).encode()]
    texts = [json.dumps(made).encode(), payload(made), kept_at(store, receipt.ticket).read_bytes()]
    for text in (*texts, *(base64.b64encode(text) for text in texts)):
        for secret in secrets:
            assert not any(spelling in text for spelling in spellings(secret)), secret
    assert b"clinic-of-north" in texts[1]


def test_it_is_made_once(issued) -> None:
    path = kept_at(issued.store, issued.receipt.ticket)
    bytes_before = path.read_bytes()
    fed = issued.federation()
    fed.unlearn("south", classes=["dog"])
    assert certify_run(issued.path, issued.receipt.ticket) == issued.certificate
    assert certify(issued.store, issued.receipt.ticket, SigningKey.generate(), due="2030-01-01") == issued.certificate
    assert path.read_bytes() == bytes_before


def test_it_is_signed_again_by_the_present_key(issued) -> None:
    old, ring = issued.trusted, Keyring.of(issued.store)
    new = ring.rotate().public
    again = certify_run(issued.path, issued.receipt.ticket)
    assert again["payload"] == issued.certificate["payload"]
    assert again["signatures"][:1] == issued.certificate["signatures"] and len(again["signatures"]) == 2
    assert check(again, old).holds and check(again, [new]).holds
    assert certify_run(issued.path, issued.receipt.ticket) == again
    # a file that the store never signed gets no signature
    path = kept_at(issued.store, issued.receipt.ticket)
    forged = Envelope.sign(Envelope.from_dict(again).payload, [SigningKey.generate()]).to_dict()
    path.write_bytes(json.dumps(forged).encode())
    assert certify_run(issued.path, issued.receipt.ticket) == forged


def test_the_same_state_and_key_give_the_same_bytes(issued) -> None:
    kept_at(issued.store, issued.receipt.ticket).unlink()
    assert certify_run(issued.path, issued.receipt.ticket) == issued.certificate


def test_a_damaged_one_is_told(issued) -> None:
    path = kept_at(issued.store, issued.receipt.ticket)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptError, match="remove it to have another one made"):
        certify_run(issued.path, issued.receipt.ticket)


def test_another_tickets_in_its_place_is_told(issued) -> None:
    later = issued.federation().unlearn("south", classes=["dog"])
    shutil.copy(kept_at(issued.store, issued.receipt.ticket), kept_at(issued.store, later.ticket))
    with pytest.raises(CorruptError, match="it is not that of ticket"):
        certify_run(issued.path, later.ticket)


def test_deadlines(fresh) -> None:
    fed = fresh("ward")
    met, missed = fed.unlearn("north", classes=["bird"]), fed.unlearn("south", classes=["dog"])
    store = ServerStore(fed.path / "server")
    key = Keyring.of(store).key()
    with pytest.raises(InputError, match="not a time with a zone"):
        certify(store, met.ticket, key, due="2030-01-01T00:00:00")
    early = certify(store, met.ticket, key, due="2999-01-01T00:00:00+00:00")
    late = certify(store, missed.ticket, key, due="2001-01-01T00:00:00+00:00")
    assert said(early)["deadline"] == {"due": "2999-01-01T00:00:00+00:00", "met": True}
    assert said(late)["deadline"] == {"due": "2001-01-01T00:00:00+00:00", "met": False}
    for made in (early, late):
        assert check(made, [key.public]).outcome == "holds"


def test_what_is_not_settled_has_none(fresh, tmp_path: Path) -> None:
    fed = fresh("ward")
    ticket = fed.submit("north", classes=["bird"])
    with pytest.raises(NotFoundError, match="settle it first"):
        certify_run(fed.path, ticket.id)
    with pytest.raises(NotFoundError, match="no ticket 'abc'"):
        certify_run(fed.path, "abc")
    with pytest.raises(NotFoundError, match="no run"):
        certify_run(tmp_path / "none", ticket.id)
    assert not (fed.path / "server" / "signing").exists()


def test_requests_settled_together_did_nothing_for_each_other(fresh) -> None:
    fed = fresh("ward")
    fed.submit("north", classes=["bird"])
    fed.submit("south", classes=["dog"])
    for receipt in fed.settle():
        made = certify_run(fed.path, receipt.ticket)
        assert said(made)["others"] == {"contacted": 0, "bytes": 0, "seconds": 0}
        assert check_with_store(made, ServerStore(fed.path / "server"), fed.verify).exact


def test_a_client_that_left_has_no_leaf(fresh) -> None:
    fed = fresh("ward")
    receipt = fed.unlearn("north", everything=True)
    made = certify_run(fed.path, receipt.ticket)
    assert said(made)["manifest"]["size"] == 2 and said(made)["manifest"]["leaf"] is None
    found = check_with_store(made, ServerStore(fed.path / "server"), fed.verify)
    assert found.exact and found.standing == "current"
    for name in ("south", "west"):
        receipt = fed.unlearn(name, everything=True)
    made = certify_run(fed.path, receipt.ticket)
    assert said(made)["manifest"]["size"] == 0 and said(made)["after"]["model"] is None
    assert check_with_store(made, ServerStore(fed.path / "server"), fed.verify).exact


def test_a_client_that_is_away(fresh, tmp_path: Path) -> None:
    fed = fresh("ward")
    shutil.move(fed.path / "clients" / "north", tmp_path / "away")
    receipt = fed.unlearn("north", everything=True)
    made = certify_run(fed.path, receipt.ticket)
    assert said(made)["context"]["client_key"] is None
    assert check_with_store(made, ServerStore(fed.path / "server"), fed.verify).exact


def test_a_late_certificate_shows_no_manifest(fresh) -> None:
    fed = fresh("ward")
    receipt = fed.unlearn("north", classes=["bird"])
    fed.unlearn("south", classes=["dog"])
    made = certify_run(fed.path, receipt.ticket)
    assert said(made)["manifest"] is None
    found = check(made, Keyring.of(ServerStore(fed.path / "server")).public())
    assert found.holds and "their salts erased" in next(c.detail for c in found.checks if c.what == "manifest")


def test_a_warm_start_says_that_it_is_not_exact(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "warm", halves(), settings(start="warm"))
    fed.learn(three())
    made = certify_run(fed.path, fed.unlearn("north", classes=["bird"]).ticket)
    assert said(made)["exact"] is False
    assert "This is not the model that never saw them" in " ".join(said(made)["says"]["does_not_prove"])
    assert "never had" not in " ".join(said(made)["says"]["proves"])
    assert check_with_store(made, ServerStore(fed.path / "server"), fed.verify).outcome == "mismatch"


def test_odd_tickets_stay_in_their_folder(issued) -> None:
    for ticket in ("../../../oops", "a/b", "", "x" * 500, "."):
        path = kept_at(issued.store, ticket)
        assert path.parent == issued.store.root / "certificates" and len(path.name) < 80
        issued.store.submit(Request(ticket, "north", "client"))
