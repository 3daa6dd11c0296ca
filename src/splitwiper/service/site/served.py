"""Which model answers: every answer comes with a commitment, and the site checks that the server keeps it.

A server could have one model certified and answer with another. So the site compares an answer's commitment with the
one that it accepted last. If it is new, and at random also if it is not, the site downloads the server half, which must
open the commitment, be in the ledger, and reproduce the answer for a random row. The copy is never stored. Numerics
differ between machines, so outputs need only be close.

With every head the server signs which model is the ledger's newest; that model must answer. Only an auditor, who reads
all entries, can see whether that claim is true. A site sees besides that the server never goes back: a model must come
later in the ledger than the one accepted last, and later than every request of this site that a certificate says is
settled.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from splitwiper.errors import MismatchError, NotFoundError
from splitwiper.numerics import reproducible
from splitwiper.seeding import state_digest
from splitwiper.service.certificate.log import TreeHead, shows
from splitwiper.service.site.notary import Notary
from splitwiper.splitting import ServerHalf
from splitwiper.store import ClientStore
from splitwiper.training.cache import to_device
from splitwiper.wire import Column, ModelCopy, Scores
from splitwiper.wire.codecs import is_fitted, unpack
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


class ModelWatch:
    """Checks that a server answers with the model that it commits to.

    Args:
        source: the server.
        store: the site's store, which remembers the model that was accepted last.
        pin: checks a ledger head against all pinned ones.
        half: the server half's architecture.
        columns: the columns that cross the cut.
        codec: the encoding of activations.
        share: the share of a known model's answers that are checked all the same.
    """

    def __init__(
        self,
        source: Notary,
        store: ClientStore,
        pin: Callable[[TreeHead], None],
        half: ServerHalf,
        columns: Sequence[Column],
        *,
        codec: str,
        share: float,
    ) -> None:
        self._source, self._store, self._pin, self._half = source, store, pin, half
        self._columns, self._codec, self._share = columns, codec, share
        self.unchecked = ""
        """Why answers could not be checked against the model; empty if they could."""
        self.checked = 0
        """The number of answers checked."""

    # --- what the site remembers: commitments to models ----------------------------------------------------

    def _accepted(self) -> str:
        """Return the commitment to the model that was accepted last; empty if none was yet."""
        return self._store.database.meta("answering") or ""

    def _handed_out(self) -> str:
        """Return the commitment to the model that was downloaded last; empty if none was."""
        return self._store.database.meta("handed_out") or ""

    def certified(self, commitment: str, entry: int) -> None:
        """Accept the model in a valid certificate as the one that answers, unless a later one was accepted already.

        ``entry`` is the number of its ledger entry, or of the entry that settled the request.
        """
        if entry > self._last_entry():
            self._store.remember(answering=commitment, answering_since=str(entry))

    def _last_entry(self) -> int:
        """Return the number of the ledger entry that another model must come after; 0 if none was accepted yet."""
        return int(self._store.database.meta("answering_since") or 0)

    # --- answers -------------------------------------------------------------------------------------------

    def answered(self, boundary: Mapping[str, Tensor], ask: Ask) -> Scores:
        """Ask, and return the answer if it is from the model that the server commits to."""
        scores = self._newest(lambda: ask(boundary), lambda scores: scores.model)
        known = scores.model and scores.model == self._accepted()
        if known and secrets.randbelow(1_000_000) >= self._share * 1_000_000:
            return scores
        return self.compared(boundary, ask, scores)

    def compared(self, boundary: Mapping[str, Tensor], ask: Ask, scores: Scores | None = None) -> Scores:
        """Compare an answer with that of a downloaded half, on one random row, and return it.

        Raises:
            MismatchError: they differ, or the half is not the model that the server commits to.
        """
        for _ in range(_TRIES):  # another model may be published between an answer and the download
            if scores is None:
                scores = self._newest(lambda: ask(boundary), lambda scores: scores.model)
            if not scores.model:
                raise MismatchError(f"the server does not say with which model it answers. {_ADVICE}")
            try:
                copy = self.fetched()
            except NotFoundError as problem:
                if scores.model == self._handed_out():  # otherwise it could refuse whenever its answer is wrong
                    raise MismatchError(
                        "the server has handed this model out before, and refuses to now that its answer is to be "
                        f"checked ({str(problem).removesuffix('.')}). Ask its operator why; 'spot_check = 0' in this "
                        "site's site.toml goes on without checking."
                    ) from problem
                self.unchecked = str(problem).removesuffix(".")
                self._check_entry(scores.model)
                return scores
            if copy.commitment == scores.model:
                self._compare(copy, boundary, scores)
                self.checked += 1
                return scores
            scores = None  # another model was published in between: ask again
        raise MismatchError(
            f"the server hands out another model than the one that it says it answers with, {_TRIES} times in a row. "
            f"{_ADVICE}"
        )

    def _newest(self, ask: Callable[[], _T], commitment: Callable[[_T], str]) -> _T:
        """Return an answer from the model that the server signed as its newest; retry if one was just published."""
        for _ in range(_TRIES):
            answer = ask()
            if self._source.newest_model() in ("", commitment(answer)):
                return answer
        raise MismatchError(f"the server answers with a model that is not the newest of its ledger. {_ADVICE}")

    def fetched(self) -> ModelCopy:
        """Fetch the model; it must open its commitment, and come after those accepted before in the ledger.

        Raises:
            MismatchError: it does not.
            NotFoundError: the server does not hand it out.
        """
        copy = self._newest(self._source.copy, lambda copy: copy.commitment)
        if not is_opened(copy, copy.commitment):
            raise MismatchError(f"the model that the server hands out is not the one it commits to. {_ADVICE}")
        self._check_entry(copy.commitment)
        if copy.commitment != self._handed_out():
            self._store.remember(handed_out=copy.commitment)
        return copy

    def _check_entry(self, commitment: str) -> None:
        """Check that a model came later than the one accepted last, unless it is that one."""
        if commitment == self._accepted():
            return
        shown = self._source.model_entry()
        if not shows(shown) or shown["entry"].get("kind") != "model":
            raise MismatchError(f"the server cannot show its newest model in its ledger. {_ADVICE}")
        self._pin(TreeHead(int(shown["size"]), str(shown["root"])))
        if shown["entry"].get("model") != commitment:
            raise MismatchError(f"the server answers with a model that is not the newest of its ledger. {_ADVICE}")
        if (entry := int(shown["entry"]["seq"])) <= self._last_entry():
            raise MismatchError(f"the server answers with an older model than the one it must answer with. {_ADVICE}")
        self.certified(commitment, entry)

    def _compare(self, copy: ModelCopy, boundary: Mapping[str, Tensor], scores: Scores) -> None:
        row = secrets.randbelow(len(scores.logits))  # one that the server cannot foresee
        if scores.labels != copy.labels:
            raise MismatchError(f"the server's answer names other labels than its model has. {_ADVICE}")
        device = torch.device("cpu")
        half = self._half.loaded(copy.state).to(device)
        with reproducible(device, 1), torch.inference_mode():
            one = dict(boundary)
            for name, tensor in boundary.items():
                if not is_fitted(name):  # what the codec fitted applies to all rows
                    one[name] = tensor[row : row + 1]
            here = half.logits(unpack(to_device(one, device), self._columns, self._codec)).float().cpu()[0]
        there = scores.logits[row].float()
        margin = _MARGIN * (1.0 + float(here.abs().max()))
        # the server's best label must be (almost) the best here; if it sent logits, all of them must agree, too
        far = float(here.max() - here[int(there.argmax())]) > margin
        if far or (not scores.labels_only and not torch.allclose(here, there, rtol=0.0, atol=margin)):
            raise MismatchError(f"the server's answer is not that of the model it commits to. {_ADVICE}")


def is_opened(copy: ModelCopy, commitment: str) -> bool:
    """Return whether a copy of a model opens a commitment."""
    try:
        salt = bytes.fromhex(copy.salt)
    except ValueError:
        return False
    return bool(salt) and model_commitment(salt, state_digest(copy.state)) == commitment
