"""``splitwiper data``: list, fetch, check, plot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import pytest

from datasets.layouts import WRITERS, Publisher, offer, packed, publisher, small, tar
from splitwiper_lab.datasets import sources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with small versions of published sets, CIFAR-100 among the known ones but not there."""
    monkeypatch.setenv("SPLITWIPER_DATA", str(tmp_path))
    for name, write in WRITERS.items():
        monkeypatch.setitem(sources.PUBLISHED, name, small(name))
        if name != "cifar100":
            write(tmp_path)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A publisher that offers CIFAR-10."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with publisher() as offers:
        content = tar(dict(packed(folder / "cifar-10-batches-bin")))
        offered = offers.of(small("cifar10"), {"cifar-10-binary.tar.gz": content})
        monkeypatch.setitem(sources.PUBLISHED, "cifar10", offered)
        yield offers


@pytest.mark.parametrize("command", ["list", "fetch", "check", "plot"])
def test_help(call, command: str) -> None:
    shown = call("data", command, "--help").stdout
    assert f"  splitwiper data {command}" in shown
    assert "--json" in shown
    assert all(len(text) <= 80 for text in shown.splitlines())


def test_list(call, call_json, folder: Path) -> None:
    (folder / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").write_bytes(b"")
    (folder / "ag_news_csv" / "test.csv").unlink()
    found = call_json("data", "list")
    assert found["folder"] == str(folder)
    states = {one["name"]: one["state"] for one in found["sets"]}
    assert states == {
        "cifar10": "present",
        "cifar100": "missing",
        "mnist": "damaged",
        "ag_news": "incomplete",
        **dict.fromkeys(("digits", "wine", "breast_cancer", "iris", "descriptions"), "bundled"),
    }
    assert (found["sets"][0]["train"], found["sets"][0]["test"], found["sets"][0]["labels"]) == (100, 40, 10)
    assert "starts with nothing" in found["sets"][2]["problem"]
    shown = call("data", "list").stdout
    assert f"Looked for in {folder}" in shown
    assert "ag_news: the data set 'ag_news' is not in" in shown
    assert "splitwiper data fetch NAME" in shown
    assert call_json("data", "list", "--data", folder / "elsewhere")["sets"][0]["state"] == "missing"


def test_fetch(call, call_json, folder: Path, here: Publisher) -> None:
    away = folder / "away"
    found = call_json("data", "fetch", "cifar10", "--data", away)
    assert found["fetched"] == ["cifar10"]
    assert found["sets"][0]["state"] == "present"
    assert (away / "cifar-10-batches-bin" / "checksums.json").is_file()
    assert "Nothing to fetch: all is here" in call("data", "fetch", "cifar10", "digits", "--data", away).stdout
    assert len(here.asked) == 1
    assert f"Fetched cifar10 into {away}" in call("data", "fetch", "cifar10", "--again", "--data", away).stdout
    assert len(here.asked) == 2
    files = call_json("data", "check", "cifar10", "--data", away)["sets"][0]["files"]
    assert set(files.values()) == {"fetched"}


def test_fetch_that_fails(call, folder: Path, here: Publisher) -> None:
    away = folder / "away"
    here.files.clear()
    said = call("data", "fetch", "cifar10", "--data", away, code=6).stderr
    assert "404 Not Found" in said
    assert f"by hand: download\n  {here.base}cifar-10-binary.tar.gz\n" in said
    assert (
        "not an https address"
        in call("data", "fetch", "cifar10", "--data", away, "--mirror", "http://x", code=2).stderr
    )
    assert "Did you mean 'cifar10'" in call("data", "fetch", "cifar1", code=6).stderr
    here.files["/cifar-10-binary.tar.gz"] = b"something else"
    assert "nothing was kept" in call("data", "fetch", "cifar10", "--data", away, code=2).stderr


def test_a_damaged_set_is_fetched_again(call, call_json, folder: Path, here: Publisher) -> None:
    (folder / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"cut")
    call("data", "check", "cifar10", code=2)
    assert call_json("data", "fetch", "cifar10")["fetched"] == ["cifar10"]
    call("data", "check", "cifar10")


def test_one_flipped_bit_is_fetched_again(call, call_json, folder: Path, here: Publisher) -> None:
    away = folder / "away"
    call("data", "fetch", "cifar10", "--data", away)
    file = away / "cifar-10-batches-bin" / "data_batch_2.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:])
    assert call_json("data", "fetch", "cifar-10", "cifar10", "--data", away)["fetched"] == ["cifar10"]
    assert file.read_bytes() == whole


def test_a_part_is_called_one(call, call_json, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder / "ag_news_csv"
    offers = tuple(offer(name, (place / name).read_bytes()) for name in ("train.csv", "test.csv"))
    monkeypatch.setitem(sources.PUBLISHED, "ag_news", replace(small("ag_news"), downloads=offers))
    lines = (place / "train.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (place / "train.csv").write_text("".join(lines[:20]), encoding="utf-8")
    said = "ag_news: 20 of 80 training rows: a part, not the whole published set."
    listed = call("data", "list").stdout
    assert said in listed
    assert re.search(r"ag_news +part +20 +40", listed)
    checked = call("data", "check", "ag-news").stdout
    assert said in checked
    assert re.search(r"train.csv +not the published file", checked)
    assert re.search(r"test.csv +published", checked)
    fetched = call("data", "fetch", "ag_news").stdout
    assert said in fetched
    assert "--again" in fetched
    assert "all is here" not in fetched
    assert call_json("data", "check", "ag_news")["sets"][0]["state"] == "part"


def test_one_unreadable_set_hides_no_other(call, call_json, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", "/somewhere/train.csv")

    monkeypatch.setitem(sources.PUBLISHED, "cifar10", replace(small("cifar10"), read=refuse))
    states = {one["name"]: one["state"] for one in call_json("data", "list")["sets"]}
    assert (states["cifar10"], states["mnist"]) == ("unreadable", "present")
    assert "cifar10: /somewhere/train.csv: Permission denied" in call("data", "list").stdout
    result = call("data", "check", code=7)
    assert re.search(r"mnist +present", result.stdout)
    assert "error: /somewhere/train.csv: Permission denied" in result.stderr
    assert "Nothing was fetched" in call("data", "fetch", "cifar10", code=7).stdout


def test_check(call, call_json, folder: Path) -> None:
    shown = call("data", "check").stdout
    assert "cifar100" not in shown
    assert re.search(r"cifar10 +data_batch_1.bin +unknown", shown)
    assert "cifar100' is not in" in call("data", "check", "cifar10", "cifar100", code=6).stderr
    (folder / "ag_news_csv" / "test.csv").write_text('"9","a","b"\n', encoding="utf-8")
    result = call("data", "check", code=2)
    assert "line 1: class '9'" in result.stderr
    assert re.search(r"ag_news +damaged", result.stdout)
    assert "No data set is in" in call("data", "check", "--data", folder / "none").stdout


def test_plot(call, call_json, folder: Path) -> None:
    found = call_json("data", "plot", "cifar10", "--seed", "2")
    assert (found["forget"], found["owner"]) == ("bird", "north")
    assert sum(found["train"]["north"].values()) > 0
    shown = call("data", "plot", "cifar10", "--seed", "2").stdout
    line = next(text.split() for text in shown.splitlines() if text.startswith("bird"))
    assert line == ["bird", "10", "0", "0", "0", "0"]
    totals = next(text.split() for text in shown.splitlines() if text.startswith("all"))
    assert totals == ["all", *(str(sum(held.values())) for held in found["train"].values())]
    assert "The label to forget is 'bird': north holds it alone." in shown
    assert all(len(text) <= 80 for text in shown.splitlines())
    many = call(
        "data", "plot", "cifar10", "--clients", "8", "--partition", "homogeneous", "--share", "--rows", "90", code=2
    )
    assert "fewer than the 8 clients" in many.stderr
    wide = call("data", "plot", "cifar10", "--clients", "8").stdout
    assert "client-8" in wide
    assert all(len(text) <= 80 for text in wide.splitlines())


def test_several_holders_read_well(call, folder: Path) -> None:
    told = {
        call("data", "plot", "digits", "--share", "--seed", seed).stdout.split("holds it")[1].splitlines()[0]
        for seed in range(6)
    }
    assert {" alone.", ", and so does west."} <= told
    assert any(text.startswith(", and so do ") and text.count(",") > 1 for text in told)


def test_plot_of_two_tasks(call, folder: Path) -> None:
    shown = call("data", "plot", "cifar10+mnist", "--forget", "7").stdout
    assert "The label to forget is 7: west holds it alone." in shown
    assert next(text.split() for text in shown.splitlines() if text.startswith("mnist: 7")) == [
        "mnist:",
        "7",
        "12",
        "0",
    ]


def test_drawings(call, folder: Path) -> None:
    words = ("data", "plot", "cifar10+mnist", "--out")
    assert "Drawn in" in call(*words, folder / "who.svg").stdout
    (folder / "plain").touch()
    assert (folder / "who.svg").stat().st_mode == (folder / "plain").stat().st_mode
    root = ElementTree.parse(folder / "who.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"north", "bird", "cifar10", "mnist", "Training rows", "Test rows"} <= set(texts)
    outlined = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if "#a84300" in path.get("style", "")]
    assert len(outlined) == 2  # with its owner, for training and for tests
    call(*words, folder / "who.html")
    page = (folder / "who.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 2
    for text in ((folder / "who.svg").read_text(encoding="utf-8"), page):
        assert "<script" not in text
        assert not re.search(r"(src|href)=|url\(", text)
    for suffix, begins in ((".pdf", b"%PDF"), (".png", b"\x89PNG")):
        call(*words, folder / f"who{suffix}")
        assert (folder / f"who{suffix}").read_bytes().startswith(begins)


def test_drawings_of_a_hundred_labels(call, folder: Path) -> None:
    WRITERS["cifar100"](folder)
    call("data", "plot", "cifar100", "--out", folder / "who.html")
    page = (folder / "who.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 4
    assert page.count("Training rows, continued") == 1
    assert page.count(">aquarium_fish</text>") == 2


def test_plots_that_cannot_be(call, folder: Path) -> None:
    assert "give a .svg, .html, .pdf or .png file" in call("data", "plot", "digits", "--out", "a.gif", code=2).stderr
    assert "folder that exists" in call("data", "plot", "digits", "--out", "no/where/a.svg", code=2).stderr
    assert "splitwiper data fetch cifar100" in call("data", "plot", "cifar100", code=6).stderr
    assert "500,000,000 clients are too many" in call("data", "plot", "digits", "--clients", 500_000_000, code=2).stderr
    assert "--seed" in call("data", "plot", "digits", "--seed", "-1", code=2).stderr
    assert "out of range" in call("data", "plot", "digits", "--seed", 10**30, code=2).stderr
    assert f"--out {folder} is a folder" in call("data", "plot", "digits", "--out", folder, code=2).stderr
    assert "~nosuchuser has no place" in call("data", "plot", "mnist", "--data", "~nosuchuser", code=2).stderr
    assert "Did you mean 'disjoint'" in call("data", "plot", "digits", "--partition", "disjont", code=2).stderr
