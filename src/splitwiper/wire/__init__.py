"""Everything that crosses between a client and the server: labels, shards, messages, and the link itself."""

from splitwiper.wire.columns import Column
from splitwiper.wire.labels import Label
from splitwiper.wire.link import Accepted, Link, ModelCopy, Posted, Scores, Standing, lock_of
from splitwiper.wire.messages import Receipt, Request, Spent, Statement, Ticket
from splitwiper.wire.shard import Shard, open_shard, write_shard

__all__ = [
    "Accepted",
    "Column",
    "Label",
    "Link",
    "ModelCopy",
    "Posted",
    "Receipt",
    "Request",
    "Scores",
    "Shard",
    "Spent",
    "Standing",
    "Statement",
    "Ticket",
    "lock_of",
    "open_shard",
    "write_shard",
]
