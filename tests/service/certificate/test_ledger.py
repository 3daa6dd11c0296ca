"""Ledgers that were cut, altered, forked or rolled back, and the pins that notice."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from service.certificate.forging import rewrite
from splitwiper.cli.exit_codes import exit_code
from splitwiper.errors import CorruptError, ForkError, InputError, NotFoundError
from splitwiper.service.certificate import Log, Pins, TreeHead, certify_run, check, check_with_store
from splitwiper.service.certificate.pins import Consistency
from splitwiper.store import ServerStore, ledger


def unasked(_: object) -> NoReturn:
    raise AssertionError("recomputing was not called for")


def log_of(run: Path) -> Log:
    return Log.of(ServerStore(run / "server"))


def no_proof(_old: int, _new: int) -> None:
    return None


def pin(pins: Pins, head: TreeHead, consistency: Consistency) -> None:
    """Pin a head that was compared with the newest."""
    pins.compare(head, consistency)
    pins.keep(head)


def test_a_ledger_that_grows_stays_consistent(issued, tmp_path: Path) -> None:
    fed, pins = issued.federation(), Pins(tmp_path / "heads")
    heads = []
    for name in ("south", "west"):
        log = log_of(issued.path)
        pin(pins, log.head(), log.consistency)
        pin(pins, log.head(), no_proof)  # the same again takes no proof
        heads.append(log.head())
        fed.unlearn(name, classes=["cat"])
    assert pins.heads() == tuple(heads)
    log = log_of(issued.path)
    found = check(issued.certificate, issued.trusted, pins=pins, head=log.head(), consistency=log.consistency)
    assert found.holds and "one ledger with 2 known" in found.checks[-1].detail
    assert log.head(heads[0].size) == heads[0]
    for size in (-1, len(log.entries) + 1):
        with pytest.raises(InputError, match="a size it had"):
            log.head(size)


def test_a_log_is_kept_and_follows_the_book(issued) -> None:
    store = ServerStore(issued.path / "server")
    before = Log.of(store)
    with suppress(ZeroDivisionError), store.database.change() as db:  # a change that does not come about
        ledger.append(db, {"kind": "shard", "client": "nobody"})
        assert len(Log.of(store).entries) == len(before.entries) + 1
        raise ZeroDivisionError
    assert Log.of(store).head() == before.head() == log_of(issued.path).head()
    issued.federation().unlearn("south", classes=["cat"])
    after = Log.of(store)
    assert after.head() == log_of(issued.path).head() > before.head() == after.head(before.head().size)


def test_a_forked_ledger(issued, tmp_path: Path) -> None:
    other = issued.copy(tmp_path / "fork")
    first = issued.federation().unlearn("south", classes=["dog"])
    second = other.federation().unlearn("west", classes=["eel"])
    one, two = log_of(issued.path), log_of(other.path)
    assert one.head().size == two.head().size
    certificates = certify_run(issued.path, first.ticket), certify_run(other.path, second.ticket)
    for made in certificates:  # each is right by itself: only who compares heads can tell
        assert check(made, issued.trusted).holds
    pins = Pins(tmp_path / "heads")
    pin(pins, one.head(), one.consistency)
    with pytest.raises(ForkError, match="the ledger was forked") as problem:
        pin(pins, two.head(), two.consistency)
    told = str(problem.value)
    assert one.head().root[:16] in told and two.head().root[:16] in told and "ask the operator" in told
    assert exit_code(problem.value) == 3
    assert pins.heads() == (one.head(),)
    found = check(certificates[1], issued.trusted, pins=pins, consistency=two.consistency)
    assert found.outcome == "mismatch" and "forked" in found.reason
    assert check(certificates[0], issued.trusted, pins=pins.heads(), consistency=one.consistency).holds
    # the store of the one does not know the other's
    assert check_with_store(certificates[1], issued.store, unasked).outcome == "mismatch"


def test_a_fork_that_went_on_is_noticed_too(issued, tmp_path: Path) -> None:
    other = issued.copy(tmp_path / "fork")
    common = log_of(issued.path).head()
    issued.federation().unlearn("south", classes=["dog"])
    fed = other.federation()
    fed.unlearn("west", classes=["eel"])
    fed.unlearn("west", classes=["cat"])
    one, two = log_of(issued.path), log_of(other.path)
    pins = Pins(tmp_path / "heads")
    pin(pins, common, no_proof)
    pin(pins, one.head(), one.consistency)
    assert two.head().size > one.head().size
    with pytest.raises(ForkError, match="forked"):
        pin(pins, two.head(), two.consistency)
    with pytest.raises(ForkError, match="no proof that the ledger"):
        pin(pins, two.head(), no_proof)
    with pytest.raises(ForkError, match="forked"):
        pin(pins, two.head(), lambda _old, _new: ["not hex"])


def test_a_rolled_back_server(issued, tmp_path: Path) -> None:
    backup = issued.copy(tmp_path / "backup")
    later = issued.federation().unlearn("south", classes=["dog"])
    now, pins = log_of(issued.path), Pins(tmp_path / "heads")
    made = certify_run(issued.path, later.ticket)
    pin(pins, now.head(), now.consistency)
    old = log_of(backup.path)
    found = check(issued.certificate, issued.trusted, pins=pins, head=old.head(), consistency=now.consistency)
    assert found.outcome == "mismatch" and "rolled back" in found.reason
    pins.compare(old.head(), now.consistency)  # as a head of the past it is right
    assert check_with_store(made, backup.store, unasked).outcome == "mismatch"


def test_a_server_rolled_back_to_before_its_first_certificate(issued, fresh) -> None:
    young = fresh("young")
    found = check_with_store(issued.certificate, ServerStore(young.path / "server"), unasked, trusted=issued.trusted)
    assert found.outcome == "mismatch" and "never shown its ledger" in found.reason
    with pytest.raises(NotFoundError):
        log_of(young.path)
    store = ServerStore(young.path / "server")
    assert Log.begin(store).head() == Log.begin(store).head() == log_of(young.path).head()


def test_a_truncated_ledger(issued) -> None:
    rewrite(issued.path, lambda rows: rows.pop())
    found = check_with_store(issued.certificate, issued.store, unasked)
    assert found.outcome == "mismatch" and "truncated" in found.reason
    assert check(issued.certificate, issued.trusted).holds  # offline nobody can tell


def swap(rows: list[dict[str, object]]) -> None:
    rows[1]["body"], rows[2]["body"] = rows[2]["body"], rows[1]["body"]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.pop(2),
        lambda rows: rows.insert(2, dict(rows[2])),
        lambda rows: rows.insert(0, dict(rows[0])),
        lambda rows: rows[1].update(body=rows[1]["body"].replace("north", "south")),
        swap,
    ],
    ids=["removed", "inserted", "begun-anew", "altered", "swapped"],
)
def test_an_altered_ledger(issued, tmp_path: Path, change) -> None:
    pins, before = Pins(tmp_path / "heads"), log_of(issued.path)
    pin(pins, before.head(), before.consistency)
    rewrite(issued.path, change)
    found = check_with_store(issued.certificate, issued.store, unasked)
    assert found.outcome == "mismatch" and found.checks[-1].what == "store"
    log = log_of(issued.path)
    with pytest.raises((ForkError, InputError)):  # a shorter ledger cannot prove anything about the longer one
        pin(pins, log.head(), log.consistency)


def test_a_broken_chain(issued) -> None:
    rewrite(issued.path, lambda rows: rows.pop(2), chain=False)
    found = check_with_store(issued.certificate, issued.store, unasked)
    assert found.outcome == "mismatch" and "chain breaks" in found.reason


def test_heads_without_proofs(issued) -> None:
    log = log_of(issued.path)
    own, more = log.head(), TreeHead(log.head().size + 1, "0" * 64)
    assert check(issued.certificate, issued.trusted, pins=[own]).holds
    found = check(issued.certificate, issued.trusted, pins=[own, more])
    assert found.outcome == "unverifiable" and "without the server's proof" in found.reason
    assert check(issued.certificate, issued.trusted, pins=[TreeHead(own.size, "0" * 64)]).outcome == "mismatch"
    assert check(issued.certificate, issued.trusted, pins=[TreeHead(own.size, "0" * 64), more]).outcome == "mismatch"
    assert check(issued.certificate, issued.trusted, pins=[more], consistency=no_proof).outcome == "mismatch"


def test_pins_are_only_added(issued, tmp_path: Path) -> None:
    log, folder = log_of(issued.path), tmp_path / "heads"
    assert Pins(folder).heads() == ()
    for size in range(3, len(log.entries) + 1):
        pin(Pins(folder), log.head(size), log.consistency)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(before) == len(log.entries) - 2 == len(Pins(folder).heads())
    pin(Pins(folder), log.head(), log.consistency)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    (folder / ".tmp-1-0-ab").write_bytes(b"what a killed process left")
    assert len(Pins(folder).heads()) == len(before)
    next(path for path in folder.iterdir() if path.name[0] == "0").write_bytes(b"{}")
    with pytest.raises(CorruptError, match="restore it from a backup"):
        Pins(folder).heads()


def test_one_proof_is_asked_for_however_many_heads_are_pinned(issued, tmp_path: Path) -> None:
    log, pins, asked = log_of(issued.path), Pins(tmp_path / "heads"), list[tuple[int, int]]()

    def proof(old: int, new: int) -> list[str]:
        asked.append((old, new))
        return log.consistency(old, new)

    size = log.head().size
    for earlier in range(3, size):
        pin(pins, log.head(earlier), log.consistency)
    assert len(pins.heads()) > 2
    pin(pins, log.head(), proof)
    assert asked == [(size - 1, size)]
    pins.compare(log.head(3), proof)
    assert asked[1:] == [(3, size)]
    check(issued.certificate, issued.trusted, pins=pins, consistency=proof)
    assert len(asked) <= 3


def test_two_processes_that_pin_at_once(issued, tmp_path: Path) -> None:
    log, folder = log_of(issued.path), tmp_path / "heads"
    other = TreeHead(log.head().size - 1, "0" * 64)
    for head in (log.head(), other):
        Pins(folder).keep(head)
    assert Pins(folder).heads() == (other, log.head()), "both are kept: they are the evidence"
