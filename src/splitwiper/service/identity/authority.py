"""The certificate authority: issues, replaces and revokes certificates, and keeps an index of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from splitwiper.errors import IdentityError, InputError
from splitwiper.service.identity import certificate_builder, distribution, keys
from splitwiper.service.identity.certificate_builder import Signer
from splitwiper.service.identity.folders import AUTHORITY
from splitwiper.service.identity.index import INDEX, Event, Journal, ending, issuing
from splitwiper.service.identity.names import SERVER, Kind, check_hosts, check_name
from splitwiper.service.identity.records import Clock, Issued, check_days, utc_now
from splitwiper.store.files import erase, locked, write_bytes

CA_DAYS, LEAF_DAYS = 3650, 365


class Authority:
    """A certificate authority in a folder. Every change is durable and published when its method returns.

    Args:
        folder: the folder it was created in.
        passphrase: decrypts the CA's keys; taken from the environment's ``SPLITWIPER_CA_PASSPHRASE`` by default.
        clock: returns the current time.

    Raises:
        NotFoundError: there is no authority in the folder.
        CorruptError: its index was altered.
        FormatError: a newer version wrote it.
    """

    def __init__(self, folder: str | Path, *, passphrase: str | None = None, clock: Clock = utc_now) -> None:
        self.folder = Path(folder)
        self._secret, self._clock = keys.passphrase(passphrase), clock
        self.name = self._read().name

    @classmethod
    def create(
        cls,
        folder: str | Path,
        name: str,
        hosts: Sequence[str] = (),
        *,
        days: int = CA_DAYS,
        server_days: int = LEAF_DAYS,
        passphrase: str | None = None,
        clock: Clock = utc_now,
    ) -> Authority:
        """Create a CA and, if hosts are given, the server's certificate.

        Args:
            folder: a new folder, or one without a CA.
            name: the organisation's name in certificates.
            hosts: names and addresses by which clients reach the server.
            days: the validity of the CA's certificate, in days.
            server_days: the validity of the server's certificate, in days.
            passphrase: encrypts the CA's key; taken from the environment's ``SPLITWIPER_CA_PASSPHRASE`` by default.
            clock: returns the current time.

        Raises:
            InputError: a name or host is invalid, the passphrase is too short, or there is a CA already.
        """
        root, span, secret = Path(folder), check_days(days), keys.passphrase(passphrase)
        check_name(name, kind="authority")
        check_days(server_days)
        keys.check_passphrase(secret)
        named = check_hosts(hosts) if hosts else ()
        index = root / AUTHORITY / INDEX
        with locked(root / AUTHORITY):
            if index.exists():
                raise InputError(f"there is a certificate authority in {root} already: use it, or name another folder.")
            journal = Journal.start(index, name, clock())
            key = keys.new_key()
            certificate = certificate_builder.authority_certificate(key, name=name, now=clock(), span=span)
            signer = Signer(certificate, key)
            # the key first: an index without its key could never be changed
            write_bytes(_key_file(root, signer.serial), keys.key_pem(key, secret=secret))
            event = issuing(certificate, kind="authority", name=name, authority=signer.serial, now=clock())
            journal.append(event, by=signer)
            distribution.publish(root, journal, signer, clock())
        out = cls(root, passphrase=passphrase, clock=clock)
        if named:
            out.issue_server(named, days=server_days)
        return out

    def issue_server(self, hosts: Sequence[str], *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for the server under these names and addresses."""
        return self._issue("server", SERVER, days, check_hosts(hosts))

    def issue_client(self, name: str, *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for a client.

        Raises:
            InputError: the name is invalid, or has a certificate already.
        """
        return self._issue("client", name, days)

    def issue_operator(self, name: str, *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for an operator."""
        return self._issue("operator", name, days)

    def issue_auditor(self, name: str, *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for an auditor, who may download all shards to recompute the server half."""
        return self._issue("auditor", name, days)

    def revoke(self, which: str, *, kind: Kind | None = None) -> list[Issued]:
        """Revoke all certificates of an identity, or one by its serial number.

        Revoking a revoked certificate changes nothing.

        Raises:
            NotFoundError: there is no such certificate.
            InputError: it may mean several identities.
        """
        with self._changing() as (journal, signer):
            found, now = journal.find(which, kind), self._clock()
            events = [ending("revoked", one, now=now) for one in found if one.revoked is None]
            journal.append(*events, by=signer)
            return [journal.issued[one.serial] for one in found]

    def rotate(
        self,
        which: str,
        *,
        kind: Kind | None = None,
        hosts: Sequence[str] | None = None,
        days: int = LEAF_DAYS,
        overlap: timedelta = timedelta(0),
    ) -> Issued:
        """Issue a new key and certificate for the same identity.

        Args:
            which: the identity's name, or a serial number.
            kind: the kind of identity, if the name is ambiguous.
            hosts: the server's hosts, if they change.
            days: the validity of the new certificate, in days.
            overlap: for how long the old one is still accepted; by default it is revoked immediately.

        Raises:
            NotFoundError: there is no such identity.
            InputError: it may mean several identities, or all its certificates were revoked.
        """
        if overlap < timedelta(0):
            raise InputError(f"overlap {overlap}: give a time span that is not negative.")
        named = None if hosts is None else check_hosts(hosts)
        span = check_days(days)
        with self._changing() as (journal, signer):
            found = journal.find(which, kind)[0]  # the others are of the same identity
            kind, name = found.kind, found.name
            if named is not None and kind != "server":
                raise InputError(f"hosts are for the server; {kind} {name!r} has none.")
            old = [one for one in journal.identity(kind, name) if one.is_current]
            if not old:
                raise InputError(f"{kind} {name!r} was revoked: 'splitwiper certs {kind}' issues a new certificate.")
            now = self._clock()
            events = []
            for one in old:
                end = min(now + overlap, one.not_after)
                if end > now:
                    events.append(ending("superseded", one, now=now, ends=end.isoformat()))
                else:
                    events.append(ending("revoked", one, now=now))
            return self._make(journal, signer, kind, name, span, named or old[-1].hosts, events)

    def listed(self) -> list[Issued]:
        """Return every certificate ever issued, CAs first."""
        found = self._read().issued.values()
        return sorted(found, key=lambda one: (one.kind != "authority", one.kind, one.name, one.not_before))

    def folder_of(self, one: Issued) -> Path:
        """Return the folder to hand to a certificate's owner."""
        return distribution.folder_of(self.folder, one.kind, one.name)

    def _read(self) -> Journal:
        return distribution.whole_index(self.folder, self.folder / AUTHORITY / INDEX)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Journal, Signer]]:
        """Yield the index, and the CA with its key; publish the changes afterwards."""
        with locked(self.folder / AUTHORITY):
            journal = self._read()
            distribution.finish(self.folder, journal)
            signer = self._signer(journal)
            yield journal, signer
            distribution.finish(self.folder, journal)
            distribution.publish(self.folder, journal, signer, self._clock())
            for leftover in (self.folder / AUTHORITY).glob("ca-*.key.pem"):
                if leftover != _key_file(self.folder, signer.serial):  # of a creation that was cut short by a kill
                    erase(leftover)

    def _signer(self, journal: Journal) -> Signer:
        serial = journal.authority.serial
        certificate, path = journal.certificate(serial), _key_file(self.folder, serial)
        key = keys.read_key(path, secret=self._secret)
        if key.public_key() != certificate.public_key():
            raise IdentityError(f"{path} is not the key of CA {serial}: restore the right one from a backup.")
        return Signer(certificate, key)

    def _issue(self, kind: Kind, name: str, days: int, hosts: tuple[str, ...] = ()) -> Issued:
        span = check_days(days)
        check_name(name, kind=kind)
        with self._changing() as (journal, signer):
            check_name(name, kind=kind, known={one.name for one in journal.issued.values() if one.kind == kind})
            holding = [one for one in journal.identity(kind, name) if one.is_current]
            if holding and holding[-1].state(self._clock()) != "expired":
                raise InputError(
                    f"{kind} {name!r} has a certificate until {holding[-1].not_after:%Y-%m-%d}: replace it with "
                    f"'splitwiper certs rotate {self.folder} {name}'."
                )
            return self._make(journal, signer, kind, name, span, hosts, [])

    def _make(
        self,
        journal: Journal,
        by: Signer,
        kind: Kind,
        name: str,
        span: timedelta,
        hosts: tuple[str, ...],
        also: list[Event],
    ) -> Issued:
        key, now = keys.new_key(), self._clock()
        certificate = certificate_builder.leaf_certificate(
            by, key.public_key(), kind=kind, name=name, hosts=hosts, now=now, span=span
        )
        # staged, then recorded, then installed by `finish`: a kill in between neither loses nor hands out anything
        distribution.stage(distribution.folder_of(self.folder, kind, name), key, certificate)
        event = issuing(certificate, kind=kind, name=name, authority=by.serial, now=self._clock(), hosts=hosts)
        journal.append(event, *also, by=by)
        return journal.issued[event["serial"]]


def _key_file(root: Path, serial: str) -> Path:
    return root / AUTHORITY / f"ca-{serial}.key.pem"
