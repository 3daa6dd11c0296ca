"""Which model answers: every answer comes with a commitment, and this side checks that it is kept.

A server could have one model certified and answer with another. So the commitment that comes with an answer is compared
with the one this site accepted last; where it is new, and now and then where it is not, the server half is downloaded,
must open the commitment, must be in the ledger, and must give the answer for a random row. The copy is never stored.
Numerics differ between machines, so outputs need only be close.

Which model is the newest of the ledger, the server signs with every head: the one that answers must be that. Whether
the server told the truth there, only an auditor can see, who reads the others' entries. A site sees besides that the
server never goes back: a model must come later in the ledger than the one accepted last, and later than every request
of this site that a certificate says is settled.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from splitwiper.cache import to_device
from splitwiper.errors import MismatchError, NotFoundError
from splitwiper.numerics import reproducible
from splitwiper.seeding import state_digest
from splitwiper.service.certificate.log import Head, shows
from splitwiper.splitting import ServerHalf
from splitwiper.wire import Column, ModelCopy, Scores
from splitwiper.wire.codecs import is_range, unpack
from splitwiper.wire.commitments import model_commitment

Ask = Callable[[Mapping[str, Tensor]], Scores]
_T = TypeVar("_T")
_TRIES = 3
_MARGIN = 0.02
"""How far outputs may differ, as a share of the largest."""
_ADVICE = (
    "Do not rely on its answers. Keep this message, compare with other sites, and have an auditor recompute the model "
    "('splitwiper audit')."
)


class Source(Protocol):
    """Where copies of the model and proofs come from."""

    def copy(self) -> ModelCopy:
        """Fetch the server half."""
        ...

    def model_entry(self) -> dict[str, Any]:
        """The ledger's newest entry about a model, with its proof."""
        ...

    def newest_model(self) -> str:
        """What the signed head of the last answer names as the ledger's newest model; empty where nobody looks."""
        ...


class Memory(Protocol):
    """Where the model that was accepted last is remembered."""

    def accepted(self) -> str:
        """The commitment; empty where none was accepted yet."""
        ...

    def place(self) -> int:
        """The number of the ledger's entry that another model must come after; 0 where none was accepted yet."""
        ...

    def accept(self, commitment: str, place: int) -> None:
        """Remember both."""
        ...

    def handed_out(self) -> str:
        """The commitment to the model that was downloaded last; empty where none was."""
        ...

    def download(self, commitment: str) -> None:
        """Remember that it was downloaded."""
        ...


class ModelWatch:
    """Checks that a server answers with the model that it commits to.

    Args:
        source: the server.
        memory: what was accepted before.
        pin: checks a head of the ledger against all that were seen, and remembers it.
        half: the server half's architecture.
        columns: what crosses the cut.
        codec: how activations are written.
        share: of answers by a known model that are checked all the same.
    """

    def __init__(
        self,
        source: Source,
        memory: Memory,
        pin: Callable[[Head], None],
        half: ServerHalf,
        columns: Sequence[Column],
        *,
        codec: str,
        share: float,
    ) -> None:
        self._source, self._memory, self._pin, self._half = source, memory, pin, half
        self._columns, self._codec, self._share = columns, codec, share
        self.unchecked = ""
        """Why answers could not be checked against the model, where they could not."""
        self.checked = 0
        """How many answers were."""

    def answered(self, boundary: Mapping[str, Tensor], ask: Ask) -> Scores:
        """Ask, and return the answer if it is the model's that the server commits to.

        Raises:
            MismatchError: it is not.
        """
        scores = self._newest(lambda: ask(boundary), lambda scores: scores.model)
        known = scores.model and scores.model == self._memory.accepted()
        if known and secrets.randbelow(1_000_000) >= self._share * 1_000_000:
            return scores
        return self.compared(boundary, ask, scores)

    def compared(self, boundary: Mapping[str, Tensor], ask: Ask, scores: Scores | None = None) -> Scores:
        """Return an answer after comparing it with that of a downloaded half, on one random row.

        Raises:
            MismatchError: they differ, or the half is not the model that the server commits to.
        """
        for _ in range(_TRIES):
            scores = self._newest(lambda: ask(boundary), lambda scores: scores.model) if scores is None else scores
            if not scores.model:
                raise MismatchError(f"the server does not say with which model it answers. {_ADVICE}")
            try:
                copy = self.fetched()
            except NotFoundError as problem:
                if scores.model == self._memory.handed_out():  # or it could refuse whenever its answer is a lie
                    raise MismatchError(
                        "the server has handed this model out before, and refuses to now that its answer is to be "
                        f"checked ({str(problem).removesuffix('.')}). Ask its operator why; 'spot_check = 0' in this "
                        "site's home.toml goes on without checking."
                    ) from problem
                self.unchecked = str(problem).removesuffix(".")
                self._check_entry(scores.model)
                return scores
            if copy.commitment == scores.model:
                self._compare(copy, boundary, scores)
                self.checked += 1
                return scores
            scores = None  # another model was published in between: ask that one
        raise MismatchError(
            f"the server hands out another model than the one that it says it answers with, {_TRIES} times in a row. "
            f"{_ADVICE}"
        )

    def _newest(self, ask: Callable[[], _T], commitment: Callable[[_T], str]) -> _T:
        """Return an answer of the model that the server signed as its newest; a newer one may come out meanwhile."""
        for _ in range(_TRIES):
            answer = ask()
            if self._source.newest_model() in ("", commitment(answer)):
                return answer
        raise MismatchError(f"the server answers with a model that is not the newest of its ledger. {_ADVICE}")

    def fetched(self) -> ModelCopy:
        """Fetch the model; it must open its commitment, and be in the ledger after those accepted before.

        Raises:
            MismatchError: it is not.
            NotFoundError: the server does not hand it out.
        """
        copy = self._newest(self._source.copy, lambda copy: copy.commitment)
        if not is_opened(copy, copy.commitment):
            raise MismatchError(f"the model that the server hands out is not the one it commits to. {_ADVICE}")
        self._check_entry(copy.commitment)
        if copy.commitment != self._memory.handed_out():
            self._memory.download(copy.commitment)
        return copy

    def _check_entry(self, commitment: str) -> None:
        """See that a model came later than the one accepted last; that one need not be looked up again."""
        if commitment == self._memory.accepted():
            return
        told = self._source.model_entry()
        if not shows(told) or told["entry"].get("kind") != "model":
            raise MismatchError(f"the server cannot show its newest model in its ledger. {_ADVICE}")
        self._pin(Head(int(told["size"]), str(told["root"])))
        if told["entry"].get("model") != commitment:
            raise MismatchError(f"the server answers with a model that is not the newest of its ledger. {_ADVICE}")
        if (place := int(told["entry"]["seq"])) <= self._memory.place():
            raise MismatchError(f"the server answers with an older model than the one it must answer with. {_ADVICE}")
        self._memory.accept(commitment, place)

    def certified(self, commitment: str, place: int) -> None:
        """Take from a certificate that holds which model answers from now on, unless a later one was accepted already.

        Args:
            commitment: to the model that the request was settled with.
            place: the number of the ledger's entry that settled it.
        """
        if place > self._memory.place():
            self._memory.accept(commitment, place)

    def _compare(self, copy: ModelCopy, boundary: Mapping[str, Tensor], scores: Scores) -> None:
        row = secrets.randbelow(len(scores.logits))
        if scores.labels != copy.labels:
            raise MismatchError(f"the server's answer names other labels than its model has. {_ADVICE}")
        device = torch.device("cpu")
        half = self._half.loaded(copy.state).to(device)
        with reproducible(device, 1), torch.inference_mode():
            one = {name: t if is_range(name) else t[row : row + 1] for name, t in boundary.items()}
            here = half.logits(unpack(to_device(one, device), self._columns, self._codec)).float().cpu()[0]
        there = scores.logits[row].float()
        margin = _MARGIN * (1.0 + float(here.abs().max()))
        far = float(here.max() - here[int(there.argmax())]) > margin
        if far or (not scores.labels_only and not torch.allclose(here, there, rtol=0.0, atol=margin)):
            raise MismatchError(f"the server's answer is not that of the model it commits to. {_ADVICE}")


def is_opened(copy: ModelCopy, commitment: str) -> bool:
    """Whether a copy of a model opens a commitment."""
    try:
        salt = bytes.fromhex(copy.salt)
    except ValueError:
        return False
    return bool(salt) and model_commitment(salt, state_digest(copy.state)) == commitment
