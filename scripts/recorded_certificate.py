"""Make a certificate with an auditor's attestation, to be verified on other machines: see tests/service/recorded.

    python scripts/recorded_certificate.py

A server, two sites and an auditor run as processes over TLS on loopback; one site forgets a class. What is kept is what
an outsider gets: the certificate and public keys. Every machine that runs the tests verifies it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.dishonest.stage import Stage  # noqa: E402
from portable_record import processor  # noqa: E402

OUT = ROOT / "tests" / "service" / "recorded"
COMMANDS = (
    "forget north --class cat --certificate cert.json --patience 30",
    "audit tuv.toml --out audit",
    "verify north --attest",
    "certificate north TICKET --out cert.json",
)


def main() -> None:
    """Make it, in place of the one before."""
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        scene = stage.scene("honest")
        scene.serve([])
        try:
            for command in COMMANDS:
                ticket = scene.ticket() if "TICKET" in command else ""
                done = scene.call(*command.replace("TICKET", ticket).split())
                if done.code:
                    sys.exit(f"{command}: exit {done.code}\n{done.stdout}{done.stderr}")
        finally:
            scene.stop()
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()
        shutil.copy(scene.folder / "cert.json", OUT / "certificate.json")
        (server,) = (scene.folder / "north" / "north" / "server-keys").glob("*.pem")
        shutil.copy(server, OUT / "server.pem")
        shutil.copy(scene.folder / "audit" / "auditor-key.pub.pem", OUT / "auditor.pem")
        shutil.copy(scene.folder / "north" / "north" / "request-key.pub.pem", OUT / "site.pem")
    made = {"processor": processor(), "made": datetime.now(UTC).isoformat(timespec="seconds")}
    (OUT / "made.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
