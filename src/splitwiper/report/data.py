"""The data of a report: plain frozen values, filled in by the caller that ran the federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from splitwiper.checks import Verification
from splitwiper.federation.status import Remains
from splitwiper.wire import Spent
from splitwiper.wire.messages import Level


@dataclass(frozen=True)
class ReportedRequest:
    """The request: who wants to forget what; ``rows`` is the number of rows."""

    client: str
    level: Level
    labels: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Accuracy:
    """Test accuracies between 0 and 1; NaN means not measured, a missing label has no output."""

    forgotten: float
    retained: float
    per_label: Mapping[str, float]


@dataclass(frozen=True)
class ReportedClient:
    """One client: its rows, row counts per label before the request, and its costs."""

    name: str
    rows_before: int
    rows_after: int
    labels_before: Mapping[str, int]
    learn: Spent
    unlearn: Spent
    requester: bool = False


@dataclass(frozen=True)
class ReportedServer:
    """The server's time, and its training loss per epoch at learning and at unlearning."""

    learn_seconds: float
    unlearn_seconds: float
    epochs: int
    loss_before: tuple[float, ...] = ()
    loss_after: tuple[float, ...] = ()


@dataclass(frozen=True)
class ReportData:
    """Everything the report shows. Mappings are shown in the order they are given."""

    title: str
    subtitle: str
    created: str
    """ISO 8601 time."""
    versions: Mapping[str, str]
    seed: int
    dataset: str
    client_names: tuple[str, ...]
    request: ReportedRequest
    before: Accuracy
    after: Accuracy
    clients: tuple[ReportedClient, ...]
    server: ReportedServer
    verification: Verification
    halves_text: str = ""
    """Preformatted preview of the cut."""
    receipt: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    remains: tuple[Remains, ...] = ()
    run: str = ""
    """The run's folder."""

    @property
    def requester(self) -> ReportedClient | None:
        """The client that made the request, if its costs are known."""
        return next((client for client in self.clients if client.requester), None)

    @property
    def others(self) -> tuple[ReportedClient, ...]:
        """All clients that did not make the request."""
        return tuple(client for client in self.clients if not client.requester)

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label mentioned anywhere, in order of first mention."""
        held = chain.from_iterable(client.labels_before for client in self.clients)
        return tuple(dict.fromkeys(chain(self.before.per_label, self.after.per_label, held)))

    @property
    def asked_labels(self) -> tuple[str, ...]:
        """The labels that the request concerns; for a whole client, every label it held."""
        if self.request.level == "client" and not self.request.labels and self.requester is not None:
            return tuple(name for name, rows in self.requester.labels_before.items() if rows)
        return self.request.labels

    def keepers(self, label: str) -> tuple[str, ...]:
        """Return the other clients that hold rows of ``label``."""
        return tuple(client.name for client in self.others if client.labels_before.get(label, 0) > 0)
