"""The report as one HTML document, from the templates beside this file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from splitwiper import formats
from splitwiper.report.charts import Chart, Pair, curves, lying_bars, upright_bars
from splitwiper.report.data import ReportData, ReportedClient
from splitwiper.report.markup import join
from splitwiper.report.text import OUTCOMES, key_figures, mark, verdict, work_of_others
from splitwiper.wire import Spent

SHADES = 5
"""Number of shades in the table of counts."""
UPRIGHT = 10
"""With more labels than this, bars are horizontal."""
# Control characters and lone surrogates are not text; direction overrides could make a name read as another one.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_FRAME = """
{%- extends "page.html" %}{% block style %}{{ style | safe }}{% endblock %}{% block content %}{{ content | safe }}
{% endblock %}"""


@dataclass(frozen=True)
class HeldCell:
    """The rows of one label at one client, their shade, and whether the request concerns them."""

    rows: int
    shade: int
    asked: bool


def render(report: ReportData) -> str:
    """Render the report as one HTML document.

    A pure function: the same data give the same bytes. The page loads nothing and runs nothing.
    """
    page = (
        _templates()
        .get_template("unlearning.html")
        .render(
            report=report,
            title=report.title,
            verdict=verdict(report),
            tiles=key_figures(report),
            work_of_others=work_of_others(report),
            total_learn=sum((client.learn for client in report.clients), Spent(report.server.learn_seconds)),
            total_unlearn=sum((client.unlearn for client in report.clients), Spent(report.server.unlearn_seconds)),
            receipt_json=json.dumps(report.receipt, indent=2, ensure_ascii=False, default=_plain),
            **_accuracy_charts(report),
            **_cost_charts(report),
            **_loss_charts(report),
        )
    )
    return _UNFIT.sub("\ufffd", page)


def write_report(path: Path, report: ReportData, *, write: Callable[[Path, str], object] | None = None) -> Path:
    """Write the report to ``path`` and return it.

    Args:
        path: The file; its folder must exist.
        report: The report's data.
        write: Writes text to a file; plain UTF-8 by default.
    """
    text = render(report)
    if write is None:
        path.write_text(text, encoding="utf-8", newline="\n")
    else:
        write(path, text)
    return path


def document(title: str, *parts: str, style: str = "") -> str:
    """Build a page of the laboratory, with an additional style sheet, in the frame that reports have."""
    frame = _templates().from_string(_FRAME)
    return _UNFIT.sub("\ufffd", frame.render(title=title, style=style, content=join(parts)))


@cache
def _templates() -> Environment:
    """Return the templates; everything in them is escaped unless a template says otherwise."""
    found = Environment(
        loader=PackageLoader("splitwiper.report"),
        autoescape=select_autoescape(["html"]),  # the style sheet is included as it is
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for filter_ in (formats.count, formats.listed, formats.moment, formats.seconds, formats.size):
        found.filters[filter_.__name__] = filter_
    found.globals.update(outcomes=OUTCOMES, mark=mark, plural=formats.plural, held_cells=held_cells)
    return found


def _accuracy_charts(report: ReportData) -> dict[str, Any]:
    """Draw accuracy per label: upright bars on a wide page and lying ones on a phone; many labels form two halves."""
    old, new = report.before.per_label, report.after.per_label
    pairs = [Pair(name, old.get(name), new.get(name), mark(report, name)) for name in dict.fromkeys((*old, *new))]
    series = ("Before", "After")
    label = f"Bar chart: test accuracy before and after unlearning, {formats.plural(len(pairs), 'label')}"
    wide = slim = None
    halves: list[Chart] = []
    if len(pairs) > UPRIGHT:
        middle = math.ceil(len(pairs) / 2)
        for number, half in enumerate((pairs[:middle], pairs[middle:]), start=1):
            part = f"{label}, part {number} of 2"
            halves.append(lying_bars(half, label=part, show=formats.percent, series=series, top=1.0))
    elif pairs:
        wide = upright_bars(pairs, label=label, series=series)
        slim = lying_bars(pairs, label=label, show=formats.percent, series=series, top=1.0)
    return {
        "accuracy_wide": wide,
        "accuracy_slim": slim,
        "accuracy_halves": halves,
        "without_output": [name for name in report.asked_labels if name in old and name not in new],
    }


def _cost_charts(report: ReportData) -> dict[str, Chart]:
    """Draw what everybody spent."""
    times, traffic = [], []
    for client in report.clients:
        remark = "asked" if client.requester else ""
        times.append(Pair(client.name, client.learn.seconds, client.unlearn.seconds, remark))
        traffic.append(Pair(client.name, client.learn.traffic, client.unlearn.traffic, remark))
    times.append(Pair("Server", report.server.learn_seconds, report.server.unlearn_seconds))
    series = ("Learning", "Unlearning")
    return {
        "time_chart": lying_bars(
            times,
            label="Bar chart: time spent at learning and unlearning, per client and server",
            show=formats.seconds,
            series=series,
        ),
        "traffic_chart": lying_bars(
            traffic,
            label="Bar chart: bytes exchanged at learning and unlearning, per client",
            show=lambda value: formats.size(None if value is None else round(value)),
            series=series,
        ),
    }


def _loss_charts(report: ReportData) -> dict[str, Any]:
    """Draw the server's training loss per epoch, at learning and at unlearning."""
    lines = (("learning", report.server.loss_before), ("unlearning", report.server.loss_after))
    if not any(math.isfinite(loss) for loss in (*report.server.loss_before, *report.server.loss_after)):
        return {"loss_wide": None, "loss_slim": None, "last_losses": ""}
    last = ", ".join(f"{name} {losses[-1]:.3g}" for name, losses in lines if losses)
    label = f"Line chart: training loss per epoch. Last values: {last}"
    return {
        "loss_wide": curves(lines, label=label, across="epoch", width=780, height=260),
        "loss_slim": curves(lines, label=label, across="epoch", width=360, height=240),
        "last_losses": last,
    }


def held_cells(report: ReportData, client: ReportedClient) -> list[HeldCell]:
    """Return a client's row of the table of counts, a cell for each label."""
    most = max((rows for one in report.clients for rows in one.labels_before.values()), default=0)
    cells = []
    for label in report.labels:
        rows = client.labels_before.get(label, 0)
        # rounded up, so that any row at all is distinguished from none; the largest count gets the last shade
        shade = 1 + (SHADES * rows - 1) // most if rows else 0
        cells.append(HeldCell(rows, shade, client.requester and rows > 0 and label in report.asked_labels))
    return cells


def _plain(value: Any) -> Any:
    """Convert a value that JSON cannot represent to one that is the same every time."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)
