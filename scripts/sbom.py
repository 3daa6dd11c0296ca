"""Build the wheel, and write what the service consists of as CycloneDX JSON: ``dist/splitwiper-VERSION.cdx.json``.

Components are those of ``requirements/service.txt`` and of torch's CPU build, with the hashes they are installed by;
the wheel is what the document is about, with its own hash and the packages it asks for.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parent.parent
PINNED = ("service.txt", "torch-cpu.txt")
EXTRAS = ("", "service", "zstd")


def main(folder: Path) -> Path:
    """Write wheel and document into a folder; the document's path."""
    wheel = _built(folder)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    document = _components()
    about = document["metadata"]["component"]
    about["version"] = metadata["Version"]
    about["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    refs = {_canonical(one["name"]): one["bom-ref"] for one in document["components"]}
    wanted = sorted({refs[name] for name in _required(metadata.get_all("Requires-Dist", []))})
    document["dependencies"] = [{"ref": about["bom-ref"], "dependsOn": wanted}]
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if (wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        sys.exit(f"not a valid CycloneDX document: {wrong}")
    path = folder / f"splitwiper-{metadata['Version']}.cdx.json"
    path.write_text(text, "utf-8")
    return path


def _built(folder: Path) -> Path:
    """Build the wheel from a copy: what an earlier build left in the source tree would go into it."""
    options = ["-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", str(folder)]
    with tempfile.TemporaryDirectory() as clean:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, clean)
        shutil.copytree(ROOT / "src", Path(clean) / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options, clean], check=True)  # noqa: S603
    (wheel,) = folder.glob("splitwiper-*.whl")
    return wheel


def _components() -> dict[str, Any]:
    """Every pinned package, with its hashes."""
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "requirements.txt"
        pins.write_text("".join((ROOT / "requirements" / name).read_text("utf-8") for name in PINNED), "utf-8")
        options = ["--pyproject", "pyproject.toml", "--spec-version", "1.6", "--output-reproducible", "--of", "JSON"]
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", *options, str(pins)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _required(lines: list[str]) -> list[str]:
    """Return the names of what the wheel asks for, with the extras that the service takes."""
    found = []
    for line in lines:
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if (extra[1] if extra else "") in EXTRAS:
            found.append(_canonical(re.match(r"[\w.-]+", line)[0]))  # type: ignore[index]
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    target = ROOT / "dist"
    target.mkdir(exist_ok=True)
    for old in target.glob("splitwiper-*.whl"):
        old.unlink()
    sys.stdout.write(f"{main(target)}\n")
