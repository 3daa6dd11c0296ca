"""Labels are (task, name), so that the integers of two data sets never collide."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple
from unicodedata import category

from splitwiper.errors import FormatError


class Label(NamedTuple):
    """One label of one task. Integers and strings are different names: 3 is not "3".

    >>> Label("digits", 3).text, Label.parse('["digits",3]').name
    ('["digits",3]', 3)
    """

    task: str
    name: str | int

    @property
    def text(self) -> str:
        """The canonical text of the label, as stored and as used in stream names."""
        return json.dumps([self.task, self.name], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Label:
        """Parse a label from its text."""
        try:
            task, name = json.loads(text)
        except (ValueError, TypeError) as problem:
            raise FormatError(f"{text!r} is not a label: expected [task, name].") from problem
        if not isinstance(task, str) or isinstance(name, bool) or not isinstance(name, str | int):
            raise FormatError(f"{text!r} is not a label: the task is a text, the name a text or an integer.")
        return cls(task, name)

    @property
    def fault(self) -> str:
        """The reason to refuse this label; empty for a valid one."""
        if isinstance(self.name, int) and not -(2**63) <= self.name < 2**63:
            return "a label is an integer beyond 64 bits; give a shorter one, or a name."
        for text in (self.task, self.name):
            # control characters (Cc) would garble terminals, and surrogates (Cs) have no UTF-8
            if isinstance(text, str) and (len(text) > 1000 or any(category(c) in ("Cc", "Cs") for c in text)):
                return f"label {text[:40]!r}… is longer than 1,000 characters, or holds control characters."
        return ""


def in_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Return each label once, in the order of heads and tables: by task, integers before texts, by name."""
    return tuple(sorted(set(labels), key=lambda x: (x.task, isinstance(x.name, str), x.name)))
