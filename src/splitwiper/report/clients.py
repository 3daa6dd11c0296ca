"""The two sections about the clients: what each one spent, and which labels each one held."""

from __future__ import annotations

from splitwiper.formats import NONE, count, plural, seconds, size
from splitwiper.report import svg
from splitwiper.report.data import ReportData, ReportedClient
from splitwiper.report.markup import Markup, el
from splitwiper.report.parts import figure, legend, num, row_head, scroll, section, table, td, th, tr
from splitwiper.report.text import mark
from splitwiper.wire import Spent

STEPS = 5
"""Number of shades in the table of counts."""

ASKED = "asked"
"""The remark at the client that made the request."""


def costs(story: ReportData) -> Markup:
    """Show what everybody spent, as bars and as a table."""
    times = [
        *(svg.SvgPair(c.name, c.learn.seconds, c.unlearn.seconds, _asked(c)) for c in story.clients),
        svg.SvgPair("Server", story.server.learn_seconds, story.server.unlearn_seconds),
    ]
    traffic = [svg.SvgPair(c.name, float(c.learn.traffic), float(c.unlearn.traffic), _asked(c)) for c in story.clients]
    series = ("Learning", "Unlearning")
    time_bars = svg.rows(
        times,
        label="Bar chart: time spent at learning and unlearning, per client and server",
        show=seconds,
        series=series,
    )
    data_bars = svg.rows(
        traffic,
        label="Bar chart: bytes exchanged at learning and unlearning, per client",
        show=lambda v: size(None if v is None else round(v)),
        series=series,
    )
    two = el(
        "div",
        el("div", el("h3", "Time"), time_bars),
        el("div", el("h3", "Data exchanged"), data_bars),
        class_="two",
    )
    box = scroll(_cost_table(story), "Costs per client")
    return section(2, "Who did what", el("p", _lead(story)), legend(*series), figure(two), box)


def _asked(client: ReportedClient) -> str:
    return ASKED if client.requester else ""


def _lead(story: ReportData) -> str:
    others = len(story.others)
    idle = sum(c.unlearn == Spent() for c in story.others)
    if not others:
        return "There was only one client: forgetting was work for it and the server."
    if idle == others:
        them = "the other client" if others == 1 else f"the other {plural(others, 'client')}"
        return f"Forgetting was work for one client and the server. It cost {them} exactly nothing."
    return f"Of {plural(others, 'other client')}, {count(idle)} had no work with the unlearning."


def _cost_table(story: ReportData) -> Markup:
    head = (
        tr(
            th("Client", rowspan=2),
            th("Rows", colspan=2, scope="colgroup", class_="group"),
            th("Learning", colspan=3, scope="colgroup", class_="group"),
            th("Unlearning", colspan=3, scope="colgroup", class_="group"),
        ),
        tr(*(th(n, class_="n") for n in ("before", "after", *("time", "sent", "received") * 2))),
    )
    body = [
        tr(
            row_head(c.name, *([" ", el("span", "asked to forget", class_="tag")] if c.requester else [])),
            num(count(c.rows_before)),
            num(count(c.rows_after)),
            *_spent(c.learn),
            *_spent(c.unlearn),
            class_="asked" if c.requester else None,
        )
        for c in story.clients
    ]
    none = td(NONE, "n none")
    server = tr(
        row_head("Server"),
        none,
        none,
        num(seconds(story.server.learn_seconds)),
        none,
        none,
        num(seconds(story.server.unlearn_seconds)),
        none,
        none,
    )
    learn = sum((c.learn for c in story.clients), Spent(story.server.learn_seconds))
    unlearn = sum((c.unlearn for c in story.clients), Spent(story.server.unlearn_seconds))
    total = tr(
        row_head("Total"),
        num(count(sum(c.rows_before for c in story.clients))),
        num(count(sum(c.rows_after for c in story.clients))),
        *_spent(learn),
        *_spent(unlearn),
        class_="total",
    )
    return table(head, [*body, server, total], caption="Rows and costs per client", class_="cost")


def _spent(spent: Spent) -> tuple[Markup, Markup, Markup]:
    return num(seconds(spent.seconds)), num(size(spent.bytes_up)), num(size(spent.bytes_down))


def holdings(story: ReportData) -> Markup:
    """Show which labels each client held before the request, shaded by count."""
    title, labels = "Who held which labels", story.labels
    if not labels:
        return section(3, title, el("p", "No counts per label were given.", class_="empty"))
    most = max((n for c in story.clients for n in c.labels_before.values()), default=0)
    turned = len(labels) > 12
    head = tr(
        th("Client"),
        *(th(el("span", name), class_="n touched" if mark(story, name) else "n", title=name) for name in labels),
    )
    body = (tr(row_head(c.name), *(_cell(story, c, name, most) for name in labels)) for c in story.clients)
    heat = table([head], body, caption="Row counts per client and label", class_="heat turned" if turned else "heat")
    note = el("p", _heat_note(story), class_="caption")
    return section(3, title, scroll(heat, "Row counts per client and label"), note)


def _cell(story: ReportData, client: ReportedClient, label: str, most: int) -> Markup:
    rows = client.labels_before.get(label, 0)
    shade = f"n h{1 + (STEPS * rows - 1) // most if rows > 0 else 0}"
    if not rows:
        return td("0", f"{shade} zero")
    touched = client.requester and label in story.asked_labels
    if touched and story.request.level == "sample":
        return td(el("span", count(rows), "*", title="Some of these rows were forgotten"), f"{shade} gone")
    if touched:
        return td(el("del", count(rows)), f"{shade} gone")
    return td(count(rows), shade)


def _heat_note(story: ReportData) -> str:
    start = "Rows per label before the request; the stronger the colour, the more rows."
    asked = f"{plural(story.request.rows, 'row')} forgotten at the request of ‘{story.request.client}’"
    if story.request.level == "sample":
        return f"{start} {asked}, among those marked with an asterisk."
    return f"{start} Struck out: {asked}."
