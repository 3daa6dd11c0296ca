"""Pin every package that `make` and deploy/Dockerfile install, with the hashes of all its files, under requirements/.

``dev.txt`` has the package's dependencies with all extras and the tools of dev.in, ``service.txt`` what the server in
the container needs. Neither has torch, of which there are two builds: ``torch-cpu.txt`` has the one for CPUs, which pip
only finds where it is told to look, ``torch-pypi.txt`` the one that PyPI has, with all that it needs on NVIDIA GPUs.

Versions that are pinned already stay unless pyproject.toml or dev.in rule them out; ``--upgrade`` takes the newest.
Index and proxies are those that uv and pip are configured for. The CPU build that pip finds here is added to those
known before.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
NOTE = "# Written by `make lock`; change pyproject.toml or requirements/dev.in instead.\n"
TORCH = ("torch==", "cuda-", "nvidia-", "triton==")
HASH = r"sha256:\w{64}"


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest version of everything")
    upgrade = parser.parse_args().upgrade
    everything = _compiled(["requirements/dev.in", "--all-extras"], [] if upgrade else ["dev.txt", "torch-pypi.txt"])
    _write("dev.txt", [block for block in everything if not block.startswith(TORCH)])
    _write("torch-pypi.txt", [block for block in everything if block.startswith(TORCH)])
    pin = next(block for block in everything if block.startswith("torch==")).split()[0]
    _write("torch-cpu.txt", [_cpu_build(f"{pin}+cpu")])
    service = _compiled(["--extra", "service", "--extra", "zstd"], ["dev.txt", "torch-pypi.txt"])
    _write("service.txt", [block for block in service if not block.startswith(TORCH)])


def _write(name: str, blocks: Iterable[str]) -> None:
    (FOLDER / name).write_text(NOTE + "".join(blocks), "utf-8")


def _compiled(wanted: Iterable[str], known: Iterable[str]) -> list[str]:
    """Resolve for every platform; one block of text for each package."""
    with tempfile.TemporaryDirectory() as folder:
        pins, out = Path(folder) / "pins.txt", Path(folder) / "out.txt"
        texts = [(FOLDER / name).read_text("utf-8") for name in known if (FOLDER / name).exists()]
        pins.write_text("\n".join(re.findall(r"^[\w.-]+==[^\s;]+", "".join(texts), re.MULTILINE)), "utf-8")
        options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", "-q"]
        command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *wanted, *options]
        subprocess.run([*command, "-c", str(pins), "-o", str(out)], cwd=ROOT, check=True)  # noqa: S603
        return re.findall(r"^[a-z].*\n(?:[ ].*\n)*", out.read_text("utf-8"), re.MULTILINE)


def _cpu_build(pin: str) -> str:
    """Return the block of torch's CPU build: hashes known before for this version, and that of the file found here."""
    path = FOLDER / "torch-cpu.txt"
    before = path.read_text("utf-8") if path.exists() else ""
    hashes = set(re.findall(HASH, before)) if f"{pin} " in before else set()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, pin]
        if subprocess.run(command, check=False).returncode:  # noqa: S603
            sys.stderr.write(f"pip finds no {pin} here: configure find-links, or an index that has it.\n")
        for wheel in Path(folder).iterdir():
            with wheel.open("rb") as file:
                hashes.add(f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}")
    if not hashes:
        sys.exit(f"no hash of {pin} is known.")
    return f"{pin} \\\n" + " \\\n".join(f"    --hash={value}" for value in sorted(hashes)) + "\n"


if __name__ == "__main__":
    main()
