"""The work of the demo, and its data for the report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import splitwiper
from splitwiper import report
from splitwiper.data.digits import NAMES, dealt, digits
from splitwiper.federation import Evaluation, Federation, Learned, Verification
from splitwiper.federation.evaluate import total
from splitwiper.seeding import Stream
from splitwiper.store import ServerStore, files
from splitwiper.wire import Receipt, Spent


@dataclass(frozen=True)
class DemoResult:
    """One class learned, forgotten and verified."""

    federation: Federation
    owner: str
    name: str
    seed: int
    held: Mapping[str, Mapping[str, int]]
    """Rows per label at each client, before."""
    rows_after: Mapping[str, int]
    learned: Learned
    unlearn: Mapping[str, Spent]
    before: report.Accuracy
    after: report.Accuracy
    receipt: Receipt
    verification: Verification
    losses: tuple[float, ...]
    """The server's losses in re-training."""

    @property
    def rows_before(self) -> dict[str, int]:
        """Rows at each client, before."""
        return {client: sum(labels.values()) for client, labels in self.held.items()}


def forget_class(federation: Federation, *, clients: tuple[str, ...], owner: str, name: str, seed: int) -> DemoResult:
    """Learn the digits, have ``owner`` forget the class only it holds, and verify the receipt."""
    training_rows, test_rows = digits()
    holders = _holders(clients, owner, name)
    train = dealt(training_rows, holders, stream=Stream(seed, "demo/train"))
    test = dealt(test_rows, holders, stream=Stream(seed, "demo/test"))
    learned = federation.learn(train)
    held = {client: Counter(map(str, federation.rows(client).values())) for client in clients}
    before = federation.evaluate(test)
    receipt = federation.unlearn(owner, classes=[name])
    spent = federation.spent
    after = federation.evaluate(test)
    model = ServerStore(federation.path / "server").model()
    return DemoResult(
        federation=federation,
        owner=owner,
        name=name,
        seed=seed,
        held={client: {word: held[client][word] for word in NAMES if held[client][word]} for client in clients},
        rows_after={client: len(federation.rows(client)) for client in clients},
        learned=learned,
        unlearn={client: spent[client] for client in clients},
        before=_accuracy(before, name),
        after=_accuracy(after, name),
        receipt=receipt,
        verification=federation.verify(receipt),
        losses=model.losses if model else (),
    )


def _holders(clients: Sequence[str], owner: str, name: str) -> dict[str, list[str]]:
    """Return who holds which digit: two clients hold each, and only its owner the one to be forgotten."""
    holders: dict[str, list[str]] = {}
    for place, digit in enumerate(NAMES):
        holders[digit] = [clients[place % len(clients)], clients[(place + 1) % len(clients)]]
    return {**holders, name: [owner]}


def _accuracy(found: Evaluation, name: str) -> report.Accuracy:
    scores = {str(label.name): score for label, score in found.per_label.items()}
    return report.Accuracy(
        forgotten=scores[name].accuracy,
        retained=total(score for label, score in scores.items() if label != name).accuracy,
        per_label={word: scores[word].accuracy for word in NAMES if word in scores},
    )


def write_report(path: Path, told: DemoResult) -> Path:
    """Write the report."""
    return report.write_report(
        path, _report_of(told), write=lambda where, text: files.write_bytes(where, text.encode())
    )


def _report_of(told: DemoResult) -> report.ReportData:
    receipt, fed = told.receipt, told.federation
    rows = sum(told.rows_before.values())
    clients = []
    for name, labels in told.held.items():
        client = report.ReportedClient(
            name=name,
            rows_before=told.rows_before[name],
            rows_after=told.rows_after[name],
            labels_before=labels,
            learn=told.learned.spent[name],
            unlearn=told.unlearn[name],
            requester=name == told.owner,
        )
        clients.append(client)
    return report.ReportData(
        title="Unlearning report",
        subtitle=f"{len(told.held)} clients, one shared model, one request to forget",
        created=receipt.settled,
        versions={
            "splitwiper": splitwiper.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        seed=told.seed,
        dataset=f"scikit-learn's handwritten digits, 8 × 8 pixels: {rows:,} training images",
        client_names=tuple(told.held),
        request=report.ReportedRequest(told.owner, receipt.level, (told.name,), told.held[told.owner][told.name]),
        before=told.before,
        after=told.after,
        clients=tuple(clients),
        server=report.ReportedServer(
            learn_seconds=told.learned.server_seconds,
            unlearn_seconds=receipt.server_seconds,
            epochs=fed.config.server.epochs,
            loss_before=told.learned.losses,
            loss_after=told.losses,
        ),
        verification=told.verification,
        halves_text=str(fed.halves),
        receipt=receipt.to_dict(),
        fingerprint=receipt.fingerprint["server"],
        remains=fed.status().remains,
        run=str(fed.path),
    )
