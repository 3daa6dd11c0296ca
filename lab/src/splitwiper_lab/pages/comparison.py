"""A comparison as tables: accuracy of each system, the cost of forgetting by party, and whether it is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitwiper.formats import NONE, seconds, size
from splitwiper_lab.evaluation.comparison import Exposure, SeedSpread, SummaryRow
from splitwiper_lab.pages.document import Table, described, document, markdown_table

_AWAY = {None: NONE, True: "goes on", False: "stops"}
HEADER = ("system", "forgets by", ">retained", ">forgotten", ">requester", ">others", ">took part", "one away", "exact")
"""Accuracy after forgetting; seconds of computing + sending of the requesting client and of all others together."""
MORE = (
    *("system", "forgets by", ">seeds", ">retained before", ">forgotten before"),
    *(">requester's files", ">requester's bytes", ">others' bytes"),
    *(">of vanilla's requester", ">… all N epochs", ">of all clients", ">… all N epochs"),
    *(">FLOPs of vanilla's requester", ">… all N epochs", ">server", ">server stores"),
)
"""Costs as shares of what vanilla split learning spends on retraining: computing, files and sending, or only
operations; with the last epoch of pre-training, and with all of it on both sides."""
SHORT = ("system", ">retained", ">forgotten", ">requester", ">others", ">needs", "exact")
"""The columns for a terminal: accuracies in percent, computing and sending together."""
EXPOSURE = (*("system", "forgets by", "attack", "knows"), *(">hit rate", ">false alarms", ">AUC", ">beside", "exposed"))
EXPOSURE_SHORT = ("system", "attack", ">hits", ">false", ">AUC", ">beside", "exposed")


def short(lines: Sequence[SummaryRow]) -> Table:
    """Return headings and rows that fit a terminal."""
    rows = []
    for line in lines:
        has_one_way = line.unlearning == line.kind
        rows.append(
            (
                # its name would only repeat the system's
                line.system if has_one_way else f"{line.system}: {line.unlearning}",
                _short_percent(line.retained),
                _short_percent(line.forgotten),
                _together(line.requester_seconds, line.requester_handling, line.requester_sending),
                _together(line.others_seconds, line.others_sending),
                f"{line.took_part[0]}/{line.took_part[1]}",
                _exact(line),
            )
        )
    return SHORT, rows


def table(lines: Sequence[SummaryRow]) -> Table:
    """Return headings and rows, with computing and sending apart."""
    rows = []
    for line in lines:
        rows.append(
            (
                line.system,
                line.unlearning,
                _percent(line.retained),
                _percent(line.forgotten),
                f"{line.requester_seconds.text(_seconds)} + {line.requester_sending.text(_seconds)}",
                f"{line.others_seconds.text(_seconds)} + {line.others_sending.text(_seconds)}",
                f"{line.took_part[0]} of {line.took_part[1]}",
                _AWAY[line.away],
                _exact(line),
            )
        )
    return HEADER, rows


def more(lines: Sequence[SummaryRow]) -> Table:
    """Return headings and rows of the columns that `table` leaves out."""
    rows = []
    for line in lines:
        rows.append(
            (
                line.system,
                line.unlearning,
                str(line.seeds),
                _percent(line.retained_learned),
                _percent(line.forgotten_learned),
                line.requester_handling.text(_seconds),
                line.requester_bytes.text(_size),
                line.others_bytes.text(_size),
                # each with one epoch of pre-training, then with all
                *map(_percent, (*line.share_of_vanilla, *line.share_of_all, *line.flops_of_vanilla)),
                line.server_seconds.text(_seconds),
                line.server_storage.text(_size),
            )
        )
    return MORE, rows


def exposure(exposures: Sequence[Exposure]) -> Table:
    """Return headings and rows of membership inference against each system."""
    rows = []
    for exposed in exposures:
        low, high = exposed.interval
        auc, difference = exposed.auc.mean, exposed.difference
        rows.append(
            (
                exposed.system,
                exposed.unlearning,
                exposed.attack,
                exposed.knows,
                _percent(exposed.hit_rate),
                _percent(exposed.false_positive_rate),
                NONE if auc is None else f"{auc:.3f} [{low:.3f}, {high:.3f}]",
                NONE if difference is None else difference.text("{:+.3f}".format),
                exposed.verdict,
            )
        )
    return EXPOSURE, rows


def exposure_short(exposures: Sequence[Exposure]) -> Table:
    """Return the rows of `exposure` for a terminal; a repeated system and method is left blank."""
    rows = []
    before = ""
    for exposed in exposures:
        name = exposed.system if exposed.unlearning in exposed.system else f"{exposed.system}: {exposed.unlearning}"
        low, high = exposed.interval
        difference = exposed.difference
        rows.append(
            (
                "" if name == before else name,  # rows of one system stand below its name
                exposed.attack,
                exposed.hit_rate.text(_whole_percent),
                exposed.false_positive_rate.text(_whole_percent),
                f"{exposed.auc.mean:.2f} ±{(high - low) / 2:.2f}",  # half of the interval, which is about symmetric
                NONE if difference is None else f"{difference.mean:+.3f}",
                NONE if difference is None else exposed.verdict,
            )
        )
        before = name
    return EXPOSURE_SHORT, rows


def brief(lines: Sequence[SummaryRow]) -> str:
    """Return the terminal's table as Markdown, with at most one exact and one approximate row of each kind of system.

    These are the exact one that retains most, and the approximate one that remembers least of what it should forget.
    """

    def merit(line: SummaryRow) -> float:
        return (line.retained.mean or 0.0) if line.exact else -(line.forgotten.mean or 0.0)

    best: dict[tuple[str, bool], SummaryRow] = {}
    for line in lines:
        rival = best.setdefault((line.kind, line.exact), line)
        if merit(line) > merit(rival):
            best[line.kind, line.exact] = line
    return markdown_table(*short([line for line in lines if best[line.kind, line.exact] is line]))


def markdown(
    about: Mapping[str, Any],
    lines: Sequence[SummaryRow],
    exposed: Sequence[Exposure],
    machines: Sequence[str],
    record: str,
) -> str:
    """Return the tables with explanations as Markdown."""
    conditions = {**about, **about.get("membership", {})}
    return document(
        "compare.md",
        about=about,
        # the digests tell configurations apart, and say nothing to people
        conditions=described(conditions, without=("title", "settings", "data", "membership")),
        machines=machines,
        record=record,
        table=markdown_table(*table(lines)),
        more=markdown_table(*more(lines)),
        exposed=markdown_table(*exposure(exposed)) if exposed else "",
    )


def _exact(line: SummaryRow) -> str:
    return "verified" if line.verified else "yes" if line.exact else "no"


def _percent(spread: SeedSpread) -> str:
    return spread.text(lambda value: f"{100 * value:.2f}") + (" %" if spread.mean is not None else "")


def _short_percent(spread: SeedSpread) -> str:
    return spread.text(lambda value: f"{100 * value:.1f}").replace(" ± ", " ±")


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _together(*parts: SeedSpread) -> str:
    return _seconds(sum(part.mean or 0.0 for part in parts))


def _seconds(value: float) -> str:
    return seconds(value).replace("\xa0", " ")


def _size(value: float) -> str:
    return size(round(value)).replace("\xa0", " ")
