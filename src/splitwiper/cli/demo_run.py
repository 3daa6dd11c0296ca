"""The work of the demo, as the data of its report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

import splitwiper
from splitwiper import report
from splitwiper.data.digits import NAMES, dealt, digits
from splitwiper.federation import Evaluation, Federation
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
    receipt = federation.unlearn(owner, classes=[name])
    spent = federation.spent
    after = federation.evaluate(test)
    model = ServerStore(federation.path / "server").model()
    reported = []
    for client in clients:
        one = report.ReportedClient(
            name=client,
            rows_before=held[client].total(),
            rows_after=len(federation.rows(client)),
            labels_before={word: held[client][word] for word in NAMES if held[client][word]},
            learn=learned.spent[client],
            unlearn=spent[client],
            requester=client == owner,
        )
        reported.append(one)
    rows = sum(one.rows_before for one in reported)
    return report.ReportData(
        title="Unlearning report",
        subtitle=f"{len(clients)} clients, one shared model, one request to forget",
        created=receipt.settled,
        versions={
            "splitwiper": splitwiper.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        seed=seed,
        dataset=f"scikit-learn's handwritten digits, 8 × 8 pixels: {rows:,} training images",
        client_names=clients,
        request=report.ReportedRequest(owner, receipt.level, (name,), held[owner][name]),
        before=_accuracy(before, name),
        after=_accuracy(after, name),
        clients=tuple(reported),
        server=report.ReportedServer(
            learn_seconds=learned.server_seconds,
            unlearn_seconds=receipt.server_seconds,
            epochs=federation.config.server.epochs,
            loss_before=learned.losses,
            loss_after=model.losses if model else (),
        ),
        verification=federation.verify(receipt),
        halves_text=str(federation.halves),
        receipt=receipt.to_dict(),
        fingerprint=receipt.fingerprint["server"],
        remains=federation.status().remains,
        run=str(federation.path),
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
