"""Canonical JSON: a signed value has exactly one spelling, and what is read has exactly one meaning."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from splitwiper.errors import FormatError
from splitwiper.formats import canonical_json

LIMIT = 1 << 20
"""Size limit in bytes of a certificate, key or proof that is read; real ones have a few thousand."""
_FIELDS = 1000
"""The largest number of fields in one object; real ones have some tens. Each unknown one is an error of its own."""


def dumps(value: Any) -> bytes:
    """Return a value as canonical JSON: keys sorted, no spaces, ASCII, neither NaN nor infinities.

    >>> dumps({"b": 1, "a": "x"})
    b'{"a":"x","b":1}'
    """
    return canonical_json(value, allow_nan=False).encode("ascii")


def loads(data: bytes, what: str) -> Any:
    """Read JSON in any spelling, but without duplicate keys, NaN, or more than `LIMIT` bytes; else `FormatError`.

    ``what`` is a name for the expected content, used in errors.
    """
    if len(data) > LIMIT:
        raise FormatError(f"this is not a valid {what}: it has {len(data)} bytes, and at most {LIMIT} are read.")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"this is not a valid {what}: {problem}.") from problem


def loads_canonical(data: bytes, what: str) -> Any:
    """Read JSON that must be spelled as `dumps` spells it, or raise `FormatError`."""
    value = loads(data, what)
    try:
        # spelled again and compared: a reader with other rules must not see another value in the signed bytes
        same = dumps(value) == data
    except (ValueError, RecursionError) as problem:  # an infinity, such as 1e999
        raise FormatError(f"this is not a valid {what}: {problem}.") from problem
    if not same:
        raise FormatError(
            f"this is not a valid {what}: its JSON is not in canonical form (keys sorted, no spaces, ASCII)."
        )
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _FIELDS:
        raise ValueError(f"an object has {len(pairs):,} fields, where {_FIELDS:,} are the most")
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {name[:40]!r} is there twice")
        values[name] = value
    return values


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
