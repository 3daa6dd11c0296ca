"""Evidence of a fork that anybody can check: two signed heads of the server, of equal size but with different roots."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.certificate.findings import Checked, Finding
from splitwiper.service.certificate.heads import SignedHead
from splitwiper.service.certificate.standing import Keys
from splitwiper.store import files

KIND = "splitwiper-fork-evidence"


def write_evidence(folder: Path, one: SignedHead, two: SignedHead, *, story: str) -> Path:
    """Write two contradicting heads to a file, and return its path.

    Args:
        folder: the folder to write to.
        one: a head that the server signed.
        two: another one.
        story: how the two were found, in words.
    """
    made = {"kind": KIND, "heads": [one.envelope.to_dict(), two.envelope.to_dict()], "story": story}
    names = sorted(head.envelope.payload for head in (one, two))
    path = folder / f"evidence-{hashlib.sha256(b''.join(names)).hexdigest()[:16]}.json"
    files.write_bytes(path, dumps(made) + b"\n", replace=False)
    return path


def check_evidence(values: Mapping[str, Any], keys: Keys) -> Checked:
    """Check evidence offline. The outcome is ``mismatch`` if it proves that the server signed two ledgers."""
    try:
        heads = [SignedHead.read(one) for one in values["heads"]]
    except (FormatError, KeyError, TypeError) as problem:
        return Checked((Finding("evidence", "unverifiable", f"it proves nothing: {str(problem).removesuffix('.')}"),))
    if len(heads) != 2 or len({head.head.size for head in heads}) != 1 or heads[0].head == heads[1].head:
        told = "it proves nothing: it takes two heads of equal size with different roots"
        return Checked((Finding("evidence", "unverifiable", told),))
    if heads[0].federation != heads[1].federation:
        return Checked((Finding("evidence", "unverifiable", "it proves nothing: the heads are of two servers"),))
    for head in heads:
        if not keys.keys:
            told = "no public key was given to check it with; get the server's on a way you trust"
            return Checked((Finding("signature", "unverifiable", told),))
        if not keys.signed(head.envelope):
            why = keys.doubtful(head.envelope, head.head.size)
            told = f"the key that signed {head.head} was {why}: a thief may have" if why else "no key that counts has"
            return Checked((Finding("signature", "unverifiable", f"it proves nothing: {told} signed {head.head}"),))
    size, roots = heads[0].head.size, " and ".join(f"{head.head.root[:16]}… at {head.time}" for head in heads)
    told = (
        f"the server signed two ledgers of {size} entries: root {roots}. Either it showed different ledgers to "
        "different sites, or it was restored from a backup, which its ledger then has an entry about"
    )
    return Checked((Finding("evidence", "mismatch", told),))
