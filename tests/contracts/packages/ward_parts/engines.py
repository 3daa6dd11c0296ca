"""An engine that trains in one other process, which is started for each training."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from torch import Tensor

from splitwiper.server.training import TrainedServerHalf, TrainingInputs, Warm, train
from splitwiper.training.loop import OnEpoch, OnState, OnStep


class OtherProcess:
    """Trains in a fresh process.

    Args:
        ranks: not used; there is one process.
        patience: seconds between looks.
    """

    def __init__(self, ranks: int, patience: float = 0.05) -> None:
        self._patience = patience

    def train(
        self,
        inputs: TrainingInputs,
        *,
        folder: Path,
        warm: Warm | None = None,
        on_epoch: OnEpoch | None = None,
        on_state: OnState | None = None,
        on_step: OnStep | None = None,
    ) -> TrainedServerHalf:
        """Train there; the states come with the result."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                # as bytes: torch would otherwise share tensors through a thread that stays in this process
                work = pool.submit(_trained, pickle.dumps((inputs, warm)), states=on_state is not None)
                while not work.done():
                    if on_step:
                        on_step()
                    try:
                        work.exception(self._patience)
                    except TimeoutError:
                        continue
                trained, states = pickle.loads(work.result())
            except BaseException:
                for process in pool._processes.values():
                    process.terminate()
                raise
        for done, state in states:
            if on_state:
                on_state(done, state)
        for epoch, loss in enumerate(trained.losses, start=1):
            if on_epoch:
                on_epoch(epoch, inputs.config.epochs, loss)
        return trained


def _trained(given: bytes, *, states: bool) -> bytes:
    inputs, warm = pickle.loads(given)
    kept: list[tuple[int, dict[str, Tensor]]] = []
    trained = train(inputs, warm=warm, on_state=(lambda *state: kept.append(state)) if states else None)
    return pickle.dumps((trained, kept))
