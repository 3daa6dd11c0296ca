"""From a figure to SVG inside a page: the page's own colours and fonts, no scripts, nothing to load."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text

from splitwiper.report.page import clean
from splitwiper_lab.pages.charts.style import VARIABLES

_TIP = "tip:"
_DIGITS = re.compile(r"\d+\.\d{2,}")


def tip(artist: Artist, text: str) -> None:
    """Say something about a part of the drawing, for those who point at it and for screen readers."""
    artist.set_gid(_TIP + text)


def svg(figure: Figure, label: str) -> Markup:
    """Return a figure as an element of a page.

    The same figure gives the same bytes on every machine: text is laid out with the fonts that come with matplotlib.
    """
    for artist in figure.findobj():
        artist.set_clip_on(False)  # clipping needs url(…), which the page's policy forbids
        if isinstance(artist, Text):
            artist.set_parse_math(False)  # a name with two $ is not a formula
    tips = _number_tips(figure)  # before drawing, which writes ids as they are then
    written = io.StringIO()  # kept in memory: the drawing becomes a part of a page
    settings: dict[Any, Any] = {"svg.fonttype": "none", "text.parse_math": False}
    with mpl.rc_context(settings), warnings.catch_warnings():
        # text is only measured here: whoever reads the page has a font for it
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        # without a date, so that the same results give the same bytes
        figure.savefig(written, format="svg", metadata={"Date": None})
    drawing = written.getvalue()
    # without its head, which is written below
    inside = drawing[drawing.index("<g ") : drawing.rindex("</svg>")]
    width, height = (72 * inches for inches in figure.get_size_inches())
    head = f'<svg viewBox="0 0 {width:g} {height:g}" class="chart" role="img" aria-label="{escape(label)}">'
    # safe as markup: matplotlib escapes the texts that it draws, and labels and tips are escaped here
    return Markup(clean(head + _of_the_page(inside, tips) + "</svg>"))  # noqa: S704


def _without_names(inside: str) -> str:
    """Draw each marker where it is used: names of shapes would have to be unique on a whole page of drawings."""
    shapes = dict(re.findall(r'<path id="(\w+)" d="([^"]*)"', inside))
    inside = re.sub(r"<defs>.*?</defs>", "", inside)

    def drawn(use: re.Match[str]) -> str:
        name, x, y, style = use.groups()
        return f'<path d="{shapes[name]}" transform="translate({x} {y})" style="{style}"/>'

    return re.sub(r'<use xlink:href="#(\w+)" x="([^"]*)" y="([^"]*)" style="([^"]*)"/>', drawn, inside)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def standalone(drawing: Markup, style: str) -> str:
    """Return a drawing as a file of its own, with the style sheet that defines its colours."""
    ((width, height),) = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    head, rest = str(drawing).split(">", 1)
    head = head.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" ', 1)
    return f"{head}><style>{style}svg {{ background: var(--card); font-family: sans-serif; }}</style>{rest}\n"


def _number_tips(figure: Figure) -> list[str]:
    """Replace texts by numbers, since an id of SVG cannot hold a text."""
    tips: list[str] = []
    for artist in figure.findobj():
        gid = artist.get_gid() or ""
        if gid.startswith(_TIP):
            artist.set_gid(f"tip_{len(tips)}")
            tips.append(gid.removeprefix(_TIP))
    return tips


def _of_the_page(inside: str, tips: list[str]) -> str:
    """Adapt matplotlib's SVG to the page that it becomes a part of."""
    inside = re.sub(r"<style.*?</style>", "", inside, flags=re.DOTALL)  # it would apply to the whole page
    inside = re.sub(r"<!--.*?-->\n?", "", inside, flags=re.DOTALL)
    # the page's font, which only differs in width by little from that of the layout
    inside = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", inside)
    inside = re.sub(r" font-family: [^;\"]*;?", "", inside)
    for number, text in enumerate(tips):
        inside = inside.replace(f'<g id="tip_{number}">', f"<g><title>{escape(text)}</title>", 1)
    inside = re.sub(r' id="[\w.]*_\d+"', "", inside)  # names of parts, the same in every drawing
    # half the size without what no one can see: digits far below a pixel, turns by nothing, empty groups, indentation
    inside = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda found: _DIGITS.sub(_rounded, found[0]), inside)
    inside = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", inside)
    inside = inside.replace("<g/>", "")
    inside = re.sub(r"\s*\n\s*", " ", inside).replace("> <", "><")
    inside = _without_names(inside)
    for colour, variable in VARIABLES.items():
        inside = inside.replace(colour, f"var({variable})")
    return inside
