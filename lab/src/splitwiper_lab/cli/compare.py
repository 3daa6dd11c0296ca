"""``splitwiper compare``: compare systems on the same data, network and meters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.errors import BusyError, ConfigError, TrainingError, nearest
from splitwiper_lab.cli.seed_warning import silence_seed_warning

if TYPE_CHECKING:
    from splitwiper_lab.evaluation.comparison import Comparison, Exposure, Record, SummaryRow
    from splitwiper_lab.sweeps import CellResult
    from splitwiper_lab.workloads import Workload

LINES, TEXT = "compare.jsonl", "compare.md"


def compare(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A TOML file as for 'learn', with a table 'compare'.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="For results and tables.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TEXT", help="Only systems with this in their name. May be repeated."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Takes the place of the file's.", show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Where data sets lie.", show_default=False)] = None,
    commit: Annotated[str, typer.Option("--commit", help="Written into the results.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, one object per system, only.")] = False,
) -> None:
    """Train systems side by side, forget, and say what it cost whom.

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
    from splitwiper_lab.evaluation.comparison import Record, conditions

    failed: TrainingError | None = None
    with Bars(quiet=as_json) as bars, when_interrupted("What was measured is kept in --out: run it again to go on."):
        work, whole = _read(config, None, data, bars)
        comparison = _chosen(whole, only, seeds)
        about = conditions(config.stem, work, comparison)
        with _alone(out), silence_seed_warning():
            results = _known(out, about, comparison, work.config.seed)
            try:
                for result in _measured(config, work, comparison, about, results, out, data, commit, bars):
                    results.append(result)
            except TrainingError as problem:  # raised after everything else is measured and shown
                failed = problem
            if out is not None:
                _write(out, about, whole)
    records = [Record.from_dict(result.values) for result in results]
    _sort(records, comparison)
    _finish(out, comparison, records, as_json=as_json)
    if failed is not None:
        raise failed


@contextmanager
def _alone(out: Path | None) -> Iterator[None]:
    """Keep other processes from writing into the same folder.

    Raises:
        BusyError: another process is writing into it.
    """
    if out is None:
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w", encoding="utf-8") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # a system without flock
            pass
        except OSError as problem:
            raise BusyError(f"another comparison writes into {out}; wait for it, or give another folder.") from problem
        yield
    (out / ".lock").unlink(missing_ok=True)


def _read(config: Path, seed: int | None, data: Path | None, bars: Bars) -> tuple[Workload, Comparison]:
    import numpy as np

    from splitwiper.cli.settings import read_settings
    from splitwiper.config import read_toml
    from splitwiper_lab.evaluation.comparison import read_comparison
    from splitwiper_lab.workloads import Workload

    settings = read_settings(config, seed=seed, data=data, progress=bars)
    values = read_toml(config)
    table = values.get("compare")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{config} has no [compare] table: say which systems, as 'splitwiper compare --help' shows.")
    try:
        comparison = read_comparison(table)
    except ConfigError as problem:
        raise ConfigError(f"{config}: {problem}") from problem
    forget = settings.forget if comparison.forget == "" else comparison.forget
    owner = comparison.owner or settings.owner
    if forget == "" or not owner:
        raise ConfigError(f"{config}: compare.forget and compare.owner are missing: which label, and whose?")
    if owner not in settings.train:
        raise ConfigError(f"{config}: compare.owner = {owner!r} is not a client.{nearest(owner, settings.train)}")
    if not settings.test:
        raise ConfigError(f"{config}: no client has test data, so nothing can be compared; name test files.")
    if settings.config.client.masking.is_on or settings.config.client.noise.is_on:
        raise ConfigError(f"{config}: masking and noise belong to a system here: [[compare.systems]], not [client].")
    if "keys" not in values.get("client", {}):  # a seed then gives the same row order here and in other systems
        client = dataclasses.replace(settings.config.client, keys="seeded")
        settings = dataclasses.replace(settings, config=dataclasses.replace(settings.config, client=client))
    held = {str(label): label for label in np.asarray(settings.train[owner][1]).tolist()}
    return (
        Workload(
            train=dict(settings.train),
            test=dict(settings.test),
            tasks=dict(settings.tasks),
            config=settings.config,
            forget=held.get(str(forget), forget),  # the file may name 3 as "3"
            owner=owner,
        ),
        comparison,
    )


def _chosen(comparison: Comparison, only: list[str] | None, seeds: int | None) -> Comparison:
    from splitwiper_lab.sweeps import matches

    systems = tuple(system for system in comparison.systems if matches(only or (), system.name))
    if not systems:
        names = "; ".join(s.name for s in comparison.systems)
        raise ConfigError(f"--only {' '.join(only or ())} is in no system's name. They are: {names}.")
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
    config: Path,
    work: Workload,
    comparison: Comparison,
    about: Mapping[str, Any],
    found: Sequence[CellResult],
    out: Path | None,
    data: Path | None,
    commit: str,
    bars: Bars,
) -> Iterator[CellResult]:
    """Measure the cells that are missing."""
    from splitwiper_lab.evaluation.comparison import ComparisonMeasure, comparison_cells
    from splitwiper_lab.sweeps import machine, missing, sweep

    first = work.config.seed
    cells = comparison_cells(about, comparison, range(first, first + comparison.seeds))

    def read(seed: int) -> Workload:
        return work if seed == first else _read(config, seed, data, bars)[0]

    measure = ComparisonMeasure(read, comparison, cells, bars, out)
    try:
        yield from sweep(
            None if out is None else out / LINES,
            missing(cells, found),
            measure,
            made=lambda cell: {**machine(work.config.server.device), "commit": commit},
            about=about,
        )
    except ConfigError as problem:  # found only when the data is there, for example a label that nobody holds
        raise ConfigError(f"{config}: {problem}") from problem


def _write(out: Path, about: Mapping[str, Any], comparison: Comparison) -> None:
    """Write the tables of everything in the folder, whichever systems and seeds this run measured."""
    from splitwiper_lab.evaluation.comparison import Record, check_record, comparison_cells, exposures, summary
    from splitwiper_lab.pages.comparison import markdown
    from splitwiper_lab.sweeps import machines, read_results

    any_seed = {(cell.system, cell.settings) for cell in comparison_cells(about, comparison, [0])}
    results = read_results(
        out / LINES, wanted=lambda cell: (cell.system, cell.settings) in any_seed, check=check_record
    )
    records = [Record.from_dict(result.values) for result in results]
    found = summary(records, bandwidth=about["bandwidth"] * 1e6)
    temporary = out / f".{TEXT}"
    temporary.write_text(markdown(about, found, exposures(records), machines(results), LINES), encoding="utf-8")
    temporary.replace(out / TEXT)


def _sort(records: list[Record], comparison: Comparison) -> None:
    """Sort records in the order of the configuration."""
    place: dict[tuple[str, str], int] = {}
    for system in comparison.systems:
        for way in system.ways:
            place[system.name, way] = len(place)
    records.sort(key=lambda record: (place[record.system, record.unlearning], record.seed))


def _finish(out: Path | None, comparison: Comparison, records: Sequence[Any], *, as_json: bool) -> None:
    from splitwiper_lab.evaluation.comparison import exposures, summary

    found = summary(records, bandwidth=comparison.bandwidth * 1e6)
    exposed = exposures(records)
    if as_json:
        rows = []
        for line in found:
            attacks = [output.plain(one) for one in exposed if _same(one, line)]
            rows.append({**output.plain(line), "membership": attacks})
        output.emit(rows)
        return
    _print(found, exposed, comparison)
    if out is not None:
        output.line(output.output(), f"Results: {out / LINES}; all columns: {out / TEXT}")


def _same(exposed: Exposure, line: SummaryRow) -> bool:
    return (exposed.system, exposed.unlearning) == (line.system, line.unlearning)


def _print(found: Sequence[SummaryRow], exposed: Sequence[Exposure], comparison: Comparison) -> None:
    from splitwiper_lab.pages.comparison import exposure_short, short

    screen = output.output()
    screen.print(output.table(*short(found)))
    screen.print()
    output.line(
        screen,
        "Accuracy in percent after forgetting; what forgetting takes the requesting client, and all others together: "
        f"computing, and sending at {comparison.bandwidth:g} Mbit/s; clients it needs, and without which it stops.",
    )
    ours = [line for line in found if line.kind == "splitwiper" and line.share_of_vanilla[0].mean is not None]
    for line in ours:
        mine, every = line.share_of_vanilla, line.share_of_all
        output.line(
            screen,
            f"{line.system}: the requester spends {_percent(mine[0].mean)} of what vanilla's does "
            f"({_percent(mine[1].mean)} with all of pre-training), all clients together {_percent(every[0].mean)} "
            f"({_percent(every[1].mean)}).",
        )
    if exposed:
        screen.print()
        screen.print(output.table(*exposure_short(exposed)))
        screen.print()
        knows = " and ".join(dict.fromkeys(e.knows for e in exposed))
        output.line(
            screen,
            f"Membership inference by an attacker who knows {knows}: percent of forgotten rows, and of rows never "
            "learned, that it calls members; AUC with half its interval, and next to that of a model retrained without "
            "the rows. Equal to that model is the goal; less is not better.",
        )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"
