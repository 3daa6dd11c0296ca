from __future__ import annotations

import json
from pathlib import Path

import pytest

from splitwiper import Federation
from splitwiper.cli import options
from splitwiper.cli.unlearn import resolve
from splitwiper.errors import RequestError


def test_a_class_of_integers_is_named_by_its_text(call_json, ward: Path, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    found = call_json("unlearn", ward, "north", "--class", "1", "--class", "2", "--receipt", file)
    assert found["state"] == "settled"
    assert found["level"] == "class"
    assert found["receipt"]["others"] == {"contacted": 0, "bytes": 0, "seconds": 0}
    assert len(found["receipt"]["commitment"]) == 64 and "spent" not in found["receipt"]
    assert json.loads(file.read_text(encoding="utf-8")) == found["receipt"]
    assert set(Federation(ward).rows("north").values()) == {3}
    assert call_json("verify", ward, file)["exact"] is True
    assert call_json("verify", ward, found["ticket"][:8])["ticket"] == found["ticket"]


def test_text_that_could_be_two_labels_is_an_error() -> None:
    assert resolve(["3", "x"], {3, "x"}, "north") == [3, "x"]
    assert resolve(["gone"], {3}, "north") == ["gone"]
    with pytest.raises(RequestError, match="both the number 3 and the text '3'"):
        resolve(["3"], {3, "3"}, "north")


def test_rows_by_id(call, call_json, ward: Path, tmp_path: Path) -> None:
    listed = [row["id"] for row in call_json("status", ward, "--client", "north")["rows"]]
    assert len(listed) == 36
    call("unlearn", ward, "north", "--sample", listed[0], "--sample", listed[5])
    (tmp_path / "ids.txt").write_text(f"{listed[1]}\n\n {listed[2]} \n", encoding="utf-8")
    shown = call("unlearn", ward, "north", "--samples-file", tmp_path / "ids.txt").stdout
    assert "sample" in shown
    assert f"splitwiper verify {ward}" in shown
    ids = [row["id"] for row in call_json("status", ward, "--client", "north")["rows"]]
    assert ids == [*listed[3:5], *listed[6:]]


def test_submitted_requests_are_settled_together(call, call_json, ward: Path) -> None:
    first = call_json("unlearn", ward, "north", "--class", "2", "--submit-only")
    assert first["state"] == "accepted"
    assert first["receipt"] is None
    assert "splitwiper settle" in call("unlearn", ward, "south", "--class", "other", "--submit-only").stdout
    waiting = call("status", ward).stdout
    assert "Unfinished" in waiting
    again = call("unlearn", ward, "north", "--class", "2", code=2).stderr
    assert "holds no rows of class 2" in again or "holds no rows of class '2'" in again
    assert f"splitwiper settle {ward}" in again
    assert "no receipt yet" in call("verify", ward, first["ticket"], code=6).stderr
    settled = call_json("settle", ward)
    assert {receipt["client"] for receipt in settled["receipts"]} == {"north", "south"}
    assert settled["model"] == "current"
    assert "No request was open" in call("settle", ward).stdout


def test_settle_shows_receipts(call, ward: Path) -> None:
    call("unlearn", ward, "north", "--class", "2", "--submit-only")
    shown = call("settle", ward).stdout
    assert "initial weights" in shown
    assert "spent by" in shown


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 130, 36), ("y\n", 0, 0)])
def test_everything_asks_first_on_a_terminal(
    call, ward: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    monkeypatch.setattr(options, "on_terminal", lambda: True)
    result = call("unlearn", ward, "north", "--everything", input=answer, code=code)
    assert "cannot be undone" in result.stderr
    assert ("Nothing was forgotten" in result.stderr) == (code == 130)
    assert len(Federation(ward).rows("north")) == left


def test_yes_does_not_ask(call, ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "on_terminal", lambda: True)
    assert "cannot be undone" not in call("unlearn", ward, "north", "--everything", "--yes").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing is named to forget"),
        (("--class", "1", "--everything"), "more than one kind of thing"),
        (("--class", "4"), "holds no rows of class '4'; it holds 1, 2, 3"),
        (("--sample", "99"), "holds no rows with ids 99"),
        (("--samples-file", "none.txt"), "there is no file none.txt"),
        (("--samples-file", "bad.txt"), "bad.txt, line 2: 'two' is not a row id"),
        (("--samples-file", "empty.txt"), "names no row"),
        (("--class", "1", "--receipt", "no/such/receipt.json"), "a folder that exists"),
        (("--class", "1", "--receipt", "r.json", "--submit-only"), "makes no receipt"),
    ],
)
def test_wrong_requests_read_well_and_change_nothing(
    call, place: Path, ward: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(place)
    (place / "bad.txt").write_text("1\ntwo\n", encoding="utf-8")
    (place / "empty.txt").write_text("\n", encoding="utf-8")
    result = call("unlearn", ward, "north", *words, code=2)
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert len(Federation(ward).rows("north")) == 36


def test_an_absent_client_is_forgotten_whole(call, ward: Path) -> None:
    (ward / "clients" / "north").rename(ward.parent / "away")
    assert "--everything" in call("unlearn", ward, "north", "--class", "1", code=6).stderr
    call("unlearn", ward, "north", "--everything", "--yes")
    call("verify", ward)


def test_everything_is_not_forgotten_unasked(call, call_json, ward: Path) -> None:
    assert "add --yes" in call("unlearn", ward, "north", "--everything", code=2).stderr
    assert call_json("status", ward)["tickets"] == []


def test_a_receipt_can_be_had_later(call, call_json, ward: Path, tmp_path: Path) -> None:
    ticket = call_json("unlearn", ward, "north", "--class", "1", "--submit-only")["ticket"]
    assert "no receipt yet" in call("receipt", ward, ticket[:8], code=6).stderr
    call("settle", ward)
    call("receipt", ward, ticket[:8], "--out", tmp_path / "receipt.json")
    assert call_json("verify", ward, tmp_path / "receipt.json")["exact"] is True
    assert "it has:" in call("receipt", ward, "zzzz", code=6).stderr


def test_a_busy_run_says_that_the_request_is_accepted(call, call_json, ward: Path) -> None:
    from splitwiper.store import ServerStore

    store = ServerStore(ward / "server")
    with store.database.lease("server training"):
        told = call("unlearn", ward, "north", "--class", "1", code=8).stderr
    assert "do not ask" in told and "splitwiper receipt" in told.replace("\n", " ")
    assert call_json("status", ward)["tickets"][0]["state"] != "settled"
    call("settle", ward)
    assert call_json("status", ward)["tickets"][0]["state"] == "settled"
