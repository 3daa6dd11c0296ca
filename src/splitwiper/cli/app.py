"""The program ``splitwiper``: its commands and its help. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Annotated

import typer
from rich.text import Text

from splitwiper.cli.audit import audit
from splitwiper.cli.certificate import certificate
from splitwiper.cli.certs import certs
from splitwiper.cli.demo import demo
from splitwiper.cli.exit_codes import TABLE, guarded, run_to_the_end
from splitwiper.cli.head import head
from splitwiper.cli.join import forget, group, join
from splitwiper.cli.learn import learn
from splitwiper.cli.output import errors, line
from splitwiper.cli.predict import predict
from splitwiper.cli.rekey import rekey
from splitwiper.cli.restore import accept_restore, restore
from splitwiper.cli.serve import serve
from splitwiper.cli.status import status
from splitwiper.cli.unlearn import receipt, settle, unlearn
from splitwiper.cli.verify import verify
from splitwiper.errors import ConfigError
from splitwiper.extensions import COMMANDS, OF_LABORATORY, extensions, how_to_get


def _refusing(message: str) -> Callable[[], None]:
    """Return a command that says why it cannot be run."""

    def refuse() -> None:
        raise ConfigError(message)

    return refuse


def _needs_arguments(command: Callable[..., None]) -> bool:
    """Whether some parameter of a command has no default."""
    return any(one.default is Parameter.empty for one in signature(command).parameters.values())


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
_found = extensions(COMMANDS)
_ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
for _name in OF_LABORATORY:
    if _name not in _found:
        _refuse = _refusing(how_to_get(f"'splitwiper {_name}'"))
        app.command(_name, hidden=True, context_settings=_ANY_ARGUMENTS)(guarded(_refuse))
for _name, _point in _found.items():
    try:
        _loaded = _point.load()
    except (ImportError, AttributeError) as _problem:  # what somebody else installed must not stop the product
        _refuse = _refusing(f"'splitwiper {_name}' of {_point.value} cannot be loaded ({_problem}): install it again.")
        app.command(_name, hidden=True, context_settings=_ANY_ARGUMENTS)(guarded(_refuse))
        continue
    if isinstance(_loaded, typer.Typer):
        app.add_typer(_loaded, name=_name)
    else:
        app.command(_name, no_args_is_help=_needs_arguments(_loaded))(guarded(_loaded))


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
    line(errors(), Text("warning: ", "bold yellow"), str(message))


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark, and nothing fails
    warnings.showwarning = _warned
    run_to_the_end(app)
