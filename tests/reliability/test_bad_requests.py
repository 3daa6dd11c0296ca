"""Requests that name what is not there, and requests that leave nothing: honoured or refused, never half done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.stage import bits, config, halves, ids_at, place_keys, query, reopen, rows, scratch, strays
from splitwiper import Federation
from splitwiper.errors import NotFoundError, RequestError
from splitwiper.federation import status

DATA = {"north": rows("north", "aabb"), "south": rows("south", "bbaa")}
NUMBERED = (rows("west", "aabb")[0], [0, 0, 1, 1])


@pytest.fixture(scope="module")
def finished() -> Iterator[Path]:
    folder = scratch()
    Federation(folder / "run", halves(), config()).learn({**DATA, "west": NUMBERED})
    yield folder / "run"
    assert reopen(folder / "run").verify().exact
    shutil.rmtree(folder)


@pytest.fixture
def run(finished: Path) -> Iterator[Path]:
    """Whatever the test does to the run must leave it as it was."""
    before = bits(finished)
    yield finished
    reopen(finished).settle()
    assert bits(finished) == before
    assert status(finished).todo == ()
    assert status(finished).tickets == ()
    assert strays(finished) == []


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "say what to forget.*only one"),
    "two kinds": ({"classes": ["a"], "samples": [0]}, "only one"),
    "a class and everything": ({"classes": ["a"], "everything": True}, "only one"),
    "no class": ({"classes": []}, "at least one label"),
    "a text for a list": ({"classes": "ab"}, "'ab' must be a list"),
    "an unknown class": ({"classes": ["bird"]}, "no rows of class 'bird'; it holds 'a', 'b'"),
    "a known and an unknown class": ({"classes": ["a", "aa"]}, "'aa'.*Did you mean 'a'"),
    "a number for a name": ({"classes": [0]}, "class 0"),
    "no row": ({"samples": []}, "names no row"),
    "an unknown id": ({"samples": [99]}, "ids 99 .1 of 1.*the ids of the 4 rows"),
    "a negative id": ({"samples": [-1]}, "ids -1"),
    "a text for an id": ({"samples": ["first"]}, "first"),
    "half an id": ({"samples": [0.5]}, "0.5"),
    "a truth for an id": ({"samples": [True]}, "True"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_requests_are_refused_and_forget_nothing(run: Path, what: str) -> None:
    request, message = BAD[what]
    with pytest.raises(RequestError, match=message):
        reopen(run).unlearn("north", **request)


def test_a_known_and_an_unknown_id(run: Path) -> None:
    known = ids_at(run, "north", DATA["north"], [0])
    with pytest.raises(RequestError, match=r"ids 99 .1 of 2.*the ids of the 4 rows"):
        reopen(run).unlearn("north", samples=[*known, 99])


@pytest.mark.parametrize("label", [True, 1.0, np.float64(0), "1", None])
def test_what_only_equals_a_class_does_not_name_it(run: Path, label: Any) -> None:
    with pytest.raises(RequestError, match="holds no rows of class"):
        reopen(run).unlearn("west", classes=[label])


def test_an_unknown_client_is_named_with_its_nearest(run: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no client 'nort'.*'north'"):
        reopen(run).unlearn("nort", everything=True)
    with pytest.raises(NotFoundError, match="no client"):
        reopen(run).predict("../north", DATA["north"][0])
    with pytest.raises(NotFoundError, match="no ticket 'x'"):
        reopen(run).receipt("x")


def test_what_was_forgotten_cannot_be_forgotten_again(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config())
    first = fed.learn(DATA).added["north"].ids[:1]
    fed.unlearn("north", samples=first)
    with pytest.raises(RequestError, match="already forgotten"):
        fed.unlearn("north", samples=first)
    fed.unlearn("north", classes=["b"])
    with pytest.raises(RequestError, match="no rows of class 'b'; it holds 'a'"):
        fed.unlearn("north", classes=["b"])
    assert fed.verify().exact
    assert status(tmp_path / "run").todo == ()


@pytest.mark.parametrize("slices", [1, 3])
def test_forgetting_everything_everybody_has(tmp_path: Path, slices: int) -> None:
    """The last rows go, and the model with them; later rows are learned, the forgotten ones refused for ever."""
    place_keys(tmp_path / "run")
    fed = Federation(tmp_path / "run", halves(), config(slices))
    fed.learn(DATA)
    fed.unlearn("north", everything=True)
    receipt = fed.unlearn("south", classes=["a", "b"])
    assert (receipt.after["model"], receipt.exact) == (None, True)
    assert fed.verify().exact
    assert fed.verify(receipt).exact
    assert fed.labels == ()
    assert status(tmp_path / "run").model == "empty"
    assert strays(tmp_path / "run") == []
    for folder in ("server/shards", "server/models", "clients/north/slices", "clients/south/half"):
        assert list((tmp_path / "run" / folder).iterdir()) == []
    with pytest.raises(NotFoundError, match=r"(?i)learn"):
        fed.predict("south", DATA["south"][0])
    with pytest.raises(RequestError, match="nothing to forget"):
        fed.unlearn("north", everything=True)
    learned = fed.learn({"north": (np.concatenate([DATA["north"][0], rows("n", "ab")[0]]), [*"aabb", *"ab"])})
    assert (learned.added["north"].refused, learned.added["north"].new) == (4, 2)
    assert learned.added["north"].ids[:4] == (None,) * 4
    assert fed.predict("north", DATA["north"][0])
    place_keys(tmp_path / "never")
    never = Federation(tmp_path / "never", halves(), config(slices))
    never.learn({"north": rows("n", "ab")})
    one, other = bits(tmp_path / "run"), bits(tmp_path / "never")
    assert (one["model"], one["shard north"]) == (other["model"], other["shard north"])
    assert one["client north"]["half"] == other["client north"]["half"]


def test_rows_all_refused_leave_things_as_they_are(tmp_path: Path) -> None:
    fed = Federation(tmp_path / "run", halves(), config())
    fed.learn(DATA)
    fed.unlearn("north", everything=True)
    before = bits(tmp_path / "run")
    assert fed.learn({"north": DATA["north"]}).added["north"].refused == 4
    assert bits(tmp_path / "run") == before
    assert status(tmp_path / "run").todo == ()
    assert query(tmp_path / "run/clients/north/client.db", "SELECT * FROM slices") == []
