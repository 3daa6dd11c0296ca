"""What is installed is pinned and hashed, can be audited and listed, and no secret is in the repository unnoticed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "requirements"
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(name: str) -> dict[str, str]:
    """The packages in a requirements file and their versions; every one must have hashes."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    assert all(HASH.search(block) for block in blocks), [b for b in blocks if not HASH.search(b)]
    found = [re.match(r"([\w.-]+)==([^\s;]+)", block) for block in blocks]
    assert all(found), blocks
    return {one[1]: one[2] for one in found}


def script(name: str) -> dict:
    return runpy.run_path(str(ROOT / "scripts" / f"{name}.py"))


def canonical(line: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower()


def test_everything_is_pinned_with_hashes() -> None:
    dev, service = pins("dev.txt"), pins("service.txt")
    cpu, pypi = pins("torch-cpu.txt"), pins("torch-pypi.txt")
    assert cpu == {"torch": f"{pypi['torch']}+cpu"} and "torch" not in dev
    assert service.items() <= dev.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {canonical(line) for line in [*project["dependencies"], *chain(*extras.values())]}
    tools = (REQUIREMENTS / "dev.in").read_text(encoding="utf-8").splitlines()
    wanted |= {canonical(line) for line in tools if not line.startswith("#")}
    laboratory = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted |= {canonical(line) for line in laboratory["dependencies"]} - {"splitwiper"}
    assert wanted - {"torch"} <= dev.keys()
    wanted = {canonical(line) for line in [*project["dependencies"], *extras["service"], *extras["zstd"]]}
    assert wanted - {"torch"} <= service.keys()


def test_a_file_with_other_bytes_is_not_installed(tmp_path: Path) -> None:
    wheel = script("sbom")["_built"](tmp_path)
    (tmp_path / "pins.txt").write_text(f"splitwiper @ {wheel.as_uri()} --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes", "--target", str(tmp_path / "t")]
    done = subprocess.run([*command, "-r", str(tmp_path / "pins.txt")], capture_output=True, text=True)
    assert done.returncode == 1 and "DO NOT MATCH THE HASHES" in done.stderr


def test_the_container_names_no_registry_and_installs_what_is_pinned() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    commands = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "://" not in commands and not re.search(r"\b[\w-]+\.(org|com|io)\b", commands)
    assert re.search(r"^ARG BASE$", commands, re.MULTILINE) and "FROM ${BASE}\n" in commands
    installs = re.findall(r"pip install[^\n&]*", commands)
    assert len(installs) == 2
    assert all("--require-hashes" in one or "--no-deps --no-build-isolation ." in one for one in installs)


def test_the_container_is_built_from_files_that_are_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    commands = re.findall(r"^COPY (.+)$", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    sources = [source for command in commands for source in command.split()[:-1]]
    assert sources and all((ROOT / source).exists() for source in sources)
    assert {source.removeprefix("./").split("/")[0] for source in sources} == sent


@pytest.mark.skipif(shutil.which("useradd") is None, reason="useradd is a program of Linux")
@pytest.mark.parametrize("name", ["Dockerfile", "splitwiper.service"])
def test_the_user_is_made_with_options_that_exist(name: str) -> None:
    (command,) = re.findall(r"useradd .*", (ROOT / "deploy" / name).read_text(encoding="utf-8"))
    known = subprocess.run(["useradd", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(option in known for option in re.findall(r"--[\w-]+", command)), command


def test_the_bill_of_materials(tmp_path: Path) -> None:
    path = script("sbom")["main"](tmp_path)
    text = path.read_text(encoding="utf-8")
    from cyclonedx.schema import SchemaVersion  # takes seconds
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    listed = {one["name"]: one["version"] for one in document["components"]}
    assert listed == {**pins("service.txt"), **pins("torch-cpu.txt")}
    (wheel,) = tmp_path.glob("*.whl")
    about = document["metadata"]["component"]
    assert about["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    refs = {one["bom-ref"]: one["name"] for one in document["components"]}
    needs = {refs[ref] for ref in document["dependencies"][0]["dependsOn"]}
    assert {"torch", "cryptography", "fastapi"} <= needs and "transformers" not in needs


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "No known vulnerabilities in 1 packages"),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}],
            1,
            "a 1: CVE-1, fixed in 2",
        ),
        (
            [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "gone"}],
            3,
            "about 1 of 2 packages",
        ),
        ([], 3, "NOT AUDITED"),
    ],
)
def test_what_an_audit_ends_with(found: list, status: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("audit")["_judge"](found) == status
    told = capsys.readouterr()
    assert words in told.out + told.err


def test_an_audit_that_reaches_nobody_says_so(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(f"idna==3.20 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    nowhere = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": ""}
    command = [sys.executable, ROOT / "scripts" / "audit.py", tmp_path / "one.txt"]
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True)
    assert done.returncode == 3 and "NOT AUDITED" in done.stderr


def test_a_secret_is_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    kept = json.loads((ROOT / ".secrets.baseline").read_text(encoding="utf-8"))
    (tmp_path / ".secrets.baseline").write_text(json.dumps({**kept, "results": {}}), encoding="utf-8")
    program = f"import runpy, sys, pathlib; sys.exit(runpy.run_path({str(ROOT / 'scripts/secrets_scan.py')!r})['main']"
    program += "(pathlib.Path('.'), accept=False))"

    def scan() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

    (tmp_path / "fine.py").write_text("x = 1\n", encoding="utf-8")
    assert scan().returncode == 0
    (tmp_path / "key.txt").write_text("-----BEGIN " + "PRIVATE KEY-----\n", encoding="utf-8")
    done = scan()
    assert done.returncode == 1 and done.stdout.startswith("key.txt:1: Private Key")
