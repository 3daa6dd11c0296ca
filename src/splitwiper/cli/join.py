"""``splitwiper join``, ``group`` and ``forget``: a client of a server that is elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splitwiper.cli import output
from splitwiper.cli.certificate import leave, tell_certificate, write_certificate
from splitwiper.cli.exit_codes import when_interrupted
from splitwiper.cli.progress import Bars
from splitwiper.cli.runs import look_here
from splitwiper.cli.unlearn import Classes, Everything, Json, ReceiptFile, Samples, Yes, confirm
from splitwiper.errors import ConfigError, InputError, NotFoundError, RequestError, check_keys

if TYPE_CHECKING:
    from splitwiper.config import ClientConfig
    from splitwiper.service.site import Certified, Site, SiteConfig

SiteFolder = Annotated[Path, typer.Argument(metavar="SITE", help="The client's own folder.", show_default=False)]
_AGAIN = "Nothing acknowledged is lost: run the same command again, and it continues from there."


def join(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The client's TOML file.", show_default=False)],
    site: Annotated[Path, typer.Option("--site", metavar="DIR", help="The client's own folder; made if not there.")],
    group: Annotated[
        Path | None,
        typer.Option(
            "--group", metavar="FILE", help="The group's key, where labels are hidden; see 'splitwiper group'."
        ),
    ] = None,
    members: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="CLIENT", help="Agree on labels with this client, too. May be repeated."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Abandon an agreement that somebody never joined; begin one with --with.")
    ] = False,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for the others, and for a server that is away.")
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Join a server, pre-train on one's own rows, and send activations once.

    Data, half and keys stay in the site folder. Learning the same rows again
    changes nothing; an interrupted upload continues where it stopped.

    Where labels are hidden, clients first agree on them. Each has the group's key.
    The first clients name everybody who takes part (--with). A client that joins
    later names nobody and takes the existing agreement, which must contain its
    labels. Clients wait for each other; to continue, run the same command again.

    The file:
      name = "north"                       # as the certificate has it
      url = "https://splitwiper.example.org:8443"
      certs = "certs/north"                # what 'splitwiper certs client' made
      data = "rows.npz"                    # or a .csv file; label = "COLUMN"
      [model]                              # as the server has it
      [client]                             # epochs, slices, codec…

    Example:
      splitwiper join north.toml --site sites/north
      splitwiper join north.toml --site sites/north --group ward.key --with south
    """
    from splitwiper.client.agreeing import Gathering
    from splitwiper.data.files import read_data
    from splitwiper.service.site import join as make
    from splitwiper.service.site.invited import read_secret

    look_here()
    gathering = Gathering(members=members or (), anew=anew, patience=patience, told=_told)
    settings, client, files = _read(config)
    ambient = os.environ.get("SPLITWIPER_INVITATION") if client.masking.is_on else None
    secret = read_secret(group) if group else ambient
    with Bars(quiet=as_json) as bars, when_interrupted(_AGAIN):
        bars("reading data", 0, 1)
        rows = read_data(config.parent / files["data"], label=files.get("label") or None)
        opened = make(site, settings, client, invitation=secret, progress=bars)
        try:
            added = opened.learn(rows, gathering=gathering, patience=patience, told=_trying_again(patience))
        finally:
            opened.close()
    if as_json:
        output.emit({"site": site, "name": settings.name, "url": settings.url, "added": added})
        return
    rows_told = f"learned from {output.plural(added.new, 'row')}"
    if added.new == 0:
        rows_told = "no new rows"
    if added.refused:
        rows_told += f"; {output.plural(added.refused, 'row')} refused, because forgotten rows stay forgotten"
    output.line(output.output(), f"{settings.name} has joined {settings.url}: {rows_told}.")


def _told(text: str) -> None:
    output.line(output.errors(), text)


def _trying_again(patience: float) -> Callable[[str], None]:
    """Say what is wrong with the server, and that it is tried again."""
    return lambda text: _told(f"{text} Trying again for up to {patience:.0f} seconds.")


def group(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.", show_default=False)],
) -> None:
    """Make the key that clients of a group share to hide labels from the server.

    One client makes it. The others get a copy by a way that does not pass the
    server or whoever runs it, and join with it. Whoever has it reads all labels.

    Example:
      splitwiper group ward.group
    """
    from splitwiper.service.site.invited import make_secret

    make_secret(file)
    output.line(output.output(), f"{file} has the group's key. Give it to the other clients, and never to the server.")


def forget(
    site: SiteFolder,
    classes: Classes = None,
    samples: Samples = None,
    everything: Everything = False,
    receipt: ReceiptFile = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Write the certificate here, for outsiders.")
    ] = None,
    patience: Annotated[float, typer.Option("--patience", min=0, help="Seconds to try and to wait at most.")] = 600.0,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget rows at this client, and have the server forget them.

    They are suppressed here first, at once and for ever, even if the server cannot
    be reached; then it is tried until the server has answered. Without --class,
    --sample or --everything, requests that were made before are finished, and
    their certificates fetched.

    The certificate is compared with what this site signed, sent and is answered.
    The exit code is 0 only if all of that holds; 3 where something is false.

    Example:
      splitwiper forget sites/north --class bird --certificate bird.json
      splitwiper forget sites/north
    """
    from splitwiper.service.site import Site, resuming

    look_here()
    if sum((bool(classes), bool(samples), everything)) > 1:
        raise InputError("name one thing to forget: --class, --sample or --everything.")
    if everything and not yes:
        confirm(f"All that was ever sent from {site} will be forgotten. This cannot be undone.")
    advice = f"What was suppressed stays suppressed: 'splitwiper forget {site}' finishes the request."
    with Bars(quiet=as_json) as bars, when_interrupted(advice):
        opened = Site(site, bars)
        ticket, estimate = "", None
        try:
            if classes or samples or everything:
                chosen = _named(opened, classes)
                estimate = opened.estimate()
                if not as_json:
                    _tell_cost(estimate)
                ticket = _asked(opened, chosen, samples or None, everything)
            opened.settle(patience=patience, told=_trying_again(patience))
            proofs = _proofs(opened, ticket, patience)
            if not ticket and (receipt or certificate):  # those of the request that was interrupted
                ticket = _one_finished(opened, proofs)
                proofs = proofs or {ticket: opened.certificate(ticket)}
            found = opened.await_receipt(ticket, patience=patience) if ticket else None
            trouble = opened.client.trouble()
        finally:
            opened.close()
    if trouble:
        output.line(output.errors(), f"Note: {trouble}")
    if found is not None and receipt is not None:
        found.save(receipt)
    if ticket and certificate is not None:
        write_certificate(certificate, proofs[ticket])
    if as_json:
        told: dict[str, Any] = {"site": site, "ticket": ticket, "estimate": estimate, "trouble": trouble}
        told["certificates"] = {one: proof.checked.outcome for one, proof in proofs.items()}
        if found and ticket:
            told |= {"receipt": found.to_dict(), "certificate": proofs[ticket].checked.outcome}
            told["checks"] = proofs[ticket].checked.checks
        output.emit(told)
    else:
        for one, proof in proofs.items():
            tell_certificate(one, proof)
        if not proofs:
            output.line(output.output(), "Nothing is left to do.")
        elif certificate is not None:
            keys = site / opened.config.name / "server-keys"
            output.line(output.output(), f"Check it: splitwiper verify {certificate} --key {keys}")
    resuming.finish(opened)  # all that was asked for is delivered: the next call is a new one
    leave(proofs.values())


def _asked(opened: Site, classes: list[str | int] | None, samples: list[int] | None, everything: bool) -> str:
    """Suppress rows and make the request, or find the one that an interrupted run of this command made."""
    from splitwiper.service.site import resuming

    try:
        return resuming.forget(opened, classes=classes, samples=samples, everything=everything)
    except RequestError as problem:
        waiting = opened.client.store.requests("open", "sent")
        if not waiting:
            raise
        raise RequestError(
            f"{problem} A request is waiting already (ticket {waiting[-1]['ticket'][:8]}): if it is this one, finish "
            f"it with 'splitwiper forget {opened.path}'."
        ) from problem


def _proofs(opened: Site, ticket: str, patience: float) -> dict[str, Certified]:
    """The certificate of a request; without one, of all settled requests that the site has no certificate of yet."""
    if ticket:
        opened.await_receipt(ticket, patience=patience)
        return {ticket: opened.certificate(ticket)}
    settled = {one.id for one in opened.requests() if one.state == "settled"}
    for one in opened.client.store.requests("open", "sent", "done"):  # the site's own list: a server may lose some
        if one["ticket"] not in settled:
            opened.await_receipt(one["ticket"], patience=patience)
    return opened.certificates(missing=True)


def _one_finished(opened: Site, proofs: Mapping[str, Certified]) -> str:
    """The request whose receipt and certificate are wanted where none was named: the one that was finished just now.

    Raises:
        InputError: several were.
        NotFoundError: the site has made no request.
    """
    if len(proofs) > 1:
        raise InputError(
            f"{len(proofs)} requests were finished, and their certificates are kept in "
            f"{opened.kept_certificate('x').parent}; --certificate and --receipt take one. 'splitwiper certificate "
            f"{opened.path} TICKET --out FILE' writes one of them: {', '.join(ticket[:8] for ticket in proofs)}."
        )
    if proofs:
        return next(iter(proofs))
    settled = [one.id for one in opened.requests() if one.state == "settled"]
    if not settled:
        raise NotFoundError(f"{opened.path} has asked to forget nothing: name a --class, --sample or --everything.")
    return settled[-1]


def _tell_cost(estimate: Mapping[str, Any] | None) -> None:
    """Say what is asked of the server, before it is asked."""
    if estimate is None:
        output.line(output.errors(), "The server cannot say now how long this takes; the request is made all the same.")
        return
    seconds = estimate["training_seconds"]
    took = f"which took {output.seconds(seconds)} the last time" if seconds is not None else "for the first time"
    waiting = f", together with {output.plural(estimate['waiting'], 'waiting request')}" if estimate["waiting"] else ""
    output.line(
        output.errors(),
        f"The server re-trains{waiting}, {took}. No other client is contacted. The request must be "
        f"settled within {estimate['deadline_days']:g} days.",
    )


def _named(site: Site, classes: list[str] | None) -> list[str | int] | None:
    """Classes as rows are labelled: integers where labels are."""
    if not classes:
        return None
    held = {str(label.name): label.name for label in site.client.labels()}
    return [held.get(name, name) for name in classes]


def _read(path: Path) -> tuple[SiteConfig, ClientConfig, Mapping[str, Any]]:
    from splitwiper.config import ClientConfig, from_dict, read_toml
    from splitwiper.service.site import SiteConfig

    if not path.is_file():
        raise ConfigError(f"there is no configuration file {path}.")
    values = read_toml(path)
    own = ("name", "url", "certs", "token", "task", "spot_check", "attesters", "model")
    try:
        check_keys(values, (*own, "client", "data", "label"))
        for key in ("name", "url", "data"):
            if not values.get(key):
                raise ConfigError(f"{key} is missing.")
        given = {key: values[key] for key in own if key in values}
        for key in ("certs", "token", "attesters"):  # what the site remembers must hold wherever it is opened from
            if given.get(key):
                given[key] = str((path.parent / given[key]).resolve())
        return from_dict(SiteConfig, given), from_dict(ClientConfig, values.get("client", {}), where="client."), values
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem
