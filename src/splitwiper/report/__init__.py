"""The HTML report: one self-contained page about what was learned, forgotten and verified.

``render`` turns a :class:`ReportData` into a page that needs no network and no script; ``write_report`` puts it in a
file. Nothing here trains or reads a run folder: the caller fills in the `ReportData`.
"""

from splitwiper.report.data import Accuracy, ReportData, ReportedClient, ReportedRequest, ReportedServer
from splitwiper.report.page import render, write_report

__all__ = [
    "Accuracy",
    "ReportData",
    "ReportedClient",
    "ReportedRequest",
    "ReportedServer",
    "render",
    "write_report",
]
