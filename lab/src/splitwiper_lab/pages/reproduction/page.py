"""The page of all results: claims, then every experiment, the trade-off, the comparison, and how to reproduce them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from splitwiper.formats import NONE, plural
from splitwiper_lab.evaluation.comparison import summary
from splitwiper_lab.evaluation.recommend import recommendation
from splitwiper_lab.pages import comparison, tradeoff
from splitwiper_lab.pages.html.document import document
from splitwiper_lab.pages.html.markup import Markup, el, join
from splitwiper_lab.pages.html.parts import facts, num, row_head, scroll, section, table, td, th, tr
from splitwiper_lab.pages.reproduction.beside import side_by_side
from splitwiper_lab.pages.reproduction.claim import ClaimEvidence, PaperClaim
from splitwiper_lab.pages.reproduction.claims import claims
from splitwiper_lab.pages.reproduction.collected import Beside, Collected, made_told
from splitwiper_lab.pages.reproduction.look import STYLE
from splitwiper_lab.pages.reproduction.parts import folded, grid, tone, verdict_pill
from splitwiper_lab.pages.reproduction.sections import experiment_section

TITLE = "SplitWiper: the paper's results, measured again"
SCALES = {
    "smoke": "seconds on a processor; bundled data and small networks. It shows that everything works, and no more.",
    "cpu": "minutes on two cores; parts of the real data and narrower networks.",
    "full": "one GPU; the paper's networks and numbers of epochs, on real data.",
}
"""A description of each scale."""


def render(collected: Collected) -> str:
    """Render the page. This is a pure function: the same results give the same bytes."""
    first, judged = len(collected.measured) + 1, claims(collected)
    parts = [
        _masthead(collected),
        _glance(judged),
        *(_card(claim, collected) for claim in judged),
        _contents(collected),
        *(experiment_section(number, one) for number, one in enumerate(collected.measured, start=1)),
        _tradeoff(first, collected.tradeoff),
        _comparison(first + 1, collected.comparison),
        _coverage(first + 2, collected),
        _how(first + 3, collected),
    ]
    return document(TITLE, *(join(("\n", part)) for part in parts), "\n", style=STYLE)


def _masthead(collected: Collected) -> Markup:
    done = sum(one.done for one in collected.measured if one.experiment.id == one.experiment.measured_as)
    wanted = sum(one.wanted for one in collected.measured if one.experiment.id == one.experiment.measured_as)
    there = f"{done:,} of {plural(wanted, 'cell')} measured; each experiment below says which are missing."
    what = f"Scale {collected.scale}: {SCALES.get(collected.scale, '')} {there}"
    parts = [
        el("h1", TITLE),
        el(
            "p",
            "What the CCS 2025 paper on SplitWiper and SplitWiper+ claims, and what came out when it was measured "
            "again. Verdicts are computed from the results; none is typed.",
            class_="subtitle",
        ),
        el("p", what, class_="when"),
    ]
    if not done:
        text = f"No experiment was measured yet at scale {collected.scale}."
        if collected.tradeoff or collected.comparison:
            text += " What there is, is from other commands' files."
        parts.append(el("section", el("p", text), class_="banner"))
    elif collected.scale != "full":
        text = (
            f"These results are of scale {collected.scale}: data and networks are smaller than the paper's. Verdicts "
            "are about what was measured here, and say little about the paper's claims."
        )
        parts.append(el("section", el("p", text), class_="banner"))
    return el("header", *parts)


def _glance(judged: Sequence[PaperClaim]) -> Markup:
    """Render the four verdicts in a row."""
    cells = (
        el(
            "div",
            el("dt", el("a", f"({one.key}) {one.title}", href=f"#claim-{one.key}")),
            el("dd", verdict_pill(one.verdict)),
        )
        for one in judged
    )
    return el("dl", *cells, class_="tiles glance")


def _card(claim: PaperClaim, collected: Collected) -> Markup:
    heading = el("h2", el("span", f"({claim.key})", class_="letter"), claim.title, verdict_pill(claim.verdict))
    parts = [heading, el("p", claim.says)]
    if claim.why:
        parts.append(el("p", el("strong", "Why: "), claim.why, class_="why"))
    if claim.evidence:
        head = tr(th("Evidence"), th("Ours"), th("Paper"), th("Seeds", class_="n"), th("From"))
        body = [_evidence(one, collected) for one in claim.evidence]
        parts.append(
            scroll(
                table([head], body, caption=f"Evidence for claim {claim.key}", class_="prose"), f"Evidence {claim.key}"
            )
        )
        parts.append(el("p", claim.rule, class_="caption"))
    else:
        parts.append(el("p", "Nothing that bears on it was measured yet.", class_="empty none-yet"))
    return el("section", *parts, class_=f"claim {tone(claim.verdict)}", id=f"claim-{claim.key}")


def _evidence(one: ClaimEvidence, collected: Collected) -> Markup:
    glyph, words = ("✓", "as claimed") if one.reached >= 1 else ("◐", "in part") if one.reached > 0 else ("✕", "not so")
    sign = el("span", glyph, class_="sign", title=words)
    return tr(
        row_head(sign, one.says),
        td(one.ours, label="Ours"),
        td(one.paper or NONE, label="Paper"),
        num(one.seeds, label="Seeds"),
        td(_source(one.source, collected), label="From"),
    )


def _source(name: str, collected: Collected) -> Markup:
    """Link to the section of the page that shows a source."""
    beside = {"tradeoff": collected.tradeoff, "side-by-side": collected.comparison}
    for anchor, there in beside.items():
        if there is not None and there.file == name:
            return el("a", anchor.replace("-", " "), href="#" + anchor, title=name)
    return el("a", name, href="#" + name)


def _contents(collected: Collected) -> Markup:
    items = (
        el("li", el("a", one.experiment.title, href="#" + one.experiment.id), f" ({one.done} of {one.wanted})")
        for one in collected.measured
    )
    return el("section", el("nav", el("h2", "Experiments"), el("ol", *items), aria_label="Experiments"))


def _about(about: Mapping[str, object]) -> dict[str, str]:
    left_out = ("settings", "data", "membership", "title", "quick")
    return {key: str(value) for key, value in about.items() if key not in left_out and value not in (None, False)}


def _made(beside: Beside) -> Markup:
    conditions = ", ".join(f"{key} {value}" for key, value in _about(beside.about).items())
    made = made_told(beside.made)
    return el("p", f"{conditions}. {made} Results: {beside.file}.", class_="small made")


def _tradeoff(number: int, beside: Beside | None) -> Markup:
    title = "Privacy against utility"
    if beside is None:
        return section(number, title, el("p", "Not measured yet: see splitwiper tradeoff.", class_="empty none-yet"))
    wide = el("div", tradeoff.plot(beside.points), class_="wide")
    slim = el("div", tradeoff.plot(beside.points, slim=True), class_="slim")
    return section(
        number,
        title,
        el("p", recommendation(beside.points), id="tradeoff"),
        el("figure", wide, slim, el("figcaption", tradeoff.EXPLAINED), class_="pareto"),
        tradeoff.settings_table(beside.points),
        _made(beside),
    )


def _comparison(number: int, beside: Beside | None) -> Markup:
    title = "Systems side by side"
    if beside is None:
        return section(number, title, el("p", "Not measured yet: see splitwiper compare.", class_="empty none-yet"))
    found = summary(beside.records, bandwidth=float(beside.about.get("bandwidth", 100)) * 1e6)
    note = (
        "Accuracy in percent after forgetting; time of the requesting client and of all others together: computing, "
        f"and sending at {beside.about.get('bandwidth', 100):g} Mbit/s. Needs: clients without which it stops. Exact: "
        "verified by recomputing every bit, or yes since only remaining rows were trained on."
    )
    return section(
        number,
        title,
        el("p", "The same clients, network and meters for every system and way to forget.", id="side-by-side"),
        side_by_side(found),
        grid(*comparison.short(found), caption="Systems side by side"),
        el("p", note, class_="caption"),
        folded(
            "Computing and sending apart, bytes, shares of vanilla's cost, and the server",
            grid(*comparison.table(found), caption="Computing and sending apart"),
            grid(*comparison.more(found), caption="Bytes, shares and the server"),
        ),
        _made(beside),
    )


def _coverage(number: int, collected: Collected) -> Markup:
    head = tr(th("Experiment"), *(th(name, class_="n") for name in ("Done", "Wanted", "Seeds")), th("In the paper"))
    body = [
        tr(
            row_head(el("a", one.experiment.id, href="#" + one.experiment.id)),
            num(f"{one.done}"),
            num(f"{one.wanted}"),
            num(one.seeds()),
            td(one.experiment.paper),
        )
        for one in collected.measured
    ]
    once = [one for one in collected.measured if one.experiment.id == one.experiment.measured_as]
    total = tr(
        row_head("All, each measurement once"),
        num(f"{sum(one.done for one in once)}"),
        num(f"{sum(one.wanted for one in once)}"),
        td(""),
        td(""),
        class_="total",
    )
    note = "A cell is one system under one condition with one seed."
    box = scroll(table([head], [*body, total], caption="Coverage"), "Coverage")
    return section(number, "Coverage", el("p", note), box)


def _how(number: int, collected: Collected) -> Markup:
    lines = [
        "splitwiper reproduce --list",
        "splitwiper reproduce effectiveness-vgg",
        "splitwiper reproduce effectiveness-vgg --scale full --data DIR",
        f"splitwiper results --scale {collected.scale}",
    ]
    text = (
        "Results are JSON lines, results/reproduce/SCALE/ID.jsonl, one line for each cell; what is there is not "
        "measured again, so a long experiment can be done in pieces (--minutes). --data names the folder of the data "
        "sets' official files; at scale smoke nothing has to be fetched. The plot of privacy against utility is from "
        "splitwiper tradeoff, and the systems side by side are from splitwiper compare."
    )
    return section(
        number, "How to measure it again", el("pre", "\n".join(lines), tabindex=0), el("p", text), facts(SCALES)
    )
