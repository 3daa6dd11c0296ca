"""Settings of the service: the ``[service]`` table of the server's configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitwiper.config.settings import bounded, check_parts, choice, part, part_args, typed
from splitwiper.config.training import CODECS
from splitwiper.errors import ConfigError
from splitwiper.server.limits import ShardLimits
from splitwiper.service.identity.names import is_loopback
from splitwiper.wire.codecs import LARGEST

IDENTITIES = ("certificates", "tokens")


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """How the server is reached, by whom, and how much each client may use it."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8443
    """The port to listen on; 0 takes a free one."""
    identity: str = "certificates"
    """'certificates': mutual TLS; a client's certificate says who it is. 'tokens': bearer tokens, for a proxy that
    terminates TLS in front of the service."""
    behind_proxy: bool = False
    """With tokens: only a proxy that terminates TLS can reach the address. Without this, plain HTTP with tokens is
    served on loopback addresses only."""
    certs: str = "certs"
    """The server's folder of certificates, made by ``splitwiper certs``; relative to the configuration file."""
    codec: str = part("splitwiper.codecs", CODECS)
    """The encoding of clients' activations; fixed when the store is made. All clients set the same."""
    codec_args: Mapping[str, Any] = part_args()
    """The settings of a codec that is not built in, by keyword."""
    engine: str = part("splitwiper.engines", ("local", "distributed"))
    """What computes trainings: 'local', the worker's own process; 'distributed', several processes on one machine or
    many; or an engine of your own as ``package.module:name``. No bit depends on it."""
    engine_args: Mapping[str, Any] = part_args()
    """The settings of an engine that is not built in, by keyword."""
    ranks: int = 1
    """The largest number of processes that share a training, each with some of ``server.lanes``."""
    probabilities: bool = False
    """Answer predictions with the probabilities of all labels, instead of only the most likely one."""
    hand_out: bool = True
    """Give clients the server half, so that they can predict without sending anything."""
    withdraw: bool = True
    """Stop predicting as soon as a request is accepted, until the model has forgotten."""
    coalesce: float = 1.0
    """Seconds to wait for further requests and uploads before re-training."""
    deadline: float = 30.0
    """Days within which a request must be settled."""
    signed: bool = True
    """Accept requests to forget, shards and withdrawals only if they are signed with the key that the client
    registered when it joined."""
    requests: int = 20
    """Requests to forget that a client may make in a day."""
    rate: float = 50.0
    """Calls a second that a client may make on average; pieces of uploads count like any other."""
    burst: int = 200
    """Calls that a client may make in a burst."""
    connections: int = 400
    """Simultaneous connections; fewer if the process may not open that many files."""
    connections_each: int = 32
    """Simultaneous connections with one certificate."""
    handshakes: int = 128
    """Simultaneous connections with an unfinished TLS handshake. Beyond that, the oldest ones of the address with the
    most are dropped."""
    handshake: float = 10.0
    """Seconds that a TLS handshake may take."""
    largest: int = 64 << 30
    """The largest shard, in bytes."""
    shard_rows: int = 10_000_000
    """The largest number of rows of one client. Training keeps their order in memory, however small a row is."""
    rows: int = 4096
    """The largest number of rows in one prediction."""
    queued: int = 16
    """Predictions that a client may have waiting, besides the two that are being received or computed."""
    unfinished: int = 2
    """Uploads that a client may have unfinished at a time."""
    outputs: int = 4096
    """The largest number of outputs of the model: labels over all clients, or codes if labels are hidden."""
    labels: int = 1024
    """The largest number of labels of one client."""
    label_length: int = 200
    """The largest number of characters in a label, including its task."""
    shards: int = 3
    """Shards that a client may send while others wait for the model: each makes training start over. If one more shard
    answers a request, the previous one is erased immediately, and the new one is accepted when the model is trained."""
    uploads: int = 200
    """Shards that a client may send in a day, besides those that answer a request: each stays in the ledger."""
    largest_value: float = 65504.0
    """The largest absolute value of an activation. The default is float16's range, far beyond what networks produce on
    scaled inputs; larger values make training fail."""
    reserve: float = 0.05
    """The fraction of the store's disk that uploads leave free, so that forgetting always has room. A shard that
    answers a request, and is not larger than the one it replaces, may take up to half of what is then free."""
    lapse: float = 4.0
    """Hours after which a client's shard is erased if the client asked to forget and then sent nothing more. This
    settles its requests; it can send its surviving rows later, and its later requests withdraw the model only once they
    are followed up."""
    patience: float = 24.0
    """Hours after which an unfinished upload, or a negotiation about labels without activity, is erased."""

    def __post_init__(self) -> None:
        typed(self)
        choice(self, "identity", IDENTITIES)
        check_parts(self)
        bounded(self, "port", 0, high=65535)
        for name in ("coalesce", "rate"):
            bounded(self, name, 0, strict=name == "rate", high=1e6)
        for name in ("deadline", "patience", "lapse", "handshake"):
            bounded(self, name, 0, strict=True, high=1e4)
        for name in ("requests", "burst", "largest", "shard_rows", "rows", "queued", "unfinished", "shards", "uploads"):
            bounded(self, name, 1, high=1 << 50)
        for name in ("connections", "connections_each", "handshakes", "outputs", "labels", "ranks"):
            bounded(self, name, 1, high=1 << 20)
        bounded(self, "label_length", 1, high=2000)
        bounded(self, "largest_value", 0, strict=True, high=LARGEST)
        bounded(self, "reserve", 0, high=1)
        if self.identity == "tokens" and not self.behind_proxy and not is_loopback(self.host):
            raise ConfigError(
                f"identity = 'tokens' with host = {self.host!r}: tokens would cross the network in plain HTTP. Listen "
                "on 127.0.0.1 next to the proxy that terminates TLS, or set behind_proxy = true where only that proxy "
                "can reach this address."
            )

    @property
    def limits(self) -> ShardLimits:
        """The limits that shards must keep."""
        return ShardLimits(
            self.largest_value, self.outputs, self.labels, self.label_length, self.shards, self.shard_rows
        )
