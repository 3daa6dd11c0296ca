"""What users install: both wheels run from an empty folder, beside nothing but what they declare to need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
COMMAND = """
import sys
sys.path[:0] = {paths!r}
{before}
from splitwiper.cli import main
main()
"""
SMALL = """
from splitwiper.cli import demo
from splitwiper.config import ClientConfig, Config, ServerConfig
whole = demo._config(0)
server, client = ServerConfig(epochs=1, threads=1), ClientConfig(epochs=1, threads=1)
demo._config = lambda seed: Config(seed=seed, model=whole.model, server=server, client=client)
"""
"""A demo that trains for one epoch."""
IMPORTED = """
import sys
import numpy, safetensors.numpy, safetensors.torch, torch, torch.func, torch.utils.data
before = {name.partition(".")[0] for name in sys.modules}
import splitwiper
assert splitwiper.Federation and splitwiper.split
more = {name.partition(".")[0] for name in sys.modules} - before - sys.stdlib_module_names
more = {name for name in more if not name.startswith("_sysconfigdata")}
sys.exit(f"imported {sorted(more)}" if more != {"splitwiper"} else 0)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, unpacked."""
    folder, clean = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("clean")
    left_out = shutil.ignore_patterns("*.egg-info", "__pycache__", "tests")
    for part in ("src", "lab"):
        shutil.copytree(ROOT / part, clean / part, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clean)
    options = ["-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, clean, clean / "lab"], check=True)
    made = {}
    for wheel in folder.glob("*.whl"):
        made[wheel.name.partition("-")[0]] = folder / wheel.stem
        zipfile.ZipFile(wheel).extractall(folder / wheel.stem)
    assert made.keys() == {"splitwiper", "splitwiper_lab"}
    return made


def requirements(unpacked: Path, extras: set[str]) -> Iterator[Requirement]:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    yield from needed(Parser().parsestr(metadata.read_text(encoding="utf-8")).get_all("Requires-Dist") or [], extras)


def needed(lines: list[str], extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, lines):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in extras | {""}):
            yield requirement


def environment(folder: Path, wheels: dict[str, Path], names: tuple[str, ...]) -> list[str]:
    """Make a folder with the packages that some wheels declare to need, and no others."""
    folder.mkdir()
    todo = [r for name in names for r in requirements(wheels[name], set())]
    seen: set[str] = set()
    while todo:
        requirement = todo.pop()
        if requirement.name in ("splitwiper", "splitwiper-lab"):
            todo += requirements(wheels["splitwiper"], set(requirement.extras))
        elif requirement.name not in seen:
            seen.add(requirement.name)
            installed = distribution(requirement.name)
            todo += needed(installed.requires or [], set(requirement.extras))
            link(installed, folder)
    return [*(str(wheels[name]) for name in names), str(folder)]


def link(installed: Distribution, folder: Path) -> None:
    for top in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(installed.locate_file(top))))


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(wheels: dict[str, Path], tmp_path: Path) -> Run:
    """Run a command with some wheels, in an empty folder."""

    def call(names: tuple[str, ...], *words: str, code: int = 0, before: str = "") -> subprocess.CompletedProcess[str]:
        paths = environment(tmp_path / "packages", wheels, names)
        (tmp_path / "empty").mkdir()
        program = [sys.executable, "-I", "-S", "-c", COMMAND.format(paths=paths, before=before), *words]
        done = subprocess.run(program, cwd=tmp_path / "empty", capture_output=True, text=True)
        assert done.returncode == code, done.stderr + done.stdout
        return done

    return call


@pytest.mark.parametrize("before", [SMALL, pytest.param("", marks=pytest.mark.soak)], ids=["small", "whole"])
def test_the_demo_runs_from_the_wheel_alone(run: Run, before: str) -> None:
    assert "exact" in run(("splitwiper",), "demo", "--run", "run", before=before).stdout


def test_without_the_laboratory_its_commands_say_how_to_get_it(run: Run) -> None:
    told = run(("splitwiper",), "reproduce", "--list", code=2).stderr
    assert "'splitwiper reproduce' comes with the laboratory: pip install splitwiper-lab." in " ".join(told.split())


def test_an_experiment_runs_from_both_wheels(run: Run) -> None:
    said = run(
        ("splitwiper", "splitwiper_lab"), "reproduce", "consensus", "--scale", "smoke", "--out", "results"
    ).stdout
    assert "consensus" in said


def test_a_federation_imports_nothing_that_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
