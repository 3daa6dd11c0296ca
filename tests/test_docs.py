"""Every block of code in docs/ runs, every shown output is what comes out, and the reference is what the code says.

A page is one program: its blocks run from top to bottom in one temporary folder, the Python ones in one namespace.

* A block whose first line is a comment that names a file, ``# net.py`` or ``# ward.toml``, is that file: it is written.
* ``python`` is executed; ``sh`` and ``console`` (with ``$ `` before each command) are scripts of the shell, which stop
  at the first command that fails.
* ``text`` is what the block before it printed on standard output, compared by `told`.

The reference pages are generated: they may hold ``text`` alone, and are compared as a whole.
"""

import contextlib
import io
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import splitwiper
import warm
from splitwiper.cli import app
from splitwiper.portable import SWITCHES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
GENERATED = [page for page in PAGES if page.parent.name == "reference"]
FILE = re.compile(r"# ([\w-]+\.(?:py|toml))")


class Block(NamedTuple):
    """A fenced block: where it is, its language, and what it says."""

    line: int
    kind: str
    text: str


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, whatever stands behind the fence.

    >>> blocks("a\\n```sh\\nls\\n```\\n")
    [Block(line=2, kind='sh', text='ls\\n')]
    """
    found, start, kind, inside = [], 0, "", list[str]()
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if line.lstrip().startswith(("```", "~~~")):
            if start:
                found.append(Block(start, kind, "".join(inside)))
                start = 0
            else:
                start, kind, inside = number, line.strip()[3:].strip(), []
        elif start:
            inside.append(line)
    assert not start, f"the block that begins in line {start} does not end"
    return found


TIME = r"<?(?:\d+ min )?\d+(?:\.\d+)? (?:ms|µs|s|min|h)\b"
VARYING = (
    (TIME, "TIME"),
    (r"\b[0-9a-f]{8,64}\b", "ID"),
    (r"\d{4}-\d\d-\d\dT[\d:.+]+Z?", "DATE"),
    (r"the loss fell to \S+", "LOSS"),
    (r"\d+\.\d\d %", "COST"),
    (r"[1-9][\d.,]* (?:[kMG]?B|bytes)\b", "SIZE"),
    (r"[ ─]+", " "),
)
"""What differs from run to run, and the width of columns that goes with it."""
SHARE = re.compile(r"\b(\d+\.\d)(?:[ \xa0]%| ±\d+\.\d|(?=  ))")
NEAR = 6.0
"""Percentage points by which accuracies may differ on another processor."""


def told(text: str) -> tuple[list[str], list[float]]:
    """Lines of an output without what varies, and the shares in it, in percent.

    >>> told("north  93.3 %   0.12 s\\n")
    (['north SHARE TIME'], [93.3])
    """
    shares = [float(share) for share in SHARE.findall(text)]
    text = SHARE.sub("SHARE", text)
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return [line.strip() for line in text.strip().splitlines()], shares


class Page:
    """Runs a page's blocks."""

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self.folder = folder
        self.programs = warm.program_folder(fresh=fresh)
        self.space: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block, name: str) -> str:
        """What a block prints."""
        where = f"{name}, line {block.line}"
        if named := FILE.fullmatch(block.text.partition("\n")[0]):
            assert block.kind in ("python", "toml"), f"{where}: {block.kind} is no language of files"
            (self.folder / named[1]).write_text(block.text, encoding="utf-8")
            return ""
        if block.kind == "python":
            code = compile("\n" * block.line + block.text, name, "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, self.space)
            return out.getvalue()
        assert block.kind in ("sh", "console"), f"{where}: what is to be done with a block of {block.kind!r}?"
        return self._shell(block, where)

    def _shell(self, block: Block, where: str) -> str:
        lines = block.text.splitlines()
        if block.kind == "console":
            assert all(line.startswith("$ ") for line in lines), f"{where}: a command begins with '$ '"
            lines = [line.removeprefix("$ ") for line in lines]
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        plain = {"PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "NO_COLOR": "1", "PYTHONWARNINGS": "error"}
        # as a reader's, but for processes that share a training: they must compute as the command does, which is forked
        left_out = () if "SPLITWIPER_ENGINE" in block.text else SWITCHES
        done = subprocess.run(
            ["sh", "-ec", "\n".join(lines)],
            cwd=self.folder,
            env={**{k: v for k, v in os.environ.items() if k not in left_out}, **plain},
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def outputs(page: Path, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run a page; each block of output, and what was really printed."""
    # what makes numerics portable is read when torch first computes
    running, printed, name = Page(folder, fresh=page.stem == "portable"), None, str(page.relative_to(ROOT))
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind == "text":
            assert printed is not None, f"{name}, line {block.line}: output of nothing"
            yield block, printed.replace(f"{folder}/", "")  # pages show paths from where their reader is
            printed = None
        else:
            printed = running.run(block, name)


@pytest.mark.parametrize("page", [p for p in PAGES if p not in GENERATED], ids=lambda p: str(p.relative_to(DOCS)))
def test_every_block_runs_and_prints_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block, printed in outputs(page, tmp_path):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        (expected, shown), (found, shares) = told(block.text), told(printed)
        assert found == expected, f"{where}: it prints\n{printed}"
        assert shares == pytest.approx(shown, abs=NEAR), f"{where}: it prints\n{printed}"


def test_the_comparison_of_outputs_sees_what_is_wrong() -> None:
    right = "client   time   accuracy\n──────\nnorth  0.12 s  93.3 %  1.3 MB\nsouth  0  –  0 bytes\n"
    faster = "client    time   accuracy\n────────\nnorth   83 ms   93.3 %   985 kB\nsouth  0   –  0 bytes\n"
    assert told(right) == told(faster)
    for wrong in (right.replace("0 bytes", "1 bytes"), right.replace("north", "south"), right.replace("93.3", "9.3")):
        assert told(wrong) != told(right)


def test_no_block_is_skipped(tmp_path: Path) -> None:
    assert [b.kind for b in blocks("```\na\n```\n~~~ruby x\n~~~\n  ```toml\n  ```\n")] == ["", "ruby x", "toml"]
    page = DOCS / "page.md"
    for text in ("```\nls\n```\n", "```ruby\nputs 1\n```\n", "```toml\na = 1\n```\n", "```console\nls\n```\n"):
        with pytest.raises(AssertionError):
            Page(tmp_path).run(blocks(text)[0], page.name)


@pytest.mark.parametrize("name", ["cli.md", "config.md"])
def test_the_reference_is_what_the_code_says(name: str) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "docs.py"))
    assert set(script["PAGES"]) == {page.name for page in GENERATED}
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert script["PAGES"][name]() == written, "run `make docs`"
    assert {block.kind for block in blocks(written)} <= {"text"}


def test_every_setting_is_explained() -> None:
    for line in (DOCS / "reference" / "config.md").read_text(encoding="utf-8").splitlines():
        assert not line.endswith("|  |"), f"say in the code what this is: {line}"


def test_every_example_of_a_command_can_be_called() -> None:
    """The examples in help texts name data that is not here; that the command takes what they give can be seen."""
    root: Any = typer.main.get_command(app)
    lines = re.findall(r"^splitwiper (.+)$", (DOCS / "reference" / "cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    examples = [line for line in lines if "[OPTIONS]" not in line and not line.isupper()]
    assert len(examples) > 10
    for line in examples:
        command, arguments = root, shlex.split(line)
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        command.make_context("splitwiper", arguments)


def anchors(text: str) -> set[str]:
    """What a link can point to within a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        path, _, anchor = target.partition("#")
        if path.startswith("https://"):
            continue
        place = page if not path else (page.parent / path).resolve()
        assert place.exists(), f"{page.relative_to(ROOT)}: {target}"
        assert not anchor or anchor in anchors(place.read_text(encoding="utf-8")), f"{page.relative_to(ROOT)}: {target}"


def test_every_public_name_is_in_the_glossary() -> None:
    names = set(re.findall(r"`(\w+)`", (DOCS / "glossary.md").read_text(encoding="utf-8")))
    assert set(splitwiper.__all__) <= names, "say in docs/glossary.md which word it belongs to"


def test_every_module_in_the_glossary_is_there() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:splitwiper|splitwiper_lab)\.[\w.]+)`", text):
        pkgutil.resolve_name(name)


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"]({page.relative_to(DOCS)})" in index, page
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
