"""``splitwiper unlearn``, ``settle`` and ``receipt``: ask to forget, have it done, and show what was done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import INTERRUPTED, when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_run
from splitwiper.errors import BusyError, InputError, NotFoundError, RequestError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper.wire import Receipt, Spent, Ticket

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print a single JSON object instead of text.")]
Classes = Annotated[list[str] | None, typer.Option("--class", metavar="NAME", help="Forget a class. May be repeated.")]
Samples = Annotated[
    list[int] | None, typer.Option("--sample", metavar="ID", help="Forget a row by its id. May be repeated.")
]
Everything = Annotated[bool, typer.Option("--everything", help="Forget all the client ever sent.")]
ReceiptFile = Annotated[Path | None, typer.Option("--receipt", metavar="FILE", help="Write the receipt here.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --everything.")]


def unlearn(
    run: Run,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client that asks.")],
    classes: Classes = None,
    samples: Samples = None,
    samples_file: Annotated[
        Path | None, typer.Option("--samples-file", metavar="FILE", help="Forget the rows with these ids, one a line.")
    ] = None,
    everything: Everything = False,
    submit_only: Annotated[
        bool, typer.Option("--submit-only", help="Only submit; a later settle answers all requests together.")
    ] = False,
    receipt: ReceiptFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget a client's classes, rows or everything, exactly.

    Only that client and the server work. What is named is suppressed immediately and
    permanently: it is refused if it comes back. The ids of rows are shown by
    'splitwiper status RUN --client NAME'.

    Example:
      splitwiper unlearn runs/ward north --class bird --receipt bird.json
      splitwiper unlearn runs/ward north --sample 2256647324021233
      splitwiper unlearn runs/ward north --everything --yes
    """
    ids = _one_thing(classes, samples, samples_file, everything)
    _check_receipt(receipt, submit_only)
    if everything and not yes:
        confirm(f"All that {client} ever sent to {run} will be forgotten. This cannot be undone.")
    with Bars(quiet=as_json) as bars:
        federation = open_run(run, bars)
        ticket = _submit(federation, client, classes, ids, everything)
        if submit_only:
            settled: tuple[Receipt, ...] = ()
        else:
            with when_interrupted(
                f"The request is accepted (ticket {ticket.id[:8]}) and not lost: finish it with "
                f"'splitwiper settle {run}'."
            ):
                try:
                    settled = federation.settle()
                except BusyError as problem:
                    raise BusyError(
                        f"the request is accepted (ticket {ticket.id[:8]}) and its rows are suppressed: do not ask "
                        f"again. But {problem} Whoever works on the run finishes it, or 'splitwiper settle {run}' "
                        f"does; then 'splitwiper receipt {run} {ticket.id[:8]}' shows what was done."
                    ) from problem
            settled = settled or tuple(r for r in federation.receipts() if r.ticket == ticket.id)  # by another process
    mine = next((r for r in settled if r.ticket == ticket.id), None)
    if receipt is not None and mine is not None:
        _save(mine, receipt)
    _tell(run, ticket, mine, settled, receipt, spent=federation.spent, as_json=as_json)


def confirm(what: str) -> None:
    """Ask before everything is forgotten.

    Raises:
        InputError: nobody can be asked.
    """
    if not on_terminal():
        raise InputError("--everything cannot be undone: add --yes to go on without being asked.")
    output.line(output.errors(), what)
    if not typer.confirm("Go on?", err=True):
        output.line(output.errors(), "Nothing was forgotten.")
        raise typer.Exit(INTERRUPTED)


def settle(
    run: Run,
    resend: Annotated[
        list[str] | None,
        typer.Option("--resend", metavar="CLIENT", help="Have a client send its shard again. May be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Settle all open requests with one re-training.

    Also finishes whatever was interrupted. Where the server's copy of a client's
    shard, or the client's half, is damaged, --resend has it computed again.

    Example:
      splitwiper unlearn runs/ward north --class bird --submit-only
      splitwiper unlearn runs/ward south --sample 1870032418734066 --submit-only
      splitwiper settle runs/ward
    """
    with Bars(quiet=as_json) as bars:
        federation = open_run(run, bars)
        for name in resend or ():
            federation.reupload(name)
        settled = federation.settle()
        state = federation.status().model
    if as_json:
        output.emit({"run": run, "model": state, "receipts": [receipt.to_dict() for receipt in settled]})
        return
    out = output.output()
    if not settled:
        output.line(out, f"No request was open; the model of {run} is {state}.")
        return
    _print_receipts(run, settled, federation.spent)


def receipt(
    run: Run,
    ticket: Annotated[str, typer.Argument(metavar="TICKET", help="The ticket, or the first letters of it.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the receipt here.")] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Write a certificate here, signed with the run's key."),
    ] = None,
) -> None:
    """Print the receipt of a settled request, or write it to a file.

    A certificate is for outsiders: it is signed and names no other client.

    Example:
      splitwiper receipt runs/ward 1f9a27c4 --out bird.json
      splitwiper receipt runs/ward 1f9a27c4 --certificate bird.cert
    """
    from splitwiper.store import ServerStore

    if not (run / "federation.toml").exists():
        raise NotFoundError(f"there is no run in {run}. Check the path.")
    store = ServerStore(run / "server")
    fitting = [t for t in store.tickets() if t.id.startswith(ticket)]
    if len(fitting) != 1:
        known = ", ".join(t.id[:8] for t in store.tickets()) or "none"
        raise NotFoundError(f"{len(fitting) or 'no'} tickets in {run} begin with {ticket!r}; it has: {known}.")
    found = _with_noise(run, store.receipt(fitting[0].id))
    if out is None and certificate is None:
        output.emit(found.to_dict())
    for file in (out, certificate):
        _check_receipt(file, submit_only=False)
    if out is not None:
        _save(found, out)
        output.line(output.output(), f"Receipt: {out}")
    if certificate is not None:
        from splitwiper.cli.certificate import write

        write(run, found.ticket, certificate)


def _with_noise(run: Path, found: Receipt) -> Receipt:
    """A receipt with what the client's noise has spent, where there is any and the client's folder is here."""
    from dataclasses import replace

    from splitwiper.client.spending import spent
    from splitwiper.config import ClientConfig, from_dict, read_toml
    from splitwiper.store import ClientStore, ServerStore

    folder = run / "clients" / found.client
    if not (folder / "client.db").exists():
        return found
    noise = from_dict(ClientConfig, read_toml(folder / "config.toml")).noise
    if not noise.is_on:
        return found
    return replace(found, privacy=spent(ClientStore(folder), noise, ServerStore(run / "server").columns()).to_dict())


def on_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _one_thing(
    classes: Sequence[str] | None, samples: Sequence[int] | None, samples_file: Path | None, everything: bool
) -> list[int] | None:
    """Check that one thing is named; row ids, if that is what it is."""
    named = [bool(classes), bool(samples), samples_file is not None, everything]
    if sum(named) != 1:
        raise InputError(
            f"{'nothing is' if not any(named) else 'more than one kind of thing is'} named to forget: give --class, "
            "--sample, --samples-file or --everything, one of the four."
        )
    if samples_file is None:
        return list(samples) if samples else None
    if not samples_file.is_file():
        raise InputError(f"there is no file {samples_file}; give one with a row id on each line.")
    ids = []
    for number, text in enumerate(samples_file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if text.strip():
            try:
                ids.append(int(text))
            except ValueError:
                raise InputError(
                    f"{samples_file}, line {number}: {text.strip()!r} is not a row id; write one whole number a line."
                ) from None
    if not ids:
        raise InputError(f"{samples_file} names no row; write one id a line.")
    return ids


def _check_receipt(receipt: Path | None, submit_only: bool) -> None:
    """What would go wrong after the work is done is found before it begins."""
    if receipt is None:
        return
    if submit_only:
        raise InputError("--submit-only makes no receipt: leave --receipt out, or let the request be settled now.")
    if receipt.is_dir() or not receipt.parent.is_dir():
        raise InputError(f"the receipt cannot be written to {receipt}: give a file in a folder that exists.")


def _submit(
    federation: Federation, client: str, classes: Sequence[str] | None, ids: list[int] | None, everything: bool
) -> Ticket:
    try:
        names = None if not classes else resolve(classes, set(federation.rows(client).values()), client)
        return federation.submit(client, classes=names, samples=ids, everything=everything)
    except RequestError as problem:
        waiting = [t for t in federation.status().tickets if t.client == client and t.state != "settled"]
        if not waiting:
            raise
        raise RequestError(
            f"{problem} A request of {client!r} is waiting already (ticket {waiting[-1].id[:8]}): if it is this one, "
            f"finish it with 'splitwiper settle {federation.path}'."
        ) from problem


def resolve(names: Sequence[str], held: set[str | int], client: str) -> list[str | int]:
    """Labels from their text: an integer where that is what the client holds.

    >>> resolve(["3", "bird"], {3, "bird", "cat"}, "north")
    [3, 'bird']
    """
    out: list[str | int] = []
    for name in names:
        fitting = [label for label in held if str(label) == name]
        if len(fitting) > 1:
            raise RequestError(
                f"client {client!r} holds both the number {name} and the text {name!r}; name the rows with --sample "
                "(their ids: splitwiper status RUN --client NAME)."
            )
        out.append(fitting[0] if fitting else name)
    return out


def _save(receipt: Receipt, path: Path) -> None:
    import json

    from splitwiper.store import files

    files.write_bytes(path, (json.dumps(receipt.to_dict(), indent=2) + "\n").encode())


def _tell(
    run: Path,
    ticket: Ticket,
    mine: Receipt | None,
    settled: Sequence[Receipt],
    path: Path | None,
    *,
    spent: Mapping[str, Spent],
    as_json: bool,
) -> None:
    if as_json:
        found: dict[str, Any] = {"run": run, "ticket": ticket.id, "client": ticket.client, "level": ticket.level}
        found |= {"state": "settled" if mine else ticket.state, "settled": [r.ticket for r in settled]}
        found |= {"receipt": mine.to_dict() if mine else None, "receipt_file": path}
        output.emit(found)
        return
    if mine is not None:
        _print_receipts(run, settled, spent, path)
        return
    output.line(output.output(), f"Accepted: ticket {ticket.id}.")
    output.line(output.output(), f"The rows are suppressed. Have them forgotten with: splitwiper settle {run}")


def _print_receipts(
    run: Path, settled: Sequence[Receipt], costs: Mapping[str, Spent], path: Path | None = None
) -> None:
    """Print the receipts, and what the one re-training that answers them all cost everyone."""
    out = output.output()
    out.print(
        output.table(
            ("ticket", "client", "level", "re-trained from"),
            ((r.ticket, r.client, r.level, "initial weights" if r.exact else "warm: not exact") for r in settled),
        )
    )
    out.print()
    last = settled[-1]
    rows = [
        (name, output.seconds(spent.seconds), output.size(spent.bytes_up + spent.bytes_down))
        for name, spent in costs.items()
    ]
    rows.append(("server", output.seconds(last.server_seconds), ""))
    out.print(output.table(("spent by", ">time", ">sent"), rows, last="total"))
    out.print()
    if path is not None:
        output.line(out, f"Receipt: {path}")
    output.line(out, f"Prove it by recomputing: splitwiper verify {run} {last.ticket[:8]}")
