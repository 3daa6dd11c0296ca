"""``splitwiper certs``: what it prints, what it leaves behind, and what it says when it cannot."""

from __future__ import annotations

import json
import re
import ssl
from pathlib import Path

import pytest

from splitwiper.errors import IdentityError
from splitwiper.service.identity import Tokens, Trust, client_context, server_context
from splitwiper.service.identity.certificate_builder import PASSPHRASE

COMMANDS = ("init", "client", "operator", "server", "revoke", "rotate", "token", "list")


@pytest.fixture(autouse=True)
def _no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE, raising=False)


@pytest.fixture
def certs(call, tmp_path: Path) -> Path:
    """An authority with a server, two clients and an operator."""
    folder = tmp_path / "certs"
    call("certs", "init", folder, "--name", "ward", "--host", "localhost", "--host", "127.0.0.1")
    for kind, name in (("client", "north"), ("client", "south"), ("operator", "anna")):
        call("certs", kind, folder, name)
    return folder


def _der(folder: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / "certificate.pem").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help(call, command: str) -> None:
    shown = call("certs", command, "--help").stdout
    assert f"  splitwiper certs {command}" in shown
    assert "--json" in shown
    assert all(len(text) <= 80 for text in shown.splitlines())


def test_help_of_all(call) -> None:
    shown = call("certs", "--help").stdout
    assert all(command in shown for command in COMMANDS)
    assert all(len(text) <= 80 for text in shown.splitlines())
    assert "certs" in call("--help").stdout


def test_init(call, call_json, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    shown = call("certs", "init", folder, "--name", "ward", "--host", "localhost").stdout
    assert f"{folder / 'server'} goes to the server." in shown
    assert "has the CA's key: keep it here" in shown
    server_context(folder / "server")
    found = call_json("certs", "init", tmp_path / "more", "--name", "lab", "--days", 100, "--server-days", 9)
    assert (found["name"], [one["kind"] for one in found["certificates"]]) == ("lab", ["authority"])
    assert "already: use it" in call("certs", "init", folder, "--name", "ward", code=2).stderr
    said = call("certs", "init", tmp_path / "bad", "--name", "../ward", code=2).stderr
    assert said.startswith("error: authority name '../ward': use 1 to 64 letters")
    assert "Missing option '--name'" in call("certs", "init", tmp_path / "bad", code=2).stderr
    assert (
        "'https://a:1' is neither"
        in call("certs", "init", tmp_path / "bad", "--name", "a", "--host", "https://a:1", code=2).stderr
    )
    assert not (tmp_path / "bad").exists()


def test_init_without_a_host_and_server(call, call_json, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    assert f"splitwiper certs server {folder} --host HOST" in call("certs", "init", folder, "--name", "ward").stdout
    assert "--host HOST" in call("certs", "server", folder, code=2).stderr
    made = call_json("certs", "server", folder, "--host", "A.example.org", "--days", 30)
    assert (made["hosts"], made["state"], made["folder"]) == (["a.example.org"], "valid", str(folder / "server"))
    assert "certs rotate" in call("certs", "server", folder, "--host", "b", code=2).stderr


def test_client_and_operator(call, call_json, certs: Path) -> None:
    made = call_json("certs", "client", certs, "east", "--days", 30)
    assert (made["kind"], made["name"], made["folder"]) == ("client", "east", str(certs / "clients" / "east"))
    client_context(certs / "clients" / "east")
    assert Trust(certs / "server").principal(_der(certs / "operators" / "anna")).kind == "operator"
    assert "goes to the operator" in call("certs", "operator", certs, "bert").stdout
    assert "has a certificate until" in call("certs", "client", certs, "north", code=2).stderr
    assert "whole number" in call("certs", "client", certs, "west", "--days", 0, code=2).stderr
    assert "there is no certificate authority in" in call("certs", "client", certs / "none", "a", code=6).stderr


def test_revoke(call, call_json, certs: Path) -> None:
    text = call("certs", "token", certs, "north").stdout.strip()
    other = call("certs", "token", certs, "south").stdout.strip()
    trust, tokens = Trust(certs / "server"), Tokens(certs / "server")
    assert trust.principal(_der(certs / "clients" / "north")).name == tokens.check(text).name == "north"
    shown = call("certs", "revoke", certs, "north").stdout
    assert "revoked.pem to the server if" in shown and "tokens.jsonl to the server if" in shown
    for check in (lambda: trust.principal(_der(certs / "clients" / "north")), lambda: tokens.check(text)):
        with pytest.raises(IdentityError, match="revoked"):
            check()
    found = call_json("certs", "revoke", certs, other.split("_")[1])
    assert (found["certificates"], found["tokens"][0]["state"]) == ([], "revoked")
    assert trust.principal(_der(certs / "clients" / "south")).name == "south"
    serial = next(one for one in call_json("certs", "list", certs)["certificates"] if one["name"] == "south")["serial"]
    assert call_json("certs", "revoke", certs, serial[:16])["certificates"][0]["serial"] == serial
    assert "Did you mean 'anna'" in call("certs", "revoke", certs, "ana", code=6).stderr
    call("certs", "client", certs, "anna")
    assert "--kind" in call("certs", "revoke", certs, "anna", code=2).stderr
    assert call_json("certs", "revoke", certs, "anna", "--kind", "operator")["certificates"][0]["kind"] == "operator"
    call("certs", "auditor", certs, "anna")
    assert call_json("certs", "revoke", certs, "anna", "--kind", "auditor")["certificates"][0]["kind"] == "auditor"
    assert "'auditor' or 'server'" in call("certs", "revoke", certs, "a", "--kind", "x", code=2).stderr


def test_rotate(call, call_json, certs: Path) -> None:
    trust, old = Trust(certs / "server"), _der(certs / "clients" / "north")
    made = call_json("certs", "rotate", certs, "north", "--overlap", 7, "--days", 30)
    assert trust.principal(old).name == "north"
    assert trust.principal(_der(certs / "clients" / "north")).serial == made["serial"]
    states = [one["state"] for one in call_json("certs", "list", certs)["certificates"] if one["name"] == "north"]
    assert states == ["ending", "valid"]
    found = call_json("certs", "rotate", certs, "server", "--host", "new.example.org")
    assert found["hosts"] == ["new.example.org"]
    assert "superseded.pem next to it to the server" in call("certs", "rotate", certs, "anna").stdout
    assert "whole number from 0" in call("certs", "rotate", certs, "north", "--overlap", -1, code=2).stderr


def test_token(call, call_json, certs: Path) -> None:
    result = call("certs", "token", certs, "north", "--days", 90)
    assert re.fullmatch(r"swt_[0-9a-f]{16}_[0-9a-f]{64}\n", result.stdout), "nothing else, so that it can be piped"
    assert "not shown again" in result.stderr
    assert Tokens(certs / "server").check(result.stdout.strip()).name == "north"
    made = call_json("certs", "token", certs, "anna", "--kind", "operator")
    assert Tokens(certs / "server").check(made["token"]).kind == "operator"
    assert made["expires"] is None
    assert (
        "kind 'root': use 'client' or 'operator'" in call("certs", "token", certs, "a", "--kind", "root", code=2).stderr
    )
    assert "client name '../a'" in call("certs", "token", certs, "../a", code=2).stderr
    assert "no certificate authority" in call("certs", "token", certs / "none", "a", code=6).stderr


def test_list(call, call_json, certs: Path) -> None:
    call("certs", "token", certs, "north", "--days", 9)
    found = call_json("certs", "list", certs)
    assert found["name"] == "ward"
    assert [one["name"] for one in found["certificates"]] == ["ward", "north", "south", "anna", "server"]
    assert {one["state"] for one in found["certificates"]} == {"valid"}
    assert [(one["name"], one["state"]) for one in found["tokens"]] == [("north", "valid")]
    assert "hash" not in json.dumps(found)
    shown = call("certs", "list", certs).stdout
    assert "localhost, 127.0.0.1" in shown and "token of" in shown
    assert all(len(text) <= 80 for text in shown.splitlines())


def test_a_wrong_passphrase(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSPHRASE, "correct horse battery staple")
    call("certs", "init", tmp_path / "certs", "--name", "ward")
    monkeypatch.setenv(PASSPHRASE, "wrong horse battery staple")
    said = call("certs", "client", tmp_path / "certs", "north", code=10).stderr
    assert f"the passphrase in {PASSPHRASE} does not open" in said
    assert "horse" not in said
    monkeypatch.delenv(PASSPHRASE)
    assert "is encrypted" in call("certs", "client", tmp_path / "certs", "north", code=10).stderr


def test_a_damaged_index(call, certs: Path) -> None:
    index = certs / "authority" / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-1])
    assert "was cut short. Restore it from a backup" in call("certs", "list", certs, code=7).stderr
