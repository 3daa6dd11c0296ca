"""The transcript of a training: it commits to the state after every epoch, so that single epochs can be recomputed.

The state after an epoch, optimiser included, is all that the next one depends on besides the training's inputs: order,
noise and learning rate are functions of the epoch's number. So anybody with the inputs and two consecutive states can
recompute the epoch between them, and recomputing a random few finds a forged one with the probability that `detection`
returns. The functions here need no server: an auditor calls them with the files received.

A net that keeps anything from one epoch to the next outside its parameters and buffers cannot be checked like this: its
epochs differ when recomputed alone, although nobody forged anything.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from splitwiper.certainty import reproduced
from splitwiper.checks import Check
from splitwiper.errors import DataError, InputError, TrainingError
from splitwiper.seeding import mac, state_digest
from splitwiper.server.training import TrainingInputs, first_state, train_epochs, weights_in
from splitwiper.store import merkle
from splitwiper.training.loop import Span


@dataclass(frozen=True)
class Transcript:
    """Digests of the state before the first epoch and after each, in hex.

    >>> Transcript(("aa", "bb")).epochs, Transcript(("aa", "bb")).root == Transcript(("bb", "aa")).root
    (1, False)
    """

    digests: tuple[str, ...]

    @property
    def epochs(self) -> int:
        """The number of epochs, M."""
        return len(self.digests) - 1

    @property
    def root(self) -> str:
        """The Merkle root over all digests, in hex; the model's ledger entry commits to it."""
        return merkle.root([merkle.leaf_hash(bytes.fromhex(value)) for value in self.digests]).hex()


def recompute_epoch(inputs: TrainingInputs, transcript: Transcript, epoch: int, before: Mapping[str, Tensor]) -> Check:
    """Recompute one epoch from the state before it, and compare with the digest of the state after it.

    Only the training's numerics give the same bits: compare fingerprints first, and compute with the same number of
    threads.

    Raises:
        InputError: there is no such epoch.
        BusyError: other threads keep the result from being certain.
    """
    failed = partial(Check, f"epoch {epoch}", "mismatch")
    if not 1 <= epoch <= transcript.epochs:
        raise InputError(f"there is no epoch {epoch}: the transcript has 1 to {transcript.epochs}.")
    if transcript.epochs != inputs.config.epochs:
        return failed(f"the transcript has {transcript.epochs} epochs, the settings say {inputs.config.epochs}")
    # whoever hands out the state must not choose it now: the transcript was committed to before
    if state_digest(before) != transcript.digests[epoch - 1]:
        return failed(f"the state after epoch {epoch - 1} is not the one in the transcript")
    try:
        span = Span(epoch - 1, epoch, before)
        expected = transcript.digests[epoch]
        after = reproduced(lambda: state_digest(train_epochs(inputs, span)), expected, f"epoch {epoch}")
    except (DataError, TrainingError, ArithmeticError) as problem:  # the state may be forged
        return failed(f"nobody can train from the state after epoch {epoch - 1}: {problem}")
    return _compared(epoch, after, expected, "the recomputed state")


def check_first(inputs: TrainingInputs, transcript: Transcript) -> Check:
    """Check that training started from the initial weights, an output for each label, and an empty optimiser."""
    return _compared(0, state_digest(first_state(inputs)), transcript.digests[0], "the state before the first epoch")


def check_end(inputs: TrainingInputs, transcript: Transcript, last: Mapping[str, Tensor], model: str) -> Check:
    """Check that the weights in the state after the last epoch are those of which ``model`` is the digest."""
    epoch = transcript.epochs
    failed = partial(Check, f"epoch {epoch}", "mismatch")
    if state_digest(last) != transcript.digests[epoch]:
        return failed(f"the state after epoch {epoch} is not the one in the transcript")
    try:
        weights = weights_in(inputs, last)
    except DataError as problem:
        return failed(f"the state after epoch {epoch} is no state of this half: {problem}")
    return _compared(epoch, state_digest(weights), model, "the model at the end of the training")


def _compared(epoch: int, recomputed: str, expected: str, what: str) -> Check:
    if recomputed != expected:
        return Check(f"epoch {epoch}", "mismatch", f"{what} differs")
    return Check(f"epoch {epoch}", "exact", f"{what} is equal, bit for bit")


def detection(epochs: int, sampled: int, forged: int = 1) -> float:
    """Return the probability that recomputing a random choice of epochs hits at least one forged epoch.

    ``sampled`` different epochs are recomputed, and ``forged`` ones do not follow from the state before them.

    >>> detection(30, 3), round(detection(30, 10, forged=5), 3), detection(30, 30)
    (0.1, 0.891, 1.0)
    """
    if not (epochs >= 1 and 0 <= sampled <= epochs and 0 <= forged <= epochs):
        raise InputError(f"of {epochs} epochs, {sampled} cannot be sampled and {forged} forged: give 0 to {epochs}.")
    # choices that miss every forged epoch are those of the honest ones only
    choices, missing = math.comb(epochs, sampled), math.comb(epochs - forged, sampled)
    return (choices - missing) / choices


def sample_epochs(epochs: int, count: int, seed: bytes | None = None) -> tuple[int, ...]:
    """Choose different epochs of 1 to ``epochs`` at random, in ascending order.

    A ``seed`` determines the choice; without one it comes from the operating system's generator. The audited party must
    not know it before the transcript is published.

    >>> sample_epochs(30, 3, seed=b"drawn after the model was published")
    (12, 15, 21)
    """
    if not 0 <= count <= epochs:
        raise InputError(f"{count} different epochs cannot be chosen from {epochs}: give a number up to {epochs}.")
    key = secrets.token_bytes(32) if seed is None else seed
    # epochs in the order of their HMACs are shuffled, by nothing but the seed
    shuffled = sorted(range(1, epochs + 1), key=lambda epoch: mac(key, "epoch", epoch))
    return tuple(sorted(shuffled[:count]))
