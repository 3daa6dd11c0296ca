"""Make small folders as this version writes them, for tests that later versions still read them: tests/formats.

    python scripts/recorded_formats.py NAME

A federation on one machine, and a server with two sites over TLS on loopback; each has learned, and forgotten rows.
The archives are kept for good under the name of the formats. Make new ones when a format changes, beside the others.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "formats" / "recorded"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from federation.runs import halves, settings, three  # noqa: E402
from service.scene import Scene  # noqa: E402
from service.serving import certificates  # noqa: E402
from splitwiper import Federation  # noqa: E402


def main(name: str) -> None:
    """Make both archives, and what is expected of them."""
    target = OUT / name
    if target.exists():
        sys.exit(f"{target} exists. Archives are never made again: give the new formats a name of their own.")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        expected = {"run": run(folder / "run"), "service": service(folder / "service")}
        target.mkdir(parents=True)
        archive(target / "run.tar.xz", folder, ["run"])
        archive(target / "service.tar.xz", folder / "service", ["store", "north", "south"])
    versions = {package: version(package) for package in ("splitwiper", "torch", "numpy")}
    text = json.dumps({"versions": versions, **expected}, indent=1)
    (target / "expected.json").write_text(text + "\n", encoding="utf-8")


def run(folder: Path) -> dict[str, object]:
    """A run of three clients, in which one class was forgotten."""
    fed = Federation(folder, halves(), settings(slices=2))
    fed.learn(three())
    receipt = fed.unlearn("north", classes=["bird"])
    assert fed.verify(receipt).exact  # noqa: S101
    receipt.save(folder / "receipt.json")
    inputs = three()["south"][0]
    return {"rows": len(fed.rows("north")), "predicted": fed.predict("south", inputs)}


def service(folder: Path) -> dict[str, object]:
    """A server's store and two sites, one of which forgot three rows and has the certificate."""
    folder.mkdir()
    scene = Scene(folder, certificates(folder / "certs"))
    ticket = scene.forget()
    assert scene.certificate(ticket)  # noqa: S101
    predicted = scene.south.predict("south", scene.rows["south"][0])
    rows = len(scene.north.client.holdings.ids())
    scene.close()
    return {"rows": rows, "predicted": predicted, "ticket": ticket}


def archive(path: Path, folder: Path, names: list[str]) -> None:
    """Pack folders with nothing of this machine in them: no owner, no time."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    with tarfile.open(path, "w:xz") as packed:
        for name in names:
            packed.add(folder / name, name, filter=plain)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
