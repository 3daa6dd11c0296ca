"""Identities: certificates, tokens, and the TLS contexts made from them.

::

    authority = Authority.create("certs", "ward", hosts=["splitwiper.example.org"])
    authority.issue_client("north")  # certs/clients/north goes to the client
    trust = Trust("certs/server")  # certs/server goes to the server
    trust.principal(der).name  # 'north'

The folder of an authority::

    authority/          the CA's keys and the index of issued certificates; never leaves this machine
    server/             ca.pem, certificate.pem, key.pem, revoked.pem, superseded.pem, tokens.jsonl
    clients/NAME/       ca.pem, certificate.pem, key.pem
    operators/NAME/     the same
    auditors/NAME/      the same

The labels' group key is independent of all this: it stays secret from the CA's operator.
"""

from splitwiper.service.identity.authority import Authority
from splitwiper.service.identity.contexts import client_context, server_context
from splitwiper.service.identity.index import Issued
from splitwiper.service.identity.names import Principal
from splitwiper.service.identity.tokens import Token, Tokens
from splitwiper.service.identity.trust import Trust, identity_in

__all__ = [
    "Authority",
    "Issued",
    "Principal",
    "Token",
    "Tokens",
    "Trust",
    "client_context",
    "identity_in",
    "server_context",
]
