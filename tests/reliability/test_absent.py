"""Client folders that are away, come back, or come back as they once were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reliability.stage import bits, config, halves, ids_at, place_keys, reopen, rows, strays
from splitwiper import Federation
from splitwiper.errors import AbsentClientError, CorruptError
from splitwiper.federation import status

DATA = {"north": rows("north", "aabb"), "south": rows("south", "bbaa")}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    place_keys(tmp_path / "run")
    Federation(tmp_path / "run", halves(), config(slices=2)).learn(DATA)
    return tmp_path / "run"


def away(run: Path) -> Path:
    """Take north's folder away; returns where it is now."""
    place = run.parent / "away"
    shutil.move(run / "clients" / "north", place)
    return place


def alone(tmp_path: Path) -> dict[str, object]:
    """The model of a run in which only south ever was."""
    place_keys(tmp_path / "alone")
    Federation(tmp_path / "alone", halves(), config(slices=2)).learn({"south": DATA["south"]})
    return dict(bits(tmp_path / "alone")["model"][0])


def test_an_absent_client_is_known_and_its_model_stays(run: Path) -> None:
    place = away(run)
    fed = reopen(run)
    for call in (
        lambda: fed.predict("north", DATA["north"][0]),
        lambda: fed.unlearn("north", classes=["a"]),
        lambda: fed.unlearn("north", samples=[0]),
        lambda: fed.learn({"north": rows("north", "ab", part=1)}),
        lambda: fed.rows("north"),
    ):
        with pytest.raises(AbsentClientError, match=r"'north' is not here.*bring the folder back.*everything=True"):
            call()
    assert not next(c for c in status(run).clients if c.name == "north").folder
    assert fed.predict("south", DATA["south"][0])
    assert fed.verify().outcome == "unverifiable"
    shutil.move(place, run / "clients" / "north")
    assert fed.settle() == ()
    assert fed.verify().exact
    assert status(run).todo == ()


def test_a_request_that_waits_for_its_client_says_so(run: Path) -> None:
    reopen(run).submit("north", classes=["a"])
    place = away(run)
    with pytest.raises(AbsentClientError, match=r"1 request waits for north.*bring it back"):
        reopen(run).settle()
    assert any("folder is not here" in what for what in status(run).todo)
    shutil.move(place, run / "clients" / "north")
    assert len(reopen(run).settle()) == 1
    assert reopen(run).verify().exact
    assert status(run).todo == ()
    assert strays(run) == []


def test_an_absent_client_is_forgotten_by_the_server_alone_and_does_not_come_back(run: Path, tmp_path: Path) -> None:
    place = away(run)
    fed = reopen(run)
    receipt = fed.unlearn("north", everything=True)
    assert fed.verify(receipt).exact
    assert dict(bits(run)["model"][0]) == alone(tmp_path)
    shutil.move(place, run / "clients" / "north")
    for _ in range(2):
        learned = reopen(run).learn({"north": DATA["north"]})
        assert learned.added["north"].refused == 4
    after = bits(run)
    assert dict(after["model"][0]) == alone(tmp_path / "2")
    assert after["client north"]["slices"] == after["client north"]["half"] == []
    assert strays(run) == []
    assert status(run).todo == ()
    assert reopen(run).verify(receipt).exact


def test_a_client_that_comes_back_before_its_request_is_settled(run: Path, tmp_path: Path) -> None:
    """Asked for in its absence, done in its presence: the ticket is answered all the same."""
    place = away(run)
    ticket = reopen(run).submit("north", everything=True)
    shutil.move(place, run / "clients" / "north")
    receipts = reopen(run).settle()
    assert [receipt.ticket for receipt in receipts] == [ticket.id]
    assert dict(bits(run)["model"][0]) == alone(tmp_path)
    assert bits(run)["client north"]["slices"] == []
    assert reopen(run).verify(receipts[0]).exact
    assert status(run).todo == ()


@pytest.mark.parametrize("level", ["class", "sample"])
def test_a_folder_from_an_old_backup_is_refused(run: Path, level: str) -> None:
    backup = run.parent / "backup"
    shutil.copytree(run / "clients" / "north", backup)
    fed = reopen(run)
    if level == "class":
        fed.unlearn("north", classes=["a"])
    else:
        fed.unlearn("north", samples=ids_at(run, "north", DATA["north"], [0]))
    before = bits(run)
    newer = away(run)
    shutil.copytree(backup, run / "clients" / "north")
    with pytest.raises(CorruptError, match=r"'north' is older than what the server knows.*Restore a newer copy"):
        reopen(run).learn({"north": rows("north", "ab", part=1)})
    with pytest.raises(CorruptError, match="older"):
        reopen(run).reupload("north")
    assert {k: v for k, v in bits(run).items() if "client north" not in k} == {
        k: v for k, v in before.items() if "client north" not in k
    }
    assert reopen(run).predict("south", DATA["south"][0])
    shutil.rmtree(run / "clients" / "north")
    shutil.move(newer, run / "clients" / "north")
    reopen(run).settle()
    assert bits(run) == before
    assert reopen(run).verify().exact


def test_the_other_way_out_of_an_old_backup(run: Path, tmp_path: Path) -> None:
    """What the message offers where there is no newer copy: remove the folder and forget the whole client."""
    fed = reopen(run)
    fed.unlearn("north", samples=ids_at(run, "north", DATA["north"], [0]))
    shutil.rmtree(run / "clients" / "north")
    receipt = fed.unlearn("north", everything=True)
    assert fed.verify(receipt).exact
    x, labels = DATA["north"]
    assert fed.learn({"north": (x[1:], labels[1:])}).added["north"].new == 3
    found = fed.verify()  # what the lost folder asked to forget is known to nobody any more, and nobody is accused
    assert found.claims == {"history": "exact", "state": "exact", "rows": "unverifiable"}
    assert "is lost" in found.reason
    assert status(run).todo == ()
    assert strays(run) == []


def test_a_client_that_was_forgotten_while_away_is_not_accused_when_it_comes_back(run: Path) -> None:
    place = away(run)
    fed = reopen(run)
    fed.unlearn("north", everything=True)
    assert fed.verify().exact
    shutil.move(place, run / "clients" / "north")
    told = reopen(run).verify()
    assert (told.outcome, told.claims["rows"]) == ("unverifiable", "unverifiable")
    assert "while the folder of north was away: call settle first" in told.reason
    reopen(run).settle()
    assert reopen(run).verify().exact
