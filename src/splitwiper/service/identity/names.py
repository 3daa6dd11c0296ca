"""Names of identities and hosts, and their form in certificates."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from splitwiper.data.sources import NAME
from splitwiper.errors import InputError, nearest

PrincipalKind = Literal["client", "operator", "auditor"]
Kind = Literal["client", "operator", "auditor", "server", "authority"]
PRINCIPALS: tuple[PrincipalKind, ...] = get_args(PrincipalKind)
SERVER = "server"
"""The server's name in the index, and the name of its folder."""
_URN = re.compile(rf"urn:splitwiper:({'|'.join(PRINCIPALS)}):({NAME.pattern})")
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS = re.compile(rf"(?=.{{1,253}}\Z){_PART}(?:\.{_PART})*")


@dataclass(frozen=True)
class Principal:
    """An authenticated caller; ``serial`` is the certificate's serial number in hex, or the token's public id."""

    kind: PrincipalKind
    name: str
    serial: str = ""

    def __post_init__(self) -> None:
        check_kind(self.kind)
        check_name(self.name, kind=self.kind)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def check_kind(kind: str) -> PrincipalKind:
    """Return the kind if it is one that can call a server, or raise `InputError`."""
    if kind not in PRINCIPALS:
        raise InputError(f"kind {kind!r}: use {' or '.join(map(repr, PRINCIPALS))}.{nearest(str(kind), PRINCIPALS)}")
    return kind


def check_name(name: object, *, kind: str, known: Iterable[str] = ()) -> str:
    """Return the name if it can be a folder's name and cannot be confused with a known one; else `InputError`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"{kind} name {name!r}: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit."
        )
    for other in known:
        # on a file system that ignores case, both would share one folder
        if other != name and other.lower() == name.lower():
            raise InputError(f"{kind} {name!r} differs from {other!r} only in case; choose another name.")
    return name


def urn(kind: str, name: str) -> str:
    """Return an identity in the form used in certificates.

    >>> urn("client", "north")
    'urn:splitwiper:client:north'
    """
    return f"urn:splitwiper:{kind}:{name}"


def stated(text: str) -> tuple[PrincipalKind, str] | None:
    """Return kind and name from a result of `urn`; ``None`` for anything else.

    >>> stated("urn:splitwiper:operator:anna")
    ('operator', 'anna')
    >>> stated("urn:splitwiper:client:../north") is None
    True
    """
    match = _URN.fullmatch(text)
    return (cast("PrincipalKind", match[1]), match[2]) if match else None


def check_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return host names in lower case and IP addresses in canonical form, without duplicates; else `InputError`.

    >>> check_hosts(["Splitwiper.Example.org", "::0:1", "localhost"])
    ('splitwiper.example.org', '::1', 'localhost')
    """
    if isinstance(hosts, str) or not hosts:
        raise InputError(f"hosts {hosts!r}: give a list of the names and addresses by which clients reach the server.")
    return tuple(dict.fromkeys(map(_host, hosts)))


def _host(host: str) -> str:
    if isinstance(host, str) and "%" not in host:  # a zone id has a meaning on one machine only
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            if _DNS.fullmatch(host) and not host.rpartition(".")[2].isdigit():
                return host.lower()
    raise InputError(
        f"host {host!r} is neither a host name nor an IP address. Leave out 'https://', port and path; give names with "
        "other letters in their 'xn--' form."
    )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "example.org", "")]
    [True, True, True, False, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
