"""A model traced once, so that every cut of it can be judged, planned and proved."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch import nn

from splitwiper.errors import CutError, InputError, nearest
from splitwiper.splitting.halves import build
from splitwiper.splitting.legality import judge
from splitwiper.splitting.output_layer import find_output_layer, squashing
from splitwiper.splitting.plan import CutPlan, TracePair, make_plan
from splitwiper.splitting.trace import Trace, trace
from splitwiper.splitting.trainable import check_hooks, check_trainable
from splitwiper.splitting.trees import Call, as_call, bound
from splitwiper.splitting.verify import Reference


class Workbench:
    """The traces of a model on its examples, in both modes and with two numbers of rows; arguments are as for `split`.

    Only copies of the model are used.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        *,
        shared: Iterable[str],
        allow_data_dependent: bool,
        head: str | None = None,
    ) -> None:
        self.model = model
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self._canonical: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
        examples = example if isinstance(example, list) else [example]
        if not examples:
            raise InputError("give at least one example")
        self._calls: list[Call] = list(map(as_call, examples))
        for call in self._calls:
            bound(model, call)  # says so if the inputs do not fit
        self._pairs: list[TracePair] = []
        for call in self._calls:
            for training in (True, False):
                low = trace(model, call, rows=2, training=training)
                high = trace(model, call, rows=3, training=training)
                self._pairs.append(TracePair(low, high))
        self._shared = self._declared([shared] if isinstance(shared, str) else list(shared))
        self._allow = allow_data_dependent
        self._parameters = frozenset(dict(model.named_parameters(remove_duplicate=False)))
        self._reference = Reference(model, self._calls)
        first = self._pairs[0].low
        self.head = head if head is not None else find_output_layer(first, self.modules)
        # In the order of execution: a cut is where its module returns.
        self.called = list(dict.fromkeys(call.name for call in first.calls if call.name))

    def _declared(self, shared: list[str]) -> set[str]:
        """Return the inputs that are shared; the name of a nested one stands for all its tensors."""
        known = set(self._pairs[0].low.inputs)
        if any(set(pair.low.inputs) != known for pair in self._pairs):
            raise InputError("the examples differ in their inputs; give all of them the same")
        declared = set()
        for name in shared:
            tensors = {key for key in known if key == name or key.startswith(f"{name}.")}
            if not tensors:
                inputs = ", ".join(sorted(known))
                raise CutError(f"shared={name!r} is not an input of the example ({inputs}).{nearest(name, known)}")
            declared |= tensors
        return declared

    def squashed(self) -> list[str]:
        """Return a warning for each softmax or sigmoid that the model ends in."""
        endings: set[tuple[str, str]] = set()
        for pair in self._pairs:
            endings |= squashing(pair.low, self.modules)
        # a softmax in the model's own arithmetic is no operation of torch's, but its outputs show it
        if not endings and self._reference.chances():
            endings.add(("softmax", "its outputs are never negative, and sum to 1 in every row"))
        notes = []
        for kind, where in sorted(endings):
            notes.append(
                f"the model ends in a {kind} ({where}): its outputs must be raw scores (logits), because training and "
                "predict_proba apply softmax to them. It learns badly from scores that are squashed already; take that "
                "layer off"
            )
        return notes

    def canonical(self, at: str) -> str:
        """Return the first name of the module called ``at``; modules may be registered under several."""
        return self._canonical[self.modules[at]]

    def check_trainable(self) -> None:
        """Refuse a model that torch cannot train, whether or not it is cut.

        Raises:
            CutError: it cannot be trained; the message names the module.
        """
        check_hooks(self.model)
        check_trainable(self.model, self._calls)

    def plan(self, at: str) -> CutPlan:
        """Judge and plan the cut after ``at``, without proof.

        Raises:
            CutError: The cut is illegal; the message says why.
        """
        traces: list[Trace] = []  # the order decides the order of the boundary, so it is part of a network
        for pair in self._pairs:
            traces += [pair.low, pair.high]
        findings = judge(traces, at, shared=self._shared, allow_data_dependent=self._allow, parameters=self._parameters)
        if findings.reasons:
            raise CutError("; ".join(findings.reasons))
        plan = make_plan(self.model, self._calls[0], self._pairs, at, self.head or "", findings)
        for side, names in (("before", plan.client), ("after", self._parameters - plan.client)):
            if not names & self._parameters:
                raise CutError(f"the model has no parameters {side} it")
        if self.head and any(name.startswith(f"{self.head}.") for name in plan.client):
            raise CutError(f"the head {self.head!r} lies before it; the server half needs the output layer")
        return plan

    def prove(self, plan: CutPlan) -> None:
        """Build throw-away halves and compare them with the model.

        Raises:
            CutError: They do not compute what the model computes.
        """
        self._reference.check(*build(self.model, plan))

    def legal(self, candidates: Iterable[str]) -> Iterator[str]:
        """Yield the candidates after which the model can be cut, planned and proved."""
        for name in candidates:
            try:
                self.prove(self.plan(name))
            except CutError:
                continue
            yield name

    def suggest(self, at: str, *, most: int = 3, tries: int = 12) -> str:
        """Return a sentence with the legal cuts nearest to ``at``, each proved."""
        if at in self.called:
            position = self.called.index(at)
            order = sorted(self.called, key=lambda name: abs(self.called.index(name) - position))
        else:
            order = sorted(self.called, key=lambda name: -difflib.SequenceMatcher(None, at, name).ratio())
        candidates = (name for name in order[: 4 * tries] if name != at)
        cuts = sorted(islice(self.legal(candidates), most), key=self.called.index)
        if not cuts:
            return " No legal cut was found near it."
        return f" Nearest legal cuts: {', '.join(map(repr, cuts))}."
