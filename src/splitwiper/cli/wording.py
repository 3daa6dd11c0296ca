"""The library's advice, phrased for the command line: calls become commands, arguments become options."""

from __future__ import annotations

import re

_WORDS: tuple[tuple[str, str], ...] = (
    (r"everything=True", "--everything"),
    (r"local=True", "--local"),
    (r"classes=\[…\], samples=\[…\]", "--class, --sample"),
    (r"label=", "--label "),
    (r"begin anew\.", "begin anew (--with, --anew)."),
    (r"`reupload\('([^']*)'\)`", r"splitwiper settle RUN --resend \1"),
    (r"[Cc]all learn or settle", "run 'splitwiper learn' or 'splitwiper settle'"),
    (r"call settle", "run 'splitwiper settle'"),
    (r"Learn first, or give halves to start one\.", "Start one with 'splitwiper learn'."),
    (r"pass the halves, Federation\(path, halves\), or set", "set"),
    (r"reopen it without a config, or start a new run", "set them as they were, or start a new run (--run)"),
    (r"Open the run with the halves it had\.", "Bring the model's code back as it was."),
    (r"pass head= with one of", "set model.head to one of"),
    (r"splitwiper\.masking\.sealing\.invitation\(\)", "'splitwiper group FILE'"),
)
# In this order: the longer advice is before the shorter that it contains.
_PATTERNS = tuple((re.compile(pattern), here) for pattern, here in _WORDS)


def translated(text: str) -> str:
    """Return a message of the library, phrased for the command line.

    >>> translated("work is unfinished: call settle first")
    "work is unfinished: run 'splitwiper settle' first"
    """
    for pattern, here in _PATTERNS:
        text = pattern.sub(here, text)
    return text
