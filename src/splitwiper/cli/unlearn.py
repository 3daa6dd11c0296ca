"""``splitwiper unlearn``, ``settle`` and ``receipt``: ask to forget, have it done, and show what was done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from splitwiper.cli import output
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.options import Classes, Everything, Json, ReceiptFile, Run, Samples, Yes, confirm_everything
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import open_run
from splitwiper.errors import BusyError, InputError, NotFoundError, RequestError

if TYPE_CHECKING:
    from splitwiper.federation import Federation
    from splitwiper.wire import Receipt, Spent, Ticket


def unlearn(
    run: Run,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client that asks.")],
    classes: Classes = None,
    samples: Samples = None,
    samples_file: Annotated[
        Path | None,
        typer.Option("--samples-file", metavar="FILE", help="Forget the rows with these ids, one per line."),
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
    ids = _row_ids(classes, samples, samples_file, everything)
    if receipt is not None:
        if submit_only:
            raise InputError("--submit-only makes no receipt: leave --receipt out, or let the request be settled now.")
        _check_writable(receipt)
    if everything and not yes:
        confirm_everything(f"All that {client} ever sent to {run} will be forgotten. This cannot be undone.")
    with Bars(quiet=as_json) as bars:
        federation = open_run(run, bars)
        ticket = _submit(federation, client, classes, ids, everything)
        settled = () if submit_only else _settle(federation, run, ticket)
    mine = next((r for r in settled if r.ticket == ticket.id), None)
    if receipt is not None and mine is not None:
        _save(mine, receipt)
    if as_json:
        _emit_request(run, ticket, mine, settled, receipt)
    elif mine is not None:
        _print_receipts(run, settled, federation.spent, receipt)
    else:
        output.say(f"Accepted: ticket {ticket.id}.")
        output.say(f"The rows are suppressed. Have them forgotten with: splitwiper settle {run}")


def _row_ids(
    classes: Sequence[str] | None, samples: Sequence[int] | None, file: Path | None, everything: bool
) -> list[int] | None:
    """Check that one kind of thing is named to forget, and return the ids of rows if that is what it is."""
    kinds = sum((bool(classes), bool(samples), file is not None, everything))
    if kinds != 1:
        raise InputError(
            f"{'more than one kind of thing is' if kinds else 'nothing is'} named to forget: give only one of "
            "--class, --sample, --samples-file and --everything."
        )
    if file is None:
        return list(samples) if samples else None
    if not file.is_file():
        raise InputError(f"there is no file {file}; give one with a row id on each line.")
    ids = []
    for number, text in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not text.strip():
            continue
        try:
            ids.append(int(text))
        except ValueError:
            raise InputError(
                f"{file}, line {number}: {text.strip()!r} is not a row id; write one whole number per line."
            ) from None
    if not ids:
        raise InputError(f"{file} names no row; write one id per line.")
    return ids


def _check_writable(file: Path) -> None:
    """Refuse a file that could not be written, before the work is done and not after it."""
    if file.is_dir() or not file.parent.is_dir():
        raise InputError(f"the receipt cannot be written to {file}: give a file in a folder that exists.")


def _submit(
    federation: Federation, client: str, classes: Sequence[str] | None, ids: list[int] | None, everything: bool
) -> Ticket:
    try:
        names = resolve(classes, set(federation.rows(client).values()), client) if classes else None
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
    """Return labels for their text: an integer where that is what the client holds.

    >>> resolve(["3", "bird"], {3, "bird", "cat"}, "north")
    [3, 'bird']
    """
    labels: list[str | int] = []
    for name in names:
        matching = [label for label in held if str(label) == name]
        if len(matching) > 1:
            raise RequestError(
                f"client {client!r} holds both the number {name} and the text {name!r}; name the rows with --sample "
                "(their ids: splitwiper status RUN --client NAME)."
            )
        labels += matching or [name]
    return labels


def _settle(federation: Federation, run: Path, ticket: Ticket) -> tuple[Receipt, ...]:
    """Settle all open requests, this one included; whatever stops that says that the request is accepted."""
    short = ticket.id[:8]
    advice = f"The request is accepted (ticket {short}) and not lost: finish it with 'splitwiper settle {run}'."
    with when_interrupted(advice):
        try:
            settled = federation.settle()
        except BusyError as problem:
            raise BusyError(
                f"the request is accepted (ticket {short}) and its rows are suppressed: do not ask again. But "
                f"{problem} Whoever works on the run finishes it, or 'splitwiper settle {run}' does; then "
                f"'splitwiper receipt {run} {short}' shows what was done."
            ) from problem
    # without a receipt here, another process settled the request meanwhile
    return settled or tuple(r for r in federation.receipts() if r.ticket == ticket.id)


def _emit_request(
    run: Path, ticket: Ticket, mine: Receipt | None, settled: Sequence[Receipt], receipt_file: Path | None
) -> None:
    output.emit(
        {
            "run": run,
            "ticket": ticket.id,
            "client": ticket.client,
            "level": ticket.level,
            "state": "settled" if mine else ticket.state,
            "settled": [receipt.ticket for receipt in settled],
            "receipt": mine.to_dict() if mine else None,
            "receipt_file": receipt_file,
        }
    )


def settle(
    run: Run,
    resend: Annotated[
        list[str] | None,
        typer.Option("--resend", metavar="CLIENT", help="Have a client send its shard again. May be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Settle all open requests with one re-training.

    Also finishes whatever was interrupted. If the server's copy of a client's shard, or
    the client's half, is damaged, --resend computes it again.

    Example:
      splitwiper unlearn runs/ward north --class bird --submit-only
      splitwiper unlearn runs/ward south --sample 1870032418734066 --submit-only
      splitwiper settle runs/ward
    """
    with Bars(quiet=as_json) as bars:
        federation = open_run(run, bars)
        # before settling, which trains on the server's copies of shards
        for name in resend or ():
            federation.reupload(name)
        settled = federation.settle()
        state = federation.status().model
    if as_json:
        output.emit({"run": run, "model": state, "receipts": [receipt.to_dict() for receipt in settled]})
    elif settled:
        _print_receipts(run, settled, federation.spent)
    else:
        output.say(f"No request was open; the model of {run} is {state}.")


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
    tickets = [other.id for other in store.tickets()]
    matching = [name for name in tickets if name.startswith(ticket)]
    if len(matching) != 1:
        known = ", ".join(name[:8] for name in tickets) or "none"
        raise NotFoundError(f"{len(matching) or 'no'} tickets in {run} begin with {ticket!r}; it has: {known}.")
    settled = _with_noise(run, store.receipt(matching[0]))
    if out is None and certificate is None:  # a receipt is JSON anyway, so this command has no --json
        output.emit(settled.to_dict())
    for file in (out, certificate):
        if file is not None:
            _check_writable(file)
    if out is not None:
        _save(settled, out)
        output.say(f"Receipt: {out}")
    if certificate is not None:
        from splitwiper.cli.certificate import write_run_certificate

        write_run_certificate(run, settled.ticket, certificate)


def _with_noise(run: Path, settled: Receipt) -> Receipt:
    """Return a receipt with what the client's noise has spent, if it uses noise and its folder is here."""
    from splitwiper.client.spending import privacy_spent
    from splitwiper.config import ClientConfig, from_dict, read_toml
    from splitwiper.store import ClientStore, ServerStore

    folder = run / "clients" / settled.client
    if not (folder / "client.db").exists():
        return settled
    noise = from_dict(ClientConfig, read_toml(folder / "config.toml")).noise
    if not noise.is_on:
        return settled
    spending = privacy_spent(ClientStore(folder), noise, ServerStore(run / "server").columns())
    return replace(settled, privacy=spending.to_dict())


def _save(receipt: Receipt, path: Path) -> None:
    from splitwiper.store import files

    files.write_bytes(path, (json.dumps(receipt.to_dict(), indent=2) + "\n").encode())


def _print_receipts(
    run: Path, settled: Sequence[Receipt], costs: Mapping[str, Spent], path: Path | None = None
) -> None:
    """Print the receipts, and what the one re-training that answers them all cost everyone."""
    rows: list[Sequence[str]] = []
    for receipt in settled:
        start = "initial weights" if receipt.exact else "warm: not exact"
        rows.append((receipt.ticket, receipt.client, receipt.level, start))
    output.show(("ticket", "client", "level", "re-trained from"), rows)
    output.say()
    last, rows = settled[-1], []
    for name, spent in costs.items():
        rows.append((name, output.seconds(spent.seconds), output.size(spent.traffic)))
    rows.append(("server", output.seconds(last.server_seconds), ""))
    output.show(("spent by", ">time", ">sent"), rows, last="total")
    output.say()
    if path is not None:
        output.say(f"Receipt: {path}")
    output.say(f"Prove it by recomputing: splitwiper verify {run} {last.ticket[:8]}")
