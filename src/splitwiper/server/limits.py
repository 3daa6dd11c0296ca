"""Limits on what a server accepts from one client, so that no client can stop the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splitwiper.errors import DataError
from splitwiper.store import ShardRecord
from splitwiper.wire import Shard, Statement
from splitwiper.wire.codecs import LARGEST


@dataclass(frozen=True)
class ShardLimits:
    """Bounds on shards. In one process, where clients have one owner, they are as wide as the format allows.

    Attributes:
        largest_value: the largest absolute value of an activation.
        outputs: outputs of the model: labels over all shards, or codes if labels are hidden.
        labels: labels of one client.
        label_length: characters of a label's task and name together.
        shard_rows: rows of one client: training keeps their order in memory, whatever a row's size.
        shards: how many shards one client may send while others wait for the model.
    """

    largest_value: float = LARGEST
    outputs: int = 1 << 20
    labels: int = 1 << 20
    label_length: int = 2000
    shards: int = 1 << 62
    shard_rows: int = 1 << 62

    def check_statement(self, client: str, statement: Statement) -> None:
        """Refuse more codes than the model may have outputs."""
        if statement.outputs > self.outputs:
            raise DataError(
                f"client {client!r} has a codebook of {statement.outputs} codes, and a model has at most "
                f"{self.outputs} outputs here: agree on fewer codes, or have the operator raise 'outputs'."
            )

    def check_rows(self, client: str, shard: Shard) -> None:
        """Refuse more rows than a client may have."""
        if shard.rows > self.shard_rows:
            raise DataError(
                f"client {client!r} has {shard.rows:,} rows, and {self.shard_rows:,} of one client are accepted here: "
                "leave some out, or have the operator raise 'shard_rows'."
            )

    def check_labels(self, client: str, shard: Shard, others: Sequence[ShardRecord]) -> None:
        """Refuse more labels than a client, or the federation with the others' shards, may have; and long names."""
        longest = max((len(label.task) + len(str(label.name)) for label in shard.labels), default=0)
        if longest > self.label_length:
            raise DataError(
                f"client {client!r} has a label of {longest} characters, and {self.label_length} are accepted "
                "here: shorten it, or have the operator raise 'label_length'."
            )
        if len(shard.labels) > self.labels:
            raise DataError(
                f"client {client!r} has {len(shard.labels)} labels, and {self.labels} of one client are accepted here: "
                "merge some, or have the operator raise 'labels'."
            )
        together = set(shard.labels).union(*(other.labels for other in others))
        if len(together) > self.outputs:
            raise DataError(
                f"with the {len(shard.labels)} labels of client {client!r} the federation would have "
                f"{len(together)}, and a model has at most {self.outputs} outputs here: merge some, "
                "or have the operator raise 'outputs'."
            )
