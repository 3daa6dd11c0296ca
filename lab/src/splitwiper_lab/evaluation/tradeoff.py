"""The trade-off of one way of hiding labels: its cost in accuracy and bytes, and what attacks still find."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitwiper.config import Config, Masking, Noise
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
        told = ("", "Q", "aux")[: ("", "Q", "aux").index(knows) + 1]
        found = [a["sample_recovery"] for a in self.attacks if a["knows"] in told]
        return max((value for value in found if value is not None), default=0.0)

    @property
    def recovery(self) -> float:
        """The rows recovered by the strongest attack without known rows."""
        return self.recovered("Q")


def settings(labels: int) -> tuple[Setting, ...]:
    """Return the settings to sweep, modes and strengths, for this number of labels."""
    many = [Setting("plain labels")]
    for gamma in (1, 2, 3):
        many.append(Setting(f"duplicate, γ = {gamma}", Masking(mode="duplicate", gamma=gamma)))
    many.append(Setting("duplicate, γ in 1…3", Masking(mode="duplicate", gamma=(1, 3))))
    many.append(Setting("partition, γ = 3", Masking(mode="partition", gamma=3)))
    for gamma in (3, 5):
        many.append(Setting(f"subclass, γ = {gamma}", Masking(mode="subclass", gamma=gamma)))
    for buckets, times in ((3, 2), (8, 4), (8, 2), (16, 4), (16, 2), (24, 1)):
        masking = Masking(mode="keyed", buckets=buckets, codes=times * labels)
        many.append(Setting(f"keyed, B = {buckets}, E = {times * labels}", masking))
    many.append(Setting("keyed, B = 8, cover", Masking(mode="keyed", buckets=8, cover=1.0, pad=1000)))
    three = Masking(mode="duplicate", gamma=3)
    for reading in ("A", "B"):  # the paper does not say how its ε is to be read
        noise = paper(reading, epsilon=0.2)
        many.append(Setting(f"duplicate, γ = 3, paper's ε = 0.2 read as {reading}", three, noise))
    for scale in (0.5, 2.0):
        noise = Noise(mechanism="laplace", epsilon=1 / scale, clip=1.0, reading="value", nonnegative=True)
        many.append(Setting(f"keyed, B = 8, Laplace {scale:g}", Masking(mode="keyed", buckets=8), noise))
    return tuple(many)


@dataclass(frozen=True)
class TradeoffMeasure:
    """Measures settings one after another, for `splitwiper_lab.sweeps.sweep`.

    Attributes:
        work: data, network and settings.
        settings: the setting of each cell.
        device: the device that attacks compute on.
        quick: do less of everything.
        progress: called with the progress of long steps.
    """

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
                point = measured(
                    self.work,
                    self.settings[cell],
                    Path(folder) / "t",
                    device=self.device,
                    quick=self.quick,
                    progress=self.progress,
                )
            yield cell, point.to_dict()


def tradeoff_cells(about: Mapping[str, Any], chosen: Iterable[Setting]) -> dict[Cell, Setting]:
    """Return a cell for each setting of a trade-off."""
    return {tradeoff_cell(about, setting.name): setting for setting in chosen}


def in_table_order(points: Iterable[Point], listed: Sequence[Setting]) -> list[Point]:
    """Sort points in the order of the settings; others come after those."""
    place = {setting.name: number for number, setting in enumerate(listed)}
    return sorted(points, key=lambda point: place.get(point.setting, len(place)))


def measured(
    work: Workload,
    setting: Setting,
    folder: Path,
    *,
    device: str = "cpu",
    quick: bool = False,
    progress: Progress | None = None,
) -> Point:
    """Learn, attack, forget a class, and attack by comparing generations.

    Args:
        work: data, network and settings.
        setting: the way of hiding labels.
        folder: a folder for the run; it must not exist, and is removed afterwards.
        device: the device that attacks compute on.
        quick: do less of everything.
        progress: called with the progress of long steps.
    """
    try:
        client = dataclasses.replace(work.config.client, masking=setting.masking, noise=setting.noise)
        return _measured(
            work, dataclasses.replace(work.config, client=client), setting, folder, device, quick, progress
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    work: Workload,
    config: Config,
    setting: Setting,
    folder: Path,
    device: str,
    quick: bool,
    progress: Progress | None,
) -> Point:
    federation = Federation(folder / "run", config=config, progress=progress)
    learned = federation.learn(work.train, tasks=work.tasks)
    before, truth = federation.evaluate(work.test), Truth.of(federation)
    view = ServerView.of(folder / "run" / "server", federation.halves)
    attacks = suite(view, truth=truth, device=device, quick=quick, progress=progress)
    spent = _epsilon(federation, work.owner)
    snapshot(folder / "run", folder / "before")
    federation.unlearn(work.owner, classes=[work.forget])
    after = federation.evaluate(work.test)
    retained, forgotten = apart(after, work.forgotten)
    real = [r for r in attacks if r.attack not in (AS_SEEN, GUESS)]
    return Point(
        setting=setting.name,
        accuracy=before.accuracy,
        retained=retained.accuracy,
        forgotten=forgotten.accuracy,
        sent=sum(s.bytes_up for s in learned.spent.values()),
        rows=sum(seen.shard.rows for seen in view.present),
        outputs=view.outputs,
        number=sum(not r.knows and r.labels_estimated is not None and not r.labels_error for r in real),
        vanished=_vanished(federation, truth, folder),
        epsilon=spent,
        attacks=[r.to_dict() for r in attacks],
    )


def _vanished(federation: Federation, before: Truth, folder: Path) -> float | None:
    """Return the share of the forgotten label's codes found by a server that kept what it should have erased."""
    view = ServerView.of(folder / "run" / "server", federation.halves, [folder / "before"])
    truth = Truth.of(federation).joined(before)
    found = [measure(finding, truth, view) for finding in vanished_codes(Evidence(view, quick=True))]
    return found[0].scores.get("codes_recall") if found else None


def _epsilon(federation: Federation, client: str) -> dict[str, float | None] | None:
    if not federation.config.client.noise.is_on:
        return None
    spent = federation.privacy(client)
    return {"row": spent.row.at_delta, "value": spent.value.at_delta}
