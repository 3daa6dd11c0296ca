"""What ways to unlearn in split learning have in common: settings, who must take part, and what is left."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from splitwiper.baselines.framework import Trained
from splitwiper.baselines.network import Network
from splitwiper.baselines.problem import Forgetting
from splitwiper.baselines.schedules import Portion
from splitwiper.baselines.training import Work
from splitwiper.config import Recipe
from splitwiper.config.settings import bounded
from splitwiper.errors import AbsentClientError, ConfigError
from splitwiper.loop import OnEpoch


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to unlearn that does not isolate clients from each other."""

    name: ClassVar[str]
    exact: ClassVar[bool] = False

    @property
    def told(self) -> str:
        """Its name, with settings that are not its own: two of a kind can be told apart."""
        given = [
            f"{f.name} {getattr(self, f.name):g}"
            for f in dataclasses.fields(self)
            if isinstance(getattr(self, f.name), int | float) and getattr(self, f.name) != f.default
        ]
        return f"{self.name} ({', '.join(given)})" if given else self.name

    def unlearn(
        self,
        trained: Trained,
        forgetting: Forgetting,
        *,
        present: Collection[str] | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> Trained:
        """Make a trained network forget.

        Args:
            trained: the network; it is not changed.
            forgetting: which rows of which client.
            present: the clients that can be reached; all unless given.
            on_epoch: told of progress.

        Raises:
            AbsentClientError: a client that must take part is not there. Nothing was done.
        """
        needed = self.needs(trained, forgetting)
        away = [name for name in needed if present is not None and name not in present]
        if away:
            names = ", ".join(map(repr, away))
            raise AbsentClientError(
                f"{self.name} on {trained.framework.name} needs {names}, not reachable now: rows of "
                f"{len(needed)} clients must pass through the network again. Wait until all are back; SplitWiper's "
                f"unlearning needs {forgetting.client!r} alone."
            )
        return self._unlearned(trained, forgetting, on_epoch)

    @abstractmethod
    def needs(self, trained: Trained, forgetting: Forgetting) -> tuple[str, ...]:
        """The clients that must take part."""

    @abstractmethod
    def _unlearned(self, trained: Trained, forgetting: Forgetting, on_epoch: OnEpoch | None) -> Trained: ...


@dataclass(frozen=True, kw_only=True)
class Adjusting(Method):
    """A way that goes on from the trained weights. The output of a label that nobody holds any more stays.

    Attributes:
        epochs: over the rows it looks at.
        lr: the highest learning rate; 0 takes a tenth of the recipe's.
    """

    epochs: int = 5
    lr: float = 0.0

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.type in ("int", "float") and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ConfigError(f"{f.name} = {value!r} of {self.name} must be a number.")
            if f.type == "int" and not isinstance(value, int):
                raise ConfigError(f"{f.name} = {value!r} of {self.name} must be a whole number.")
        bounded(self, "epochs", 1, high=10**6)
        bounded(self, "lr", 0, high=1e38)

    def recipe(self, trained: Trained) -> Recipe:
        """The recipe the network was trained with, more gently."""
        recipe = trained.problem.config.server
        return dataclasses.replace(recipe, lr=self.lr or recipe.lr / 10, schedule="cosine")

    @abstractmethod
    def work(self, trained: Trained, forgetting: Forgetting, network: Network) -> Work:
        """What is to be done to a copy of the network."""

    def _unlearned(self, trained: Trained, forgetting: Forgetting, on_epoch: OnEpoch | None) -> Trained:
        left = trained.problem.without(forgetting)
        network = trained.network.copied()
        work = self.work(trained, forgetting, network)
        losses = work.run(self.epochs, on_epoch=on_epoch)
        return dataclasses.replace(
            trained,
            network=network if forgetting.client in left.clients else network.copied(without=forgetting.client),
            problem=left,
            spent=work.spent(),
            preparing={},
            server=work.server_cost(),
            took_part=self.needs(trained, forgetting),
            losses=losses,
            exact=False,
        )


def portions(trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
    """All rows of all clients, those to be forgotten apart."""
    found = {}
    for name, held in trained.problem.clients.items():
        gone = forgetting.gone if name == forgetting.client else np.zeros(len(held), bool)
        found[name] = Portion(np.flatnonzero(~gone), np.flatnonzero(gone))
    return found


def retained(trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
    """The rows that stay."""
    return {
        name: Portion(portion.kept, portion.gone[:0])
        for name, portion in portions(trained, forgetting).items()
        if len(portion.kept)
    }
