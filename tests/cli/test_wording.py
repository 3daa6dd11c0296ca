"""Every translation of the command line is of words that the library still uses."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import splitwiper
from splitwiper.cli import wording

SOURCE = Path(splitwiper.__file__).parent


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the text of every string in a module but docstrings; a name stands for each value put into it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring: nobody is shown it
        if isinstance(node, ast.JoinedStr):
            # the values as in a message, with the quotation marks that !r puts around a name
            parts = [part.value if isinstance(part, ast.Constant) else "'north'" for part in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from texts(node)


@pytest.fixture(scope="module")
def messages() -> list[str]:
    """Every text in the source of the library, except the translations themselves."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path != Path(wording.__file__):
            found.extend(texts(ast.parse(path.read_text(encoding="utf-8"))))
    return found


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in wording._PATTERNS], ids=lambda pattern: pattern.pattern)
def test_every_pattern_matches_a_message(pattern, messages: list[str]) -> None:
    assert any(pattern.search(text) for text in messages), "no message contains it any more: change or delete it"
