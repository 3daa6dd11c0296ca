"""Imports go one way, and neither the client's nor the server's side imports the other."""

import ast
import re
from pathlib import Path

import pytest

import splitwiper
import splitwiper_lab

ROOT, LABORATORY = Path(splitwiper.__file__).parent, Path(splitwiper_lab.__file__).parent
# from the foundation outwards: a room may import those before it
ORDER = [
    "errors",
    "checks",
    "progress",
    "reading",
    "formats",
    "exclusive",
    "seeding",
    "switches",
    "portable",
    "patches",
    "numerics",
    "certainty",
    "extras",
    "splitting",
    "extensions",
    "config",
    "wire",
    "masking",
    "privacy",
    "training",
    "models",
    "data",
    "store",
    "client",
    "server",
    "federation",
    "engines",
    "service",
    "report",
    "cli",
]
OF_LABORATORY = [
    "theorem",
    "models",
    "datasets",
    "workloads",
    "baselines",
    "attacks",
    "sweeps",
    "evaluation",
    "pages",
    "cli",
]
APART = {
    ("client", "server"),
    ("server", "client"),
    ("server", "masking"),
    ("server", "privacy"),
}


def imports(path: Path, package: str = "splitwiper") -> set[str]:
    """The rooms of a package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == package and len(parts) > 1 and parts[1] in (*ORDER, *OF_LABORATORY):
                found.add(parts[1])
    return found


def files(root: Path = ROOT) -> list[Path]:
    return [p for p in sorted(root.rglob("*.py")) if p not in (root / "__init__.py", root / "__main__.py")]


def room_of(path: Path, root: Path = ROOT) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def test_every_room_is_listed() -> None:
    assert {room_of(p) for p in files()} == set(ORDER)
    assert {room_of(p, LABORATORY) for p in files(LABORATORY)} == set(OF_LABORATORY)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_to_the_foundation(path: Path) -> None:
    room = room_of(path)
    for other in imports(path) - {room}:
        assert ORDER.index(other) < ORDER.index(room), f"{room} may not import {other}"
        assert (room, other) not in APART, f"{room} may not import {other}: what passes between them is in wire"


@pytest.mark.parametrize("path", files(LABORATORY), ids=lambda p: str(p.relative_to(LABORATORY)))
def test_imports_of_the_laboratory_point_to_its_foundation(path: Path) -> None:
    room = room_of(path, LABORATORY)
    for other in imports(path, "splitwiper_lab") - {room}:
        assert OF_LABORATORY.index(other) < OF_LABORATORY.index(room), f"{room} may not import {other}"
    assert room == "cli" or not imports(path) & {"service", "cli"}


def test_the_product_knows_nothing_of_the_laboratory() -> None:
    """Its commands and tables are found by entry points; help and messages alone may name it."""
    for path in files():
        assert not re.search(r"^\s*(import|from) splitwiper_lab\b", path.read_text(encoding="utf-8"), re.MULTILINE), (
            path
        )


@pytest.mark.parametrize("path", sorted((ROOT / "service").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_service_keeps_both_sides_apart(path: Path) -> None:
    """Sites know nothing of the server's parts, nor these and auditors of sites; all know identities."""
    side = path.relative_to(ROOT / "service").parts[0]
    text = path.read_text(encoding="utf-8")
    if side == "site":
        assert "server" not in imports(path)
        parts = set(re.findall(r"splitwiper\.service\.(\w+)", text))
        assert parts <= {"site", "calls", "identity", "certificate"}, f"a site has no need of {parts}"
    elif side != "identity":
        assert not imports(path) & {"client", "masking", "privacy"}
        assert "service.site" not in text


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from splitwiper.server import Server\nimport splitwiper.cli\n", encoding="utf-8")
    assert imports(wrong) == {"server", "cli"}
