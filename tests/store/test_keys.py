"""Keys in files: for their owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.runs import halves, settings, three
from splitwiper import Federation
from splitwiper.errors import CorruptError, IdentityError, StoreError
from splitwiper.service.site.own_key import FILE, OwnKey
from splitwiper.store.keys import read_key


@pytest.mark.parametrize("rights", [0o644, 0o640, 0o620, 0o604, 0o610])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, rights: int) -> None:
    key = tmp_path / "key"
    key.write_text("ab" * 32, encoding="ascii")
    key.chmod(rights)
    with pytest.raises(IdentityError, match=rf"permissions {rights:o}, .* run 'chmod 600 {key}'"):
        read_key(key)
    for private in (0o600, 0o400):
        key.chmod(private)
        assert read_key(key) == bytes.fromhex("ab" * 32)
    assert read_key(tmp_path / "none") is None
    key.chmod(0o600)
    key.write_text("ab", encoding="ascii")
    with pytest.raises(CorruptError):
        read_key(key)


def test_a_clients_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    run = Federation(tmp_path / "run", halves(), settings())
    run.learn(three())
    (key,) = (run.path / "clients" / "north").rglob("key")
    key.chmod(0o666)
    with pytest.raises(IdentityError, match="chmod 600"):
        Federation(tmp_path / "run", halves()).unlearn("north", classes=["bird"])
    key.chmod(0o600)
    assert Federation(tmp_path / "run", halves()).unlearn("north", classes=["bird"])


def test_a_sites_signing_key_that_its_group_may_read_is_not_used(tmp_path: Path) -> None:
    own = OwnKey(tmp_path, "f")
    public = own.public
    (tmp_path / FILE).chmod(0o640)
    with pytest.raises(IdentityError, match=r"request-key\.pem has permissions 640.*drop this site's key"):
        own.key()
    (tmp_path / FILE).chmod(0o400)
    assert own.public == public


def test_a_servers_key_that_others_may_read_is_told(tmp_path: Path) -> None:
    run = Federation(tmp_path / "run", halves(), settings())
    run.learn(three())
    key = run.path / "server" / "key"
    key.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):  # trouble of the server's own: no caller's identity is wrong
        Federation(tmp_path / "run", halves()).submit("north", classes=["bird"])
    key.unlink()
    with pytest.raises(CorruptError, match="key that seals this database is gone"):
        Federation(tmp_path / "run", halves()).submit("north", classes=["bird"])
