"""The link over HTTPS: the in-process protocol, for clients behind firewalls, which open all connections."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import save
from torch import Tensor

from splitwiper import errors
from splitwiper.errors import UnreachableError
from splitwiper.service.certificate import TreeHead
from splitwiper.service.certificate.log import shows
from splitwiper.service.site.notary import Notary, readable
from splitwiper.service.site.own_key import OwnKey
from splitwiper.service.site.served import ModelWatch
from splitwiper.store.files import file_digest
from splitwiper.wire import Accepted, ModelCopy, Posted, Receipt, Request, Scores, Standing, Statement, Ticket
from splitwiper.wire.codecs import LARGEST
from splitwiper.wire.link import Fence
from splitwiper.wire.tensors import labels_in, read_tensors
from splitwiper.wire.transfer import check_transfer, compressed

_PIECE = 1 << 20
_UNLIKELY = -30.0
"""The logit of every label except the one that the server named as the most likely."""


@dataclass(frozen=True)
class _File:
    """A file to send. Its digest also identifies an interrupted upload of it."""

    path: Path
    size: int
    digest: str

    def pieces(self, offset: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(offset)
            while piece := file.read(_PIECE):
                yield piece


class HttpsLink(Notary):
    """A client's connection to a server: its `Link`, and for a site the `Notary`.

    Args:
        url: the server's address, ``https://host:port``.
        context: certificates; see `Calls`.
        signer: signs requests to forget, shards and withdrawals, see `splitwiper.service.site.own_key`.
        transfer: 'zstd' compresses shards in transit, if the server accepts that.
        how: token, patience, tries and guard, as `Calls` takes them.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None = None,
        *,
        signer: OwnKey | None = None,
        transfer: str = "none",
        **how: Any,
    ) -> None:
        check_transfer(transfer)
        super().__init__(url, context, **how)
        self._signer, self._transfer = signer, transfer
        self.watch: ModelWatch | None = None
        """Checks which model answers; None for no check."""
        self.timings: dict[str, float] = {}
        """Durations of the parts of the last upload, in seconds, for measurements."""
        self.travelled = 0
        """Bytes that the last upload took on the wire."""

    # --- the protocol --------------------------------------------------------------------------------------

    @readable
    def upload(
        self, client: str, shard: Path, statement: Statement, *, digest: str | None = None, fence: Fence = nullcontext
    ) -> Accepted:
        """Send a shard; resume after an interruption.

        The serial number in the statement decides which of two shards is the later one, and is drawn within the fence:
        a process that lost its lease draws none, and what it still sends is refused. The fence is not held while bytes
        travel.

        Raises:
            DataError: the server refuses the shard, or received something else.
        """
        # the digest names the upload: the same file sent again continues where an interrupted one ended
        file = _File(shard, shard.stat().st_size, digest or file_digest(shard))
        begun = self._begun(client, file, statement, fence)
        try:
            return self._finished(file, begun, fence)
        except errors.DataError:
            # bytes from before the interruption may be damaged; an upload that was sent in one go is refused for good
            if not begun["offset"]:
                raise
        except errors.NotFoundError:  # the upload has expired, or the answer to finishing it was lost
            pass
        return self._finished(file, self._begun(client, file, statement, fence), fence)  # once more, from the start

    def _begun(self, client: str, file: _File, statement: Statement, fence: Fence) -> dict[str, Any]:
        signed = self._signed(client, file.digest, statement, fence)
        announced = {"size": file.size, "mark": file.digest, "statement": _plain(statement), **signed}
        begun: dict[str, Any] = self._call("POST", "/v1/uploads", json=announced).json()
        return begun

    def _finished(self, file: _File, begun: Mapping[str, Any], fence: Fence) -> Accepted:
        """Send what the server does not have yet, and have it accept the shard."""
        place, offset = f"/v1/uploads/{begun['id']}", int(begun["offset"])
        packs = self._transfer == "zstd" and "zstd" in begun.get("codings", ())
        self.travelled = 0
        start = time.perf_counter()
        moved = time.monotonic()
        while offset < file.size:  # as long as something arrives, a slow line may take as long as it needs
            before, offset = offset, self._sent(place, file, offset, packs)
            if offset > before:
                moved = time.monotonic()
            elif time.monotonic() - moved > self._patience:
                raise UnreachableError(
                    f"{self.url} took nothing more of the shard for {self._patience:g} seconds. What came through is "
                    "kept there: send it again, and it goes on."
                )
        self.timings["sent"] = time.perf_counter() - start
        with fence() if self._signer is None else nullcontext():  # without serial numbers, the last to finish counts
            done = self._call("POST", f"{place}/finish", json={"digest": file.digest}, timeout=None).json()
        if done["digest"] != file.digest:
            raise errors.DataError(f"{self.url} says that it has another shard than was sent: tell its operator.")
        return Accepted(done["digest"], done["generation"], self.travelled)

    def _sent(self, place: str, file: _File, offset: int, packs: bool) -> int:
        """Send from an offset to the end; return how much the server has, even after an interruption."""
        try:
            coded = {"Content-Encoding": "zstd"} if packs else {"Content-Length": str(file.size - offset)}
            headers = {"Upload-Offset": str(offset), **coded}
            # no time limit on the answer, because the server checks the whole file; only writing must not stall
            pieces = compressed(file.pieces(offset)) if packs else file.pieces(offset)
            patience = httpx.Timeout(None, connect=10.0, write=self._patience)
            answer = self._once("PATCH", place, content=self._counted(pieces), headers=headers, timeout=patience)
            return int(answer.json()["offset"])
        except (httpx.TransportError, errors.BusyError, errors.DataError):
            # what did not arrive is known only to the server, not from what was written to the socket
            there = int(self._call("GET", place).json()["offset"])
            if there == offset:
                time.sleep(0.2)
            return there

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.travelled += len(piece)
            yield piece

    @readable
    def withdraw(self, client: str, statement: Statement, *, fence: Fence = nullcontext) -> None:
        """Erase the client's shard."""
        signed = self._signed(client, "", statement, fence)
        with fence() if self._signer is None else nullcontext():
            self._call("POST", "/v1/withdraw", json={**_plain(statement), **signed})

    @readable
    def standing(self, client: str) -> Standing:
        """Return whether this site's shard was erased by another party, as proved by the server's ledger.

        Raises:
            MismatchError: the server says so, but its ledger does not show it.
        """
        answer = self._call("GET", "/v1/standing").json()
        evicted, removed = str(answer["evicted"]), answer["removed"]
        if removed is None:
            return Standing(evicted=evicted)
        entry = removed["entry"]
        if not shows(removed) or (entry["kind"], entry["client"]) != ("withdrawn", client):
            raise errors.MismatchError("the server says that it erased this site's shard, and cannot show the entry.")
        if self._guard is not None:
            self._guard.pins.compare(TreeHead(int(removed["size"]), str(removed["root"])), self.consistency)
        return Standing(int(entry["seq"]), str(entry["by"]), str(entry["why"]), evicted)

    @readable
    def largest_value(self) -> float:
        """Return the largest absolute value of an activation that the server accepts."""
        return float(self.federation().get("largest_value", LARGEST))

    def _signed(self, client: str, digest: str, statement: Statement, fence: Fence) -> dict[str, Any]:
        """Return the site's signed statement about a shard, with a new serial number, as the fields of a call."""
        if self._signer is None:
            return {}
        last = int(self._call("GET", "/v1/site-key").json()["serial"])
        with fence():
            serial = self._signer.next_serial(last)
        return {"signed": self._signer.sign_shard(client, digest, statement, serial=serial)}

    def register(self, client: str) -> None:
        """Register the key that this site signs with."""
        if self._signer is not None:
            self._call("POST", "/v1/site-key", json=self._signer.register(client))

    @readable
    def submit(self, request: Request) -> Ticket:
        """Submit a request to forget."""
        asked: dict[str, Any]
        asked = {"ticket": request.ticket, "level": request.level, "commitment": request.commitment}
        if self._signer is not None:
            asked["signed"] = self._signer.sign_request(request)
        return _ticket(self._call("POST", "/v1/requests", json=asked).json())

    @readable
    def tickets(self, client: str) -> tuple[Ticket, ...]:
        """Return every request made in this client's name, with its state."""
        return tuple(map(_ticket, self._call("GET", "/v1/requests").json()))

    @readable
    def receipt(self, ticket: str) -> Receipt:
        """Return the receipt of a request: what was done for it."""
        return Receipt.from_dict(self._call("GET", f"/v1/requests/{ticket}/receipt").json())

    def predict(self, client: str, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half; if it names only the most likely label, all others get a very low logit."""
        return self.watch.answered(boundary, self.scores) if self.watch else self.scores(boundary)

    @readable
    def scores(self, boundary: Mapping[str, Tensor]) -> Scores:
        """Run the server half, without checking which model answers."""
        body = save({name: tensor.contiguous().cpu() for name, tensor in boundary.items()})
        answer, metadata = read_tensors(bytearray(self._call("POST", "/v1/predict", content=body).content))
        labels, logits = labels_in(metadata), answer.get("logits")
        labels_only = logits is None
        if logits is None:  # the server answers with the number of the best label of each row
            logits = torch.full((len(answer["best"]), len(labels)), _UNLIKELY)
            logits.scatter_(1, answer["best"].long()[:, None], 0.0)
        codebook, model = metadata.get("codebook", ""), metadata.get("model", "")
        return Scores(labels, logits, codebook, model, labels_only=labels_only)

    def model(self, client: str) -> ModelCopy:
        """Fetch the server half."""
        return self.watch.fetched() if self.watch else self.copy()

    def post(self, client: str, topic: str, place: int, body: bytes) -> None:
        """Relay a sealed message to the other clients."""
        sealed = {"body": base64.b64encode(body).decode()}
        self._call("PUT", f"/v1/board/messages/{place}", params={"topic": topic}, json=sealed)

    @readable
    def topic(self) -> str:
        """Return the relay's current topic, or its last one."""
        return str(self._call("GET", "/v1/board/topic").json()["topic"])

    @readable
    def posted(self, topic: str, since: int = 0) -> tuple[Posted, ...]:
        """Return the messages of a topic from a sequence number on."""
        messages: list[Posted] = []
        while page := self._call("GET", "/v1/board/messages", params={"topic": topic, "since": since}).json():
            for message in page:
                messages.append(Posted(message["place"], message["sender"], base64.b64decode(message["body"])))
            since = messages[-1].place + 1
        return tuple(messages)

    def ended(self, topic: str, proof: bytes = b"") -> None:
        """Report that a negotiation has ended, so that it is kept; or, with its proof, was abandoned, to erase it."""
        self._call("POST", "/v1/board/end", json={"topic": topic, "proof": proof.hex()})


def _plain(statement: Statement) -> dict[str, Any]:
    values = asdict(statement)
    return {**values, "fingerprint": dict(statement.fingerprint), "tickets": list(statement.tickets)}


def _ticket(values: Mapping[str, Any]) -> Ticket:
    reached = values["stages"]
    settled = reached.get("retrained", reached.get("settled", ""))
    plain = {name: values[name] for name in ("id", "client", "level", "state", "received", "commitment")}
    return Ticket(**plain, erased=reached.get("erased", ""), settled=settled)
