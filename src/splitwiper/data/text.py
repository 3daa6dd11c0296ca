"""Convert texts to rows of token ids, by rules that do not depend on the texts.

A vocabulary learned from clients' texts would remember texts that were forgotten. So words are hashed into a fixed
number of buckets, or a tokenizer comes from a file that is part of the context, like the model itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np

from splitwiper.config import ModelConfig
from splitwiper.errors import ConfigError, DataError, InputError, NotFoundError
from splitwiper.extras import check_installed
from splitwiper.wire.columns import Array

PAD, CLS, SEP, UNK = range(4)
"""Ids that no word gets: padding, the beginning and the end of a text, and one reserved."""
RESERVED = 4
LONGEST, LARGEST = 8192, 1_000_000
"""Largest number of tokens in a row, and largest number of ids."""


@dataclass(frozen=True)
class Encoded:
    """Texts as a model takes them.

    Attributes:
        inputs: ``input_ids`` (int32) and ``attention_mask`` (bool, True where there is a token), rows × length.
        cut: the number of texts that were too long, and lost their end.
    """

    inputs: dict[str, Array]
    cut: int

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])


def tidy(text: str) -> str:
    r"""Replace backslashes, which the publisher left at line breaks and before escaped signs, by single spaces.

    >>> tidy("Wall Street's dwindling\\band of  ultra-cynics")
    "Wall Street's dwindling band of ultra-cynics"
    """
    return " ".join(text.replace("\\", " ").split())


def encode(
    texts: Iterable[str], *, length: int = 64, vocabulary: int = 8192, tokenizer: str | Path | None = None
) -> Encoded:
    """Convert texts to rows of token ids, each a function of only its own text. Needs ``splitwiper[text]``.

    Words are split and lower-cased as BERT does it, and hashed into ``vocabulary`` ids. A text that is too
    long keeps its beginning.

    Args:
        texts: one string per row.
        length: tokens per row, including the marks for the beginning and the end of the text.
        vocabulary: the model's number of ids.
        tokenizer: a ``tokenizer.json`` to use instead of hashing. It belongs to the context: fix it before any client
            learns, and do not train it on the clients' texts.

    Raises:
        ConfigError: the sizes are out of range, or the package tokenizers is missing.
        DataError: something is not a text, or the tokenizer does not fit the sizes or the texts.
        NotFoundError: the tokenizer file is missing.
    """
    _check_size("length", length, 3, LONGEST, "tokens")
    _check_size("vocabulary", vocabulary, RESERVED + 1, LARGEST, "ids")
    rows = list(texts)
    for number, text in enumerate(rows):
        if not isinstance(text, str):
            raise DataError(f"row {number} is {str(text)[:40]!r}, a {type(text).__name__}, not a text.")
    if tokenizer is not None:
        tokens = _by_file(rows, Path(tokenizer), length=length, vocabulary=vocabulary)
    else:
        tokens = _by_hash(rows, length=length, vocabulary=vocabulary)
    ids = np.full((len(rows), length), PAD, np.int32)  # rows × length
    mask = np.zeros((len(rows), length), np.bool_)
    cut = 0
    for number, (row_ids, is_whole) in enumerate(tokens):
        ids[number, : len(row_ids)] = row_ids
        mask[number, : len(row_ids)] = True
        cut += not is_whole
    return Encoded({"input_ids": ids, "attention_mask": mask}, cut)


def _check_size(name: str, value: Any, low: int, high: int, unit: str) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} = {value!r}: give a whole number of {unit}, {low:,} to {high:,}.")


def bucket(word: str, vocabulary: int) -> int:
    """Return the id of a word: permanent, and the same on every machine.

    >>> bucket("hospital", 8192), bucket("hospital", 100)
    (2470, 90)
    """
    raw = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return RESERVED + int.from_bytes(raw, "little") % (vocabulary - RESERVED)


def _by_hash(rows: Sequence[str], *, length: int, vocabulary: int) -> Iterable[tuple[list[int], bool]]:
    """Yield each text's ids, and whether the whole text fitted."""
    library = _tokenizers()
    normalise = library.normalizers.BertNormalizer(lowercase=True).normalize_str
    words_of = library.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    known: dict[str, int] = {}  # few words make up most of all texts
    room = length - 2
    for text in rows:
        words = words_of(normalise(text))  # with their places in the text
        ids = []
        for word, _ in words[:room]:
            if word not in known:
                known[word] = bucket(word, vocabulary)
            ids.append(known[word])
        yield [CLS, *ids, SEP], len(words) <= room


def _by_file(rows: list[str], path: Path, *, length: int, vocabulary: int) -> Iterable[tuple[list[int], bool]]:
    if not path.is_file():
        raise NotFoundError(f"there is no tokenizer file {path}; give the path of a tokenizer.json.")
    try:
        tool = _tokenizers().Tokenizer.from_file(str(path))
    except Exception as problem:  # the library raises plain Exception
        raise DataError(
            f"{path} is not a tokenizer.json that this version of tokenizers reads ({problem})."
        ) from problem
    most = max(tool.get_vocab().values(), default=0) + 1
    if most > vocabulary:
        raise DataError(f"{path} knows {most} tokens, the model {vocabulary}; build the model with vocabulary={most}.")
    extra = tool.num_special_tokens_to_add(is_pair=False)
    if extra >= length:  # otherwise the library would truncate nothing
        raise DataError(
            f"{path} adds {extra} tokens of its own to each text, which leaves no room in length = {length}; give a "
            f"length above {extra}."
        )
    tool.no_padding()
    try:
        tool.enable_truncation(length)
        encoded = tool.encode_batch(rows)
    except Exception as problem:  # the library raises plain Exception
        raise DataError(
            f"{path} cannot encode these texts ({problem}); a tokenizer needs a token for unknown words."
        ) from problem
    for text in encoded:
        if len(text.ids) > length:
            raise DataError(f"{path} made {len(text.ids)} tokens of a text instead of length = {length}; take another.")
        yield list(text.ids), not text.overflowing


def takes_texts(model: ModelConfig) -> bool:
    """Return whether a network takes texts, by the names of its inputs."""
    return set(model.inputs) == {"input_ids", "attention_mask"}


def encode_for(model: ModelConfig, texts: Iterable[str], *, tokenizer: str | Path | None = None) -> dict[str, Array]:
    """Encode texts as a network takes them: with its length, its vocabulary and its dtypes.

    Raises:
        InputError: the network's settings do not say these.
        ConfigError, DataError, NotFoundError: as for `encode`.
    """
    dtypes, length = {}, 0
    for name, described in model.inputs.items():
        if match := re.fullmatch(r"(\w+)\[(\d+)\]", str(described)):
            dtypes[name], length = match[1], int(match[2])
    vocabulary = model.args.get("vocabulary", _default_of(model.factory, "vocabulary"))
    if vocabulary is None or dtypes.keys() != model.inputs.keys():
        raise InputError(
            f"the run's settings do not say how {model.factory} takes texts (vocabulary and length). Encode them with "
            "splitwiper.data.text.encode, and give an .npz file with inputs.input_ids and inputs.attention_mask."
        )
    encoded = encode(texts, length=length, vocabulary=vocabulary, tokenizer=tokenizer)
    return {name: array.astype(dtypes[name]) for name, array in encoded.inputs.items()}


def _default_of(factory: str, parameter: str) -> Any:
    """Return the default of a parameter of a network's factory; None where it has none."""
    module, _, name = factory.partition(":")
    declared = signature(getattr(import_module(module), name)).parameters.get(parameter)
    return None if declared is None or declared.default is Parameter.empty else declared.default


def _tokenizers() -> Any:
    check_installed("tokenizers", "encoding texts")
    import tokenizers

    return tokenizers
