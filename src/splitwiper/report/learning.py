"""The two sections about the model: accuracy per label, and training loss."""

from __future__ import annotations

import math

from splitwiper.formats import NONE, listed, percent, plural
from splitwiper.report import svg
from splitwiper.report.data import ReportData
from splitwiper.report.markup import Markup, el
from splitwiper.report.parts import figure, legend, section
from splitwiper.report.text import mark

UPRIGHT = 10
"""With more labels than this, bars are horizontal."""


def accuracy(story: ReportData) -> Markup:
    """Show accuracy per label, before and after."""
    title, old, new = "Accuracy per label", story.before.per_label, story.after.per_label
    pairs = [svg.SvgPair(n, old.get(n), new.get(n), mark(story, n)) for n in dict.fromkeys((*old, *new))]
    if not pairs:
        return section(1, title, el("p", "No accuracy per label was measured.", class_="empty"))
    gone = [n for n in story.asked_labels if n in old and n not in new]
    caption = "Share of test rows classified correctly, in per cent."
    if gone:
        caption += f" {NONE} means that the model no longer has an output for {listed(gone)}."
    key = legend("Before unlearning", "After unlearning")
    return section(1, title, key, figure(*_bars(pairs), caption=caption))


def _bars(pairs: list[svg.SvgPair]) -> list[Markup]:
    """Draw vertical bars on a wide page and horizontal ones on a phone; many labels form two halves, stacked there."""
    series = ("Before", "After")
    say = f"Bar chart: test accuracy before and after unlearning, {plural(len(pairs), 'label')}"
    if len(pairs) <= UPRIGHT:
        upright = svg.columns(pairs, label=say, show=percent, series=series)
        lying = svg.rows(pairs, label=say, show=percent, series=series, top=1.0)
        return [el("div", upright, class_="wide"), el("div", lying, class_="slim")]
    half = math.ceil(len(pairs) / 2)
    parts = (
        svg.rows(part, label=f"{say}, part {k} of 2", show=percent, series=series, top=1.0)
        for k, part in ((1, pairs[:half]), (2, pairs[half:]))
    )
    return [el("div", *parts, class_="two")]


def loss(story: ReportData) -> Markup:
    """Show the server's training loss per epoch, at learning and at unlearning."""
    title, server = "Training loss", story.server
    curves = [
        svg.SvgLine("learning", server.loss_before, "first"),
        svg.SvgLine("unlearning", server.loss_after, "second"),
    ]
    epochs = plural(server.epochs, "epoch")
    if not any(math.isfinite(v) for curve in curves for v in curve.values):
        return section(4, title, el("p", f"No training loss was recorded ({epochs}).", class_="empty"))
    ends = [f"{curve.name} {curve.values[-1]:.3g}" for curve in curves if curve.values]
    say = f"Line chart: training loss per epoch. Last values: {', '.join(ends)}"
    caption = (
        f"The server’s loss over {epochs}, at learning and when trained again without the forgotten rows. "
        f"Last values: {', '.join(ends)}."
    )
    across = "epoch"
    return section(
        4,
        title,
        legend("Learning", "Unlearning", lines=True),
        figure(
            el("div", svg.lines(curves, label=say, across=across, width=780, height=260), class_="wide"),
            el("div", svg.lines(curves, label=say, across=across, width=360, height=240), class_="slim"),
            caption=caption,
        ),
    )
