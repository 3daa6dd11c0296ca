"""``splitwiper compare``: systems side by side on the same data, network and meters."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import show
from splitwiper.cli.exits import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.results import append_line, machine, machines, read_lines
from splitwiper.errors import ConfigError, nearest

if TYPE_CHECKING:
    from splitwiper.evaluation.comparison import Comparison, Exposure, Line
    from splitwiper.workloads import Workload

LINES, TEXT = "compare.jsonl", "README.md"


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
    r"""Train systems side by side, forget, and say what it cost whom.

    Each system learns from the same clients, forgets the same rows, and is
    metered the same way. With --out, results are JSON lines in FOLDER, and what
    is there already is not computed again.

    Example:
      splitwiper compare examples/compare/digits.toml --out compared

    where a part of the file reads:

      \[compare]
      seeds = 3
      level = "class"        # or "sample", with delta = 0.5; or "client"
      membership = {shadow = 0.4}

      \[\[compare.systems]]
      kind = "splitwiper"    # vanilla, u-shaped, splitfed-v1, splitfed-v2, sisa

      \[\[compare.systems]]
      kind = "vanilla"
      schedule = "turns"     # or "interleaved"
      unlearning = \["retraining", {method = "gradient-ascent", epochs = 2}]
    """
    from splitwiper.evaluation.comparison import Record

    with Bars(quiet=as_json) as bars, when_interrupted("What was measured is kept in --out: run it again to go on."):
        work, comparison = _read(config, None, data, bars)
        comparison = _chosen(comparison, only, seeds)
        about = _about(config, work, comparison)
        lines = _measured(config, work, comparison, about, out, data, commit, bars)
    records = [Record.from_dict(line["record"]) for line in lines]
    place = {(s.name, way): (number, n) for number, s in enumerate(comparison.systems) for n, way in enumerate(s.ways)}
    records.sort(key=lambda r: (place[r.system, r.unlearning], r.seed))
    _finish(out, about, comparison, records, lines, as_json=as_json)


def _read(config: Path, seed: int | None, data: Path | None, bars: Bars) -> tuple[Workload, Comparison]:
    import numpy as np

    from splitwiper.cli.settings import read_settings
    from splitwiper.config import read_toml
    from splitwiper.evaluation.comparison import read_comparison
    from splitwiper.workloads import Workload

    settings = read_settings(config, seed=seed, data=data, told=bars)
    table = read_toml(config).get("compare")
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
        raise ConfigError(f"{config}: compare.owner = {owner!r} is no client.{nearest(owner, settings.train)}")
    if not settings.test:
        raise ConfigError(f"{config}: no client has test data, so nothing can be compared; name test files.")
    if settings.config.client.masking.is_on or settings.config.client.noise.is_on:
        raise ConfigError(f"{config}: masking and noise belong to a system here: [[compare.systems]], not [client].")
    held = {str(label): label for label in np.asarray(settings.train[owner][1]).tolist()}
    return (
        Workload(
            train=dict(settings.train),
            test=dict(settings.test),
            tasks=dict(settings.tasks),
            config=settings.config,
            forget=held.get(str(forget), forget),  # 3 and "3" are written alike
            owner=owner,
        ),
        comparison,
    )


def _chosen(comparison: Comparison, only: list[str] | None, seeds: int | None) -> Comparison:
    systems = tuple(s for s in comparison.systems if not only or any(part in s.name for part in only))
    if not systems:
        names = "; ".join(s.name for s in comparison.systems)
        raise ConfigError(f"--only {' '.join(only or ())} is in no system's name. They are: {names}.")
    return dataclasses.replace(comparison, systems=systems, seeds=seeds or comparison.seeds)


def _about(config: Path, work: Workload, comparison: Comparison) -> dict[str, Any]:
    """The conditions; results under others are not mixed with these."""
    from splitwiper.config import config_digest

    rows = sum(len(labels) for _, labels in work.train.values())
    about: dict[str, Any] = {
        "title": config.stem,
        "level": comparison.level,
        "forgets": f"{work.forget} at {work.owner}",
        "clients": len(work.train),
        "rows": rows,
        "M": work.config.server.epochs,
        "N": work.config.client.epochs,
        "bandwidth": comparison.bandwidth,
        "codec": work.config.client.codec,
    }
    if comparison.level == "sample":
        about["delta"] = comparison.delta
    if comparison.absent:
        about["absent"] = comparison.absent
    if comparison.membership.shadow:
        about["membership"] = dataclasses.asdict(comparison.membership)
    return {**about, "settings": config_digest(work.config, seed=0)[:16], "data": _content(work)}


def _content(work: Workload) -> str:
    """A digest of everybody's rows: the same settings over other data are another comparison."""
    import numpy as np

    out = hashlib.sha256()
    for part in (work.train, work.test):
        for name in sorted(part):
            inputs, labels = part[name]
            arrays = [inputs[k] for k in sorted(inputs)] if isinstance(inputs, Mapping) else [inputs]
            out.update(f"{name} {work.tasks.get(name, '')} {list(map(str, labels))}".encode())
            for array in arrays:
                out.update(np.ascontiguousarray(array).data)
    return out.hexdigest()[:16]


def _measured(
    config: Path,
    work: Workload,
    comparison: Comparison,
    about: Mapping[str, Any],
    out: Path | None,
    data: Path | None,
    commit: str,
    bars: Bars,
) -> list[dict[str, Any]]:
    """Every line, computed or read."""
    from splitwiper.evaluation.comparison import compared, stage

    first = work.config.seed
    wanted = {(s.name, way): settings for s in comparison.systems for way, settings in s.ways.items()}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    lines = _known(out / LINES, about, wanted, range(first, first + comparison.seeds)) if out else []
    for seed in range(first, first + comparison.seeds):
        done = frozenset((r["system"], r["unlearning"], r["seed"]) for r in (line["record"] for line in lines))
        if all((*way, seed) in done for way in wanted):
            continue
        at = stage(work if seed == first else _read(config, seed, data, bars)[0], comparison, bars)
        for record in compared(at, comparison, done=done):
            line = {
                "about": about,
                "record": record.to_dict(),
                "system": wanted[record.system, record.unlearning],
                **machine(work.config.server.device),
                "commit": commit,
            }
            lines.append(line)
            if out is not None:
                append_line(out / LINES, line)
    return lines


def _known(
    path: Path, about: Mapping[str, Any], wanted: Mapping[tuple[str, str], str], seeds: range
) -> list[dict[str, Any]]:
    """Lines that are there already, of these systems as they are set now.

    Raises:
        ConfigError: the file holds something else.
    """
    from splitwiper.evaluation.comparison import Record

    found = []
    try:
        for line in read_lines(path, about):
            record = Record.from_dict(line["record"])
            asked = wanted.get((record.system, record.unlearning))
            if record.seed in seeds and asked is not None and line["system"] == asked and line["fingerprint"]["torch"]:
                found.append(line)
    except (KeyError, TypeError, AttributeError) as problem:
        raise ConfigError(f"{path} is not a list of results ({problem!r}); give another folder.") from problem
    return found


def _finish(
    out: Path | None,
    about: Mapping[str, Any],
    comparison: Comparison,
    records: Sequence[Any],
    lines: list[dict[str, Any]],
    *,
    as_json: bool,
) -> None:
    from splitwiper.evaluation.comparison import exposures, summary
    from splitwiper.report.comparison import markdown

    found = summary(records, bandwidth=comparison.bandwidth * 1e6)
    exposed = exposures(records)
    if out is not None:
        (out / TEXT).write_text(markdown(about, found, exposed, machines(lines), LINES), encoding="utf-8")
    if as_json:
        show.emit(
            [{**show.plain(line), "membership": [show.plain(e) for e in exposed if _same(e, line)]} for line in found]
        )
        return
    _print(found, exposed, comparison)
    if out is not None:
        show.line(show.output(), f"Results: {out / LINES}; all columns: {out / TEXT}")


def _same(exposed: Exposure, line: Line) -> bool:
    return (exposed.system, exposed.unlearning) == (line.system, line.unlearning)


def _print(found: Sequence[Line], exposed: Sequence[Exposure], comparison: Comparison) -> None:
    from splitwiper.report.comparison import exposure, short

    screen = show.output()
    screen.print(show.table(*short(found)))
    screen.print()
    show.line(
        screen,
        "Accuracy in percent after forgetting; what forgetting takes the requesting client, and all others together: "
        f"computing, and sending at {comparison.bandwidth:g} Mbit/s; clients it needs, and without which it stops.",
    )
    ours = [line for line in found if line.kind == "splitwiper" and line.share_of_vanilla[0].mean is not None]
    for line in ours:
        mine, every = line.share_of_vanilla, line.share_of_all
        show.line(
            screen,
            f"{line.system}: the requester spends {_percent(mine[0].mean)} of what vanilla's does "
            f"({_percent(mine[1].mean)} with all of pre-training), all clients together {_percent(every[0].mean)} "
            f"({_percent(every[1].mean)}).",
        )
    if exposed:
        screen.print()
        screen.print(show.table(*exposure(exposed)))
        show.line(
            screen, "Membership inference: equal to a model retrained without the rows is the goal; less is not better."
        )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"
