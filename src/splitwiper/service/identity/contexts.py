"""TLS contexts from the folders that an authority makes: TLS 1.2 or newer, and both sides known."""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path

from splitwiper.errors import CorruptError, SplitWiperError
from splitwiper.service.identity.folders import CA, CERTIFICATE, KEY, REVOKED, read_pem, stamp
from splitwiper.service.identity.keys import check_private

_log = logging.getLogger("splitwiper")
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secret and authenticated. Those of TLS 1.3 all are."""


def server_context(folder: str | Path, mutual: bool = True, *, revoked: bool = False) -> ssl.SSLContext:
    """What a server listens with.

    Certificate, key, CAs and revocation list are read again for a new connection when their files changed. Files that
    cannot be used, say because they are being copied, leave everything as it was. Connections that are open stay open:
    ask `Trust` for every request.

    Args:
        folder: the server's.
        mutual: whether clients must show a certificate of a trusted CA that is not on the revocation list.
        revoked: let those on the list connect all the same, so that they can be told: `Trust` refuses them.

    Raises:
        NotFoundError: a file is missing.
        IdentityError: others may read the key.
        CorruptError: files are damaged, or do not belong together.
    """
    return _Listening(Path(folder), mutual, lists=not revoked).first


def client_context(folder: str | Path) -> ssl.SSLContext:
    """What a client or an operator connects with: it checks the server's CA and host name, and shows its certificate.

    If the server's ``revoked.pem`` was put into the folder as well, a revoked server is refused.

    Args:
        folder: the client's or operator's.

    Raises:
        NotFoundError: a file is missing.
        IdentityError: others may read the key.
        CorruptError: files are damaged, or do not belong together.
    """
    place = Path(folder)
    context = _plain(ssl.PROTOCOL_TLS_CLIENT, place)
    _believe(context, place, lists=(place / REVOKED).is_file())
    return context


class _Listening:
    """A server's context, and the one that takes its place for new connections once files changed."""

    def __init__(self, folder: Path, mutual: bool, *, lists: bool) -> None:
        self._folder, self._mutual, self._lists = folder, mutual, lists
        self._files = [folder / name for name in (CA, CERTIFICATE, KEY, REVOKED)]
        self._lock = threading.Lock()
        self._stamp = stamp(*self._files)
        self.first = self._newest = self._make()
        self.first.sni_callback = self._swap

    def _make(self) -> ssl.SSLContext:
        context = _plain(ssl.PROTOCOL_TLS_SERVER, self._folder)
        if self._mutual:
            _believe(context, self._folder, lists=self._lists)
            context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0  # a resumed session would not look at the certificate again
        return context

    def _swap(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        """Called by TLS when a client says hello, before anything is sent or verified."""
        with self._lock:
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
        read_pem(folder / name)
    check_private(folder / KEY)
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=_no_prompt)
    except (ssl.SSLError, ValueError) as problem:
        raise CorruptError(
            f"{folder / CERTIFICATE} and {KEY} beside it cannot be used together ({problem}): copy the folder again."
        ) from problem
    return context


def _believe(context: ssl.SSLContext, folder: Path, *, lists: bool) -> None:
    """Trust the CAs in a folder and no others, by the letter of RFC 5280."""
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
    """An encrypted key is an error, not a question on the terminal."""
    raise ValueError("the key is encrypted")
