"""What unlearning methods for split learning share: settings, required clients, and the remaining network."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from splitwiper.config.settings import bounded
from splitwiper.errors import AbsentClientError, ConfigError
from splitwiper.training.loop import OnEpoch
from splitwiper_lab.baselines.channel import Tap
from splitwiper_lab.baselines.framework import Trained
from splitwiper_lab.baselines.network import Network
from splitwiper_lab.baselines.party import LEARN, Objective, Teachers
from splitwiper_lab.baselines.problem import Forgetting
from splitwiper_lab.baselines.schedules import Portion
from splitwiper_lab.baselines.training import Work


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """An unlearning method that does not isolate clients from each other."""

    name: ClassVar[str]
    exact: ClassVar[bool] = False

    @property
    def told(self) -> str:
        """The method's name and its non-default settings, to distinguish two methods of a kind."""
        given = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and value != field.default:
                given.append(f"{field.name} {value:g}")
        return f"{self.name} ({', '.join(given)})" if given else self.name

    def unlearn(
        self,
        trained: Trained,
        forgetting: Forgetting,
        *,
        present: Collection[str] | None = None,
        on_epoch: OnEpoch | None = None,
        tap: Tap | None = None,
    ) -> Trained:
        """Return what a trained network becomes by forgetting rows; the network itself is not changed.

        The clients that can be reached are ``present``, by default all. A tap receives every message.

        Raises:
            RequestError: the request is not about these rows, or nothing would be left.
            AbsentClientError: a client that must take part cannot be reached. Nothing was changed.
        """
        trained.problem.without(forgetting)  # refuses a request that is not about these rows, before anything is done
        needed = self.needs(trained, forgetting)
        away = [] if present is None else sorted(set(needed).difference(present), key=needed.index)
        if away:
            names = ", ".join(map(repr, away))
            raise AbsentClientError(
                f"{self.name} on {trained.framework.name} needs {names}, not reachable now: rows of "
                f"{len(needed)} clients must pass through the network again. Wait until all are back; SplitWiper's "
                f"unlearning needs {forgetting.client!r} alone."
            )
        return self._unlearned(trained, forgetting, on_epoch, tap)

    @abstractmethod
    def needs(self, trained: Trained, forgetting: Forgetting) -> tuple[str, ...]:
        """Return the clients that must take part."""

    @abstractmethod
    def _unlearned(
        self, trained: Trained, forgetting: Forgetting, on_epoch: OnEpoch | None, tap: Tap | None
    ) -> Trained: ...


@dataclass(frozen=True, kw_only=True)
class Adjusting(Method):
    """A method that starts from the trained weights. It keeps the output of a label that no client holds any more.

    Attributes:
        epochs: over the rows it looks at.
        lr: the highest learning rate; 0 takes a tenth of the recipe's.
    """

    epochs: int = 5
    lr: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int):
            raise ConfigError(f"epochs = {self.epochs!r} of {self.name} must be a whole number.")
        bounded(self, "epochs", 1, high=10**6)
        bounded(self, "lr", 0, high=1e38)

    def portions(self, trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
        """Return the rows to train on, by default all rows of all clients, with rows to forget listed separately."""
        return everything(trained, forgetting)

    def objective(self, chosen: Mapping[str, Portion]) -> Objective:
        """Return the training objective for these rows."""
        return LEARN

    def teachers(self, trained: Trained, student: Network) -> Teachers | None:
        """Return the networks whose outputs the objective uses."""
        return None

    def needs(self, trained: Trained, forgetting: Forgetting) -> tuple[str, ...]:
        """Return the clients whose rows the method trains on."""
        return tuple(self.portions(trained, forgetting))

    def _unlearned(
        self, trained: Trained, forgetting: Forgetting, on_epoch: OnEpoch | None, tap: Tap | None
    ) -> Trained:
        left, chosen = trained.problem.without(forgetting), self.portions(trained, forgetting)
        network, recipe = trained.network.copied(), trained.problem.config.server
        starts = dict(trained.starts)
        starts.pop(forgetting.client, None)  # it was pre-trained on the rows to forget, so nothing may begin from it
        work = Work(
            trained.framework,
            trained.problem,
            network,
            chosen,
            purpose=self.name,
            recipe=dataclasses.replace(recipe, lr=self.lr or recipe.lr / 10, schedule="cosine"),
            objective=self.objective(chosen),
            teachers=self.teachers(trained, network),
            tap=tap,
        )
        losses = work.run(self.epochs, on_epoch=on_epoch)
        return dataclasses.replace(
            trained,
            network=network if forgetting.client in left.clients else network.copied(without=forgetting.client),
            problem=left,
            starts=starts,
            spent=work.spent(),
            preparing={},
            server=work.server_cost(),
            took_part=tuple(chosen),
            losses=losses,
            exact=False,
        )


def everything(trained: Trained, forgetting: Forgetting) -> dict[str, Portion]:
    """Return all rows of all clients, with rows to forget listed separately."""
    portions = {}
    for name, held in trained.problem.clients.items():
        gone = forgetting.gone if name == forgetting.client else np.zeros(len(held), bool)
        portions[name] = Portion(np.flatnonzero(~gone), np.flatnonzero(gone))
    return portions


def balanced(chosen: Mapping[str, Portion], *, kept: float, gone: float) -> tuple[float, float]:
    """Return the weights of a row that stays and of one to forget, so that the mean is kept · L_r + gone · L_u.

    They are the same in every batch and at every client, so the objective does not depend on how rows are divided.
    """
    stay = go = 0
    for portion in chosen.values():
        stay += len(portion.kept)
        go += len(portion.gone)
    # a mean over a batch holds both kinds of rows; a row weighs n / n_kind, so that its kind's mean counts as a whole
    return kept * (stay + go) / max(stay, 1), gone * (stay + go) / max(go, 1)
