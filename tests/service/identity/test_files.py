"""The authority's files: who may read them, what dying in the middle leaves, and what is noticed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from service.identity.tls import der_of, signer_of
from splitwiper.errors import CorruptError, FormatError, IdentityError
from splitwiper.service.identity import Authority, Principal, Tokens, Trust, client_context, server_context
from splitwiper.service.identity.certificate_builder import authority_certificate, new_key, serial_of
from splitwiper.service.identity.folders import certificates
from splitwiper.service.identity.index import Journal, issuing, utc_now
from splitwiper.store.files import watch

DEAD = 77
INDEX = Path("authority") / "index.jsonl"


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def test_no_file_is_readable_by_others_at_any_instant(tmp_path: Path) -> None:
    seen = set()

    def look(_kind: str, _path: Path) -> None:
        for path in tmp_path.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode & 0o077 == 0, f"{path} has {mode:03o}"
            seen.add(path.name)

    with umask(0), watch(look):
        authority = Authority.create(tmp_path / "certs", "ward", ["localhost"])
        authority.issue_client("north")
        authority.rotate("north", overlap=timedelta(days=1))
        authority.revoke("north")
        Tokens(tmp_path / "certs" / "server").add(Principal("client", "north"))
        look("", tmp_path)
    assert {"key.pem", "next-key.pem", "tokens.jsonl", "index.jsonl"} <= seen
    assert any(name.startswith(".tmp-") for name in seen)
    keys = list((tmp_path / "certs").rglob("*key.pem"))
    assert len(keys) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_a_ca_key_that_others_may_read(certs: Path) -> None:
    (key,) = (certs / "authority").glob("*.key.pem")
    key.chmod(0o604)
    with pytest.raises(IdentityError, match=r"permissions 604.*chmod 600"):
        Authority(certs).issue_client("south")


def dies_at(step: int, work: Callable[[], object]) -> bool:
    """Whether a process that does the work, and dies at a step that changes the disk, gets that far."""
    pid = os.fork()
    if not pid:
        left = step

        def die(kind: str, _path: Path) -> None:
            nonlocal left
            if kind.partition(":")[0] in ("rename", "unlink", "mkdir"):
                left -= 1
                if left < 0:
                    os._exit(DEAD)

        code = 1
        try:
            with watch(die):
                work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, DEAD)
    return code == DEAD


def check(certs: Path) -> None:
    """Everything in an authority's folder fits together."""
    authority = Authority(certs)
    listed = authority.listed()
    current = {one.serial for one in listed if one.is_current}
    trusted = [one for one in listed if one.kind == "authority" and one.revoked is None]
    assert not [path for path in certs.rglob("*") if path.name.startswith((".tmp-", "next-"))]
    keys = {path.name for path in (certs / "authority").glob("*.key.pem")}
    assert keys == {f"ca-{one.serial}.key.pem" for one in trusted}
    trust = Trust(certs / "server")
    for folder in (certs / "server", *(certs / "clients").iterdir(), *(certs / "operators").iterdir()):
        assert len(certificates(folder / "ca.pem")) == len(trusted)
        (leaf,) = certificates(folder / "certificate.pem")
        if f"{leaf.serial_number:040x}" in current:
            (server_context if folder.name == "server" else client_context)(folder)
            if folder.name != "server":
                assert trust.principal(der_of(folder)).name == folder.name


TASKS: dict[str, Callable[[Authority], object]] = {
    "client": lambda authority: authority.issue_client("south"),
    "rotate": lambda authority: authority.rotate("north"),
    "overlap": lambda authority: authority.rotate("north", overlap=timedelta(days=1)),
    "revoke": lambda authority: authority.revoke("north"),
}


@pytest.mark.parametrize("task", TASKS)
def test_dying_at_every_step(made: Path, tmp_path: Path, task: str) -> None:
    first = der_of(made / "clients" / "north")
    source = Path(shutil.copytree(made, tmp_path / "source"))
    for step in range(100):
        certs = Path(shutil.copytree(source, tmp_path / str(step)))
        authority = Authority(certs)
        died = dies_at(step, lambda authority=authority: TASKS[task](authority))
        events = len((certs / INDEX).read_text(encoding="utf-8").splitlines())
        happened = events > len((source / INDEX).read_text(encoding="utf-8").splitlines())
        Authority(certs).issue_operator("after")  # whatever comes next puts things in order
        check(certs)
        if happened and task in ("rotate", "revoke"):
            with pytest.raises(IdentityError):
                Trust(certs / "server").principal(first)
        else:
            assert Trust(certs / "server").principal(first)
        if not died:
            assert happened
            break
    assert 3 < step < 99


def test_dying_while_an_authority_is_made(tmp_path: Path) -> None:
    for step in range(100):
        certs = tmp_path / str(step)
        died = dies_at(step, lambda certs=certs: Authority.create(certs, "ward", ["localhost"]))
        if (certs / INDEX).exists():
            Authority(certs).issue_operator("after")
        else:
            Authority.create(certs, "ward", ["localhost"])
        (certs / "clients").mkdir(exist_ok=True)
        (certs / "operators").mkdir(exist_ok=True)
        if not (certs / "server" / "certificate.pem").exists():
            Authority(certs).issue_server(["localhost"])
        Authority(certs).issue_client("north")
        check(certs)
        if not died:
            break
    assert 10 < step < 99


def test_an_index_that_was_cut_short(certs: Path) -> None:
    index = certs / INDEX
    whole = index.read_bytes()
    for size in range(0, len(whole), 97):
        index.write_bytes(whole[:size])
        with pytest.raises(CorruptError, match=r"index\.jsonl"):
            Authority(certs)
    lines = whole.splitlines(keepends=True)
    for kept in range(1, len(lines)):
        index.write_bytes(b"".join(lines[:kept]))
        with pytest.raises(CorruptError, match=r"is missing|is from an old backup"):
            Authority(certs)
    index.write_bytes(whole)
    assert len(Authority(certs).listed()) == 4


def test_an_index_that_was_altered(certs: Path) -> None:
    index = certs / INDEX
    whole = index.read_bytes()
    end = whole.index(b"\n") + 1
    for place in range(end, len(whole), 61):
        index.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises((CorruptError, FormatError), match=r"index\.jsonl"):
            Authority(certs)
    lines = whole.splitlines(keepends=True)
    for other in ([lines[0], *lines[2:]], [*lines[:2], *lines[3:]], [lines[0], lines[2], lines[1], *lines[3:]]):
        index.write_bytes(b"".join(other))
        with pytest.raises(CorruptError, match=r"index\.jsonl"):
            Authority(certs)


def test_an_index_that_was_rewritten_without_the_key(certs: Path) -> None:
    """Somebody who may write the index, but does not have the key, takes a revocation back."""
    authority = Authority(certs)
    authority.revoke("north")
    index = certs / INDEX
    lines = index.read_text(encoding="utf-8").splitlines()
    last = json.loads(lines[-1]) | {"serial": json.loads(lines[-2])["serial"]}
    lines[-1] = json.dumps(last, sort_keys=True, separators=(",", ":"))
    index.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(CorruptError, match="the CA did not sign line 6"):
        Authority(certs)


def test_an_old_backup(made: Path, certs: Path, tmp_path: Path) -> None:
    """The authority's whole folder is from before a revocation that the server's folder knows of."""
    Authority(certs).revoke("north")
    shutil.rmtree(certs / "authority")
    shutil.copytree(made / "authority", certs / "authority")
    with pytest.raises(CorruptError, match=r"has 4 entries, and a revocation list .* was made from 5"):
        Authority(certs)
    (certs / "server" / "revoked.pem").write_bytes(b"damaged")
    Authority(certs).issue_client("south")
    assert Trust(certs / "server").principal(der_of(certs / "clients" / "south")).name == "south"


def test_an_index_of_another_version(certs: Path) -> None:
    index = certs / INDEX
    heading, rest = index.read_text(encoding="utf-8").split("\n", 1)
    for change, error in (({"version": 2}, FormatError), ({"format": "other"}, CorruptError), ({}, None)):
        index.write_text(json.dumps(json.loads(heading) | change) + "\n" + rest, encoding="utf-8")
        if error is not None:
            with pytest.raises(error, match=r"index\.jsonl"):
                Authority(certs)
    index.write_text(f"{heading}\n{rest}", encoding="utf-8")
    assert json.loads(heading)["version"] == 1
    assert Authority(certs).name == "ward"


def test_an_index_with_a_second_ca(certs: Path) -> None:
    journal, key = Journal.read(certs / INDEX), new_key()
    second = authority_certificate(key, name="ward", now=utc_now(), span=timedelta(days=1))
    event = issuing(second, kind="authority", name="ward", authority=serial_of(second), now=utc_now())
    with pytest.raises(FormatError, match=r"has a second CA"):
        journal.append(event, by=signer_of(Authority(certs)))
    with pytest.raises(FormatError, match=r"has a second CA"):
        Authority(certs)


def test_a_key_of_another_authority(certs: Path, other: Authority) -> None:
    (key,) = (certs / "authority").glob("*.key.pem")
    (wrong,) = (other.folder / "authority").glob("*.key.pem")
    shutil.copy(wrong, key)
    with pytest.raises(IdentityError, match="is not the key of CA"):
        Authority(certs).issue_client("south")
    key.write_bytes(b"nothing")
    with pytest.raises(CorruptError, match="is not a private key"):
        Authority(certs).issue_client("south")
