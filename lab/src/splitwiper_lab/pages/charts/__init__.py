"""Charts for pages of the laboratory, drawn by matplotlib as SVG that is part of the page.

The drawings have no scripts and load nothing. Their colours are the page's (`style`), so they follow light, dark and
print, and a marker says its value when it is pointed at. `lines`, `dots` and `bars` take `Series` over an `Axis`; what
fits none of these draws on a `figure` of its own and calls `svg`.
"""

from splitwiper_lab.pages.charts.kinds import bars, dots, key, lines
from splitwiper_lab.pages.charts.series import STYLES, Axis, Series, Spot, share
from splitwiper_lab.pages.charts.style import figure
from splitwiper_lab.pages.charts.svg import standalone, svg, tip

__all__ = [
    "STYLES",
    "Axis",
    "Series",
    "Spot",
    "bars",
    "dots",
    "figure",
    "key",
    "lines",
    "share",
    "standalone",
    "svg",
    "tip",
]
