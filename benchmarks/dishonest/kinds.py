"""The table of dishonest servers: what each does, what the others then do, and which of their commands catches it.

A plan has steps of `STEPS`, and what the server does meanwhile. ``serve LIE…`` starts another server process in place
of the last one, ``serve @kept`` one over an old copy of its store; ``settled`` waits until it has trained; ``leak`` is
a mistake of a server that keeps two ledgers. Every step must end with code 0 unless ``caught`` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.dishonest.stage import EPOCHS

STEPS: dict[str, tuple[str, str]] = {
    "forget": ("requester", "forget north --class cat --certificate cert.json --patience 30"),
    "forget more": ("requester", "forget north --class dog --certificate cert.json --patience 30"),
    "ask again": ("requester", "forget north --patience 2"),
    "forget briefly": ("requester", "forget north --class cat --patience 2"),
    "certificate": ("requester", "certificate north TICKET --json"),
    "fetch": ("requester", "certificate north TICKET --out cert.json"),
    "predict": ("requester", "predict north north north.csv --label label"),
    "download": ("requester", "predict north north north.csv --label label --local"),
    "attest": ("requester", "verify north --attest --json"),
    "head": ("requester", "head north --out north-head.json"),
    "south forgets": ("another site", "forget south --class dog --patience 30"),
    "south predicts": ("another site", "predict south south south.csv --label label"),
    "south compares": ("another site", "head south --compare north-head.json"),
    "outsider": ("outsider", "verify cert.json --key north/north/server-keys --json"),
    "outsider with attestations": (
        "outsider",
        "verify cert.json --key north/north/server-keys --attester north/north/request-key.pub.pem "
        "--attester audit/auditor-key.pub.pem --json",
    ),
    "outsider with evidence": ("outsider", "verify EVIDENCE --key north/north/server-keys --json"),
    "audit": ("auditor", "audit tuv.toml --out audit --json"),
    "audit again": ("auditor", "audit tuv.toml --out audit --json"),
    "audit some epochs": ("auditor", "audit tuv.toml --out audit --epochs 2 --json"),
    "audit all states": ("auditor", f"audit tuv.toml --out audit --epochs {EPOCHS} --json"),
}
"""Commands by name: who runs them, and what. TICKET is north's newest request, EVIDENCE a file that proves a fork."""
_SITES = ("certificate", "predict", "download", "south predicts", "head", "south compares", "outsider")
_AUDITS = ("audit some epochs", "audit all states", "audit")
_ATTESTED = ("attest", "fetch", "outsider with attestations")
ALL = (*_SITES, *_AUDITS, *_ATTESTED)
"""What everybody does after north's request, in every scenario that allows it."""


@dataclass(frozen=True)
class Caught:
    """How a step ends that notices something."""

    words: str
    code: int = 3


@dataclass(frozen=True)
class Kind:
    """One kind of dishonest server.

    Attributes:
        name: what it is called.
        does: what the server does, in a sentence.
        plan: steps, and what the server does between them.
        caught: how steps end that notice it; all others end with code 0.
        says: words that steps print which notice nothing.
        forged: epochs that are forged: an audit of some epochs notices it if one of them is drawn, and only then.
    """

    name: str
    does: str
    plan: tuple[str, ...]
    caught: Mapping[str, Caught] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    forged: tuple[int, ...] = ()


_LATE = Caught("is erased and not settled yet", 8)
_LOST = Caught("the server knows no ticket", 6)
_ROLLED_BACK = Caught("the server's ledger was rolled back")
_NO_HEAD = Caught("came without the signed head of the server's ledger")
_NOT_HELD = Caught("no longer holds the shard that this site sent last")
_PUT_BACK = Caught("its site replaced it since")
_UNKNOWN_SITE = Caught("the auditor has no public key of this site: add ghost.pem", 5)
_UNSIGNED = Caught("its site has not signed it", 5)
_REFUSED = Caught("handed this model out before")
_OTHER_MODEL = Caught("not that of the model it commits to")
_RETRAINED = Caught("recomputed from the shards, and it is another one")
_ATTESTED_OTHER = Caught("recomputed, and different")
_AUDITED = {"audit": _RETRAINED, "audit some epochs": Caught("epoch"), "audit all states": Caught("epoch")}
_WRONGLY_TRAINED = {**_AUDITED, "outsider with attestations": _ATTESTED_OTHER}

KINDS: tuple[Kind, ...] = (
    Kind(
        "honest",
        "does what it says",
        ("serve", "forget", *ALL),
        says={
            "forget": "the server certifies that it has retrained without the rows",
            "certificate": "not recomputed by anybody yet",
            "audit": "equal, bit for bit",
            "outsider with attestations": '"exact": true',
        },
    ),
    Kind(
        "lazy",
        "keeps shard and model, and says that the request is settled",
        ("serve lazy", "forget", "certificate", "outsider"),
        {
            "forget": Caught("nothing was forgotten: the commitment to the shard is the one from before"),
            "certificate": Caught("a shard that this site did not send"),
            "outsider": Caught("nothing was forgotten"),
        },
    ),
    Kind(
        "replays a certificate",
        "hands out an old certificate for a new ticket",
        ("serve old_certificate", "forget", "forget more", "certificate", "outsider"),
        {
            "forget more": Caught("the commitment is not to the shard that the opening tells of"),
            "certificate": Caught("this is the certificate of something else than was asked for"),
        },
    ),
    Kind(
        "another client's certificate",
        "hands out the certificate of another client's request",
        ("serve", "south forgets", "serve others_certificate", "forget", "certificate"),
        {
            "forget": Caught("the request was signed by key"),
            "certificate": Caught("this is the certificate of something else than was asked for"),
        },
    ),
    Kind(
        "another federation's certificate",
        "hands out a certificate of another federation, signed with its key",
        ("serve other_federation", "forget", "certificate", "outsider"),
        {
            "forget": Caught("is not accepted"),
            "certificate": Caught("this is the certificate of something else than was asked for"),
            "outsider": Caught("the request shown is for ticket"),
        },
    ),
    Kind(
        "a stranger's key",
        "signs certificates with a key that nobody knows",
        ("serve strangers_key", "forget", "certificate", "outsider"),
        {
            "forget": Caught("not that of a trusted key"),
            "certificate": Caught("not that of a trusted key"),
            "outsider": Caught("not that of a trusted key"),
        },
    ),
    Kind(
        "a smaller request",
        "enters a request for fewer rows into its ledger than was asked for",
        ("serve smaller_request", "forget", "certificate", "outsider"),
        {
            "forget": Caught("is not accepted"),
            "certificate": Caught("this is the certificate of something else than was asked for"),
            "outsider": Caught("the request shown is for ticket"),
        },
    ),
    Kind(
        "another receipt",
        "reports another receipt than its ledger has",
        ("serve other_receipt", "forget", "certificate", "outsider"),
        {
            "forget": Caught("the receipt is not the one that the ledger's entry is about"),
            "certificate": Caught("the receipt is not the one that the ledger's entry is about"),
        },
    ),
    Kind(
        "never settles",
        "takes the request, and never trains again",
        ("serve never", "forget briefly", "ask again"),
        {"forget briefly": _LATE, "ask again": _LATE},
    ),
    Kind(
        "loses the request",
        "acknowledges the request, and records nothing",
        ("serve drops_requests", "forget briefly", "ask again"),
        {"forget briefly": _LOST, "ask again": _LOST},
    ),
    Kind(
        "answers with another model",
        "certifies one model, and answers predictions with another",
        ("serve", "forget", "serve other_answers", *ALL),
        {
            "certificate": _OTHER_MODEL,
            "predict": _OTHER_MODEL,
            "south predicts": _OTHER_MODEL,
            "fetch": _OTHER_MODEL,
        },
    ),
    Kind(
        "answers one site with another model",
        "answers the requester alone with another model",
        ("serve", "forget", "serve other_answers_to_north", "certificate", "predict", "south predicts"),
        {"certificate": _OTHER_MODEL, "predict": _OTHER_MODEL},
    ),
    Kind(
        "hands out another model",
        "certifies one model, and hands out another for download",
        ("serve", "forget", "serve other_download", *_SITES),
        {
            "certificate": Caught("the model that the server hands out is not the one"),
            "predict": Caught("not the one it commits to"),
            "download": Caught("not the one it commits to"),
            "south predicts": Caught("not the one it commits to"),
        },
    ),
    Kind(
        "goes on with the old model",
        "shows the newest head, and answers with the model from before the request",
        ("serve", "forget", "serve old_model", *_SITES),
        {
            "certificate": Caught("not the newest of its ledger"),
            "predict": Caught("not the newest of its ledger"),
            "download": Caught("not the newest of its ledger"),
            "south predicts": Caught("not the newest of its ledger"),
        },
    ),
    Kind(
        "another model, and no download any more",
        "answers with another model, and refuses to hand out the half that it handed out before",
        ("serve", "forget", "serve other_answers no_download", "certificate", "predict", "south predicts", *_AUDITS),
        {"certificate": _REFUSED, "predict": _REFUSED},
        says={"south predicts": "Not checked which model answers"},
    ),
    Kind(
        "another model, and no download",
        "answers with another model, and never hands its half out to anybody",
        ("serve no_download", "forget", "serve other_answers no_download", "certificate", "predict", *_AUDITS),
        says={
            "certificate": "answers could not be compared",
            "predict": "Not checked which model answers",
        },
    ),
    Kind(
        "trains on what it should have erased",
        "keeps the shard that was withdrawn, and trains on it",
        ("serve kept_rows", "forget", *ALL),
        _WRONGLY_TRAINED,
    ),
    Kind(
        "the same, and keeps attestations back",
        "trains on what it should have erased, and does not relay what the auditor found",
        ("serve kept_rows no_attestations", "forget", *ALL),
        _AUDITED,
        says={"outsider with attestations": '"exact": false'},
    ),
    Kind(
        "alters another client's rows",
        "trains on rows of another client that it has altered",
        ("serve altered_rows", "forget", *ALL),
        _WRONGLY_TRAINED,
    ),
    Kind(
        "adds rows",
        "trains on rows that nobody sent, besides those in the manifest",
        ("serve added_rows", "forget", *ALL),
        _WRONGLY_TRAINED,
    ),
    Kind(
        "puts the erased shard back",
        "enters the shard that was withdrawn into its ledger again, with the site's own old signature",
        ("serve", "forget", "serve put_back", "settled", *ALL),
        {
            "certificate": _NOT_HELD,
            "fetch": _NOT_HELD,
            **dict.fromkeys(_AUDITS, _PUT_BACK),
        },
    ),
    Kind(
        "invents a site",
        "enters the shard that was withdrawn as that of a site which does not exist",
        ("serve", "forget", "serve invented_site", "settled", *ALL),
        dict.fromkeys(_AUDITS, _UNKNOWN_SITE),
    ),
    Kind(
        "invents a site that signs nothing",
        "enters rows in the name of a site which does not exist, without a signature",
        ("serve", "forget", "serve unsigned_site", "settled", *ALL),
        dict.fromkeys(_AUDITS, _UNSIGNED),
    ),
    Kind(
        "forges an epoch",
        "changes the weights in one epoch of four, and commits to that",
        ("serve forged_epoch", "forget", *ALL),
        _WRONGLY_TRAINED,
        forged=(2,),
    ),
    Kind(
        "starts from the old model",
        "starts training from the model that knew the rows, and shows the first weights",
        ("serve warm", "forget", *ALL),
        _WRONGLY_TRAINED,
        forged=(1,),
    ),
    Kind(
        "keeps the optimiser's state",
        "starts training with the optimiser's state of the model that knew the rows",
        ("serve old_optimiser", "forget", *ALL),
        _WRONGLY_TRAINED,
    ),
    Kind(
        "does not train",
        "publishes weights that it did not train, with a transcript of copies",
        ("serve untrained", "forget", *ALL),
        _WRONGLY_TRAINED,
    ),
    Kind(
        "rolls back",
        "puts an old copy of its store back, and says nothing",
        ("serve", "forget", "audit", "serve @kept", "predict", "certificate", "south predicts", "audit again"),
        dict.fromkeys(("predict", "certificate", "audit again"), _ROLLED_BACK),
    ),
    Kind(
        "forks, and keeps heads apart",
        "shows two sites different ledgers, and relays no head between them",
        (
            *("serve", "forget", "head", "serve @kept", "south forgets", "south compares", "outsider with evidence"),
            "predict",
        ),
        {
            "south compares": Caught("the server keeps two ledgers"),
            "outsider with evidence": Caught("the server signed two ledgers"),
            "predict": Caught("forked"),
        },
    ),
    Kind(
        "forks, and relays a head",
        "shows two sites different ledgers, and once relays a countersigned head",
        ("serve", "forget", "leak", "serve @kept", "south forgets", "outsider with evidence"),
        {
            "south forgets": Caught("the server keeps two ledgers: site 'north'"),
            "outsider with evidence": Caught("the server signed two ledgers"),
        },
    ),
    Kind(
        "keeps countersigned heads back",
        "shows everybody one ledger, and relays no countersigned heads",
        ("serve no_witnesses", "forget", *ALL),
    ),
    Kind(
        "shows no head",
        "answers without the signed head of its ledger",
        ("serve no_head", "forget briefly", "predict", "south predicts", "audit"),
        dict.fromkeys(("forget briefly", "predict", "south predicts", "audit"), _NO_HEAD),
    ),
    Kind(
        "keeps a copy",
        "keeps a copy of what it should have erased, and uses it for nothing that others see",
        ("serve", "forget", *ALL),
    ),
)
