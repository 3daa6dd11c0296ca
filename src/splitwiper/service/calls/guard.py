"""Holding the server to its ledger: every answer's signed head is checked before the answer is used.

A head must be signed by a server key in good standing, belong to this federation, and continue the newest head that
the site has pinned. It is then pinned. A server that shows anything else is sent nothing more.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import httpx

from splitwiper.errors import ForkError, FormatError, IdentityError, RestoredError, SplitWiperError, UnreachableError
from splitwiper.service.calls.server_keys import Ask, ServerKeys
from splitwiper.service.certificate import Keys, Pins, SignedHead, TreeHead
from splitwiper.service.certificate.heads import (
    HEAD_HEADER,
    PROOF_HEADER,
    SIZE_HEADER,
    proof_from_header,
    write_evidence,
)
from splitwiper.service.certificate.log import follows
from splitwiper.service.certificate.pins import ADVICE
from splitwiper.service.certificate.restoring import Restored, read_restored


class LedgerGuard:
    """Checks the ledger heads that a server shows.

    Args:
        folder: the client's folder in the site, or the auditor's.
        federation: the id of the store that the site has joined.
        site: the site's or auditor's folder, for messages and evidence.
        restored: the advice in messages if the server was restored from a backup; by default, that for a site.
    """

    def __init__(self, folder: Path, federation: str, site: Path, *, restored: str = "") -> None:
        self.pins = Pins(folder / "heads")
        self.server_keys = ServerKeys(folder / "server-keys")
        self.federation, self.site = federation, site
        self._remedy = restored or (
            f"Nothing more is sent to it until you accept that: splitwiper accept-restore {site}. This site then asks "
            "again for everything it had asked for."
        )
        self.met = False
        """Whether the last answer was checked and its head pinned; required before anything is sent."""
        self.model = ""
        """The commitment to the ledger's newest model, according to the head of the last answer."""
        self._last = ("", TreeHead(0, ""))

    def refresh(self, ask: Ask) -> Keys:
        """Fetch the signing keys' statements since the last time, and return the keys as they now stand."""
        self._last = ("", TreeHead(0, ""))
        return self.server_keys.refresh(ask)

    def before(self) -> tuple[TreeHead | None, dict[str, str]]:
        """Return the newest pinned head, and the headers that ask the server to prove that it continues that head."""
        newest = self.pins.newest()
        return newest, {SIZE_HEADER: str(newest.size)} if newest else {}

    def check(self, answer: httpx.Response, newest: TreeHead | None, ask: Ask) -> None:
        """Check the head in an answer, of which nothing has been used yet, and pin it.

        Args:
            answer: the answer.
            newest: the newest pinned head when the call was made.
            ask: fetches proofs and keys.

        Raises:
            ForkError: the head is missing or not the server's, or the ledger does not continue the pinned one.
            RestoredError: likewise, but because the operator restored a backup and put that on record.
            UnreachableError: something between site and server answered, or the server fails.
        """
        self.met = False
        text = answer.headers.get(HEAD_HEADER)
        if text is None:
            self._missing(answer)
        # the same head as in the last answer, with the same pin: nothing to verify, and no signature to check again
        if (text, newest) == self._last:
            self.met = True
            return
        try:
            shown = SignedHead.from_header(text)
        except FormatError as problem:
            raise ForkError(f"what the server shows as its ledger's head cannot be read: {problem}") from problem
        self.signed(shown, ask)
        if newest is not None and shown.head != newest:
            self._continues(newest, shown, answer, ask)
        if shown.head == newest:
            self._same_model(shown)
        else:
            # pinned before the answer is used: a crash in between must not let the server take this head back
            self.pins.keep(shown.head, shown)
            self._compare_with_others(newest, shown, ask)
        self._last, self.met, self.model = (text, shown.head), True, shown.model

    def _missing(self, answer: httpx.Response) -> NoReturn:
        if answer.status_code == 401:  # the server shows no head to callers that it does not know
            raise IdentityError(_message(answer))
        if answer.status_code >= 500:
            raise UnreachableError(
                f"{answer.url.host} answered {answer.status_code} without the head of its ledger: the server fails, or "
                "something else answers for it. The same call may be made again."
            )
        raise ForkError(
            f"the answer to {answer.request.method} {answer.url.path} came without the signed head of the server's "
            "ledger, so nothing in it is used. Ask the operator whether something between you and the server removes "
            "the header Ledger-Head."
        )

    def signed(self, shown: SignedHead, ask: Ask) -> SignedHead:
        """Return a head if a server key in good standing signed it for this federation; raise `ForkError` otherwise."""
        keys = self.server_keys.read()
        # the server may have rotated its key since: its statements show whether the new one follows from a known one
        if not (counts := keys.signed(shown.envelope)):
            keys = self.server_keys.refresh(ask)
            counts = keys.signed(shown.envelope)
        if shown.federation != self.federation:
            raise ForkError(
                f"the server shows the ledger of another federation ({shown.federation[:40]!r}, and {self.site} is "
                f"for {self.federation!r}): check the address of the server."
            )
        if not counts:
            by = keys.doubtful(shown.envelope, 0)
            why = f"by a key that was {by}" if by else "by no key that this site knows, or that those it knows signed"
            raise ForkError(f"the head of the server's ledger is signed {why}: nothing of the answer is used. {ADVICE}")
        return shown

    def _continues(self, newest: TreeHead, shown: SignedHead, answer: httpx.Response, ask: Ask) -> None:
        """Require the ledger shown to continue the pinned one."""
        if shown.head.size < newest.size:
            why = f"the server's ledger was rolled back: it has {shown.head}, and had {newest} when that was pinned."
            self.contradiction(newest, shown, why, ask)
        proof: list[str] = []
        with suppress(FormatError):
            proof = proof_from_header(answer.headers.get(PROOF_HEADER, ""))
        if not follows(newest, shown.head, proof):
            why = f"the ledger was forked: {newest} is not the beginning of {shown.head}."
            self.contradiction(newest, shown, why, ask)

    def _same_model(self, shown: SignedHead) -> None:
        """Require two heads of one ledger to name the same model."""
        pinned = self.pins.signed(shown.head)
        if pinned is not None and pinned.model != shown.model:
            raise ForkError(
                f"the server signed two heads of one ledger ({shown.head}) that name different models as its newest: "
                f"nothing of the answer is used. {ADVICE}"
            )

    def _compare_with_others(self, newest: TreeHead | None, shown: SignedHead, ask: Ask) -> None:
        """Compare with a head that another process of this site pinned during the call."""
        other = self.pins.newest()
        if other is None or other in (newest, shown.head):
            return
        old, new = sorted((other, shown.head))
        if not self._grew(old, new, ask):
            self.contradiction(other, shown, f"the ledger was forked: {old} is not the beginning of {new}.", ask)

    def _grew(self, old: TreeHead, new: TreeHead, ask: Ask) -> bool:
        """Return whether the server proves that one ledger is the beginning of another."""
        proof = ask("/v1/ledger/consistency", old=old.size, new=new.size) if old.size < new.size else []
        return isinstance(proof, list) and follows(old, new, proof)

    def contradiction(self, pinned: TreeHead, shown: SignedHead, why: str, ask: Ask) -> NoReturn:
        """Report a contradiction as what it is: a restored backup, a provable fork, or one that cannot be proved.

        Raises:
            RestoredError: the server was restored from a backup, and its ledger says so.
            ForkError: otherwise.
        """
        restored = self.restored(ask)
        if restored is not None:
            raise RestoredError(
                f"the server was restored from a backup on {restored.time} ({restored.reason}). Its ledger goes on "
                f"from {restored.size} entries, and {self.site} knows {pinned}: what the server forgot in between "
                f"may be back in it. {self._remedy}"
            )
        proof = self.evidence(pinned, shown, why, ask)
        raise ForkError(f"{why} {proof}{ADVICE}")

    def evidence(self, pinned: TreeHead, shown: SignedHead, why: str, ask: Ask) -> str:
        """Write the evidence of a fork to a file, if it can be obtained, and return a sentence that names the file."""
        kept, other = self.pins.signed(pinned), shown
        with suppress(SplitWiperError, httpx.HTTPError, KeyError, TypeError):
            if kept is not None and other.head.size > pinned.size:  # only heads of equal size prove it
                other = SignedHead.read(ask("/v1/ledger/head", size=pinned.size)["signed"])
                self.signed(other, ask)
        # without two signed heads of one size there is a contradiction, but nothing that would convince others
        if kept is None or other.head.size != pinned.size or other.head == pinned:
            return ""
        path = write_evidence(self.site, kept, other, story=why)
        return f"The server signed two ledgers of {pinned.size} entries: {path} proves it. "

    def restored(self, ask: Ask) -> Restored | None:
        """Return the restored backup that explains why the pinned ledger is not continued; None if none does."""
        with suppress(SplitWiperError, KeyError, TypeError):
            return self._explained(*self._restorations(ask), ask)
        return None

    def _explained(self, restorations: list[Restored], shown: SignedHead, ask: Ask) -> Restored | None:
        """Return the restored backup in a ledger that explains the contradiction; None if none does."""
        pins, common = [pin.size for pin in self.pins.heads()], self._common(shown.head, ask)
        unshared = [size for size in pins if size > common]
        for restored in restorations:
            # it explains the contradiction if its ledger ends between shared and unshared pins
            explains = bool(unshared) and common <= restored.size < min(unshared)
            if explains and restored.name not in self.pins.accepted():
                return restored
        return None

    def accept(self, restored: Restored, ask: Ask) -> Path:
        """Pin the ledger of a restored server; return the folder with the previous heads.

        Raises:
            ForkError: the server no longer shows that entry, or shows a ledger that the entry does not explain.
        """
        restorations, shown = self._restorations(ask)
        # a person read and accepted one particular entry: the server must not exchange it meanwhile
        if self._explained(restorations, shown, ask) != restored:
            raise ForkError(
                f"the server no longer shows the ledger that was restored from a backup on {restored.time}. {ADVICE}"
            )
        names = [restoration.name for restoration in restorations]
        return self.pins.retire(shown.head, shown, label=restored.time.replace(":", ""), accepted=names)

    def _restorations(self, ask: Ask) -> tuple[list[Restored], SignedHead]:
        """Return all restored backups proved to be in the ledger of a signed head, oldest first, and that head."""
        restorations = ask("/v1/ledger/restorations")
        try:
            shown = self.signed(SignedHead.read(restorations["signed"]), ask)
            keys = self.server_keys.read()
            return [read_restored(proved, shown.head, keys) for proved in restorations["restorations"]], shown
        except (KeyError, TypeError) as problem:
            raise FormatError("what the server says about restored backups cannot be read.") from problem

    def _common(self, head: TreeHead, ask: Ask) -> int:
        """Return how many entries the pinned ledger and the other one provably share."""
        for pin in reversed(self.pins.heads()):
            if pin.size <= head.size and self._grew(pin, head, ask):
                return pin.size
        return 0


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.url.host} answered {answer.status_code}: it does not know this site."
