"""A certificate checked by another implementation of DSSE, where it is installed: securesystemslib 1.x."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

dsse = pytest.importorskip("securesystemslib.dsse")
signer = pytest.importorskip("securesystemslib.signer")
problems = pytest.importorskip("securesystemslib.exceptions")


def test_another_implementation_verifies_the_signature(issued) -> None:
    beside = {**copy.deepcopy(issued.certificate), "attestations": []}  # it empties what it is given
    names = ("payload", "payloadType", "signatures")
    made = dsse.Envelope.from_dict({name: beside[name] for name in names})
    (keyid,) = made.signatures
    (public,) = issued.trusted
    key = signer.SSlibKey.from_crypto(load_pem_public_key(public.pem()), keyid=keyid)
    assert list(made.verify([key], 1)) == [public.id]
    made.payload = made.payload.replace(b'"exact":true', b'"exact":false')
    with pytest.raises(problems.VerificationError):
        made.verify([key], 1)


RECORDED = Path(__file__).parent.parent / "recorded"


def test_a_certificate_from_another_machine_is_verified_by_another_implementation() -> None:
    """Made by ``scripts/recorded_certificate.py`` on the processor that ``recorded/made.json`` names."""
    script = Path(__file__).parent.parent / "independent.py"
    command = [sys.executable, "-I", script, *(RECORDED / name for name in ("certificate.json", "server.pem"))]
    done = subprocess.run([*command, RECORDED / "auditor.pem"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["auditor"], told["outcome"]) == ("tuv", "exact")
    done = subprocess.run([*command, RECORDED / "server.pem"], capture_output=True, text=True)
    assert done.returncode and "VerificationError" in done.stderr
