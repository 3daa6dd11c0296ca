"""What every page must be: well-formed, complete in itself, with links that lead somewhere."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

PLACES = ("x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy", "r")


class Read(HTMLParser):
    """Checks nesting; keeps tags and the text that people see."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def whole(document: str) -> Read:
    """The page, after everything that holds for all pages was checked."""
    page = Read(document)
    names = [name for _, attributes in page.tags if (name := attributes.get("id"))]
    assert len(names) == len(set(names)), "an id is given twice"
    for tag, attributes in page.tags:
        assert tag not in ("script", "img", "link", "iframe", "object", "form")
        assert not any(key.startswith("on") or key in ("src", "srcset") for key in attributes)
        if href := attributes.get("href"):
            assert href.startswith("#") and href[1:] in names, f"{href} leads nowhere"
    assert "http" not in document.replace("http-equiv", "") and "url(" not in document and "@import" not in document
    for drawing in re.findall(r"<svg.*?</svg>", document, re.DOTALL):
        drawn(drawing)
    return page


def drawn(drawing: str) -> ET.Element:
    """A drawing, after its numbers were checked."""
    root = ET.fromstring(drawing)
    assert root.get("aria-label") or root.get("aria-hidden")
    for node in root.iter():
        assert all(math.isfinite(float(node.get(key, "0"))) for key in PLACES)
        assert not re.search(r"nan|inf", node.get("d", ""))
    return root
