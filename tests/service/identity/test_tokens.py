"""Tokens: good, unknown, altered, expired, revoked; and what is in their file."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from service.identity.tls import away
from splitwiper.errors import CorruptError, FormatError, IdentityError, InputError, NotFoundError
from splitwiper.service.identity import Principal, Tokens

NORTH = Principal("client", "north")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "server")


def test_good(tokens: Tokens) -> None:
    text = tokens.add(NORTH)
    assert re.fullmatch(r"swt_[0-9a-f]{16}_[0-9a-f]{64}", text)
    found = tokens.check(text)
    assert (found.kind, found.name, found.serial) == ("client", "north", text.split("_")[1])
    operator = tokens.add(Principal("operator", "anna"))
    assert tokens.check(operator).kind == "operator"
    assert Tokens(tokens.folder).check(text) == found


def test_only_hashes_are_kept(tokens: Tokens) -> None:
    texts = [tokens.add(NORTH) for _ in range(3)]
    stored = (tokens.folder / "tokens.jsonl").read_text(encoding="utf-8")
    for text in texts:
        assert text not in stored and text.split("_")[2] not in stored
        assert text not in repr(tokens.listed())
    assert len(set(texts)) == 3
    assert (tokens.folder / "tokens.jsonl").stat().st_mode & 0o077 == 0


def test_altered_by_one_character(tokens: Tokens) -> None:
    text = tokens.add(NORTH)
    for place, character in enumerate(text):
        other = "0" if character != "0" else "1"
        with pytest.raises(IdentityError) as wrong:
            tokens.check(text[:place] + other + text[place + 1 :])
        assert text.split("_")[2] not in str(wrong.value)
    for other in (text[:-1], f"{text}0", f" {text}", f"{text}\n", text.upper(), "", "swt_", "é" * 85, "\udcff"):
        with pytest.raises(IdentityError, match="is not a token"):
            tokens.check(other)


def test_unknown(tokens: Tokens, tmp_path: Path) -> None:
    text = Tokens(tmp_path / "other").add(NORTH)
    with pytest.raises(IdentityError, match=f"token {text.split('_')[1]} is not known here"):
        tokens.check(text)
    assert not tokens.folder.exists()


def test_expiry(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    text = tokens.add(NORTH, away(days=2)())
    assert tokens.check(text).name == "north"
    assert Tokens(tmp_path, clock=away(days=1)).check(text).name == "north"
    with pytest.raises(IdentityError, match="of client 'north' is expired"):
        Tokens(tmp_path, clock=away(days=3)).check(text)
    with pytest.raises(InputError, match="is of no use"):
        tokens.add(NORTH, away(days=-1)())
    later = Tokens(tmp_path, clock=away(days=1000))
    assert later.check(tokens.add(NORTH)).name == "north", "without a date it is good for ever"


def test_revoking(tokens: Tokens) -> None:
    first, second, third = tokens.add(NORTH), tokens.add(NORTH), tokens.add(Principal("operator", "north"))
    running = Tokens(tokens.folder)
    assert running.check(first).name == "north"
    tokens.revoke(first.split("_")[1])
    with pytest.raises(IdentityError, match="is revoked"):
        running.check(first)
    assert running.check(second).name == "north"
    with pytest.raises(InputError, match="several owners"):
        tokens.revoke("north")
    assert len(tokens.revoke("north", kind="client")) == 2
    with pytest.raises(IdentityError, match="is revoked"):
        running.check(second)
    assert running.check(third).kind == "operator"
    states = [one.state(away()()) for one in tokens.listed()]
    assert states == ["revoked", "revoked", "valid"]
    when = tokens.listed()[0].revoked
    assert Tokens(tokens.folder, clock=away(days=1)).revoke(first.split("_")[1])[0].revoked == when
    with pytest.raises(NotFoundError, match=r"no token has the id or the name 'noth'. Did you mean 'north'"):
        tokens.revoke("noth")


@pytest.mark.parametrize(("kind", "name"), [("client", "../a"), ("client", ""), ("server", "a"), ("operator", "a b")])
def test_principals(kind: str, name: str) -> None:
    with pytest.raises(InputError):
        Principal(kind, name)


def test_damage_lets_nobody_in(tokens: Tokens) -> None:
    text = tokens.add(NORTH, away(days=9)())
    path = tokens.folder / "tokens.jsonl"
    whole = path.read_text(encoding="utf-8")
    heading, line = whole.splitlines()
    for damage in (
        whole[:-1],
        whole[:-30],
        "",
        f"{line}\n",
        f"{heading}\n{{}}\n",
        f"{heading}\nnothing\n",
        f"{heading}\n[]\n",
        whole.replace('"north"', '"../north"'),
        whole.replace('"client"', '"root"'),
        whole.replace('"hash":"', '"hash":"x'),
        whole.replace('"expires"', '"expired"'),
    ):
        path.write_text(damage, encoding="utf-8")
        with pytest.raises(CorruptError, match=r"tokens\.jsonl is damaged"):
            tokens.check(text)
    path.write_text(f"{json.dumps(json.loads(heading) | {'version': 2})}\n{line}\n", encoding="utf-8")
    with pytest.raises(FormatError, match="upgrade"):
        tokens.check(text)
    path.write_text(whole, encoding="utf-8")
    assert tokens.check(text).name == "north"
    path.unlink()
    with pytest.raises(IdentityError, match="not known here"):
        tokens.check(text)


def test_an_expiry_in_another_time_zone(tokens: Tokens) -> None:
    from datetime import timezone

    local = away(hours=2)().astimezone(timezone(timedelta(hours=9)))
    tokens.add(NORTH, local)
    assert tokens.listed()[0].expires == local
