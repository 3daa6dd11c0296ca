"""Values as text: numbers and dates for people, with a no-break space before a unit; and canonical JSON for hashes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

NONE = "–"
"""Shown for values that were not measured."""

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def percent(share: float | None, *, unit: bool = True) -> str:
    """Format a share as a percentage; only exactly 0 and exactly 1 read as 0.0 % and 100.0 %.

    >>> percent(0.9731, unit=False), percent(0.0, unit=False), percent(0.9999, unit=False)
    ('97.3', '0.0', '>99.9')
    """
    if share is None or not math.isfinite(share):
        return NONE
    text = f"{100 * share:.1f}"
    if text == "0.0" and share > 0:
        text = "<0.1"
    elif text == "100.0" and share < 1:
        text = ">99.9"
    return f"{text}\xa0%" if unit else text


def seconds(value: float | None) -> str:
    r"""Format a duration with about three significant digits; zero is a plain 0.

    >>> seconds(0), seconds(0.412), seconds(12.34), seconds(192)
    ('0', '0.41\xa0s', '12.3\xa0s', '3\xa0min 12\xa0s')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    if value < 0.000_95:
        return "<1\xa0ms"
    if value < 0.0995:
        return f"{1000 * value:.3g}\xa0ms" if value < 0.00995 else f"{1000 * value:.0f}\xa0ms"
    if value < 9.995:
        return f"{value:.2f}\xa0s"
    if value < 59.95:
        return f"{value:.1f}\xa0s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60}\xa0min {whole % 60:02d}\xa0s"
    return f"{whole // 3600:,}\xa0h {whole % 3600 // 60:02d}\xa0min"


def size(value: int | None) -> str:
    r"""Format a number of bytes in decimal units; zero is a plain 0.

    >>> size(0), size(512), size(1_234_000), size(56_000_000)
    ('0', '512\xa0B', '1.2\xa0MB', '56\xa0MB')
    """
    if value is None:
        return NONE
    if value < 1000:
        return f"{value}\xa0B" if value else "0"
    scaled = float(value)
    for unit in ("kB", "MB", "GB", "TB"):
        scaled /= 1000
        if scaled < 999.5 or unit == "TB":
            break
    return f"{scaled:.1f}\xa0{unit}" if scaled < 9.95 else f"{scaled:,.0f}\xa0{unit}"


def count(value: int) -> str:
    """Format a whole number with separators of thousands.

    >>> count(12345)
    '12,345'
    """
    return f"{value:,}"


def plural(number: int, word: str, many: str | None = None) -> str:
    """Format a count with its noun.

    >>> plural(1, "row").split(), plural(1200, "row").split()
    (['1', 'row'], ['1,200', 'rows'])
    """
    return f"{count(number)}\xa0{word if number == 1 else many or word + 's'}"


def counted(number: int, word: str, many: str | None = None) -> str:
    """Format a count with its noun, for messages: like `plural`, with an ordinary space.

    >>> counted(1, "entry", "entries"), counted(1200, "entry", "entries")
    ('1 entry', '1,200 entries')
    """
    return plural(number, word, many).replace("\xa0", " ")


def listed(names: Sequence[str], *, most: int = 4) -> str:
    """Format quoted names as a phrase, cut short after ``most``.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], most=2)
    ('‘a’, ‘b’ and ‘c’', '‘a’, ‘b’ and 2 more')
    """
    phrases = [f"‘{name}’" for name in names[:most]]
    if len(names) > most:
        phrases.append(f"{len(names) - most} more")
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}" if phrases else ""


def moment(iso: str) -> str:
    """Format an ISO time in words; return anything else unchanged.

    >>> moment("2025-09-03T14:05:00+00:00"), moment("today")
    ('3 September 2025, 14:05 UTC', 'today')
    """
    try:
        when = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    text = f"{when.day} {_MONTHS[when.month - 1]} {when.year}"
    if len(iso) <= 10:
        return text
    offset = when.utcoffset()
    zone = "" if offset is None else " UTC" if offset == timedelta(0) else f" UTC{when:%z}"
    return f"{text}, {when:%H:%M}{zone}"


def canonical_json(value: Any, *, allow_nan: bool = True) -> str:
    r"""Return plain values as JSON that is the same for equal values: keys sorted, no spaces, ASCII.

    >>> canonical_json({"b": 1, "a": "ü"})
    '{"a":"\\u00fc","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=allow_nan)
