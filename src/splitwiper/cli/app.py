"""The program ``splitwiper``: its commands and its help. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer
from rich.text import Text

from splitwiper.cli.attack import attack
from splitwiper.cli.audit import audit
from splitwiper.cli.certificate import certificate
from splitwiper.cli.certs import certs
from splitwiper.cli.compare import compare
from splitwiper.cli.data import data
from splitwiper.cli.demo import demo
from splitwiper.cli.exits import TABLE, guarded, run_to_the_end
from splitwiper.cli.head import head
from splitwiper.cli.join import forget, group, join
from splitwiper.cli.learn import learn
from splitwiper.cli.predict import predict
from splitwiper.cli.rekey import rekey
from splitwiper.cli.report import report
from splitwiper.cli.reproduce import reproduce
from splitwiper.cli.restore import accept_restore, restore
from splitwiper.cli.serve import serve
from splitwiper.cli.show import errors, line
from splitwiper.cli.status import status
from splitwiper.cli.tradeoff import tradeoff
from splitwiper.cli.unlearn import receipt, settle, unlearn
from splitwiper.cli.verify import verify

app = typer.Typer(
    name="splitwiper",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (demo, learn, unlearn, settle, receipt, predict, verify, status, rekey)
_SERVICE = (serve, join, group, forget, certificate, audit, head, restore, accept_restore)
for _command in (*_COMMANDS, *_SERVICE, attack, tradeoff, compare, reproduce, report):
    app.command(no_args_is_help=_command not in (demo, report))(guarded(_command))
app.add_typer(data)
app.add_typer(certs)


def _version(asked: bool) -> None:
    if asked:
        from splitwiper import __version__

        typer.echo(f"splitwiper {__version__}")
        raise typer.Exit


@app.callback(epilog=TABLE)
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Split learning that can forget: exact, verifiable unlearning between organisations.

    Start with 'splitwiper demo'; 'splitwiper COMMAND --help' shows examples.
    """


def _warned(message: Warning | str, *_where: object, **_more: object) -> None:
    """Tell a warning as people read it, without the place in the source it comes from."""
    line(errors(), Text("warning: ", "bold yellow"), str(message))


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark, and nothing fails
    warnings.showwarning = _warned
    run_to_the_end(app)
