"""The last sections: verification, remaining files, guarantees, technical details."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from splitwiper.formats import count, moment, plural, size
from splitwiper.report.data import ReportData
from splitwiper.report.markup import Markup, el, join
from splitwiper.report.parts import facts, num, pill, row_head, scroll, section, table, td, th, tr
from splitwiper.report.text import GUARANTEED, NOT_GUARANTEED


def checks(story: ReportData) -> Markup:
    """Show how the result was verified."""
    result = story.verification
    lead = el(
        "p",
        "Verification computes the state again from the surviving rows, the configuration and the seed, as if the "
        "forgotten rows had never existed, and compares every bit. Outcome: ",
        pill(result.outcome),
    )
    if not result.checks:
        return section(5, "How it was verified", lead, el("p", "No single checks were recorded.", class_="empty"))
    body = (tr(row_head(c.what), td(pill(c.outcome)), td(c.detail)) for c in result.checks)
    what = "Checks made by the verification"
    head = [tr(th("What was compared"), th("Outcome"), th("Detail"))]
    return section(5, "How it was verified", lead, scroll(table(head, body, caption=what, class_="prose"), what))


def remains(story: ReportData) -> Markup:
    """Show which files remain on disk, and why."""
    title = "What remains on disk, and why"
    if not story.remains:
        return section(6, title, el("p", "Nothing was listed.", class_="empty"))
    head = [tr(th("What"), th("Files", class_="n"), th("Size", class_="n"), th("Why"))]
    body = [_stored(r.what, r.count, r.bytes, r.why) for r in story.remains]
    total = _stored("Total", sum(r.count for r in story.remains), sum(r.bytes for r in story.remains), "")
    what = "What is still stored"
    return section(6, title, scroll(table(head, [*body, total], caption=what, class_="prose"), what))


def _stored(what: str, files: int, in_bytes: int, why: str) -> Markup:
    return tr(
        row_head(what),
        num(count(files), label="Files"),
        num(size(in_bytes), label="Size"),
        td(why),
        class_=None if why else "total",
    )


def guarantees(story: ReportData) -> Markup:
    """Show what may and what may not be concluded."""
    outcome = story.verification.outcome
    return section(
        7,
        "What is guaranteed, and what is not",
        el(
            "div",
            el("div", el("h3", "Guaranteed"), el("ul", *(el("li", item) for item in GUARANTEED[outcome]))),
            el("div", el("h3", "Not guaranteed"), el("ul", *(el("li", item) for item in NOT_GUARANTEED))),
            class_="two lists",
        ),
    )


def technical(story: ReportData) -> Markup:
    """Show everything needed to repeat the run."""
    about = (
        ("Data", story.dataset),
        ("Clients", f"{plural(len(story.client_names), 'client')}: {', '.join(story.client_names)}"),
        ("Request", f"{story.request.level} level, {plural(story.request.rows, 'row')}"),
        ("Seed", str(story.seed)),
        ("Server epochs", count(story.server.epochs)),
        ("Run", story.run),
        ("Created", f"{moment(story.created)} ({story.created})"),
    )
    cut = story.halves_text.strip("\n")
    blocks = [facts(about)]
    if cut:
        blocks.append(join((el("h3", "The cut"), el("pre", cut, tabindex=0, aria_label="The cut"))))
    lists = (("Fingerprint of the numerics", story.fingerprint), ("Versions", story.versions))
    pairs = [el("div", el("h3", name), facts(values, mono=True)) for name, values in lists if values]
    blocks.append(el("div", *pairs, class_="two"))
    if story.receipt:
        text = json.dumps(story.receipt, indent=2, ensure_ascii=False, default=_plain)
        blocks.append(
            el("details", el("summary", "Receipt"), el("pre", text, tabindex=0, aria_label="Receipt as JSON"))
        )
    return section(8, "Technical details", *blocks)


def _plain(value: Any) -> Any:
    """Convert a value that JSON cannot represent to one that is the same every time."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)
