"""The trade-off of one way of hiding labels: its cost in accuracy and bytes, and what attacks still find."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.config import Masking, Noise
from splitwiper.federation import Federation
from splitwiper.federation.evaluate import apart
from splitwiper.privacy import paper
from splitwiper.progress import Progress
from splitwiper_lab.attacks import Evidence, ServerView, Truth, measure, snapshot, suite
from splitwiper_lab.attacks.generations import vanished_codes
from splitwiper_lab.attacks.suite import AS_SEEN, GUESS
from splitwiper_lab.sweeps import Cell
from splitwiper_lab.sweeps.cells import tradeoff_cell
from splitwiper_lab.workloads import Workload


@dataclass(frozen=True)
class Setting:
    """One way of hiding labels."""

    name: str
    masking: Masking = dataclasses.field(default_factory=Masking)
    noise: Noise = dataclasses.field(default_factory=Noise)


@dataclass(frozen=True)
class Point:
    """The results of one setting.

    Attributes:
        setting: the setting's name.
        accuracy: accuracy on all labels, each client on its own test rows.
        retained: accuracy after forgetting, on all other labels.
        forgotten: accuracy after forgetting, on the forgotten label.
        sent: bytes that clients sent to learn.
        rows: rows that the server holds, cover rows included.
        outputs: E, as the server sees it.
        number: how many attacks without side information find the right number of labels.
        vanished: the share of forgotten codes found by comparing generations.
        epsilon: ε of a row and of a value, after learning; None without noise.
        attacks: every result.
    """

    setting: str
    accuracy: float
    retained: float
    forgotten: float
    sent: int
    rows: int
    outputs: int
    number: int
    vanished: float | None
    epsilon: Mapping[str, float | None] | None
    attacks: Sequence[Mapping[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Point:
        """Create a point from the values of `to_dict`; unknown keys of other versions are ignored."""
        return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})

    def recovered(self, knows: str) -> float:
        """Return the best recovery by attacks that know nothing (""), at most Q ("Q"), or some rows too ("aux")."""
        fair = {"": ("",), "Q": ("", "Q"), "aux": ("", "Q", "aux")}[knows]
        best = 0.0
        for attack in self.attacks:
            if attack["knows"] in fair and attack["sample_recovery"] is not None:
                best = max(best, attack["sample_recovery"])  # an attack without an answer recovers nothing
        return best

    @property
    def recovery(self) -> float:
        """The rows recovered by the strongest attack without known rows."""
        return self.recovered("Q")


def settings(labels: int) -> tuple[Setting, ...]:
    """Return the settings to sweep, modes and strengths, for this number of labels."""
    three = Masking(mode="duplicate", gamma=3)
    many = [
        Setting("plain labels"),
        Setting("duplicate, γ = 1", Masking(mode="duplicate", gamma=1)),
        Setting("duplicate, γ = 2", Masking(mode="duplicate", gamma=2)),
        Setting("duplicate, γ = 3", three),
        Setting("duplicate, γ in 1…3", Masking(mode="duplicate", gamma=(1, 3))),
        Setting("partition, γ = 3", Masking(mode="partition", gamma=3)),
        Setting("subclass, γ = 3", Masking(mode="subclass", gamma=3)),
        Setting("subclass, γ = 5", Masking(mode="subclass", gamma=5)),
    ]
    for buckets, times in ((3, 2), (8, 4), (8, 2), (16, 4), (16, 2), (24, 1)):
        masking = Masking(mode="keyed", buckets=buckets, codes=times * labels)
        many.append(Setting(f"keyed, B = {buckets}, E = {times * labels}", masking))
    many.append(Setting("keyed, B = 8, cover", Masking(mode="keyed", buckets=8, cover=1.0, pad=1000)))
    for reading in ("A", "B"):  # the paper does not say how its ε is to be read
        noise = paper(reading, epsilon=0.2)
        many.append(Setting(f"duplicate, γ = 3, paper's ε = 0.2 read as {reading}", three, noise))
    for scale in (0.5, 2.0):
        noise = Noise(mechanism="laplace", epsilon=1 / scale, clip=1.0, reading="value", nonnegative=True)
        many.append(Setting(f"keyed, B = 8, Laplace {scale:g}", Masking(mode="keyed", buckets=8), noise))
    return tuple(many)


@dataclass(frozen=True)
class TradeoffMeasure:
    """Measures settings one after another, for `splitwiper_lab.sweeps.sweep`."""

    work: Workload
    settings: Mapping[Cell, Setting]
    device: str = "cpu"
    quick: bool = False
    progress: Progress | None = None

    def __call__(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Yield each cell with its point."""
        for number, cell in enumerate(cells):
            if self.progress:
                self.progress(cell.system, number, len(cells))
            with tempfile.TemporaryDirectory(prefix="splitwiper-") as folder:
                point = self._measured(self.settings[cell], Path(folder))
            yield cell, point.to_dict()

    def _measured(self, setting: Setting, folder: Path) -> Point:
        """Learn, attack, forget a class, and attack by comparing generations."""
        work = self.work
        client = dataclasses.replace(work.config.client, masking=setting.masking, noise=setting.noise)
        config = dataclasses.replace(work.config, client=client)
        federation = Federation(folder / "run", config=config, progress=self.progress)
        learned = federation.learn(work.train, tasks=work.tasks)
        before, truth = federation.evaluate(work.test), Truth.of(federation)
        view = ServerView.of(folder / "run" / "server", federation.halves)
        results = suite(view, truth=truth, device=self.device, quick=self.quick, progress=self.progress)
        epsilon = _epsilon(federation, work.owner)  # before forgetting, which spends more
        snapshot(folder / "run", folder / "before")  # what a server that erases nothing would have
        federation.unlearn(work.owner, classes=[work.forget])
        retained, forgotten = apart(federation.evaluate(work.test), work.forgotten)
        right_number = 0
        for result in results:
            is_attack = result.attack not in (AS_SEEN, GUESS)  # the others are what attacks are compared with
            if is_attack and not result.knows and result.labels_estimated is not None and not result.labels_error:
                right_number += 1
        return Point(
            setting=setting.name,
            accuracy=before.accuracy,
            retained=retained.accuracy,
            forgotten=forgotten.accuracy,
            sent=sum(spent.bytes_up for spent in learned.spent.values()),
            rows=sum(seen.shard.rows for seen in view.present),
            outputs=view.outputs,
            number=right_number,
            vanished=_vanished(federation, truth, folder),
            epsilon=epsilon,
            attacks=[result.to_dict() for result in results],
        )


def tradeoff_cells(about: Mapping[str, Any], chosen: Iterable[Setting]) -> dict[Cell, Setting]:
    """Return a cell for each setting of a trade-off."""
    return {tradeoff_cell(about, setting.name): setting for setting in chosen}


def in_table_order(points: Iterable[Point], listed: Sequence[Setting]) -> list[Point]:
    """Sort points in the order of the settings; others come after those."""
    place = {setting.name: number for number, setting in enumerate(listed)}
    return sorted(points, key=lambda point: place.get(point.setting, len(place)))


def _vanished(federation: Federation, before: Truth, folder: Path) -> float | None:
    """Return the share of the forgotten label's codes found by a server that kept what it should have erased."""
    view = ServerView.of(folder / "run" / "server", federation.halves, [folder / "before"])
    truth = Truth.of(federation).joined(before)
    finding = next(iter(vanished_codes(Evidence(view, quick=True))), None)
    return None if finding is None else measure(finding, truth, view).scores.get("codes_recall")


def _epsilon(federation: Federation, client: str) -> dict[str, float | None] | None:
    if not federation.config.client.noise.is_on:
        return None
    spent = federation.privacy(client)
    return {"row": spent.row.at_delta, "value": spent.value.at_delta}
