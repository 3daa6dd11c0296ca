"""Colours, markers and dashes. The style sheet ``charts.css`` gives the colours their meaning on a page."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

SERIES = ("#0072b2", "#c04f00", "#00805e", "#a0447a", "#946300", "#2b8cc4", "#333a41", "#77818b")
"""The colours of series on paper: Okabe and Ito's, which colour-blind people can tell apart."""
INK, SOFT, RULE, CARD, FAINT = "#1a1f24", "#545d66", "#dce0e4", "#ffffff", "#eef0f2"
HEAT = ("#e3f0f8", "#c3dff0", "#96c7e4", "#3f96c8", "#00659e")
"""Shades of one colour, from few to many."""
HEAT_INK = (INK, INK, INK, "#08131a", "#fefefe")
"""The colour of text on each shade."""
VARIABLES = {INK: "--ink", SOFT: "--soft", RULE: "--rule", CARD: "--card", FAINT: "--faint"}
VARIABLES |= {colour: f"--s{number}" for number, colour in enumerate(SERIES)}
VARIABLES |= {colour: f"--h{number}" for number, colour in enumerate(HEAT, start=1)}
VARIABLES |= {HEAT_INK[3]: "--h4-ink", HEAT_INK[4]: "--h5-ink"}
"""The variable of the page's style sheet that each colour stands for, so that charts follow light, dark and print."""
MARKERS = ("o", "s", "^", "D", "v", "P", "o", "d")
"""With colour and dash, so that no chart needs colour to be read; the last two are hollow."""
DASHES = (
    *("-", (0, (4, 2)), (0, (1, 2)), (0, (5, 1.5, 1, 1.5))),
    *((0, (2.5, 1.5)), (0, (0.5, 2)), (0, (7, 2)), (0, (3, 1))),
)
_TEXT = 11.0


def figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of this size in pixels with one pair of axes, without frame, with a quiet grid."""
    # titles and ticks take their room from the drawing
    made = Figure(figsize=(width / 72, height / 72), layout="constrained", facecolor="none")
    axes = made.add_subplot()
    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    axes.grid(color=RULE, linewidth=0.8)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.tick_params(length=0, labelsize=_TEXT, labelcolor=SOFT)
    axes.tick_params(which="minor", length=0, labelleft=False, labelbottom=False)
    axes.xaxis.label.set(color=SOFT, fontsize=_TEXT + 1)
    return made, axes
