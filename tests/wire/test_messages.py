"""Labels and messages: texts that come back as they went, and errors for those that are something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splitwiper.errors import FormatError, NotFoundError
from splitwiper.wire import Label, Receipt
from splitwiper.wire.labels import in_order

NAMES = [3, "3", -1, 2**70, "", "é", 'quo"te', "[]", "line\nbreak", "\u2028", "\U0001f426"]


@pytest.mark.parametrize("name", NAMES, ids=repr)
@pytest.mark.parametrize("task", ["", "birds", '["x",1]'])
def test_a_label_comes_back_as_it_went(task: str, name: str | int) -> None:
    label = Label(task, name)
    back = Label.parse(label.text)
    assert back == label
    assert type(back.name) is type(name)


def test_no_two_labels_share_a_text() -> None:
    labels = [Label(task, name) for task in ("", "3", "birds") for name in NAMES]
    assert len({label.text for label in labels}) == len(labels) == len(in_order(labels + labels[::-1]))


@pytest.mark.parametrize(
    "text", ["", "x", "3", "[]", '["a"]', '["a",1,2]', '[1,"a"]', '["a",true]', '["a",1.5]', "null"]
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="not a label"):
        Label.parse(text)


def test_the_order_of_labels_is_theirs_alone() -> None:
    labels = [Label("b", 1), Label("a", "x"), Label("a", 10), Label("a", 9), Label("a", "X")]
    wanted = (Label("a", 9), Label("a", 10), Label("a", "X"), Label("a", "x"), Label("b", 1))
    assert in_order(labels) == in_order(reversed(labels)) == wanted


RECEIPT = Receipt(
    ticket="t",
    client="north",
    level="class",
    commitment="c",
    exact=True,
    settled="2025-01-01T00:00:00+00:00",
    context={"client_key": "k"},
    before={"shard": "a"},
    after={"shard": None},
    fingerprint={"server": {"torch": "2"}},
    others={"contacted": 0, "bytes": 0, "seconds": 0.0},
    server_seconds=0.5,
    ledger={"seq": 3, "hash": "h"},
)


def test_a_receipt_comes_back_as_it_went(tmp_path: Path) -> None:
    RECEIPT.save(tmp_path / "receipt.json")
    assert Receipt.load(tmp_path / "receipt.json") == RECEIPT


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", '{"others": 3}', '{"others": {"a": {"x": 1}}}'])
def test_what_is_no_receipt_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match="not a receipt"):
        Receipt.load(path)


def test_a_receipt_with_more_or_less_in_it_is_refused() -> None:
    values = RECEIPT.to_dict()
    with pytest.raises(FormatError, match="not a receipt"):
        Receipt.from_dict({**values, "colour": "red"})
    for name in ("ticket", "commitment", "others"):
        with pytest.raises(FormatError, match="not a receipt"):
            Receipt.from_dict({key: value for key, value in values.items() if key != name})
        with pytest.raises(FormatError, match="not a receipt"):
            Receipt.from_dict({**values, name: 3})


def test_a_missing_receipt_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nowhere.json"):
        Receipt.load(tmp_path / "nowhere.json")


def test_a_receipt_is_plain_json() -> None:
    assert json.loads(json.dumps(RECEIPT.to_dict())) == RECEIPT.to_dict()
