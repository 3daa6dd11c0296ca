"""``splitwiper results``: one page of all results, compared with the paper's claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.errors import InputError, NotFoundError
from splitwiper_lab.cli.reproduce import RESULTS, Experiments, experiments_folder

if TYPE_CHECKING:
    from splitwiper_lab.pages.reproduction import Collected

TRADEOFF, COMPARE = Path("results/tradeoff/cifar10-vgg/tradeoff.jsonl"), Path("results/compare/cifar10/compare.jsonl")
_HIDDEN = {"show_default": False}


Results = Annotated[
    Path | None,
    typer.Option(
        "--results", metavar="DIR", help="Results of 'splitwiper reproduce'; results/reproduce unless given.", **_HIDDEN
    ),
]
Scale = Annotated[str, typer.Option("--scale", help="Which results: smoke, cpu or full.")]
Tradeoff = Annotated[
    Path | None,
    typer.Option("--tradeoff", metavar="FILE", help="Results of 'splitwiper tradeoff', for the plot.", **_HIDDEN),
]
Compare = Annotated[
    Path | None,
    typer.Option(
        "--compare", metavar="FILE", help="Results of 'splitwiper compare', for systems side by side.", **_HIDDEN
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")]
Readmes = Annotated[
    bool, typer.Option("--readmes", help="Also write every experiment's README.md, from results at scale full.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a single JSON object instead of text.")]


def results(
    results: Results = None,
    scale: Scale = "full",
    tradeoff: Tradeoff = None,
    compare: Compare = None,
    experiments: Experiments = None,
    out: Out = Path("results.html"),
    readmes: Readmes = False,
    as_json: Json = False,
) -> None:
    """Make a page of all results: the paper's claims, every table and figure.

    The page needs no network. Verdicts on the paper's claims are computed from the
    results; the page says what is missing.

    Example:
      splitwiper results
      splitwiper results --scale smoke --out smoke.html
      splitwiper results --readmes
    """
    from splitwiper_lab.evaluation.reproduction import SCALES
    from splitwiper_lab.pages.reproduction import Collected, read_all, read_comparison, read_tradeoff, render

    if scale not in SCALES:
        raise InputError(f"there is no scale {scale!r}. Take {', '.join(SCALES)}.")
    _exist(results, tradeoff, compare)
    folder, lines = experiments_folder(experiments), results or RESULTS
    if results is None and scale == "full":  # the default files do not belong to other results
        tradeoff, compare = tradeoff or TRADEOFF, compare or COMPARE
    collected = Collected(
        scale,
        read_all(folder, lines, scale),
        read_tradeoff(tradeoff) if tradeoff else None,
        read_comparison(compare) if compare else None,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(collected), encoding="utf-8", newline="\n")
    written = _readmes(folder, lines) if readmes else []
    found = _as_object(collected, out, written)
    if as_json:
        output.emit(found)
    else:
        _print(collected, found)


def _exist(*given: Path | None) -> None:
    for path in given:
        if path is not None and not path.exists():
            raise NotFoundError(f"{path} is not there: name the file or folder of results, or leave the option out.")


def _readmes(folder: Path, results: Path) -> list[str]:
    """Write every experiment's README, and return the paths of those that changed."""
    from splitwiper_lab.pages.reproduction import read_all, readme

    every = read_all(folder, results, "full")
    if not any(measured.results for measured in every):
        raise InputError(f"there are no results of scale full in {results}: READMEs are written from those alone.")
    written = []
    for measured in every:
        path = folder / measured.experiment.id / "README.md"
        text = readme(measured.experiment, measured.results)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # unchanged files keep their dates
            path.write_text(text, encoding="utf-8", newline="\n")
            written.append(str(path))
    return written


def _as_object(collected: Collected, out: Path, written: list[str]) -> dict[str, Any]:
    from splitwiper_lab.evaluation.reproduction import judged
    from splitwiper_lab.pages.reproduction import claims

    judgements: list[dict[str, Any]] = []
    for claim in claims(collected):
        judgement = {"key": claim.key, "claim": claim.says, "verdict": claim.verdict, "why": claim.why}
        judgements.append({**judgement, "evidence": list(claim.evidence)})
    experiments = []
    for measured in collected.measured:
        counts = {"id": measured.experiment.id, "done": measured.done, "cells": measured.wanted}
        experiments.append({**counts, "verdicts": judged(measured.experiment, measured.results)})
    named = {"page": out, "scale": collected.scale, "claims": judgements}
    return {**named, "experiments": experiments, "readmes": written}


def _print(collected: Collected, found: dict[str, Any]) -> None:
    screen = output.output()
    rows = [(f"({claim['key']})", claim["claim"], claim["verdict"]) for claim in found["claims"]]
    screen.print(output.table(("", "the paper's claim", "verdict"), rows))
    screen.print()
    scale, measured = collected.scale, sum(one["done"] > 0 for one in found["experiments"])
    if not measured:
        output.line(
            screen,
            f"Nothing was measured yet at scale {scale}: run 'splitwiper reproduce ID --scale {scale}' first, or name "
            "another --scale or --results.",
        )
    output.line(screen, f"Experiments with results at scale {scale}: {measured} of {len(found['experiments'])}.")
    if found["readmes"]:
        output.line(screen, f"READMEs that changed: {len(found['readmes'])}.")
    output.line(screen, f"Page: {found['page']}")
