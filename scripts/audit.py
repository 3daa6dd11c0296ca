"""Look up known vulnerabilities of every pinned package.

Exits with 0 where none is known, 1 where some are (each is listed), and 3 where the advisory database could not be
asked about all packages: then nothing is known, which is not the same as no vulnerability.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
UNKNOWN = 3


def main(files: list[str]) -> int:
    """Audit requirements files; the exit status."""
    given = [word for name in files for word in ("-r", str(FOLDER / name))]
    options = ["--disable-pip", "--no-deps", "--require-hashes", "--progress-spinner", "off", "--timeout", "10"]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip_audit", *options, "--format", "json", *given],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return _unknown(f"no answer: {reason[:300]}")
    return _judge(found)


def _judge(found: list[dict[str, Any]]) -> int:
    bad = [(one, flaw) for one in found for flaw in one.get("vulns", ())]
    for one, flaw in bad:
        fixed = ", ".join(flaw["fix_versions"]) or "no version yet"
        sys.stdout.write(f"{one['name']} {one['version']}: {flaw['id']}, fixed in {fixed}\n")
    if bad:
        return 1
    skipped = [one["name"] for one in found if "skip_reason" in one]
    if skipped or not found:
        return _unknown(f"no answer about {len(skipped)} of {len(found)} packages")
    sys.stdout.write(f"No known vulnerabilities in {len(found)} packages.\n")
    return 0


def _unknown(reason: str) -> int:
    sys.stderr.write(f"NOT AUDITED: {reason}. Run `make audit` where the advisory database can be reached.\n")
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["dev.txt", "torch-pypi.txt"]))
