"""Look for passwords, tokens and private keys in all files of the repository.

What is in ``.secrets.baseline`` was looked at and is none (digests of data sets, words of tests). Anything else is
listed, and the exit status is 1. ``--accept`` adds everything found now to the baseline: look at the difference in
git before you commit it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from detect_secrets import SecretsCollection
from detect_secrets.core import baseline
from detect_secrets.settings import configure_settings_from_baseline

BASELINE = Path(".secrets.baseline")


def main(root: Path, *, accept: bool) -> int:
    """Scan a repository, and compare with its baseline; the exit status."""
    os.chdir(root)  # so that names are those in the repository, wherever it lies
    kept = json.loads(BASELINE.read_text("utf-8"))
    configure_settings_from_baseline(kept)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, stdout=subprocess.PIPE, check=True).stdout.decode()  # noqa: S603
    found = SecretsCollection()
    found.scan_files(*(name for name in names.split("\0") if Path(name).is_file()))
    if accept:
        text = json.dumps(baseline.format_for_output(found), indent=2)
        BASELINE.write_text(text + "\n", "utf-8")
        return 0
    new = sorted(found - baseline.load(kept), key=lambda one: (one[0], one[1].line_number))
    for name, secret in new:
        sys.stdout.write(f"{name}:{secret.line_number}: {secret.type}\n")
    if new:
        sys.stdout.write("If one is real, revoke it; it is public once pushed. If not, see scripts/secrets_scan.py.\n")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent, accept="--accept" in sys.argv[1:]))
