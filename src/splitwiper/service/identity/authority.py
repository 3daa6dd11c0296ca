"""The certificate authority: issues, replaces and revokes certificates, and keeps an index of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from splitwiper.errors import IdentityError, InputError
from splitwiper.service.identity import certificate_builder, distribution, keys
from splitwiper.service.identity.certificate_builder import Signer, serial_of
from splitwiper.service.identity.folders import AUTHORITY
from splitwiper.service.identity.index import INDEX, Event, Journal, ending, issuing
from splitwiper.service.identity.names import SERVER, Kind, check_hosts, check_name
from splitwiper.service.identity.records import Clock, Issued, check_days, utc_now
from splitwiper.store.files import erase, locked, make_folder, write_bytes

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
            signer, event = _new_authority(root, name, span, secret, clock)
            journal.append(event, by=signer)
            distribution.publish(root, journal, [signer], clock())
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
        with self._changing() as (journal, signers):
            found = journal.find(which, kind)
            journal.append(*self._revoking(found), by=signers[-1])
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
        with self._changing() as (journal, signers):
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
            return self._make(journal, signers[-1], kind, name, span, named or old[-1].hosts, events)

    def rotate_authority(self, *, days: int = CA_DAYS) -> Issued:
        """Create a new CA that signs from now on. The old one stays trusted until `retire_authorities`."""
        span = check_days(days)
        with self._changing() as (journal, signers):
            signer, event = _new_authority(self.folder, self.name, span, self._secret, self._clock)
            journal.append(event, by=signers[-1])
            signers.append(signer)
            return journal.authorities[-1]

    def retire_authorities(self, *, force: bool = False) -> list[Issued]:
        """Stop trusting all CAs except the newest, and erase their keys.

        Args:
            force: proceed even if valid certificates were signed by them; these are revoked.

        Raises:
            InputError: there are such certificates, and ``force`` is not set.
        """
        with self._changing() as (journal, signers):
            old, now = journal.authorities[:-1], self._clock()
            serials = {one.serial for one in old}
            left = []
            for one in journal.issued.values():
                if one.authority in serials and one.serial not in serials:
                    left.append(one)
            living = [one for one in left if one.state(now) not in ("expired", "revoked")]
            if living and not force:
                raise InputError(
                    f"certificates of an old CA still hold: {', '.join(map(str, living))}. Replace each with "
                    "'splitwiper certs rotate' first, or add --force (force=True) to lock them out."
                )
            if old:
                events = [*self._revoking(left), *(ending("retired", one, now=now) for one in old)]
                journal.append(*events, by=signers[-1])
                del signers[:-1]
            return [journal.issued[one.serial] for one in old]

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
    def _changing(self) -> Iterator[tuple[Journal, list[Signer]]]:
        """Yield the index, and the trusted CAs with their keys; publish the changes afterwards."""
        with locked(self.folder / AUTHORITY):
            journal = self._read()
            distribution.finish(self.folder, journal)
            signers = [self._signer(journal, one) for one in journal.authorities]
            yield journal, signers
            distribution.finish(self.folder, journal)
            distribution.publish(self.folder, journal, signers, self._clock())
            # the others are keys of retired CAs, or of one whose making was cut short by a kill
            trusted = {_key_file(self.folder, one.serial) for one in journal.authorities}
            for leftover in set((self.folder / AUTHORITY).glob("ca-*.key.pem")) - trusted:
                erase(leftover)

    def _revoking(self, found: Iterable[Issued]) -> list[Event]:
        return [ending("revoked", one, now=self._clock()) for one in found if one.revoked is None]

    def _signer(self, journal: Journal, one: Issued) -> Signer:
        certificate = journal.certificate(one.serial)
        path = _key_file(self.folder, one.serial)
        key = keys.read_key(path, secret=self._secret)
        if key.public_key() != certificate.public_key():
            raise IdentityError(f"{path} is not the key of CA {one.serial}: restore the right one from a backup.")
        return Signer(certificate, key)

    def _issue(self, kind: Kind, name: str, days: int, hosts: tuple[str, ...] = ()) -> Issued:
        span = check_days(days)
        check_name(name, kind=kind)
        with self._changing() as (journal, signers):
            check_name(name, kind=kind, known={one.name for one in journal.issued.values() if one.kind == kind})
            holding = [one for one in journal.identity(kind, name) if one.is_current]
            if holding and holding[-1].state(self._clock()) != "expired":
                raise InputError(
                    f"{kind} {name!r} has a certificate until {holding[-1].not_after:%Y-%m-%d}: replace it with "
                    f"'splitwiper certs rotate {self.folder} {name}'."
                )
            return self._make(journal, signers[-1], kind, name, span, hosts, [])

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


def _new_authority(root: Path, name: str, span: timedelta, secret: bytes | None, clock: Clock) -> tuple[Signer, Event]:
    """Make a CA's key and certificate, and return them with the event; the key is written first."""
    key = keys.new_key()
    certificate = certificate_builder.authority_certificate(key, name=name, now=clock(), span=span)
    serial = serial_of(certificate)
    make_folder(root / AUTHORITY)
    write_bytes(_key_file(root, serial), keys.key_pem(key, secret=secret))
    return Signer(certificate, key), issuing(certificate, kind="authority", name=name, authority=serial, now=clock())


def _key_file(root: Path, serial: str) -> Path:
    return root / AUTHORITY / f"ca-{serial}.key.pem"
