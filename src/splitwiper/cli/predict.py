"""``splitwiper predict``: the whole network on new rows, the client's half first, then the server's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.options import Json, Run
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import is_site, open_run, open_site
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper.data.files import Inputs
    from splitwiper.federation import Federation
    from splitwiper.service.site import Site

    Predicting = Federation | Site

# Rows predicted between two steps of the progress bar. It is a multiple of the batch that rows are embedded in, so that
# batches are those of one call with all rows.
ROWS = 4096
MOST = 3  # probabilities shown in the table
Tokenizer = Annotated[
    Path | None,
    typer.Option("--tokenizer", metavar="FILE", help="The tokenizer.json that the run's texts were encoded with."),
]


def predict(
    run: Run,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Whose half to use.")],
    inputs: Annotated[Path, typer.Argument(metavar="INPUTS", help="An .npz file (array inputs) or a .csv file.")],
    local: Annotated[
        bool, typer.Option("--local", help="Fetch the server half and compute here: nothing about the rows is sent.")
    ] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Give probabilities too.")] = False,
    label: Annotated[
        str | None, typer.Option("--label", metavar="COLUMN", help="A column of a .csv file to leave out.")
    ] = None,
    tokenizer: Tokenizer = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the whole answer here, as .csv or .json.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the labels of new rows.

    They go through the client's half, then the server's. Nothing is kept. For a model
    that reads texts, the columns of a .csv file are joined, and their words hashed; a
    run that was made with a tokenizer.json needs it here too, as --tokenizer.

    Example:
      splitwiper predict runs/ward south new.csv --proba
      splitwiper predict runs/ward south new.npz --out answers.csv
    """
    # said before the work, and not after it
    if out is not None and (out.suffix.lower() not in (".csv", ".json") or not out.parent.is_dir()):
        raise InputError(f"cannot write to {out}: give a .csv or .json file in a folder that exists.")
    advice = "Predicting changes nothing: run it again."
    with Bars(quiet=as_json) as bars, when_interrupted(advice), _opened(run, bars) as federation:
        bars("reading data", 0, 0)
        rows = _read(federation, inputs, label, tokenizer)
        answer = _predict(federation, client, rows, bars, proba=proba, local=local)
    # a site watches whether the server answers with the model that it certified; a run has nobody to watch
    if unchecked := getattr(getattr(federation, "watch", None), "unchecked", ""):
        output.note(f"Not checked which model answers: {unchecked}.")
    if out is not None:
        from splitwiper.store import files

        text = output.to_json(answer) + "\n" if out.suffix.lower() == ".json" else _csv(answer)
        files.write_bytes(out, text.encode())
    if as_json:
        output.emit(answer)
    elif out is not None:
        output.say(f"{output.plural(len(answer['predictions']), 'prediction')} written to {out}.")
    else:
        _print(answer)


@contextmanager
def _opened(run: Path, bars: Bars) -> Iterator[Predicting]:
    """Open a run's federation, or a client's site with its server elsewhere."""
    if is_site(run):
        with open_site(run, bars) as site:
            yield site
    else:
        yield open_run(run, bars)


def _read(federation: Predicting, file: Path, label: str | None, tokenizer: Path | None) -> Inputs:
    from splitwiper.data.files import read_inputs, read_texts
    from splitwiper.data.text import encode_for, takes_texts, tidy

    model = federation.config.model
    if file.suffix.lower() == ".csv" and takes_texts(model):
        return encode_for(model, map(tidy, read_texts(file, label=label)), tokenizer=tokenizer)
    if tokenizer is not None:
        raise InputError(f"--tokenizer {tokenizer} is for a .csv file of texts and a model that takes texts.")
    return read_inputs(file, label=label)


def _predict(
    federation: Predicting, client: str, inputs: Inputs, bars: Bars, *, proba: bool, local: bool
) -> dict[str, Any]:
    """Predict rows part by part, so that progress can be shown, and return the answer as it is printed as JSON."""
    count = min(map(len, inputs.values())) if isinstance(inputs, dict) else len(inputs)
    answer: dict[str, Any] = {"run": federation.path, "client": client, "predictions": []}
    if proba:
        answer |= {"labels": [], "probabilities": []}
    # at least once: the federation says what is wrong with no rows
    for start in range(0, max(count, 1), ROWS):
        bars(f"{client}: predicting", start, count)
        part = slice(start, start + ROWS)
        rows = {name: array[part] for name, array in inputs.items()} if isinstance(inputs, dict) else inputs[part]
        if proba:
            both = federation.predict_both(client, rows, local=local)
            answer["predictions"] += both.names
            answer["probabilities"] += both.probabilities.tolist()
        else:
            answer["predictions"] += federation.predict(client, rows, local=local)
    if proba:
        answer["labels"] = [label._asdict() for label in federation.labels]
    return answer


def _headings(answer: Mapping[str, Any]) -> list[str]:
    """Return the labels as text, with their task where there are several; empty without probabilities."""
    labels = answer.get("labels", ())
    tasks = {label["task"] for label in labels}
    return [f"{label['task']}:{label['name']}" if len(tasks) > 1 else str(label["name"]) for label in labels]


def _csv(answer: Mapping[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = _headings(answer)
    writer.writerow(["row", "prediction", *(f"p({name})" for name in names)])
    for number, prediction in enumerate(answer["predictions"]):
        writer.writerow([number, prediction, *(answer["probabilities"][number] if names else ())])
    return text.getvalue()


def _print(answer: Mapping[str, Any]) -> None:
    names = _headings(answer)
    rows: list[tuple[str, ...]] = []
    for number, prediction in enumerate(answer["predictions"]):
        cells: tuple[str, ...] = (str(number), str(prediction))
        if names:
            likely = sorted(zip(answer["probabilities"][number], names, strict=True), key=lambda pair: -pair[0])
            cells += (", ".join(f"{name} {output.percent(share)}" for share, name in likely[:MOST]),)
        rows.append(cells)
    output.show((">row", "prediction", "most likely") if names else (">row", "prediction"), rows)
