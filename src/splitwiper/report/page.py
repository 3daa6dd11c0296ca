"""The report as one HTML document, from the templates in ``templates/``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from splitwiper import formats
from splitwiper.report.charts import CurveChart, Pair, curve_chart, longest, part
from splitwiper.report.data import ReportData, ReportedClient
from splitwiper.report.text import OUTCOMES, key_figures, mark, verdict, work_of_others
from splitwiper.store import files
from splitwiper.wire import Spent

SHADES = 5
"""Number of shades in the table of counts."""
# Control characters and lone surrogates are not text; direction overrides could make a name read as another one.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


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
    before, after = report.before.per_label, report.after.per_label
    accuracy = []
    for name in {**before, **after}:
        accuracy.append(Pair(name, before.get(name), after.get(name), mark(report, name)))
    times, traffic = _costs(report)
    # the server's bytes are those of the clients, so only its seconds are added
    learn, unlearn = Spent(report.server.learn_seconds), Spent(report.server.unlearn_seconds)
    for client in report.clients:
        learn, unlearn = learn + client.learn, unlearn + client.unlearn
    template = templates().get_template("unlearning.html")
    page = template.render(
        report=report,
        title=report.title,
        verdict=verdict(report),
        tiles=key_figures(report),
        work_of_others=work_of_others(report),
        accuracy=accuracy,
        without_output=[name for name in report.asked_labels if name in before and name not in after],
        times=times,
        traffic=traffic,
        total_learn=learn,
        total_unlearn=unlearn,
        losses=_losses(report),
        receipt_json=json.dumps(report.receipt, indent=2, ensure_ascii=False, default=_plain),
    )
    return clean(page)


def write_report(path: Path, report: ReportData) -> Path:
    """Write the report to a file, and return its path."""
    files.write_bytes(path, render(report).encode())
    return path


def clean(document: str) -> str:
    r"""Replace characters that no document can or should contain by a visible mark.

    >>> clean("a\x00b") == "a\ufffdb"
    True
    """
    return _UNFIT.sub("\ufffd", document)


@cache
def templates() -> Environment:
    """Return the templates; everything in them is escaped unless a template says otherwise."""
    environment = Environment(
        loader=PackageLoader("splitwiper.report"),
        autoescape=select_autoescape(["html"]),  # the style sheet is included as it is
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for function in (formats.count, formats.listed, formats.moment, formats.percent, formats.seconds, formats.size):
        environment.filters[function.__name__] = function
        environment.globals[function.__name__] = function  # since a macro cannot be given a filter
    environment.globals |= {"outcomes": OUTCOMES, "mark": mark, "plural": formats.plural, "held_cells": held_cells}
    environment.globals |= {"longest": longest, "part": part}
    return environment


def _costs(report: ReportData) -> tuple[list[Pair], list[Pair]]:
    """Return everybody's seconds, and the clients' bytes."""
    times, traffic = [], []
    for client in report.clients:
        remark = "asked" if client.requester else ""
        times.append(Pair(client.name, client.learn.seconds, client.unlearn.seconds, remark))
        traffic.append(Pair(client.name, client.learn.traffic, client.unlearn.traffic, remark))
    times.append(Pair("Server", report.server.learn_seconds, report.server.unlearn_seconds))
    return times, traffic


def _losses(report: ReportData) -> CurveChart | None:
    """Return the server's training loss per epoch, at learning and at unlearning; None if it was not recorded."""
    lines = (("learning", report.server.loss_before), ("unlearning", report.server.loss_after))
    if not any(map(math.isfinite, report.server.loss_before + report.server.loss_after)):
        return None
    # for readers who cannot see the chart
    last = ", ".join(f"{name} {losses[-1]:.3g}" for name, losses in lines if losses)
    return curve_chart(lines, label=f"Training loss per epoch. Last values: {last}", across="epoch")


def held_cells(report: ReportData, client: ReportedClient) -> list[HeldCell]:
    """Return a client's row of the table of counts, a cell for each label."""
    most = 0
    for other in report.clients:
        most = max([most, *other.labels_before.values()])
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
        return sorted(map(str, value))
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)
