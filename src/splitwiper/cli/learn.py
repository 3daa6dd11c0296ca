"""``splitwiper learn`` and ``rekey``: start a run from a configuration file or continue it; change its codes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import helping, when_interrupted
from splitwiper.cli.options import Json, Run
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import is_site, open_run
from splitwiper.errors import ConfigError, InputError, NotFoundError, SplitWiperError

if TYPE_CHECKING:
    from splitwiper.cli.settings import Settings
    from splitwiper.data.rows import Data
    from splitwiper.federation import Federation, Learned, Score
    from splitwiper.federation.agreeing import Agreement

DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The folder with the data sets that the configuration names in data.source.",
        show_default=False,
    ),
]


@helping("""
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

    To divide a known data set over clients, give one table in their place; settings
    that the file leaves out come from the set's own recipe:

      model.factory = "splitwiper_lab.models:vgg"
      data = {source = "cifar10", partition = "overlapping", clients = 5}

    These two hide labels from the server and add noise. The clients' shared secret
    is read from SPLITWIPER_INVITATION; without it, the first client draws one:

      client.masking = {mode = "partition", gamma = 3}
      client.noise = {mechanism = "gaussian", epsilon = 8.0, clip = 30.0}
""")
def learn(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file: the model, settings and clients.")],
    run: Annotated[Path, typer.Option("--run", help="The run folder: created if missing, otherwise continued.")],
    seed: Annotated[
        int | None, typer.Option("--seed", help="Overrides the file's seed.", min=0, show_default=False)
    ] = None,
    data: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Learn from clients' data files, in a new run or an existing one.

    Running it again changes nothing; new rows and clients are added. Rows that
    were forgotten are refused if they come back. Data files are .npz (arrays
    inputs and labels) or .csv (a header, numbers, labels in the last column),
    relative to the configuration file.
    """
    with Bars(quiet=as_json) as bars:
        # imported below the bars, which say "starting": torch takes seconds
        from splitwiper.cli.settings import read_settings

        settings = read_settings(config, seed=seed, data=data, progress=bars)
        if not as_json:
            _warn_of_single_step(settings)
        with _delete_run_if_refused(run):
            federation = open_run(run, bars, settings.config)
            learned = federation.learn(settings.train, tasks=settings.tasks)
        scores, unknown = _evaluate(federation, settings.test)
        state = federation.status().model
    if as_json:
        counts = {"test_rows_of_unknown_labels": unknown, "texts_shortened": settings.shortened}
        output.emit({**_result(run, learned, scores, state), **counts})
        return
    _print_clients(learned, scores)
    if scores:
        output.say(f"Accuracy on all test rows: {output.percent(_overall(scores))}.")
    if unknown:
        output.say(
            f"{output.plural(unknown, 'test row')} with labels that nobody holds, for example forgotten ones, "
            "count as wrong."
        )
    if settings.shortened:
        texts = output.plural(settings.shortened, "text")
        output.say(f"{texts} had more tokens than the model takes, and were cut off at the end.")
    _print_training(learned)
    output.say(f"Run: {run}")


def _warn_of_single_step(settings: Settings) -> None:
    """Say that a server which sees all rows at once hardly learns."""
    rows, batch = 0, settings.config.server.batch
    for _, labels in settings.train.values():
        rows += len(labels)
    if batch >= rows:
        output.note(
            f"note: server.batch = {output.count(batch)} takes all {output.plural(rows, 'training row')} at once: one "
            "step per epoch; lower server.batch."
        )


@contextmanager
def _delete_run_if_refused(run: Path) -> Iterator[None]:
    """Delete a new run if what it was made for is refused: it would hold on to settings that are to be corrected."""
    existed = run.exists()
    is_new = not existed or (run.is_dir() and not any(run.iterdir()))
    try:
        yield
    except InputError:
        from splitwiper.federation.status import status

        if is_new and (run / "federation.toml").is_file():
            # the user is shown what was refused, and not what went wrong in tidying up
            with suppress(SplitWiperError, OSError):
                state = status(run)
                if not (state.clients or state.tickets or state.work):  # work: another process came in meanwhile
                    shutil.rmtree(run)
                    if existed:
                        run.mkdir()
        raise


def _evaluate(federation: Federation, test: Mapping[str, Data]) -> tuple[dict[str, Score | None], int]:
    """Evaluate each client on its own test set, and count the test rows with labels that nobody holds.

    A client has no score where it has no model, because all its rows were forgotten.
    """
    scores: dict[str, Score | None] = {}
    unknown = 0
    for name, data in test.items():
        try:
            evaluation = federation.evaluate({name: data})
        except NotFoundError:
            scores[name] = None
            continue
        scores[name] = evaluation.overall
        for label, score in evaluation.per_label.items():
            if label not in federation.labels:
                unknown += score.rows
    return scores, unknown


def _overall(scores: Mapping[str, Score | None]) -> float:
    from splitwiper.federation.evaluate import total

    return total(score for score in scores.values() if score is not None).accuracy


def _result(run: Path, learned: Learned, scores: Mapping[str, Score | None], state: str) -> dict[str, Any]:
    clients = {}
    for name, added in learned.added.items():
        score = scores.get(name)
        clients[name] = {
            "new": added.new,
            "held": added.held,
            "refused": added.refused,
            "spent": learned.spent[name],
            "accuracy": score.accuracy if score else None,
        }
    return {
        "run": run,
        "model": state,
        "accuracy": _overall(scores) if scores else None,
        "server_seconds": learned.server_seconds,
        "trained": bool(learned.losses),
        "agreement": _agreement_values(learned.agreement) if learned.agreement else None,
        "settled": [receipt.ticket for receipt in learned.receipts],
        "clients": clients,
    }


def _print_clients(learned: Learned, scores: Mapping[str, Score | None]) -> None:
    rows = []
    for name, added in learned.added.items():
        spent, score = learned.spent[name], scores.get(name)
        cells = [name, output.count(added.new), output.count(added.held), output.count(added.refused)]
        cells += [output.seconds(spent.seconds), output.size(spent.traffic)]
        if scores:
            cells.append(output.percent(score.accuracy) if score else "–")
        rows.append(cells)
    columns = ["client", ">new rows", ">held", ">refused", ">time", ">sent"]
    if scores:
        columns.append(">accuracy")
    output.show(columns, rows)
    output.say()


def _print_training(learned: Learned) -> None:
    if learned.agreement:
        output.say(_agreed(learned.agreement))
    if learned.losses:
        epochs = output.plural(len(learned.losses), "epoch")
        time = output.seconds(learned.server_seconds)
        output.say(f"The server trained {epochs} in {time}; the loss fell to {learned.losses[-1]:.3g}.")
    else:
        output.say("Nothing new: the model was already trained on exactly these rows.")
    if learned.receipts:
        output.say(f"{output.plural(len(learned.receipts), 'open request')} settled on the way.")
    if any(added.refused for added in learned.added.values()):
        output.say("Refused rows were forgotten earlier and stay forgotten.")


def rekey(
    run: Run,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Agree on this label too, for rows to come. May be repeated."),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="The task of these labels, where clients have several.")] = "",
    as_json: Json = False,
) -> None:
    """Have all clients agree on a new codebook, and send their rows again.

    Hidden labels change their codes only in this way, and every client must take part.
    Labels that nobody holds any more leave the codebook; rows with a label that is not
    in it are refused until the clients agree on that label.

    Example:
      splitwiper rekey runs/ward --label rubella
    """
    if is_site(run):
        raise ConfigError(
            f"{run} is a client's site, and over a network codes do not change: every client would have to take part. "
            "Name labels that may come in client.labels when you join; for others make a new store, which all "
            "clients join."
        )
    with Bars(quiet=as_json) as bars, when_interrupted(f"Finish it with 'splitwiper settle {run}'."):
        federation = open_run(run, bars)
        # labels are integers where the others of the task are
        numbers = any(isinstance(label.name, int) for label in federation.labels if label.task == task)
        names: list[str | int] = []
        for name in labels or ():
            names.append(int(name) if numbers and name.lstrip("-").isdigit() else name)
        agreement = federation.rekey(names, task=task)
        state = federation.status().model
    if as_json:
        output.emit({"run": run, "model": state, "agreement": _agreement_values(agreement)})
    else:
        output.say(f"{_agreed(agreement)} The model of {run} is {state}.")


def _agreed(agreement: Agreement) -> str:
    """Return a sentence on what the agreement took."""
    return (
        f"{output.plural(len(agreement.clients), 'client')} agreed on labels in {output.seconds(agreement.seconds)}, "
        f"with {output.plural(agreement.messages, 'sealed message')}."
    )


def _agreement_values(agreement: Agreement) -> dict[str, Any]:
    """Return what the agreement took, for JSON."""
    return {"clients": agreement.clients, "messages": agreement.messages, "seconds": agreement.seconds}
