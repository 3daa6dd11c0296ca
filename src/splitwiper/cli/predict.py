"""``splitwiper predict``: the whole network on new rows, the client's half first, then the server's."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here, open_run
from splitwiper.cli.unlearn import Json, Run
from splitwiper.errors import InputError

if TYPE_CHECKING:
    from splitwiper.data.files import Inputs
    from splitwiper.federation import Federation
    from splitwiper.service.site import Site

    Predicting = Federation | Site

ROWS = 4096
"""Rows predicted between two steps of the progress bar; a multiple of the batch rows are embedded in."""
TEXT = {"input_ids", "attention_mask"}
"""The inputs of a model that takes texts."""
MOST = 3
"""Probabilities shown in the table."""


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
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="FILE", help="The tokenizer.json that the run's texts were encoded with."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the whole answer here, as .csv or .json.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the labels of new rows.

    They go through the client's half, then the server's. Nothing is kept. For a
    model of texts the columns of a .csv file are joined, and their words hashed;
    a run that was made with a tokenizer.json needs it here too, as --tokenizer.

    Example:
      splitwiper predict runs/ward south new.csv --proba
      splitwiper predict runs/ward south new.npz --out answers.csv
    """
    if out is not None and (out.suffix.lower() not in (".csv", ".json") or not out.parent.is_dir()):
        raise InputError(f"cannot write to {out}: give a .csv or .json file in a folder that exists.")
    with (
        Bars(quiet=as_json) as bars,
        when_interrupted("Predicting changes nothing: run it again."),
        ExitStack() as ends,
    ):
        federation = _opened(run, bars)
        ends.callback(getattr(federation, "close", lambda: None))  # a site has a connection
        bars("reading data", 0, 0)
        found = _predict(
            federation, client, _read(federation, inputs, label, tokenizer), bars, proba=proba, local=local
        )
    if unchecked := getattr(getattr(federation, "watch", None), "unchecked", ""):
        output.line(output.errors(), f"Not checked which model answers: {unchecked}.")
    if out is not None:
        from splitwiper.store import files

        text = output.to_json(found) + "\n" if out.suffix.lower() == ".json" else _csv(found)
        files.write_bytes(out, text.encode())
    if as_json:
        output.emit(found)
    elif out is not None:
        output.line(output.output(), f"{output.plural(len(found['predictions']), 'prediction')} written to {out}.")
    else:
        output.output().print(_table(found))


def _opened(run: Path, bars: Bars) -> Predicting:
    """A run's federation, or a client's site with its server elsewhere."""
    if not (run / "site.toml").exists():
        return open_run(run, bars)
    from splitwiper.service.site import Site

    look_here()
    return Site(run, bars)


def _read(federation: Predicting, file: Path, label: str | None, tokenizer: Path | None) -> Inputs:
    from splitwiper.data.files import read_inputs

    if file.suffix.lower() == ".csv" and set(federation.config.model.inputs) == TEXT:
        return _encoded(federation, file, label, tokenizer)
    if tokenizer is not None:
        raise InputError(f"--tokenizer {tokenizer} is for a .csv file of texts and a model that takes texts.")
    return read_inputs(file, label=label)


def _encoded(federation: Predicting, file: Path, label: str | None, tokenizer: Path | None) -> Inputs:
    """The texts in a file as the run's model takes them: with its length, its vocabulary and its dtypes."""
    from splitwiper.data.files import read_texts
    from splitwiper.data.text import encode, tidy

    model = federation.config.model
    described = {name: re.fullmatch(r"(\w+)\[(\d+)\]", str(model.inputs[name])) for name in TEXT}
    vocabulary = model.args.get("vocabulary", _default_of(model.factory, "vocabulary"))
    if vocabulary is None or not all(described.values()):
        raise InputError(
            f"{file}: the run's settings do not say how {model.factory} takes texts (vocabulary and length). Encode "
            "them with splitwiper.data.text.encode, and give an .npz file with inputs.input_ids and "
            "inputs.attention_mask."
        )
    kinds = {name: (found[1], int(found[2])) for name, found in described.items() if found}
    texts = [tidy(text) for text in read_texts(file, label=label)]
    found = encode(texts, length=kinds["input_ids"][1], vocabulary=vocabulary, tokenizer=tokenizer)
    return {name: array.astype(kinds[name][0]) for name, array in found.inputs.items()}


def _default_of(factory: str, parameter: str) -> Any:
    """Return what a parameter of a network's factory is unless it is given; None where it has no default."""
    module, _, name = factory.partition(":")
    found = signature(getattr(import_module(module), name)).parameters.get(parameter)
    return None if found is None or found.default is Parameter.empty else found.default


def _predict(
    federation: Predicting, client: str, inputs: Inputs, bars: Bars, *, proba: bool, local: bool
) -> dict[str, Any]:
    count = min(len(array) for array in inputs.values()) if isinstance(inputs, dict) else len(inputs)
    predictions: list[str | int] = []
    probabilities: list[list[float]] = []
    for start in range(0, max(count, 1), ROWS):
        bars(f"{client}: predicting", start, count)
        part = slice(start, start + ROWS)
        rows = {name: array[part] for name, array in inputs.items()} if isinstance(inputs, dict) else inputs[part]
        if proba:
            both = federation.predict_both(client, rows, local=local)
            predictions, probabilities = predictions + both.names, probabilities + both.probabilities.tolist()
        else:
            predictions += federation.predict(client, rows, local=local)
    found: dict[str, Any] = {"run": federation.path, "client": client, "predictions": predictions}
    if proba:
        found |= {"labels": [label._asdict() for label in federation.labels], "probabilities": probabilities}
    return found


def _headings(found: Mapping[str, Any]) -> list[str]:
    """The labels as text, with their task where there are several."""
    labels = found["labels"]
    several = len({label["task"] for label in labels}) > 1
    return [f"{label['task']}:{label['name']}" if several else str(label["name"]) for label in labels]


def _csv(found: Mapping[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    extra = [f"p({name})" for name in _headings(found)] if "labels" in found else []
    writer.writerow(["row", "prediction", *extra])
    for number, prediction in enumerate(found["predictions"]):
        writer.writerow([number, prediction, *(found["probabilities"][number] if extra else ())])
    return text.getvalue()


def _table(found: Mapping[str, Any]) -> Any:
    if "labels" not in found:
        return output.table((">row", "prediction"), ((str(n), str(p)) for n, p in enumerate(found["predictions"])))
    names = _headings(found)
    rows = (
        (str(number), str(prediction), _likely(names, found["probabilities"][number]))
        for number, prediction in enumerate(found["predictions"])
    )
    return output.table((">row", "prediction", "most likely"), rows)


def _likely(names: Sequence[str], shares: Sequence[float]) -> str:
    best = sorted(range(len(names)), key=lambda i: -shares[i])[:MOST]
    return ", ".join(f"{names[i]} {output.percent(shares[i])}" for i in best)
