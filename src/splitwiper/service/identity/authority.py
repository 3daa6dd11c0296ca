"""The certificate authority: issues, replaces and revokes certificates, and keeps an index of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from splitwiper.errors import IdentityError, InputError
from splitwiper.service.identity import certificate_builder, distribution
from splitwiper.service.identity.certificate_builder import Signer
from splitwiper.service.identity.folders import AUTHORITY
from splitwiper.service.identity.index import INDEX, Clock, Event, Issued, Journal, check_days, ending, issuing, utc_now
from splitwiper.service.identity.names import SERVER, Kind, check_hosts, check_name
from splitwiper.store.files import erase, locked, write_bytes

CA_DAYS, LEAF_DAYS = 3650, 365


class Authority:
    """A certificate authority in a folder. Every change is durable and published when its method returns.

    The passphrase of the CA's key is taken from the environment's ``SPLITWIPER_CA_PASSPHRASE`` by default.

    Raises:
        NotFoundError: there is no authority in the folder.
        CorruptError: its index was altered.
        FormatError: a newer version wrote it.
    """

    def __init__(self, folder: str | Path, *, passphrase: str | None = None, clock: Clock = utc_now) -> None:
        self.folder = Path(folder)
        self._secret, self._clock = certificate_builder.passphrase(passphrase), clock
        self.name = distribution.whole_index(self.folder).name

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
        """Create a CA, valid for ``days``, and, if hosts are given, the server's certificate.

        Certificates call the organisation ``name``; clients reach the server by ``hosts``.

        Raises:
            InputError: a name or host is invalid, the passphrase is too short, or there is a CA already.
        """
        root, span, secret = Path(folder), check_days(days), certificate_builder.passphrase(passphrase)
        check_name(name, kind="authority")
        check_days(server_days)
        certificate_builder.check_passphrase(secret)
        named = check_hosts(hosts) if hosts else ()
        index = root / AUTHORITY / INDEX
        with locked(root / AUTHORITY):
            if index.exists():
                raise InputError(f"there is a certificate authority in {root} already: use it, or name another folder.")
            journal = Journal.start(index, name, clock())
            key = certificate_builder.new_key()
            certificate = certificate_builder.authority_certificate(key, name=name, now=clock(), span=span)
            signer = Signer(certificate, key)
            # the key first: an index without its key could never be changed
            write_bytes(_key_file(root, signer.serial), certificate_builder.key_pem(key, secret=secret))
            event = issuing(certificate, kind="authority", name=name, authority=signer.serial, now=clock())
            journal.append(event, by=signer)
            distribution.publish(root, journal, signer, clock())
        authority = cls(root, passphrase=passphrase, clock=clock)
        if named:
            authority.issue_server(named, days=server_days)
        return authority

    def issue_server(self, hosts: Sequence[str], *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for the server under these names and addresses."""
        return self._issue("server", SERVER, days, check_hosts(hosts))

    def issue_client(self, name: str, *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for a client; `InputError` if the name is invalid, or has a certificate already."""
        return self._issue("client", name, days)

    def issue_operator(self, name: str, *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for an operator."""
        return self._issue("operator", name, days)

    def issue_auditor(self, name: str, *, days: int = LEAF_DAYS) -> Issued:
        """Issue a certificate for an auditor, who may download all shards to recompute the server half."""
        return self._issue("auditor", name, days)

    def revoke(self, which: str, *, kind: Kind | None = None) -> list[Issued]:
        """Revoke all certificates of an identity, or one by its serial number; see `Journal.find`.

        Revoking a revoked certificate changes nothing.
        """
        with self._changing() as (journal, signer):
            found, now = journal.find(which, kind), self._clock()
            events = [ending("revoked", issued, now=now) for issued in found if issued.revoked is None]
            journal.append(*events, by=signer)
            return [journal.issued[issued.serial] for issued in found]

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
            which: the identity's name, or a serial number; see `Journal.find`.
            kind: the kind of identity, if the name is ambiguous.
            hosts: the server's hosts, if they change.
            days: the validity of the new certificate, in days.
            overlap: for how long the old one is still accepted; by default it is revoked immediately.
        """
        if overlap < timedelta(0):
            raise InputError(f"overlap {overlap}: give a time span that is not negative.")
        named = None if hosts is None else check_hosts(hosts)
        span = check_days(days)
        with self._changing() as (journal, signer):
            newest = journal.find(which, kind)[-1]  # the others are of the same identity
            kind, name = newest.kind, newest.name
            if named is not None and kind != "server":
                raise InputError(f"hosts are for the server; {kind} {name!r} has none.")
            old = journal.current(kind, name)
            if not old:
                raise InputError(f"{kind} {name!r} was revoked: 'splitwiper certs {kind}' issues a new certificate.")
            now, events = self._clock(), []
            for issued in old:  # several, if one had expired before the next was issued
                end = min(now + overlap, issued.not_after)
                if end > now:
                    events.append(ending("superseded", issued, now=now, ends=end.isoformat()))
                else:
                    events.append(ending("revoked", issued, now=now))
            return self._make(journal, signer, kind, name, span, named or old[-1].hosts, *events)

    def listed(self) -> list[Issued]:
        """Return every certificate ever issued, CAs first."""
        every = distribution.whole_index(self.folder).issued.values()
        return sorted(
            every, key=lambda issued: (issued.kind != "authority", issued.kind, issued.name, issued.not_before)
        )

    def folder_of(self, issued: Issued) -> Path:
        """Return the folder to hand to a certificate's owner."""
        return distribution.folder_of(self.folder, issued.kind, issued.name)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Journal, Signer]]:
        """Yield the index, and the CA with its key; publish the changes afterwards."""
        with locked(self.folder / AUTHORITY):
            journal = distribution.whole_index(self.folder)
            # first what an earlier process had recorded when it was killed, so that the caller changes a whole state
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
        key = certificate_builder.read_key(path, secret=self._secret)
        if key.public_key() != certificate.public_key():
            raise IdentityError(f"{path} is not the key of CA {serial}: restore the right one from a backup.")
        return Signer(certificate, key)

    def _issue(self, kind: Kind, name: str, days: int, hosts: tuple[str, ...] = ()) -> Issued:
        span = check_days(days)
        check_name(name, kind=kind)
        with self._changing() as (journal, signer):
            check_name(name, kind=kind, known=journal.names(kind))
            current = journal.current(kind, name)
            if current and current[-1].state(self._clock()) != "expired":
                raise InputError(
                    f"{kind} {name!r} has a certificate until {current[-1].not_after:%Y-%m-%d}: replace it with "
                    f"'splitwiper certs rotate {self.folder} {name}'."
                )
            return self._make(journal, signer, kind, name, span, hosts)

    def _make(
        self,
        journal: Journal,
        by: Signer,
        kind: Kind,
        name: str,
        span: timedelta,
        hosts: tuple[str, ...],
        *also: Event,
    ) -> Issued:
        key, now = certificate_builder.new_key(), self._clock()
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
