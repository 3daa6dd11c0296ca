"""A comparison as a table: accuracy of each system, the cost of forgetting by party, and whether it is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitwiper.formats import NONE, seconds, size
from splitwiper_lab.evaluation.comparison import Exposure, SeedSpread, SummaryRow

_AWAY = {None: NONE, True: "goes on", False: "stops"}
HEADER = (
    "system",
    "forgets by",
    ">retained",
    ">forgotten",
    ">requester",
    ">others",
    ">took part",
    "one away",
    "exact",
)
"""Accuracy after forgetting; seconds of computing + sending of the requesting client and of all others together."""
MORE = (
    "system",
    "forgets by",
    ">seeds",
    ">retained before",
    ">forgotten before",
    ">requester's files",
    ">requester's bytes",
    ">others' bytes",
    ">of vanilla's requester",
    ">… all N epochs",
    ">of all clients",
    ">… all N epochs",
    ">FLOPs of vanilla's requester",
    ">… all N epochs",
    ">server",
    ">server stores",
)
"""Costs as shares of what vanilla split learning spends on retraining: computing, files and sending, or only
operations; with the last epoch of pre-training, and with all of it on both sides."""


SHORT = ("system", ">retained", ">forgotten", ">requester", ">others", ">needs", "exact")
"""The columns for a terminal: accuracies in percent, computing and sending together."""


def short(lines: Sequence[SummaryRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows that fit a terminal."""
    rows: list[tuple[str, ...]] = []
    for line in lines:
        has_one_way = line.unlearning == line.kind
        rows.append(
            (
                line.system if has_one_way else f"{line.system}: {line.unlearning}",
                _short(line.retained),
                _short(line.forgotten),
                _together(line.requester_seconds, line.requester_handling, line.requester_sending),
                _together(line.others_seconds, line.others_sending),
                f"{line.took_part[0]}/{line.took_part[1]}",
                _exact(line),
            )
        )
    return SHORT, rows


def _exact(line: SummaryRow) -> str:
    return "verified" if line.verified else "yes" if line.exact else "no"


def _short(spread: SeedSpread) -> str:
    return spread.told(lambda value: f"{100 * value:.1f}").replace(" ± ", " ±")


def _together(*parts: SeedSpread) -> str:
    return _seconds(sum(part.mean or 0.0 for part in parts))


def table(lines: Sequence[SummaryRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows, with computing and sending apart."""
    return HEADER, [
        (
            line.system,
            line.unlearning,
            _percent(line.retained),
            _percent(line.forgotten),
            f"{line.requester_seconds.told(_seconds)} + {line.requester_sending.told(_seconds)}",
            f"{line.others_seconds.told(_seconds)} + {line.others_sending.told(_seconds)}",
            f"{line.took_part[0]} of {line.took_part[1]}",
            _AWAY[line.away],
            _exact(line),
        )
        for line in lines
    ]


def more(lines: Sequence[SummaryRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows of the columns that `table` leaves out."""
    return MORE, [
        (
            line.system,
            line.unlearning,
            str(line.seeds),
            _percent(line.retained_learned),
            _percent(line.forgotten_learned),
            line.requester_handling.told(_seconds),
            line.requester_bytes.told(_size),
            line.others_bytes.told(_size),
            *map(_percent, (*line.share_of_vanilla, *line.share_of_all, *line.flops_of_vanilla)),
            line.server_seconds.told(_seconds),
            line.server_storage.told(_size),
        )
        for line in lines
    ]


def exposure(found: Sequence[Exposure]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows of membership inference against each system."""
    head = (
        "system",
        "forgets by",
        "attack",
        "knows",
        ">hit rate",
        ">false alarms",
        ">AUC",
        ">beside",
        "exposed",
    )
    return head, [
        (
            e.system,
            e.unlearning,
            e.attack,
            e.knows,
            _percent(e.hit_rate),
            _percent(e.false_positive_rate),
            _interval(e.auc, e.interval),
            NONE if e.difference is None else f"{e.difference.told(lambda v: f'{v:+.3f}')}",
            e.verdict,
        )
        for e in found
    ]


def exposure_short(found: Sequence[Exposure]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the rows of `exposure` for a terminal; a repeated system and method is left blank."""
    head = ("system", "attack", ">hits", ">false", ">AUC", ">beside", "exposed")
    rows: list[tuple[str, ...]] = []
    before = ""
    for e in found:
        name = e.system if e.unlearning in e.system else f"{e.system}: {e.unlearning}"
        beside = NONE if e.difference is None else f"{e.difference.mean:+.3f}"
        shown = f"{e.auc.mean:.2f} ±{(e.interval[1] - e.interval[0]) / 2:.2f}"
        rows.append(
            (
                "" if name == before else name,
                e.attack,
                e.hit_rate.told(lambda v: f"{100 * v:.0f}"),
                e.false_positive_rate.told(lambda v: f"{100 * v:.0f}"),
                shown,
                beside,
                NONE if e.difference is None else e.verdict,
            )
        )
        before = name
    return head, rows


def brief(lines: Sequence[SummaryRow]) -> str:
    """Return the terminal's table as Markdown."""
    return "\n".join(_markdown(*short(lines)))


def markdown(
    about: Mapping[str, Any],
    lines: Sequence[SummaryRow],
    exposed: Sequence[Exposure],
    machines: Sequence[str],
    record: str,
) -> str:
    """Return the tables with explanations as Markdown."""
    parts = [
        f"# Compared: {about['title']}",
        "",
        f"Written by `splitwiper compare` from [{record}]({record}).",
        f"{_told(about)}. Measured on {'; '.join(machines)}.",
        "",
        *_markdown(*table(lines)),
        "",
        "Accuracy after forgetting, each client on its own test rows; retained: all labels but the one to forget. The",
        "requester's and all others' cost of forgetting: seconds of computing (with the last epoch of pre-training, as",
        f"the paper counts it) + seconds of sending at {about['bandwidth']:g} Mbit/s. One away: whether forgetting",
        "goes on while another client cannot be reached. ± is the deviation over seeds. A codec other than none makes",
        "SplitWiper's bytes fewer; others send floats. U-shaped clients answer among their own labels, all others",
        "among all. SISA has all rows in one place, and clients nothing to do. The forgotten label stays known where",
        "other clients hold it too, or only some of its rows go. Exact: verified by recomputing and comparing every",
        "bit, or yes because it was trained only on the remaining rows.",
        "",
        *_markdown(*more(lines)),
        "",
        "Files: seconds of writing and hashing them; SplitWiper keeps rows and uploads in files, what other systems",
        "send is counted and never written. Shares are of what vanilla split learning spends on retraining in the same",
        "seed: computing, files and sending together, then only operations; with the last epoch of pre-training, and",
        "with all N epochs of it on both sides.",
        "",
    ]
    if exposed:
        parts += [
            "## Membership inference against what was forgotten",
            "",
            *_markdown(*exposure(exposed)),
            "",
            "Hit rate: forgotten rows that the attack calls members; false alarms: rows never learned that it calls so",
            "too. AUC with its 95 % interval; beside: its difference from the same attack on a model retrained",
            "without the rows. Equal to that model is the goal; lower is not better.",
            "",
        ]
    return "\n".join(parts)


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(h.removeprefix(">") for h in headings) + " |",
        "|" + "|".join("---:" if h.startswith(">") else "---" for h in headings) + "|",
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


def _told(about: Mapping[str, Any]) -> str:
    told = {**about, **about.get("membership", {})}
    left_out = ("title", "settings", "data", "membership")
    return ", ".join(f"{key} {value}" for key, value in told.items() if key not in left_out)


def _percent(spread: SeedSpread) -> str:
    return spread.told(lambda value: f"{100 * value:.2f}") + (" %" if spread.mean is not None else "")


def _seconds(value: float) -> str:
    return seconds(value).replace("\xa0", " ")


def _size(value: float) -> str:
    return size(round(value)).replace("\xa0", " ")


def _interval(auc: SeedSpread, interval: tuple[float, float]) -> str:
    return NONE if auc.mean is None else f"{auc.mean:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
