"""Settings of the service: the ``[service]`` table of the server's configuration file."""

from __future__ import annotations

from dataclasses import dataclass

from splitwiper.config.settings import bounded, choice, typed
from splitwiper.config.training import CODECS
from splitwiper.errors import ConfigError
from splitwiper.server.limits import Limits
from splitwiper.service.identity.names import is_loopback
from splitwiper.wire.codecs import LARGEST

IDENTITIES = ("certificates", "tokens")


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """How the server is reached, by whom, and how much of it anybody may use."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8443
    """The port to listen on; 0 takes a free one."""
    identity: str = "certificates"
    """'certificates': mutual TLS, a client is who its certificate says. 'tokens': bearer tokens, for a proxy that
    terminates TLS in front of the service."""
    behind_proxy: bool = False
    """With tokens: a proxy that terminates TLS is all that can reach the address. Without this, plain HTTP with tokens
    is served on loopback addresses only."""
    certs: str = "certs"
    """The server's folder of certificates, made by ``splitwiper certs``; relative to the configuration file."""
    codec: str = "none"
    """How clients write activations down; fixed when the store is made."""
    probabilities: bool = False
    """Answer predictions with the probabilities of all labels, not with the most likely one alone."""
    hand_out: bool = True
    """Give clients the server half, so that they can predict without sending anything."""
    withdraw: bool = True
    """Stop predicting as soon as a request is accepted, until the model has forgotten."""
    coalesce: float = 1.0
    """Seconds to wait for further requests and uploads before re-training."""
    deadline: float = 30.0
    """Days within which a request is to be settled."""
    signed: bool = True
    """Take requests to forget only if the client's own key signed them."""
    requests: int = 20
    """Requests to forget that a client may make in a day."""
    rate: float = 50.0
    """Calls a second that a client may make in the long run; pieces of uploads count like any other."""
    burst: int = 200
    """Calls that a client may make at once."""
    connections: int = 400
    """Connections at a time; fewer where the process may not open that many files."""
    connections_each: int = 32
    """Connections at a time with one certificate."""
    handshakes: int = 128
    """Connections at a time whose TLS handshake is not finished. Where there are more, the oldest ones of the address
    that has most are dropped."""
    handshake: float = 10.0
    """Seconds that a TLS handshake may take."""
    largest: int = 64 << 30
    """Bytes of a shard at most."""
    rows: int = 4096
    """Rows of one prediction at most."""
    queued: int = 16
    """Predictions that a client may have waiting, beside the two that are taken in or computed."""
    unfinished: int = 2
    """Uploads that a client may have begun and not finished."""
    outputs: int = 4096
    """Outputs of the model at most: labels over all clients, or codes where labels are hidden."""
    labels: int = 1024
    """Labels of one client at most."""
    label_length: int = 200
    """Characters of a label at most, its task included."""
    shards: int = 3
    """Shards that a client may send while others wait for the model: each makes training start over. Where one more
    answers a request, the one before it is erased at once, and the new one is taken when the model is trained."""
    uploads: int = 200
    """Shards that a client may send in a day, beside those that answer a request: each is in the ledger for ever."""
    largest_value: float = 65504.0
    """The largest absolute value of an activation. The default is float16's range, far beyond what networks on scaled
    inputs give; what lies beyond it makes training fail."""
    reserve: float = 0.05
    """The part of the store's disk that uploads leave free, so that forgetting always has room. A shard that answers a
    request, and is no larger than the one it replaces, may use it."""
    lapse: float = 4.0
    """Hours after which the shard of a client is erased that asked to be forgotten and then sent nothing more; its
    requests are settled by that, it can send its surviving rows later, and its later requests do not stop the model
    from answering before they are followed up."""
    patience: float = 24.0
    """Hours after which an upload that was not finished is given up, and a talk about labels that is silent."""

    def __post_init__(self) -> None:
        typed(self)
        choice(self, "identity", IDENTITIES)
        choice(self, "codec", CODECS)
        bounded(self, "port", 0, high=65535)
        for name in ("coalesce", "rate"):
            bounded(self, name, 0, strict=name == "rate", high=1e6)
        for name in ("deadline", "patience", "lapse", "handshake"):
            bounded(self, name, 0, strict=True, high=1e4)
        for name in ("requests", "burst", "largest", "rows", "queued", "unfinished", "shards", "uploads"):
            bounded(self, name, 1, high=1 << 50)
        for name in ("connections", "connections_each", "handshakes"):
            bounded(self, name, 1, high=1 << 20)
        for name in ("outputs", "labels"):
            bounded(self, name, 1, high=1 << 20)
        bounded(self, "label_length", 1, high=2000)
        bounded(self, "largest_value", 0, strict=True, high=LARGEST)
        bounded(self, "reserve", 0, high=1)
        if self.identity == "tokens" and not self.behind_proxy and not is_loopback(self.host):
            raise ConfigError(
                f"identity = 'tokens' with host = {self.host!r}: tokens would cross the network in plain HTTP. Listen "
                "on 127.0.0.1 beside the proxy that terminates TLS, or set behind_proxy = true where only that proxy "
                "can reach this address."
            )

    @property
    def limits(self) -> Limits:
        """What shards are held to."""
        return Limits(self.largest_value, self.outputs, self.labels, self.label_length, self.shards)
