"""``splitwiper data plot``: the labels of each client, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from splitwiper.cli import output
from splitwiper.cli.options import Json
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper_lab.datasets.divide import Divided
    from splitwiper_lab.pages.partition import Grid

FORMATS = (".svg", ".html", ".pdf", ".png")
"""The kinds of files that it can be drawn to."""
ACROSS = 5
"""The number of clients that fit side by side."""
Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A data set, or two as in cifar10+mnist.", show_default=False)
]
Kind = Annotated[str, typer.Option("--partition", metavar="KIND", help="homogeneous, overlapping, disjoint or equal.")]
Clients = Annotated[int, typer.Option("--clients", metavar="N", min=1, help="How many clients.")]
Forget = Annotated[
    str | None, typer.Option("--forget", metavar="LABEL", help="The label to forget.", show_default=False)
]
Owner = Annotated[
    str | None, typer.Option("--owner", metavar="NAME", help="The client that alone holds it.", show_default=False)
]
Share = Annotated[bool, typer.Option("--share", help="Divide that label like any other.")]
Rows = Annotated[
    int | None, typer.Option("--rows", metavar="N", help="Number of training rows to use.", show_default=False)
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The root seed.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data folder. Otherwise $SPLITWIPER_DATA, or splitwiper/data in the user's cache.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Draw it: .svg, .html, .pdf or .png.", show_default=False)
]


def plot(
    source: Source,
    partition: Kind = "overlapping",
    clients: Clients = 5,
    forget: Forget = None,
    owner: Owner = None,
    share: Share = False,
    rows: Rows = None,
    seed: Seed = 0,
    folder: Folder = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Show how a data set is divided over clients.

    Counts of training and test rows per client and label, as a table here and as
    a picture with --out. The same options and seed give the same division.

    Example:
      splitwiper data plot cifar10
      splitwiper data plot cifar10+mnist --partition disjoint --out who.svg
    """
    from splitwiper.config import Config
    from splitwiper_lab.datasets.divide import divided

    _check_out(out)
    Config(seed=seed)  # refuse the seeds that 'splitwiper learn' refuses
    found = divided(
        source,
        partition=partition,
        clients=clients,
        forget=forget,
        owner=owner,
        share=share,
        rows=rows,
        seed=seed,
        folder=folder,
    )
    if out is not None:
        _draw(found, out, partition, seed)
    if as_json:
        output.emit(_as_object(found, partition, seed, out))
    else:
        _print(found, out)


def _as_object(found: Divided, partition: str, seed: int, out: Path | None) -> dict[str, Any]:
    return {
        "source": found.sources,
        "partition": partition,
        "seed": seed,
        "forget": found.forget,
        "owner": found.owner,
        "tasks": found.tasks,
        "labels": found.labels,
        "train": found.counts("train"),
        "test": found.counts("test"),
        "out": out,
    }


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    if out.is_dir():
        raise InputError(f"--out {out} is a folder: give a file in it, say {out / 'who.svg'}.")
    if out.suffix.lower() not in FORMATS:
        raise InputError(f"--out {out}: give a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file.")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.parent}; give a file in a folder that exists.")


def _draw(found: Divided, out: Path, partition: str, seed: int) -> None:
    from splitwiper.store.files import atomic_file
    from splitwiper_lab.pages.partition import drawing, page

    picture = _grid(found, partition, seed)
    with atomic_file(out, mode=0o666) as file:  # minus the umask: it only has counts, and is for sharing
        suffix = out.suffix.lower()
        file.write(page(picture).encode() if suffix == ".html" else drawing(picture, suffix))


def _grid(found: Divided, partition: str, seed: int) -> Grid:
    from splitwiper_lab.pages.partition import Grid

    holders = _holders(found)
    if holders == [found.owner]:
        who = f"{found.owner} alone"
    elif len(holders) == len(found.train):
        who = "everybody"
    else:
        who = ", ".join(holders)
    note = (
        f"Rows per client and label, seed {seed}; the stronger the colour, the more rows. Outlined: ‘{found.forget}’, "
        f"the label to forget, held by {who}."
    )
    train, test = _named_counts(found, "train"), _named_counts(found, "test")
    return Grid(
        title=f"{' and '.join(found.sources)}, {partition} over {output.plural(len(train), 'client')}",
        note=note,
        groups={name: tuple(map(str, labels)) for name, labels in found.labels.items()},
        tasks={client: task or found.sources[0] for client, task in found.tasks.items()},
        train=train,
        test=test,
        marked=(found.forget_source, str(found.forget)),
    )


def _named_counts(found: Divided, part: str) -> dict[str, dict[str, int]]:
    """Return the counts of a part with labels as text, for drawing."""
    named = {}
    for client, held in found.counts(part).items():
        named[client] = {str(label): count for label, count in held.items()}
    return named


def _holders(found: Divided) -> list[str]:
    """Return the clients that hold the label to forget; the same label of another task is another one."""
    holders = []
    for client, held in found.counts().items():
        if found.tasks[client] == found.tasks[found.owner] and found.forget in held:
            holders.append(client)
    return holders


def _print(found: Divided, out: Path | None) -> None:
    console = output.output()
    clients = list(found.train)
    for part, title in (("train", "Training rows"), ("test", "Test rows")):
        every = found.counts(part)
        for first in range(0, len(clients), ACROSS):
            counts = {client: every[client] for client in clients[first : first + ACROSS]}
            lines: list[Sequence[str | Text]] = []
            for source, labels in found.labels.items():
                for label in labels:
                    lines.append(_line(found, source, label, counts))
            lines.append(["all", *(output.count(sum(held.values())) for held in counts.values())])
            console.print(output.table(["label", *map(">{}".format, counts)], lines, title=title, last="total"))
            console.print()
    others = [client for client in _holders(found) if client != found.owner]
    also = f", and so {'does' if len(others) == 1 else 'do'} {', '.join(others)}." if others else " alone."
    output.line(console, f"The label to forget is {found.forget!r}: {found.owner} holds it{also}")
    if out is not None:
        output.line(console, f"Drawn in {out}")


def _line(
    found: Divided, source: str, label: str | int, counts: Mapping[str, Mapping[str | int, int]]
) -> tuple[str | Text, ...]:
    """Return the cells of one label; the cells of clients with another task are blank."""
    name = f"{source}: {label}" if len(found.sources) > 1 else str(label)
    marked = (source, label) == (found.forget_source, found.forget)
    cells = [Text(name, "bold yellow" if marked else "")]
    for client, held in counts.items():
        cell = output.count(held.get(label, 0)) if found.tasks[client] in ("", source) else ""
        cells.append(Text(cell, "dim" if cell == "0" else ""))
    return tuple(cells)
