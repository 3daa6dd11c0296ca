"""``splitwiper compare``: compare systems on the same data, network and meters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.errors import ConfigError, TrainingError, nearest
from splitwiper_lab.cli.measuring import Commit, Data, silence_seed_warning

if TYPE_CHECKING:
    from splitwiper_lab.evaluation.comparison import Comparison, Exposure, Record, SummaryRow
    from splitwiper_lab.sweeps import CellResult
    from splitwiper_lab.workloads import Workload

LINES, TEXT = "compare.jsonl", "compare.md"
File = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file as for 'learn', with a table 'compare'.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="The folder for results and tables.", show_default=False)
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="TEXT", help="Only systems with this in their name. May be repeated."),
]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Overrides the file's seeds.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print a list with one object per system, and nothing else.")]


def compare(
    config: File,
    out: Out = None,
    only: Only = None,
    seeds: Seeds = None,
    data: Data = None,
    commit: Commit = "",
    as_json: Json = False,
) -> None:
    """Train systems side by side, let each forget, and show what that costs every party.

    Each system learns from the same clients, forgets the same rows, and is
    metered the same way. With --out, results are JSON lines in FOLDER, and what
    is there already is not computed again.

    Example:
      splitwiper compare examples/compare/digits.toml --out compared

    where a part of the file reads:

      [compare]
      seeds = 3
      level = "class"        # or "sample", with delta = 0.5; or "client"
      membership = {shadow = 0.4}

      [[compare.systems]]
      kind = "splitwiper"    # vanilla, u-shaped, splitfed-v1, splitfed-v2, sisa

      [[compare.systems]]
      kind = "vanilla"
      schedule = "turns"     # or "interleaved"
      unlearning = ["retraining", {method = "gradient-ascent", epochs = 2}]

    Split learning also takes aggregate ("rows", "mean"), synchronise ("none",
    "average"), momentum ("kept", "fresh") and start ("pretrained", "scratch");
    sisa takes shards and slices, splitwiper masking and noise. Over clients' own
    files, compare.forget and compare.owner say what is forgotten.
    """
    failed = _compare(config, out, only or (), seeds, data, commit, as_json=as_json)
    if failed is not None:
        raise failed


def _compare(
    config: Path,
    out: Path | None,
    only: Sequence[str],
    seeds: int | None,
    data: Path | None,
    commit: str,
    *,
    as_json: bool,
) -> TrainingError | None:
    """Measure what is missing, and show everything; return what failed, which is raised last."""
    from splitwiper.store import files
    from splitwiper_lab.evaluation.comparison import conditions, records_of_results

    failed: TrainingError | None = None
    with Bars(quiet=as_json) as bars, when_interrupted("What was measured is kept in --out: run it again to go on."):
        file = ComparisonFile(config, data, bars)
        work, whole = file.read()
        comparison = _chosen(whole, only, seeds)
        about = conditions(config.stem, work, comparison)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        busy = f"another comparison writes into {out}; wait for it, or give another folder."
        with files.locked(out, busy=busy) if out else nullcontext(), silence_seed_warning():
            results = _known(out, about, comparison, work.config.seed)
            try:
                for result in _measured(file, work, comparison, about, results, out, commit):
                    results.append(result)
            except TrainingError as problem:  # raised by the sweep after everything else is measured
                failed = problem
            if out is not None:
                _write(out, about, whole)
    records = records_of_results(results)
    _sort(records, comparison)
    _show(out, comparison, records, as_json=as_json)
    return failed


@dataclass(frozen=True)
class ComparisonFile:
    """The configuration file of a comparison."""

    path: Path
    data: Path | None
    bars: Bars

    def read(self, seed: int | None = None) -> tuple[Workload, Comparison]:
        """Read the workload with a seed (the file's by default), and the systems to compare."""
        import numpy as np

        from splitwiper.cli.settings import read_settings
        from splitwiper.config import read_toml
        from splitwiper_lab.workloads import Workload

        settings = read_settings(self.path, seed=seed, data=self.data, progress=self.bars)
        values = read_toml(self.path)
        comparison = self._comparison(values.get("compare"))
        forget = settings.forget if comparison.forget == "" else comparison.forget
        owner = comparison.owner or settings.owner
        if forget == "" or not owner:
            raise self._error("compare.forget and compare.owner are missing: which label, and whose?")
        if owner not in settings.train:
            raise self._error(f"compare.owner = {owner!r} is not a client.{nearest(owner, settings.train)}")
        if not settings.test:
            raise self._error("no client has test data, so nothing can be compared; name test files.")
        config = settings.config
        if config.client.masking.is_on or config.client.noise.is_on:
            raise self._error("masking and noise belong to a system here: [[compare.systems]], not [client].")
        if "keys" not in values.get("client", {}):  # a seed then gives the same row order here and in other systems
            config = dataclasses.replace(config, client=dataclasses.replace(config.client, keys="seeded"))
        for label in np.asarray(settings.train[owner][1]).tolist():
            if str(label) == str(forget):  # the file may name 3 as "3"
                forget = label
                break
        train, test, tasks = dict(settings.train), dict(settings.test), dict(settings.tasks)
        return Workload(train=train, test=test, tasks=tasks, config=config, forget=forget, owner=owner), comparison

    def _comparison(self, table: object) -> Comparison:
        from splitwiper_lab.evaluation.comparison import read_comparison

        if not isinstance(table, Mapping):
            raise ConfigError(
                f"{self.path} has no [compare] table: say which systems, as 'splitwiper compare --help' shows."
            )
        try:
            return read_comparison(table)
        except ConfigError as problem:
            raise self._error(str(problem)) from problem

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"{self.path}: {message}")


def _chosen(comparison: Comparison, only: Sequence[str], seeds: int | None) -> Comparison:
    from splitwiper_lab.sweeps import matches

    systems = tuple(system for system in comparison.systems if matches(only, system.name))
    if not systems:
        names = "; ".join(map(attrgetter("name"), comparison.systems))
        raise ConfigError(f"--only {' '.join(only)} is in no system's name. They are: {names}.")
    return dataclasses.replace(comparison, systems=systems, seeds=seeds or comparison.seeds)


def _known(out: Path | None, about: Mapping[str, Any], comparison: Comparison, first: int) -> list[CellResult]:
    """Return the results that are there already."""
    from splitwiper_lab.evaluation.comparison import check_record, comparison_cells
    from splitwiper_lab.sweeps import read_results

    if out is None:
        return []
    wanted = comparison_cells(about, comparison, range(first, first + comparison.seeds))
    return read_results(out / LINES, wanted=wanted.__contains__, check=check_record)


def _measured(
    file: ComparisonFile,
    work: Workload,
    comparison: Comparison,
    about: Mapping[str, Any],
    known: Sequence[CellResult],
    out: Path | None,
    commit: str,
) -> Iterator[CellResult]:
    """Measure the cells that are missing."""
    from splitwiper_lab.evaluation.comparison import ComparisonMeasure, comparison_cells
    from splitwiper_lab.sweeps import machine, missing, sweep

    first = work.config.seed
    cells = comparison_cells(about, comparison, range(first, first + comparison.seeds))

    def read(seed: int) -> Workload:
        return work if seed == first else file.read(seed)[0]

    try:
        yield from sweep(
            None if out is None else out / LINES,
            missing(cells, known),
            ComparisonMeasure(read, comparison, cells, file.bars, out),
            made=lambda cell: {**machine(work.config.server.device), "commit": commit},
            about=about,
        )
    except ConfigError as problem:  # found only when the data is there, for example a label that nobody holds
        raise ConfigError(f"{file.path}: {problem}") from problem


def _write(out: Path, about: Mapping[str, Any], comparison: Comparison) -> None:
    """Write the tables of everything in the folder, whichever systems and seeds this run measured."""
    from splitwiper_lab.evaluation.comparison import (
        check_record,
        comparison_cells,
        exposures,
        records_of_results,
        summary,
    )
    from splitwiper_lab.pages.comparison import markdown
    from splitwiper_lab.sweeps import machines, read_results

    # digests of settings leave the seed out, so those of one seed are those of all
    any_seed = {(cell.system, cell.settings) for cell in comparison_cells(about, comparison, [0])}
    results = read_results(
        out / LINES, wanted=lambda cell: (cell.system, cell.settings) in any_seed, check=check_record
    )
    records = records_of_results(results)
    rows = summary(records, bandwidth=about["bandwidth"] * 1e6)
    temporary = out / f".{TEXT}"
    temporary.write_text(markdown(about, rows, exposures(records), machines(results), LINES), encoding="utf-8")
    temporary.replace(out / TEXT)  # whole or not at all: somebody may be reading it


def _sort(records: list[Record], comparison: Comparison) -> None:
    """Sort records in the order of the configuration."""
    place: dict[tuple[str, str], int] = {}
    for system in comparison.systems:
        for way in system.ways:
            place[system.name, way] = len(place)  # as many systems, as many ways each
    records.sort(key=lambda record: (place[record.system, record.unlearning], record.seed))


def _show(out: Path | None, comparison: Comparison, records: Sequence[Record], *, as_json: bool) -> None:
    from splitwiper_lab.evaluation.comparison import exposures, summary

    rows = summary(records, bandwidth=comparison.bandwidth * 1e6)
    exposed = exposures(records)
    if as_json:
        objects = {(row.system, row.unlearning): {**output.plain(row), "membership": []} for row in rows}
        for one in exposed:
            objects[one.system, one.unlearning]["membership"].append(output.plain(one))
        output.emit(list(objects.values()))
        return
    _print(rows, exposed, comparison)
    if out is not None:
        output.line(output.output(), f"Results: {out / LINES}; all columns: {out / TEXT}")


def _print(rows: Sequence[SummaryRow], exposed: Sequence[Exposure], comparison: Comparison) -> None:
    from splitwiper_lab.pages.comparison import exposure_short, short

    screen = output.output()
    screen.print(output.table(*short(rows)))
    screen.print()
    output.line(
        screen,
        "Accuracy in percent after forgetting; what forgetting takes the requesting client, and all others together: "
        f"computing, files, and sending at {comparison.bandwidth:g} Mbit/s; clients it needs, and without which it "
        "stops.",
    )
    for row in rows:
        if row.kind == "splitwiper" and row.share_of_vanilla[0].mean is not None:
            last, whole = row.share_of_vanilla
            every_last, every_whole = row.share_of_all
            output.line(
                screen,
                f"{row.system}: the requester spends {_percent(last.mean)} of what vanilla's does "
                f"({_percent(whole.mean)} with all of pre-training), all clients together {_percent(every_last.mean)} "
                f"({_percent(every_whole.mean)}).",
            )
    if exposed:
        screen.print()
        screen.print(output.table(*exposure_short(exposed)))
        screen.print()
        knows = " and ".join(dict.fromkeys(one.knows for one in exposed))
        output.line(
            screen,
            f"Membership inference by an attacker who knows {knows}: percent of forgotten rows, and of rows never "
            "learned, that it calls members; AUC with half its interval, and next to that of a model retrained without "
            "the rows. Equal to that model is the goal; less is not better.",
        )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"
