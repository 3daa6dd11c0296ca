"""Finding certificates by what people call them: a name, or the beginning of a serial number."""

from __future__ import annotations

import re

from splitwiper.errors import InputError, NotFoundError, nearest
from splitwiper.service.identity.index import Journal
from splitwiper.service.identity.names import Kind
from splitwiper.service.identity.records import Issued

_SERIAL = re.compile(r"[0-9a-f]{8,40}")


def find(journal: Journal, which: str, kind: Kind | None = None) -> list[Issued]:
    """Return all certificates of an identity by its name, or one by the first 8 or more digits of its serial number.

    Raises:
        NotFoundError: there is none.
        InputError: it may mean several, or the CA itself.
    """
    leaves = [one for one in journal.issued.values() if one.kind != "authority" and kind in (None, one.kind)]
    named = [one for one in leaves if one.name == which]
    serials = [one for one in leaves if _SERIAL.fullmatch(which) and one.serial.startswith(which)]
    meant = {(one.kind, one.name) for one in named} | {one.serial for one in serials}
    if len(meant) > 1:
        listed = ", ".join(sorted({f"{one} ({one.serial[:16]})" for one in [*named, *serials]}))
        raise InputError(
            f"{which!r} may mean {listed}: say which with --kind (kind=), or give more of a serial number."
        )
    if not meant:
        if any(one.serial == which for one in journal.issued.values()):
            raise InputError(f"{which!r} is the CA: replace it with 'splitwiper certs rotate FOLDER --ca'.")
        known = sorted({one.name for one in leaves})
        raise NotFoundError(
            f"no {kind or 'identity'} is called {which!r}, and no serial number begins so.{nearest(which, known)} "
            "'splitwiper certs list FOLDER' shows all."
        )
    return named or serials


def one_identity(found: list[Issued], which: str) -> tuple[Kind, str]:
    """Return kind and name of the identity that was found.

    Raises:
        InputError: the certificates belong to several identities.
    """
    identities = {(one.kind, one.name) for one in found}
    if len(identities) > 1:
        raise InputError(f"{which!r} may mean {len(identities)} identities: say which with --kind (kind=).")
    return identities.pop()
