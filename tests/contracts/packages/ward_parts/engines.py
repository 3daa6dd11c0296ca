"""An engine for a machine that several servers share: one training at a time."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

from splitwiper.errors import BusyError
from splitwiper.server.training import TrainedServerHalf, TrainingCalls, TrainingInputs, train
from splitwiper.store import files


class InTurns:
    """Trains in this process once no other process trains.

    Args:
        ranks: not used; there is one process.
        turn: the folder that is locked meanwhile.
    """

    def __init__(self, ranks: int, turn: str) -> None:
        self._turn = Path(turn)

    def train(self, inputs: TrainingInputs, folder: Path, **calls: Unpack[TrainingCalls]) -> TrainedServerHalf:
        """Wait for the turn, and train."""
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(files.locked(self._turn, busy="another training"))
                    break
                except BusyError:
                    if on_step := calls.get("on_step"):
                        on_step()
                    time.sleep(0.05)
            return train(inputs, **calls)
