"""The HTML report: one self-contained page about what was learned, forgotten and verified.

``render`` turns a :class:`Story` into a page that needs no network and no script; ``write_report`` puts it in a
file. Nothing here trains or reads a run folder: whoever has the facts fills in a story.
"""

from splitwiper.report.page import render, write_report
from splitwiper.report.story import (
    Accuracy,
    Check,
    ClientStory,
    Remain,
    Request,
    ServerStory,
    Story,
    Verification,
)

__all__ = [
    "Accuracy",
    "Check",
    "ClientStory",
    "Remain",
    "Request",
    "ServerStory",
    "Story",
    "Verification",
    "render",
    "write_report",
]
