"""Texts become rows by rules that no text can change."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from splitwiper.data.text import CLS, PAD, RESERVED, SEP, bucket, encode
from splitwiper.errors import ConfigError, DataError, NotFoundError


def test_words_are_hashed_between_a_beginning_and_an_end() -> None:
    found = encode(["Hello, WORLD!", ""], length=8, vocabulary=100)
    words = [bucket(word, 100) for word in ("hello", ",", "world", "!")]
    assert found.inputs["input_ids"].tolist() == [[CLS, *words, SEP, PAD, PAD], [CLS, SEP, *[PAD] * 6]]
    assert found.inputs["input_ids"].dtype == np.int32
    assert found.inputs["attention_mask"].tolist() == [[True] * 6 + [False] * 2, [True] * 2 + [False] * 6]
    assert len(found) == 2 and found.cut == 0


def test_case_and_accents_do_not_count() -> None:
    rows = encode(["Café naïve", "cafe naive"], length=6).inputs["input_ids"]
    assert (rows[0] == rows[1]).all()


def test_a_row_depends_on_its_own_text_alone() -> None:
    texts = ["one two", "three", "four two zebra " * 9]
    alone = [encode([text], length=12).inputs["input_ids"][0] for text in texts]
    assert (encode(texts, length=12).inputs["input_ids"] == np.stack(alone)).all()


def test_ids_stay_in_the_vocabulary() -> None:
    ids = encode(["word" + str(n) for n in range(500)], length=3, vocabulary=20).inputs["input_ids"][:, 1]
    assert set(ids.tolist()) == set(range(RESERVED, 20))


def test_long_texts_keep_their_beginning_and_are_counted() -> None:
    found = encode(["a b c d", "a b c d e", "a b c d e f g"], length=6)
    ids = found.inputs["input_ids"]
    assert found.cut == 2 and (ids[0] == ids[1]).all() and (ids[:, -1] == SEP).all()


def test_a_tokenizer_from_a_file(tmp_path: Path) -> None:
    import tokenizers

    vocabulary = {"[UNK]": 0, "red": 1, "green": 2, "[PAD]": 3}
    tool = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tool.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tool.enable_padding(length=9, pad_id=3)  # the row's length is the model's affair
    tool.save(str(tmp_path / "tokenizer.json"))
    found = encode(
        ["red green blue", "green", "red red red red"], length=3, vocabulary=9, tokenizer=tmp_path / "tokenizer.json"
    )
    assert found.inputs["input_ids"].tolist() == [[1, 2, 0], [2, PAD, PAD], [1, 1, 1]]
    assert found.inputs["attention_mask"].sum(1).tolist() == [3, 1, 3]
    assert found.cut == 1
    vocabulary |= {"blue": 4, "grey": 5}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")).save(str(tmp_path / "more.json"))
    with pytest.raises(DataError, match=r"knows 6 tokens, the model 5; build the model with vocabulary=6"):
        encode(["red"], length=3, vocabulary=5, tokenizer=tmp_path / "more.json")


def test_files_that_are_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no tokenizer file"):
        encode(["a"], tokenizer=tmp_path / "none.json")
    (tmp_path / "wrong.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"is not a tokenizer\.json"):
        encode(["a"], tokenizer=tmp_path / "wrong.json")


def test_a_tokenizer_without_a_token_for_unknown_words(tmp_path: Path) -> None:
    import tokenizers

    tool = tokenizers.Tokenizer(tokenizers.models.WordLevel({"red": 0}))
    tool.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"cannot encode these texts .* needs a token for unknown words"):
        encode(["blue"], tokenizer=tmp_path / "tokenizer.json")


def test_a_tokenizer_that_leaves_no_room(tmp_path: Path) -> None:
    import tokenizers

    tool = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "x": 7}, unk_token="[UNK]"))
    tool.post_processor = tokenizers.processors.TemplateProcessing(single="x x $A x x", special_tokens=[("x", 7)])
    tool.save(str(tmp_path / "tokenizer.json"))
    for length in (3, 4):
        with pytest.raises(DataError, match=f"adds 4 tokens .* length = {length}; give a length above 4"):
            encode(["word"], length=length, tokenizer=tmp_path / "tokenizer.json")
    found = encode(["word"], length=5, tokenizer=tmp_path / "tokenizer.json")
    assert found.inputs["input_ids"].tolist() == [[7, 7, 0, 7, 7]]
    with pytest.raises(DataError, match="knows 8 tokens, the model 7"):  # ids need not be without gaps
        encode(["word"], length=5, vocabulary=7, tokenizer=tmp_path / "tokenizer.json")


def test_what_is_no_text() -> None:
    with pytest.raises(DataError, match="row 1 is '7', a int, not a text"):
        encode(["a", 7])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("length", value) for value in (2, 10**12, "64", [3], float("inf"), 64.0, True)),
        *(("vocabulary", value) for value in (4, 10**12, "8192x", None)),
    ],
)
def test_sizes_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} = {value!r}: give a whole number of")):
        encode(["a"], **{name: value})


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"pip install 'splitwiper\[text\]'"):
        encode(["a"])
