"""The program ``splitwiper``: its commands and its help. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import sys
import warnings
from inspect import Parameter, signature
from typing import Annotated

import typer
from rich.text import Text

from splitwiper.cli.audit import audit
from splitwiper.cli.certificate import certificate
from splitwiper.cli.certs import certs
from splitwiper.cli.demo import demo
from splitwiper.cli.exit_codes import TABLE, guarded, run_to_the_end
from splitwiper.cli.forget import forget
from splitwiper.cli.head import accept_restore, head
from splitwiper.cli.join import group, join
from splitwiper.cli.learn import learn, rekey
from splitwiper.cli.output import note
from splitwiper.cli.predict import predict
from splitwiper.cli.serve import restore, serve
from splitwiper.cli.status import status
from splitwiper.cli.unlearn import receipt, settle, unlearn
from splitwiper.cli.verify import verify
from splitwiper.errors import ConfigError
from splitwiper.extensions import COMMANDS, OF_LABORATORY, extensions, how_to_get

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
for _command in (*_COMMANDS, *_SERVICE):
    app.command(no_args_is_help=_command is not demo)(guarded(_command))
app.add_typer(certs)


def _add_refusing(name: str, message: str) -> None:
    """Add a hidden command that, whatever its arguments, says why it cannot be run."""

    def refuse() -> None:
        raise ConfigError(message)

    any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=any_arguments)(guarded(refuse))


def _add_extensions() -> None:
    """Add the commands of other packages, and of the laboratory if it is installed."""
    points = extensions(COMMANDS)
    for name in OF_LABORATORY:
        if name not in points:
            _add_refusing(name, how_to_get(f"'splitwiper {name}'"))
    for name, point in points.items():
        try:
            command = point.load()
        except (ImportError, AttributeError) as problem:  # what somebody else installed must not stop the product
            _add_refusing(name, f"'splitwiper {name}' of {point.value} cannot be loaded ({problem}): install it again.")
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            defaults = [parameter.default for parameter in signature(command).parameters.values()]
            app.command(name, no_args_is_help=Parameter.empty in defaults)(guarded(command))


_add_extensions()


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
    """Print a warning without the place in the source that it comes from."""
    note(Text("warning: ", "bold yellow"), str(message))


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark, and nothing fails
    warnings.showwarning = _warned
    run_to_the_end(app)
