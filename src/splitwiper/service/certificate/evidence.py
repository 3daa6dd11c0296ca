"""Evidence of a fork that anybody can check: two signed heads of the server, of equal size but with different roots."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitwiper.errors import FormatError
from splitwiper.service.certificate.canonical import dumps
from splitwiper.service.certificate.findings import Checked, CheckFailed, Finding
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
    what = "evidence"
    try:
        one, two = _contradicting(values)
        what = "signature"
        for head in (one, two):
            _check_signed(head, keys)
    except CheckFailed as problem:
        return Checked((Finding(what, problem.outcome, str(problem)),))
    detail = (
        f"the server signed two ledgers of {one.head.size} entries: root {one.head.root[:16]}… at {one.time} and "
        f"{two.head.root[:16]}… at {two.time}. Either it showed different ledgers to different sites, or it was "
        "restored from a backup, which its ledger then has an entry about"
    )
    return Checked((Finding("evidence", "mismatch", detail),))


def _contradicting(values: Mapping[str, Any]) -> tuple[SignedHead, SignedHead]:
    """Return two heads that cannot be of one ledger."""
    try:
        heads = [SignedHead.read(head) for head in values["heads"]]
    except (FormatError, KeyError, TypeError) as problem:
        raise CheckFailed(f"it proves nothing: {str(problem).removesuffix('.')}", "unverifiable") from problem
    if len(heads) != 2 or heads[0].head.size != heads[1].head.size or heads[0].head == heads[1].head:
        detail = "it proves nothing: it takes two heads of equal size with different roots"
        raise CheckFailed(detail, "unverifiable")
    if heads[0].federation != heads[1].federation:
        raise CheckFailed("it proves nothing: the heads are of two servers", "unverifiable")
    return heads[0], heads[1]


def _check_signed(head: SignedHead, keys: Keys) -> None:
    """Check that a key that counts signed a head."""
    if not keys.keys:
        detail = "no public key was given to check it with; get the server's on a way you trust"
        raise CheckFailed(detail, "unverifiable")
    if not keys.signed(head.envelope):
        why = keys.doubtful(head.envelope, head.head.size)
        who = f"the key that signed {head.head} was {why}: a thief may have" if why else "no key that counts has"
        raise CheckFailed(f"it proves nothing: {who} signed {head.head}", "unverifiable")
