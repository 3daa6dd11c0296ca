"""The work of the demo, as the data of its report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

import splitwiper
from splitwiper import report
from splitwiper.data.digits import NAMES, dealt, digits
from splitwiper.federation import Evaluation, Federation, Learned
from splitwiper.federation.evaluate import total
from splitwiper.seeding import Stream
from splitwiper.store import ServerStore


def forget_class(
    federation: Federation, *, clients: tuple[str, ...], owner: str, name: str, seed: int
) -> report.ReportData:
    """Learn the digits, have ``owner`` forget the class only it holds, verify the receipt, and report everything."""
    training_rows, test_rows = digits()
    holders = _holders(clients, owner, name)
    test = dealt(test_rows, holders, stream=Stream(seed, "demo/test"))
    learned = federation.learn(dealt(training_rows, holders, stream=Stream(seed, "demo/train")))
    held = {client: Counter(map(str, federation.rows(client).values())) for client in clients}
    before = federation.evaluate(test)
    receipt = federation.unlearn(owner, classes=[name])  # from here on, `spent` is what this took
    reported = _reported_clients(federation, held, learned, owner)
    after = federation.evaluate(test)
    model = ServerStore(federation.path / "server").model()
    rows = sum(counts.total() for counts in held.values())
    versions = {
        "splitwiper": splitwiper.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    server = report.ReportedServer(
        learn_seconds=learned.server_seconds,
        unlearn_seconds=receipt.server_seconds,
        epochs=federation.config.server.epochs,
        loss_before=learned.losses,
        loss_after=model.losses if model else (),
    )
    return report.ReportData(
        title="Unlearning report",
        subtitle=f"{len(clients)} clients, one shared model, one request to forget",
        created=receipt.settled,
        versions=versions,
        seed=seed,
        dataset=f"scikit-learn's handwritten digits, 8 × 8 pixels: {rows:,} training images",
        client_names=clients,
        request=report.ReportedRequest(owner, receipt.level, (name,), held[owner][name]),
        before=_accuracy(before, name),
        after=_accuracy(after, name),
        clients=reported,
        server=server,
        verification=federation.verify(receipt),
        halves_text=str(federation.halves),
        receipt=receipt.to_dict(),
        fingerprint=receipt.fingerprint["server"],
        remains=federation.status().remains,
        run=str(federation.path),
    )


def _reported_clients(
    federation: Federation, held: Mapping[str, Counter[str]], learned: Learned, owner: str
) -> tuple[report.ReportedClient, ...]:
    """Return what each client held before, by label, and what learning and unlearning cost it."""
    reported = []
    for name, counts in held.items():
        reported.append(
            report.ReportedClient(
                name=name,
                rows_before=counts.total(),
                rows_after=len(federation.rows(name)),
                labels_before={digit: counts[digit] for digit in NAMES if digit in counts},
                learn=learned.spent[name],
                unlearn=federation.spent[name],
                requester=name == owner,
            )
        )
    return tuple(reported)


def _holders(clients: Sequence[str], owner: str, name: str) -> dict[str, list[str]]:
    """Return who holds which digit: two clients hold each, and only its owner the one to be forgotten."""
    holders: dict[str, list[str]] = {}
    for number, digit in enumerate(NAMES):
        holders[digit] = [clients[number % len(clients)], clients[(number + 1) % len(clients)]]
    return {**holders, name: [owner]}


def _accuracy(evaluation: Evaluation, name: str) -> report.Accuracy:
    scores = {str(label.name): score for label, score in evaluation.per_label.items()}
    forgotten = scores[name].accuracy
    per_label = {digit: scores[digit].accuracy for digit in NAMES if digit in scores}
    del scores[name]
    return report.Accuracy(forgotten, retained=total(scores.values()).accuracy, per_label=per_label)
