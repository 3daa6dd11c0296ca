"""Write ``docs/reference/``: every command from the command line itself, every setting from the settings themselves."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer

from splitwiper.cli import app
from splitwiper.cli.settings import ClientFiles
from splitwiper.config import ClientConfig, Config, Masking, ModelConfig, Noise, ServerConfig, StoreConfig
from splitwiper.service.settings import ServiceConfig
from splitwiper_lab.baselines import FRAMEWORKS
from splitwiper_lab.baselines.framework import Framework
from splitwiper_lab.baselines.unlearning import METHODS
from splitwiper_lab.cli.known_data import KnownData
from splitwiper_lab.evaluation.comparison import settings as comparison

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
MARK = "<!-- Written by `make docs`: change the docstrings in src/, not this page. -->"
WORDS = {"int": "integer", "float": "number", "str": "text", "bool": "true or false", "Path": "path"}
"""What types are called."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


# --- commands ------------------------------------------------------------------------------------------------


def cli() -> str:
    """The page of all commands there are."""
    root = typer.main.get_command(app)
    found = list(commands(root, str(root.name)))
    listed = table(
        ("command", "what it does"),
        ((f"[{path}](#{path.replace(' ', '-')})", prose(_summary(one))) for path, one in found),
    )
    parts = [
        f"# Command line\n\n{MARK}\n",
        body(root.help),
        "Every command has `--help`. Where there is `--json`, it prints JSON and nothing else.\n",
        listed,
        body(root.epilog),
        _options(root),
    ]
    for path, command in found:
        parts += [f"## {path}\n", f"```text\n{' '.join(_usage(path, command))}\n```\n", body(command.help)]
        parts += [_arguments(command), _options(command)]
    return "\n".join(part for part in parts if part)


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """All commands that do something, with their full names, those of groups included."""
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _summary(command: Any) -> str:
    return str(command.help or "").partition("\n\n")[0].replace("\n", " ")


def _is_option(param: Any) -> bool:
    return str(param.opts[0]).startswith("-")


def _usage(path: str, command: Any) -> Iterator[str]:
    yield path
    for param in command.params:
        if not _is_option(param):
            word = str(param.metavar or param.name.upper()).removesuffix("...")
            word += "..." * (param.nargs == -1)
            yield word if param.required else f"[{word}]"
    for param in command.params:
        if _is_option(param) and param.required:
            yield f"{param.opts[0]} {_value(param)}"
    if any(_is_option(param) and not param.required for param in command.params):
        yield "[OPTIONS]"


def _arguments(command: Any) -> str:
    rows = [
        (f"`{str(p.metavar or p.name.upper()).removesuffix('...')}`", prose(p.help or ""))
        for p in command.params
        if not _is_option(p)
    ]
    return table(("argument", "meaning"), rows) if rows else ""


def _options(command: Any) -> str:
    rows = []
    for param in command.params:
        if not _is_option(param) or getattr(param, "hidden", False):
            continue
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
        silent = param.default is None or param.default is False or param.default == ""
        default = "required" if param.required else "" if silent else f"`{param.default}`"
        rows.append((names, _value(param), default, prose(param.help or "")))
    return table(("option", "value", "default", "meaning"), rows) if rows else ""


def _value(param: Any) -> str:
    """What an option takes; nothing if it is a switch."""
    if getattr(param, "is_flag", False):
        return ""
    described = getattr(param, "type_descriptor", None)
    kind = described.annotation if described else param.type.name
    word = param.metavar or (kinds(kind) if described else str(kind))
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    return str(word) + f" ≥ {low}" * (low is not None) + f" ≤ {high}" * (high is not None)


def body(text: str | None) -> str:
    """Return a help text as Markdown, with indented lines as code."""
    text = (text or "").replace("\\[", "[")
    out = []
    for part in re.findall(r"(?:^ .*\n(?:\n(?= ))?)+|(?:^\S.*\n)+", f"{text}\n", re.MULTILINE):
        shown = textwrap.dedent(part).rstrip()
        out.append(f"```text\n{shown}\n```\n" if part.startswith(" ") else prose(shown) + "\n")
    return "\n".join(out)


def prose(text: str) -> str:
    """A docstring's text as one paragraph of Markdown; nothing in it becomes markup by accident."""
    text = re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([<>*_\[\]])", r"\\\1", p) for p in pieces)


# --- settings ------------------------------------------------------------------------------------------------


def config() -> str:
    """The page of all settings."""
    tables = [
        ("[model]", ModelConfig),
        ("[server]", ServerConfig),
        ("[store]", StoreConfig),
        ("[service]", ServiceConfig),
        ("[client]", ClientConfig),
        ("[client.masking]", Masking),
        ("[client.noise]", Noise),
        ("[clients.NAME]", ClientFiles),
        ("[data]", KnownData),
        ("[compare]", comparison.Conditions),
        ("[compare.membership]", comparison.Membership),
    ]
    links = ", ".join(f"[`{name}`](#{slug(name)})" for name, _ in tables)
    parts = [
        f"# Settings\n\n{MARK}\n",
        "The TOML file of `splitwiper learn` and `splitwiper compare`; `splitwiper serve` takes `seed`, `[model]`, "
        "`[server]`, `[store]` and `[service]`. Unknown keys and wrong types are errors that "
        "name the nearest key. In Python the same names are fields of `Config`, `ModelConfig`, `ServerConfig` and "
        "`ClientConfig`, and of `Masking` and `Noise` in `splitwiper.config`.\n",
        f"Tables: {links} and [`[[compare.systems]]`](#comparesystems).\n",
        "Data is named either by a `[clients.NAME]` table for each client or by one `[data]` table. With `[data]`, "
        "what the file leaves out comes from the set's own recipe, and may differ from the defaults below.\n",
        "## Top level\n",
        fields(Config),
    ]
    for name, kind in tables:
        parts += [f"## `{name}`\n", prose(_first(kind)) + "\n", fields(kind)]
    return "\n".join([*parts, *_systems()])


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def fields(kind: type[Any], *, skip: Iterable[str] = (), words: Mapping[str, str] | None = None) -> str:
    """A table of a dataclass's fields; nested ones have tables of their own."""
    hints, told = get_type_hints(kind), {**documented(kind), **(words or {})}
    rows = []
    for field in dataclasses.fields(kind):
        if field.name in skip or dataclasses.is_dataclass(hints[field.name]):
            continue
        if field.default is not dataclasses.MISSING:
            default = f"`{json.dumps(field.default, ensure_ascii=False)}`"
        else:
            default = f"`{json.dumps(field.default_factory())}`"  # type: ignore[misc]
        rows.append((f"`{field.name}`", kinds(hints[field.name]), default, prose(told.get(field.name, ""))))
    return table(("key", "type", "default", "meaning"), rows)


def kinds(kind: Any) -> str:
    """A type in words: ``tuple[str, ...]`` is a list of text."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join(kinds(one) for one in get_args(kind))
    if origin in (list, tuple):
        return f"list of {kinds(get_args(kind)[0])}"
    if origin is not None:
        return "table"
    return WORDS.get(kind.__name__, kind.__name__)


def documented(kind: type[Any]) -> dict[str, str]:
    """What is said of each field: the text below it, or the class's section of attributes."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        _, _, section = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:\n")
        for name, text in re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section.partition("\n\n")[0], re.MULTILINE):
            found[name] = text[:1].upper() + text[1:]
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        inside = tree.body if isinstance(tree, ast.ClassDef) else []
        for one, below in pairwise(inside):
            is_field = isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            if is_field and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[one.target.id] = str(below.value.value)  # type: ignore[attr-defined]
    return found


def _first(kind: type[Any]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]


SISA = {
    "shards": "Models that divide the rows among them.",
    "slices": "Parts of a shard with a checkpoint after each.",
    "aggregate": "How the models' answers become one: 'vote' or 'mean'.",
}
SPLIT = {
    "aggregate": "Φ over clients' gradients: 'rows' weighs clients by their rows, 'mean' weighs them alike.",
    "synchronise": "'average' averages the client halves after each epoch, weighted by rows; 'none' does not.",
    "momentum": "'fresh' starts all optimisers afresh after each epoch; 'kept' keeps momentum.",
}
"""What the file says in other words than the classes behind it."""


def _systems() -> Iterator[str]:
    yield "## `[[compare.systems]]`\n"
    yield (
        "One table for each system, with a `kind` and, if you like, a `name` for tables of results. A kind alone may "
        f"stand for its table. Without the list, {comparison.OURS} and vanilla are compared. A kind from another "
        "package is an entry point or an import path, with its settings in `args`: [how to write "
        "one](../how-to/extend-laboratory.md).\n"
    )
    rows = [(f"`{comparison.OURS}`", "This software. Takes `masking` and `noise`, tables as in `[client]`.")]
    rows += [(f"`{name}`", prose(_first(kind))) for name, kind in FRAMEWORKS.items()]
    rows += [(f"`{comparison.SISA}`", "Sharded training with all rows in one place.")]
    yield table(("kind", "what it is"), rows)
    yield f"### Settings of {', '.join(FRAMEWORKS)}\n"
    told = {**documented(Framework), **SPLIT}
    made = {name: kind() for name, kind in FRAMEWORKS.items()}
    keys = [field.name for field in dataclasses.fields(comparison._Split)]
    yield table(
        ("key", *(f"{name}" for name in made), "meaning"),
        ((f"`{key}`", *(_own(one, key) for one in made.values()), prose(told.get(key, ""))) for key in keys),
    )
    yield (
        "`unlearning` lists the ways it forgets, each a name or a table with `method` and its settings: "
        '`unlearning = ["retraining", {method = "gradient-ascent", epochs = 2}]`. Without it: retraining.\n'
    )
    for name, method in METHODS.items():
        yield f"**{name}**: {prose(_first(method))}\n"
        if any(field.name not in comparison._NETWORKS for field in dataclasses.fields(method)):
            yield fields(method, skip=comparison._NETWORKS)
    yield f"### Settings of {comparison.SISA}\n"
    yield fields(comparison._Sisa, words=SISA)


def _own(framework: Framework, key: str) -> str:
    """A framework's own value of a key, as the file has it."""
    if key == "synchronise":
        return '`"average"`' if framework.synchronise else '`"none"`'
    if key == "momentum":
        return '`"fresh"`' if framework.fresh else '`"kept"`'
    return f"`{json.dumps(getattr(framework, key))}`"


PAGES = {"cli.md": cli, "config.md": config}


def main() -> None:
    """Write all pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
