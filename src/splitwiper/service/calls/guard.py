"""What holds the server to its ledger: every answer's signed head is checked before anybody uses the answer.

A head must be signed by a key of the server in good standing, be of this federation, and continue the newest head that
the site has pinned. Then it is pinned. Nothing more is sent to a server that shows anything else.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import httpx

from splitwiper.errors import ForkError, FormatError, IdentityError, RestoredError, SplitWiperError, UnreachableError
from splitwiper.service.calls.server_keys import Ask, ServerKeys
from splitwiper.service.certificate import Head, Keys, Pins, SignedHead
from splitwiper.service.certificate.evidence import write_evidence
from splitwiper.service.certificate.heads import HEAD, PROOF, SIZE, proof_from_header
from splitwiper.service.certificate.log import follows
from splitwiper.service.certificate.pins import ADVICE
from splitwiper.service.certificate.restoring import Restored, read_restored


class LedgerGuard:
    """Checks what a server shows of its ledger.

    Args:
        folder: the client's own in the site, or the auditor's.
        federation: the store that the site has joined.
        site: the site's or auditor's folder, for messages and evidence.
        restored: what to do where the server was restored from a backup; for messages. By default, what a site does.
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
        """Whether the last answer was checked and its head is pinned; before anything is sent, one must be."""
        self.model = ""
        """The commitment to the model that is the newest of the ledger, as the head of the last answer says."""
        self._last = ("", Head(0, ""))

    def refresh(self, ask: Ask) -> Keys:
        """Follow what the server's signing keys said since, and return those that count."""
        self._last = ("", Head(0, ""))
        return self.server_keys.refresh(ask)

    def before(self) -> tuple[Head | None, dict[str, str]]:
        """Return the newest pinned head, and the headers that have the server continue it."""
        newest = self.pins.newest()
        return newest, {SIZE: str(newest.size)} if newest else {}

    def check(self, answer: httpx.Response, newest: Head | None, ask: Ask) -> None:
        """Check an answer's head, and pin it.

        Args:
            answer: what came; nobody has looked into it yet.
            newest: the newest pinned head when the call was made.
            ask: for proofs and keys.

        Raises:
            ForkError: the head is missing or not the server's, or the ledger does not continue the pinned one.
            RestoredError: the same, because the operator restored a backup and put that on record.
            UnreachableError: something between site and server answered, or the server fails.
        """
        self.met = False
        text = answer.headers.get(HEAD)
        if text is None:
            self._missing(answer)
        if (text, newest) == self._last:
            self.met = True
            return
        shown = self._signed(text, ask)
        if newest is not None and shown.head != newest:
            self._continues(newest, shown, answer, ask)
        if shown.head == newest:
            self._same_model(shown)
        else:
            self.pins.keep(shown.head, shown)
            self._meanwhile(newest, shown, ask)
        self._last, self.met, self.model = (text, shown.head), True, shown.model

    def _missing(self, answer: httpx.Response) -> NoReturn:
        if answer.status_code == 401:  # to nobody that it knows the server shows nothing
            raise IdentityError(_told(answer))
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

    def _signed(self, text: str, ask: Ask) -> SignedHead:
        """The head in a header, signed by a key that counts; a key that is new is looked up first."""
        try:
            shown = SignedHead.from_header(text)
        except FormatError as problem:
            raise ForkError(f"what the server shows as its ledger's head cannot be read: {problem}") from problem
        return self.signed(shown, ask)

    def signed(self, shown: SignedHead, ask: Ask) -> SignedHead:
        """Return a head if a key of the server in good standing signed it for this federation.

        Raises:
            ForkError: none did.
        """
        keys = self.server_keys.read()
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

    def _continues(self, newest: Head, shown: SignedHead, answer: httpx.Response, ask: Ask) -> None:
        """Demand that the ledger shown continues the pinned one."""
        if shown.head.size < newest.size:
            told = f"the server's ledger was rolled back: it has {shown.head}, and had {newest} when that was pinned."
            self.contradiction(newest, shown, told, ask)
        proof: list[str] = []
        with suppress(FormatError):
            proof = proof_from_header(answer.headers.get(PROOF, ""))
        if not follows(newest, shown.head, proof):
            told = f"the ledger was forked: {newest} is not the beginning of {shown.head}."
            self.contradiction(newest, shown, told, ask)

    def _same_model(self, shown: SignedHead) -> None:
        """Demand that two heads of one ledger name one model."""
        pinned = self.pins.signed(shown.head)
        if pinned is not None and pinned.model != shown.model:
            raise ForkError(
                f"the server signed two heads of one ledger ({shown.head}) that name different models as its newest: "
                f"nothing of the answer is used. {ADVICE}"
            )

    def _meanwhile(self, newest: Head | None, shown: SignedHead, ask: Ask) -> None:
        """Compare with what another process of this site has pinned since the call was made."""
        other = self.pins.newest()
        if other is None or other in (newest, shown.head):
            return
        old, new = sorted((other, shown.head))
        proof = ask("/v1/ledger/consistency", old=old.size, new=new.size) if old.size < new.size else []
        if not isinstance(proof, list) or not follows(old, new, proof):
            self.contradiction(other, shown, f"the ledger was forked: {old} is not the beginning of {new}.", ask)

    def contradiction(self, pinned: Head, shown: SignedHead, told: str, ask: Ask) -> NoReturn:
        """Say what is wrong with a ledger: a restored backup, a fork that can be proved, or one that cannot.

        Raises:
            ForkError: always.
        """
        restored = self.restored(ask)
        if restored is not None:
            raise RestoredError(
                f"the server was restored from a backup on {restored.time} ({restored.reason}). Its ledger goes on "
                f"from {restored.size} entries, and {self.site} knows {pinned}: what the server forgot in between "
                f"may be back in it. {self._remedy}"
            )
        proof = self.evidence(pinned, shown, told, ask)
        raise ForkError(f"{told} {proof}{ADVICE}")

    def evidence(self, pinned: Head, shown: SignedHead, told: str, ask: Ask) -> str:
        """Write down what proves a fork to others, if that can be had, and return a sentence that names the file."""
        kept, other = self.pins.signed(pinned), shown
        with suppress(SplitWiperError, httpx.HTTPError, KeyError, TypeError):
            if kept is not None and other.head.size > pinned.size:  # two heads of one size prove it
                other = SignedHead.read(ask("/v1/ledger/head", size=pinned.size)["signed"])
                self.signed(other, ask)
        if kept is None or other.head.size != pinned.size or other.head == pinned:
            return ""
        path = write_evidence(self.site, kept, other, story=told)
        return f"The server signed two ledgers of {pinned.size} entries: {path} proves it. "

    def restored(self, ask: Ask) -> Restored | None:
        """Return the restored backup that explains why the ledger is not the pinned one, gone on; None if none does."""
        with suppress(SplitWiperError, KeyError, TypeError):
            return self._explained(*self._restorations(ask), ask)
        return None

    def _explained(self, told: list[Restored], shown: SignedHead, ask: Ask) -> Restored | None:
        """The restored backup in a ledger that explains it; None if none does."""
        pins, common = [pin.size for pin in self.pins.heads()], self._common(shown.head, ask)
        unshared = [size for size in pins if size > common]
        for found in (one for one in told if one.name not in self.pins.accepted()):
            if unshared and common <= found.size < min(unshared):  # all that the backup had is what was pinned
                return found
        return None

    def accept(self, restored: Restored, ask: Ask) -> Path:
        """Pin the ledger of a server that was restored from a backup; return where the heads before are kept.

        Raises:
            ForkError: the server does not show that entry any more, or a ledger that it does not explain.
        """
        told, shown = self._restorations(ask)
        if self._explained(told, shown, ask) != restored:
            raise ForkError(
                f"the server no longer shows the ledger that was restored from a backup on {restored.time}. {ADVICE}"
            )
        names = [one.name for one in told]
        return self.pins.retire(shown.head, shown, label=restored.time.replace(":", ""), accepted=names)

    def _restorations(self, ask: Ask) -> tuple[list[Restored], SignedHead]:
        """All restored backups that are proved to be in the ledger of a signed head, oldest first."""
        told = ask("/v1/ledger/restorations")
        try:
            shown = self.signed(SignedHead.read(told["signed"]), ask)
            return [read_restored(one, shown.head, self.server_keys.read()) for one in told["restorations"]], shown
        except (KeyError, TypeError) as problem:
            raise FormatError("what the server says about restored backups cannot be read.") from problem

    def _common(self, head: Head, ask: Ask) -> int:
        """How many entries the pinned ledger and another one are known to share."""
        for pin in reversed(self.pins.heads()):
            if pin.size <= head.size:
                proof = ask("/v1/ledger/consistency", old=pin.size, new=head.size)
                if isinstance(proof, list) and follows(pin, head, proof):
                    return pin.size
        return 0


def _told(answer: httpx.Response) -> str:
    """What an answer says is wrong, for people to read."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.url.host} answered {answer.status_code}: it does not know this site."
