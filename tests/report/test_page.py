"""The whole document: safe, complete, self-contained, well-formed, the same every time."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from splitwiper.federation import Check, Verification
from splitwiper.federation.status import Remains
from splitwiper.formats import count, percent, seconds, size
from splitwiper.report import (
    Accuracy,
    ReportData,
    ReportedClient,
    ReportedRequest,
    ReportedServer,
    render,
    write_report,
)
from splitwiper.wire import Spent

VOID = {"meta"}
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&\x00\u202e"


class Page(HTMLParser):
    """Checks nesting while parsing; keeps the tags, attributes and visible text."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(document)
        self.close()
        assert self.stack == [], f"left open: {self.stack}"
        assert self.rawdata == ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"doubled attribute in {tag}"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.stack:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.pieces)

    def count(self, tag: str) -> int:
        return sum(t == tag for t, _ in self.tags)


def check(report: ReportData) -> Page:
    """What holds for every report."""
    document = render(report)
    assert document == render(report)
    page = Page(document)
    for drawing in re.findall(r"<svg.*?</svg>", document, re.S):
        root = ET.fromstring(drawing)
        assert root.get("aria-label")
        assert root.get("role") == "img"
        assert not re.search(r"nan|inf\b", " ".join(root.itertext()).lower().replace("information", ""))
        for node in root.iter():
            for key in ("x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy"):
                assert math.isfinite(float(node.get(key, "0")))
            assert float(node.get("width", "0")) >= 0
            assert float(node.get("height", "0")) >= 0
    assert page.count("script") == 0
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    return page


def many(report: ReportData, *, clients: int, labels: int) -> ReportData:
    names = tuple(f"label {i}" for i in range(labels))
    everyone = tuple(
        ReportedClient(
            f"client {i}",
            1000 + i,
            1000 + i,
            {n: (i * 7 + j) % 90 for j, n in enumerate(names)},
            Spent(1.0 + i, 10**6 + i, 300),
            Spent(0.5, 9 * 10**5, 300) if i == 0 else Spent(),
            i == 0,
        )
        for i in range(clients)
    )
    each = {n: (i + 1) / (labels + 1) for i, n in enumerate(names)}
    return replace(
        report,
        clients=everyone,
        client_names=tuple(c.name for c in everyone),
        request=ReportedRequest("client 0", "class", names[:1], 10),
        before=Accuracy(0.9, 0.8, each),
        after=Accuracy(0.1, 0.8, {n: v for n, v in each.items() if n != names[0]}),
    )


def test_realistic_story_is_well_formed(report: ReportData) -> None:
    page = check(report)
    assert page.count("h1") == 1
    assert page.count("h2") == 8
    assert dict(page.tags[0][1]) == {"lang": "en-GB"}


def test_sections_come_in_order(report: ReportData) -> None:
    text = check(report).text
    titles = (
        "Unlearning report",
        "Verified: exact",
        "Time to forget",
        "Accuracy per label",
        "Who did what",
        "Who held which labels",
        "Training loss",
        "How it was verified",
        "What remains on disk, and why",
        "What is guaranteed, and what is not",
        "Technical details",
    )
    # The first title is also the document's title, so look from its second mention on.
    at = [text.index(title, text.index("Created") if i > 1 else 0) for i, title in enumerate(titles)]
    assert at == sorted(at)


def test_every_figure_appears(report: ReportData) -> None:
    text = check(report).text
    wanted = [report.title, report.subtitle, report.created, str(report.seed), report.dataset, report.run]
    wanted += ["23 September 2025, 14:05 UTC", *report.client_names, *report.request.labels]
    for accuracy in (report.before, report.after):
        wanted += [percent(accuracy.forgotten), percent(accuracy.retained)]
        wanted += [percent(v) for v in accuracy.per_label.values()]
    for client in report.clients:
        wanted += [count(client.rows_before), count(client.rows_after)]
        wanted += [count(n) for n in client.labels_before.values()]
        for spent in (client.learn, client.unlearn):
            wanted += [seconds(spent.seconds), size(spent.bytes_up), size(spent.bytes_down)]
    server = report.server
    wanted += [seconds(server.learn_seconds), seconds(server.unlearn_seconds), "30\xa0epochs"]
    wanted += [f"{server.loss_before[-1]:.3g}", f"{server.loss_after[-1]:.3g}"]
    wanted += [part for c in report.verification.checks for part in (c.subject, c.detail)]
    wanted += [part for r in report.remains for part in (r.what, count(r.count), size(r.size), r.why)]
    wanted += [report.halves_text, "183\xa0rows", '"ticket": "t-000001"']
    wanted += [part for pair in (*report.versions.items(), *report.fingerprint.items()) for part in pair]
    assert [w for w in wanted if w not in text] == []


def test_page_refers_to_nothing_outside(report: ReportData) -> None:
    document = render(report)
    for word in ("http://", "https://", "//cdn", "url(", "@import", "<link", "<script", "<img", "<iframe"):
        assert word not in document
    page = Page(document)
    assert not any({"src", "href", "srcset", "action", "data"} & attrs.keys() for _, attrs in page.tags)
    assert ("meta", "default-src 'none'; style-src 'unsafe-inline'") in [(t, a.get("content")) for t, a in page.tags]


def test_hostile_text_stays_text(report: ReportData) -> None:
    spiteful = replace(
        report,
        title=HOSTILE,
        subtitle=HOSTILE,
        created=HOSTILE,
        dataset=HOSTILE,
        run=HOSTILE,
        halves_text=HOSTILE,
        client_names=(HOSTILE,),
        request=ReportedRequest(HOSTILE, "class", (HOSTILE,), 3),
        before=Accuracy(0.5, 0.5, {HOSTILE: 0.5, "b": 0.5}),
        after=Accuracy(0.5, 0.5, {HOSTILE: 0.5, "b": 0.5}),
        clients=(
            ReportedClient(HOSTILE, 3, 0, {HOSTILE: 3}, Spent(1.0, 1, 1), Spent(1.0, 1, 1), True),
            ReportedClient(HOSTILE + "2", 3, 3, {HOSTILE: 3}, Spent(1.0, 1, 1), Spent()),
        ),
        verification=Verification((Check(HOSTILE, "mismatch", HOSTILE, "state"),)),
        versions={HOSTILE: HOSTILE},
        fingerprint={HOSTILE: HOSTILE},
        receipt={HOSTILE: [HOSTILE, {"deep": HOSTILE}]},
        remains=(Remains(HOSTILE, 1, 1, HOSTILE),),
    )
    page = check(spiteful)
    assert page.count("img") == 0
    assert "<script>alert('x')</script>" in page.text
    assert "\x00" not in render(spiteful)
    assert "\u202e" not in render(spiteful)


def test_receipt_with_odd_values_is_shown(report: ReportData) -> None:
    odd = replace(report, receipt={"path": Path("a/b"), "raw": b"\x01\xff", "set": frozenset({"b", "a"}), "x": (1, 2)})
    text = check(odd).text
    assert '"path": "a/b"' in text
    assert '"raw": "01ff"' in text
    assert text.index('"a"') < text.index('"b"')


def test_one_client(report: ReportData) -> None:
    alone = replace(report, clients=report.clients[:1], client_names=("north",))
    text = check(alone).text
    assert "There were no other clients." in text
    assert "There was only one client" in text


@pytest.mark.parametrize(("clients", "labels"), [(30, 40), (2, 1), (3, 10), (3, 11), (1, 41)])
def test_many_or_few(report: ReportData, clients: int, labels: int) -> None:
    page = check(many(report, clients=clients, labels=labels))
    assert page.text.count(f"client {clients - 1}") >= 3
    assert page.text.count(f"label {labels - 1}") >= 2


def test_long_names_are_whole_somewhere(report: ReportData) -> None:
    long = "Universitätsklinikum " * 12
    first = replace(report.clients[0], name=long, labels_before={long + "label": 3})
    told = replace(
        report, clients=(first, *report.clients[1:]), request=ReportedRequest(long, "class", (long + "label",), 3)
    )
    page = check(told)
    assert long in page.pieces
    assert long + "label" in page.pieces


@pytest.mark.parametrize(
    ("before", "after"),
    [((), ()), ((1.0,), ()), ((), (0.5, 0.4)), ((math.nan, 1.0, math.inf, 0.5), (0.0, 0.0)), ((math.nan,), ())],
)
def test_loss_of_any_shape(report: ReportData, before: tuple[float, ...], after: tuple[float, ...]) -> None:
    told = replace(report, server=ReportedServer(1.0, 1.0, 4, before, after))
    empty = not any(math.isfinite(v) for v in (*before, *after))
    assert ("No training loss was recorded" in check(told).text) is empty


def test_nothing_spent_is_a_plain_zero(report: ReportData) -> None:
    idle = tuple(replace(c, learn=Spent(), unlearn=Spent()) for c in report.clients)
    page = check(replace(report, clients=idle, server=ReportedServer(0.0, 0.0, 0)))
    cells = re.findall(r'<td class="n zero">0</td>', render(replace(report, clients=idle)))
    assert len(cells) >= 6 * len(idle)
    assert "0\xa0B" not in page.text
    assert "0.00\xa0s" not in page.text


def test_others_are_exactly_zero_or_it_says_otherwise(report: ReportData) -> None:
    assert "It cost the other 4\xa0clients exactly nothing." in check(report).text
    busy = replace(report.clients[1], unlearn=Spent(2.5, 1500, 0))
    text = check(replace(report, clients=(report.clients[0], busy, *report.clients[2:]))).text
    assert "exactly nothing" not in text
    assert "Of 4\xa0other clients, 3 had no work" in text
    assert "And 1.5\xa0kB exchanged by the other 4\xa0clients." in text


def test_bare_story(report: ReportData) -> None:
    bare = replace(
        report,
        subtitle="",
        versions={},
        client_names=(),
        before=Accuracy(math.nan, math.nan, {}),
        after=Accuracy(math.nan, math.nan, {}),
        clients=(),
        server=ReportedServer(0.0, 0.0, 0),
        halves_text="",
        receipt={},
        fingerprint={},
        remains=(),
        run="",
    )
    text = check(bare).text
    for sentence in ("No accuracy per label", "No counts per label", "Nothing was listed"):
        assert sentence in text


def test_tables_have_headings_and_captions(report: ReportData) -> None:
    page = check(report)
    assert page.count("table") == page.count("caption") == 4
    assert all(attrs.get("scope") for tag, attrs in page.tags if tag == "th")
    boxes = [attrs for _, attrs in page.tags if attrs.get("class") == "scroll"]
    assert len(boxes) == 4
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)


def test_write_report_writes_what_render_returns(report: ReportData, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert write_report(path, report) == path
    assert path.read_bytes() == render(report).encode()
