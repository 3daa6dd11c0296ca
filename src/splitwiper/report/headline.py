"""The top of the page: title, verdict, four key figures."""

from __future__ import annotations

import math

from splitwiper.formats import NONE, moment, percent, plural, seconds, size
from splitwiper.report.data import ReportData
from splitwiper.report.markup import Markup, el, join
from splitwiper.report.text import GLYPH, verdict
from splitwiper.wire import Spent


def masthead(story: ReportData) -> Markup:
    """Show the title, and the verdict in plain words."""
    said, tone = verdict(story), story.verification.outcome
    header = el(
        "header",
        el("h1", story.title),
        el("p", story.subtitle, class_="subtitle"),
        el("p", "Created ", el("time", moment(story.created), datetime=story.created), class_="when"),
    )
    box = el(
        "section",
        el("p", el("span", GLYPH[tone], class_="glyph", aria_hidden="true"), said.badge, class_="badge"),
        el("p", said.headline, class_="headline"),
        el("p", said.accuracy),
        el("p", said.proof, class_="proof"),
        *(el("p", note, class_="note") for note in said.notes),
        class_=f"verdict {tone}",
        aria_label="Verdict",
    )
    return join((header, box))


def key_figures(story: ReportData) -> Markup:
    """Show four key figures."""
    own = story.requester.unlearn.seconds if story.requester else 0.0
    server = story.server.unlearn_seconds
    learned = sum(c.learn.seconds for c in story.clients) + story.server.learn_seconds
    spent, note = _spared(story)
    change = 100 * (story.after.retained - story.before.retained)
    points = f"{change:+.1f}\xa0points.".replace("-", "−") if math.isfinite(change) else ""
    return el(
        "dl",
        _tile(
            "Accuracy, forgotten part",
            percent(story.after.forgotten),
            f"Before: {percent(story.before.forgotten)}.",
        ),
        _tile(
            "Accuracy, everything else",
            percent(story.after.retained),
            f"Before: {percent(story.before.retained)}. {points}",
        ),
        _tile("Work for all other clients", spent, note),
        _tile(
            "Time to forget",
            seconds(own + server),
            f"Client {seconds(own)}, server {seconds(server)}. Learning took {seconds(learned)} in all.",
        ),
        class_="tiles",
    )


def _tile(name: str, value: str, note: str) -> Markup:
    return el("div", el("dt", name), el("dd", value, class_="value"), el("dd", note, class_="small"))


def _spared(story: ReportData) -> tuple[str, str]:
    """Return what the unlearning cost the other clients, and a remark."""
    if not story.others:
        return NONE, "There were no other clients."
    them = "the other client" if len(story.others) == 1 else f"the other {plural(len(story.others), 'client')}"
    work = sum((c.unlearn for c in story.others), Spent())
    if work == Spent():
        return "0", f"No seconds and no bytes for {them}."
    return seconds(work.seconds), f"And {size(work.traffic)} exchanged by {them}."
