"""The whole document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from splitwiper.report.clients import costs, holdings
from splitwiper.report.data import ReportData
from splitwiper.report.evidence import checks, guarantees, remains, technical
from splitwiper.report.headline import key_figures, masthead
from splitwiper.report.learning import accuracy, loss
from splitwiper.report.markup import Markup, el, join
from splitwiper.report.style import CSS

SECTIONS: tuple[Callable[[ReportData], Markup], ...] = (
    key_figures,
    accuracy,
    costs,
    holdings,
    loss,
    checks,
    remains,
    guarantees,
    technical,
)
"""The page below the verdict, in order."""

# The policy makes the browser enforce what the page promises: nothing is loaded, nothing is run.
_META = Markup(
    '<meta charset="utf-8">\n'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="color-scheme" content="light dark">\n'
)


def render(story: ReportData) -> str:
    """Render the report as one HTML document.

    A pure function: the same data give the same bytes. The page loads nothing and runs nothing.
    """
    return document(story.title, masthead(story), *(join(("\n", part(story))) for part in SECTIONS), "\n")


def document(title: str, *parts: str, style: str = "") -> str:
    """Build a page that loads nothing and runs nothing, with an additional style sheet."""
    head = el("head", _META, el("title", title), "\n", el("style", Markup(CSS + style)))
    footer = el("footer", el("p", "Written by SplitWiper. This page is complete in itself: it loads nothing."))
    return f"<!DOCTYPE html>\n{el('html', head, el('body', el('main', *parts, footer)), lang='en-GB')}\n"


def write_report(path: Path, story: ReportData, *, write: Callable[[Path, str], object] | None = None) -> Path:
    """Write the report to ``path`` and return it.

    Args:
        path: The file; its folder must exist.
        story: The report's data.
        write: Writes text to a file; plain UTF-8 by default.
    """
    text = render(story)
    if write is None:
        path.write_text(text, encoding="utf-8", newline="\n")
    else:
        write(path, text)
    return path
