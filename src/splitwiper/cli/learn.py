"""``splitwiper learn``: start a run from a configuration file, or continue it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.progress import Bars
from splitwiper.cli.rekey import agreed, agreement_of
from splitwiper.cli.runs import open_run
from splitwiper.errors import InputError, NotFoundError, SplitWiperError

if TYPE_CHECKING:
    from splitwiper.cli.settings import Settings
    from splitwiper.data.rows import Data
    from splitwiper.federation import Federation, Learned, Score


def learn(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file: the model, settings and clients.")],
    run: Annotated[Path, typer.Option("--run", help="The run folder: created if missing, otherwise continued.")],
    seed: Annotated[
        int | None, typer.Option("--seed", help="Takes the place of the file's seed.", min=0, show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Where the data sets lie that the configuration names as data.source.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a single JSON object instead of text.")] = False,
) -> None:
    """Learn from clients' data files, in a new run or one that is there.

    Running it again changes nothing; new rows and clients are added. Rows that
    were forgotten are refused if they come back. Data files are .npz (arrays
    inputs and labels) or .csv (a header, numbers, labels in the last column),
    relative to the configuration file.

    Example:
      splitwiper learn ward.toml --run runs/ward

    where ward.toml reads:

      seed = 1
      model.factory = "splitwiper.models:mlp"
      model.args = {inputs = 4, outputs = 3}
      model.inputs = {x = "float32[4]"}
      model.at = "stem"
      model.head = "head"
      clients.north = {data = "north.csv", test = "north-test.csv"}
      clients.south = {data = "south.csv"}

    A known data set is divided over clients by one table in their place, and
    what the file leaves out comes from the set's own recipe:

      model.factory = "splitwiper_lab.models:vgg"
      data = {source = "cifar10", partition = "overlapping", clients = 5}

    Labels are hidden from the server, and noise is added, by these two; the
    secret that clients share is SPLITWIPER_INVITATION, or drawn by the first:

      client.masking = {mode = "partition", gamma = 3}
      client.noise = {mechanism = "gaussian", epsilon = 8.0, clip = 30.0}
    """
    with Bars(quiet=as_json) as bars:
        from splitwiper.cli.settings import read_settings

        settings = read_settings(config, seed=seed, data=data, told=bars)
        if not as_json:
            _warn(settings)
        with _removed_if_refused(run):
            federation = open_run(run, bars, settings.config)
            learned = federation.learn(settings.train, tasks=settings.tasks)
        scores, unknown = _evaluate(federation, settings.test)
        state = federation.status().model
    found = {
        **_result(run, learned, scores, state),
        "test_rows_of_unknown_labels": unknown,
        "texts_shortened": settings.shortened,
    }
    if as_json:
        output.emit(found)
    else:
        _print(found, learned, scores)


def _warn(settings: Settings) -> None:
    """Say that a server which sees all rows at once hardly learns."""
    rows, batch = sum(len(labels) for _, labels in settings.train.values()), settings.config.server.batch
    if batch >= rows:
        output.line(
            output.errors(),
            f"note: server.batch = {output.count(batch)} takes all {output.plural(rows, 'training row')} at once: one "
            "step per epoch; lower server.batch.",
        )


@contextmanager
def _removed_if_refused(run: Path) -> Iterator[None]:
    """Take a new run away again if what it was made for is refused: it would hold on to settings to be corrected."""
    there = run.exists()
    new = not there or (run.is_dir() and not any(run.iterdir()))
    try:
        yield
    except InputError:
        from splitwiper.federation.status import status

        if new and (run / "federation.toml").is_file():
            with suppress(SplitWiperError, OSError):  # what was refused is told, not what came of tidying up
                found = status(run)
                if not (found.clients or found.tickets or found.work):  # work: another process came in meanwhile
                    shutil.rmtree(run)
                    if there:
                        run.mkdir()
        raise


def _evaluate(federation: Federation, test: Mapping[str, Data]) -> tuple[dict[str, Score | None], int]:
    """Each client on its own test set, and how many test rows have labels that nobody holds.

    A client has no score where it has no model, because all its rows were forgotten.
    """
    scores: dict[str, Score | None] = {}
    unknown = 0
    for name, data in test.items():
        try:
            found = federation.evaluate({name: data})
        except NotFoundError:
            scores[name] = None
            continue
        scores[name] = found.overall
        unknown += sum(score.rows for label, score in found.per_label.items() if label not in federation.labels)
    return scores, unknown


def _overall(scores: Mapping[str, Score | None]) -> float:
    from splitwiper.federation.evaluate import total

    return total(score for score in scores.values() if score is not None).accuracy


def _result(run: Path, learned: Learned, scores: Mapping[str, Score | None], state: str) -> dict[str, Any]:
    return {
        "run": run,
        "model": state,
        "accuracy": _overall(scores) if scores else None,
        "server_seconds": learned.server_seconds,
        "trained": bool(learned.losses),
        "agreement": agreement_of(learned.agreement),
        "settled": [receipt.ticket for receipt in learned.receipts],
        "clients": {
            name: {
                "new": added.new,
                "held": added.held,
                "refused": added.refused,
                "spent": learned.spent[name],
                "accuracy": score.accuracy if (score := scores.get(name)) else None,
            }
            for name, added in learned.added.items()
        },
    }


def _print(found: Mapping[str, Any], learned: Learned, scores: Mapping[str, Score | None]) -> None:
    out = output.output()
    rows = []
    for name, added in learned.added.items():
        spent, score = learned.spent[name], scores.get(name)
        cells = [name, output.count(added.new), output.count(added.held), output.count(added.refused)]
        cells += [output.seconds(spent.seconds), output.size(spent.bytes_up + spent.bytes_down)]
        rows.append(cells + [output.percent(score.accuracy) if score else "–"] * bool(scores))
    columns = ("client", ">new rows", ">held", ">refused", ">time", ">sent", ">accuracy")
    out.print(output.table(columns if scores else columns[:-1], rows))
    out.print()
    if scores:
        output.line(out, f"Accuracy on all test rows: {output.percent(_overall(scores))}.")
    if unknown := found["test_rows_of_unknown_labels"]:
        output.line(
            out,
            f"{output.plural(unknown, 'test row')} of labels that nobody holds, say forgotten ones, count as wrong.",
        )
    if shortened := found["texts_shortened"]:
        output.line(
            out, f"{output.plural(shortened, 'text')} had more tokens than the model takes, and lost their ends."
        )
    if agreement := learned.agreement:
        output.line(out, agreed(agreement))
    if learned.losses:
        epochs = output.plural(len(learned.losses), "epoch")
        output.line(
            out,
            f"The server trained {epochs} in {output.seconds(learned.server_seconds)}; the loss fell to "
            f"{learned.losses[-1]:.3g}.",
        )
    else:
        output.line(out, "Nothing new: the model was already trained on exactly these rows.")
    if learned.receipts:
        output.line(out, f"{output.plural(len(learned.receipts), 'open request')} settled on the way.")
    if any(added.refused for added in learned.added.values()):
        output.line(out, "Refused rows were forgotten earlier and stay forgotten.")
    output.line(out, f"Run: {found['run']}")
