"""TLS contexts from the folders that an authority makes: TLS 1.2 or newer, with both sides authenticated."""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path

from splitwiper.errors import CorruptError, SplitWiperError
from splitwiper.service.identity.certificate_builder import REMEDY
from splitwiper.service.identity.folders import CA, CERTIFICATE, KEY, REVOKED, read_pem, stamp
from splitwiper.store.keys import check_private

_log = logging.getLogger("splitwiper")
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secret and authenticated. All suites of TLS 1.3 are."""


def server_context(folder: str | Path, *, revoked: bool = False) -> ssl.SSLContext:
    """Return the context that a server listens with: it requires clients to show a certificate of a trusted CA.

    Certificate, key, CAs and revocation list are reloaded for a new connection if their files changed. If the files
    cannot be used, for example because they are being copied, nothing changes. Open connections stay open: ask `Trust`
    for every request.

    Args:
        folder: the server's folder.
        revoked: accept connections from revoked clients, so that they can be sent an error: `Trust` refuses them.

    Raises:
        NotFoundError, IdentityError, CorruptError: a file is missing; others may read the key; files are damaged, or do
            not belong together.
    """
    return _Listening(Path(folder), lists=not revoked).first


def client_context(folder: str | Path) -> ssl.SSLContext:
    """Return a client's, operator's or auditor's TLS context; errors are those of `server_context`.

    It checks the server's CA and host name, and shows the own certificate. If the server's ``revoked.pem`` was put into
    the folder as well, a revoked server is refused.
    """
    context = _plain(ssl.PROTOCOL_TLS_CLIENT, Path(folder))
    _trust_only(context, Path(folder), lists=(Path(folder) / REVOKED).is_file())
    return context


class _Listening:
    """A server's context, and its replacement for new connections after files changed."""

    def __init__(self, folder: Path, *, lists: bool) -> None:
        self._folder, self._lists = folder, lists
        self._files = [folder / name for name in (CA, CERTIFICATE, KEY, REVOKED)]
        self._lock = threading.Lock()
        self._stamp = stamp(*self._files)
        self.first = self._newest = self._make()
        self.first.sni_callback = self._swap

    def _make(self) -> ssl.SSLContext:
        context = _plain(ssl.PROTOCOL_TLS_SERVER, self._folder)
        _trust_only(context, self._folder, lists=self._lists)
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0  # a resumed session would skip the certificate check
        return context

    def _swap(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        """Switch to the newest context. TLS calls this on a client's hello, before anything is sent or verified."""
        with self._lock:
            # only the times of the files: this runs for every connection
            now = stamp(*self._files)
            if now != self._stamp:
                try:
                    self._newest = self._make()
                except (SplitWiperError, OSError) as problem:
                    _log.warning("the files in %s changed and are not used: %s", self._folder, problem)
                self._stamp = now
            newest = self._newest
        if newest is not self.first:
            connection.context = newest


def _plain(protocol: int, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    for name in (CERTIFICATE, KEY):
        read_pem(folder / name)  # OpenSSL's own error would not name the file that is missing
    check_private(folder / KEY, remedy=REMEDY)
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=_no_prompt)
    except (ssl.SSLError, ValueError) as problem:
        raise CorruptError(
            f"{folder / CERTIFICATE} and {KEY} next to it cannot be used together ({problem}): copy the folder again."
        ) from problem
    return context


def _trust_only(context: ssl.SSLContext, folder: Path, *, lists: bool) -> None:
    """Trust only the CAs in a folder, strictly following RFC 5280."""
    # without this flag, OpenSSL overlooks some certificates that break the rules
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    names = (CA, REVOKED) if lists else (CA,)
    if lists:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    for name in names:
        read_pem(folder / name)
        try:
            context.load_verify_locations(folder / name)
        except ssl.SSLError as problem:
            raise CorruptError(f"{folder / name} cannot be read ({problem}): copy it again.") from problem


def _no_prompt() -> str:
    """Make an encrypted key an error, instead of a prompt on the terminal."""
    raise ValueError("the key is encrypted")
