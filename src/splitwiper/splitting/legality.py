"""Decide from traces whether a model can be cut after a module, and what each side then needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from splitwiper.splitting.trace import ModuleCall, Opaque, Trace, TracedTensor
from splitwiper.splitting.trees import Path, leaves


@dataclass
class Findings:
    """The consequences of one cut, over all traces. Dictionaries to None are sets that keep their order.

    Attributes:
        reasons: Why the cut is illegal; empty if it is legal as far as traces can show.
        before: States used up to the cut.
        glue: States used before the cut by the modules around it, whose code the server half runs again.
        after: States used after the cut.
        used: Paths of the cut module's output leaves that are used after the cut.
        sides: Inputs that are used after the cut.
        replaced: Boundary parts that are changed in place after the cut, as paths or input names.
        dense: Something before the cut is changed in place by the modules around it.
        rewind: The modules around the cut draw random numbers before it.
        draws: Random numbers are drawn anywhere before the cut.
        missing: Inputs that are used after the cut without being shared, and the module that uses them.
        branches: Labels of the values that the modules around the cut branch on before it.
        flops: Operations per row before and after the cut.
        variable: Parameters, and buffers that training changes; other buffers are constants.
    """

    reasons: dict[str, None] = field(default_factory=dict)
    before: set[str] = field(default_factory=set)
    glue: set[str] = field(default_factory=set)
    after: set[str] = field(default_factory=set)
    used: dict[Path, None] = field(default_factory=dict)
    sides: dict[str, None] = field(default_factory=dict)
    replaced: set[Path | str] = field(default_factory=set)
    dense: bool = False
    rewind: bool = False
    draws: bool = False
    missing: dict[str, str] = field(default_factory=dict)
    branches: set[str] = field(default_factory=set)
    flops: tuple[int, int] = (0, 0)
    variable: set[str] = field(default_factory=set)

    def refuse(self, reason: str) -> None:
        """Record why the cut is illegal, once."""
        self.reasons[reason] = None


def calls_of(trace: Trace, name: str) -> list[ModuleCall]:
    """Return every call of the named module."""
    return [call for call in trace.calls if call.name == name]


def around(trace: Trace, cut: ModuleCall) -> dict[int, str]:
    """Return the calls that enclose the cut: frame and module name, innermost first."""
    enclosing, frame = {}, cut.parent
    while frame:
        enclosing[frame] = trace.by_frame[frame].name
        frame = trace.by_frame[frame].parent
    return enclosing


def returned_by(trace: Trace, cut: ModuleCall) -> list[ModuleCall]:
    """Return the calls that had returned when the cut did, the cut included."""
    frames = list(trace.by_frame)  # in the order in which they returned
    return list(trace.calls[: frames.index(cut.frame) + 1])


def names_of(calls: Iterable[ModuleCall]) -> set[str]:
    """Return the names of the modules called."""
    return {call.name for call in calls}


def judge(
    traces: Sequence[Trace],
    at: str,
    *,
    shared: Iterable[str],
    allow_data_dependent: bool,
    parameters: Iterable[str],
) -> Findings:
    """Check the rules of a cut after module ``at`` on every trace."""
    findings = Findings(variable=set(parameters))
    for trace in traces:
        findings.variable |= trace.changed
    for trace in traces:
        cuts = calls_of(trace, at)
        if len(cuts) != 1:
            mode = "training" if trace.training else "evaluation"
            times = f"called {len(cuts)} times" if cuts else "never called"
            findings.refuse(f"it is {times} in {mode} mode; a cut needs exactly one call")
            return findings
        follower = _Follower(trace, cuts[0], findings, frozenset(shared))
        follower.before(allow_data_dependent)
        follower.after()
        findings.flops = max(findings.flops, follower.flops())
    tied = sorted((findings.before & findings.after) & findings.variable)
    if tied:
        findings.refuse(f"both sides use {_listed(tied)}; tied or shared state cannot be cut apart")
    _explain(findings, set(shared), allow_data_dependent)
    return findings


class _Follower:
    """Propagates labels (input, state, random) from operation to operation through one trace.

    A storage carries the labels of everything that its content was computed from. The cut's own output starts without
    labels, so any other labelled storage read after the cut is an input to be shared, or a connection around the cut.
    """

    def __init__(self, trace: Trace, cut: ModuleCall, findings: Findings, shared: frozenset[str]) -> None:
        self.trace, self.cut, self.findings, self.shared = trace, cut, findings, shared
        self.states: dict[int, list[str]] = {}
        for name, key in trace.states.items():
            self.states.setdefault(key, []).append(name)
        self.inputs = {seen.key: name for name, seen in trace.inputs.items()}
        # by storage; constant buffers get no label: the server may have a copy, so nothing that follows from them is a
        # connection around the cut
        self.labels: dict[int, set[str]] = {}
        for key, names in self.states.items():
            self.labels[key] = {f"state:{name}" for name in names if name in findings.variable}
        for key, name in self.inputs.items():
            self.labels[key] = {f"input:{name}"}

    def before(self, allow_data_dependent: bool) -> None:
        """Label everything that is computed up to the cut."""
        findings, labels = self.findings, self.labels
        declared = _input_labels(self.shared)
        enclosing = around(self.trace, self.cut)
        for number, op in enumerate(self.trace.ops[: self.cut.stop]):
            read: set[str] = set()
            for key in op.reads:
                read |= labels.get(key, set())
                findings.before.update(self.states.get(key, ()))
            findings.draws |= op.random
            # Modules before the cut are replayed by their recorded outputs, but the code of the modules around the cut
            # is Python that runs again on the server, on ghosts: what it reads must be there, what it changes in place
            # must have memory of its own, what it draws must be undone, and what it branches on must be real.
            if number < self.cut.start and op.frame in enclosing:
                for key in op.reads:
                    findings.glue.update(self.states.get(key, ()))
                for key in op.inplace:
                    findings.dense |= bool(labels.get(key, set()) - declared)
                # a branch that is allowed to depend on data may draw in one run and not in another
                findings.rewind |= op.random or (op.sync and allow_data_dependent)
                if op.sync:
                    findings.branches |= read
            written = read | {"random"} if op.random else read
            for key in op.writes:
                # changed in place, a storage also keeps what it held before: an update may touch a part of it
                labels[key] = written | labels.get(key, set()) if key in op.inplace else written

    def after(self) -> None:
        """Check everything that is read after the cut; only the cut module's output may be read freely."""
        parts: dict[int, list[Path]] = {}
        for path, leaf in leaves(self.cut.output):
            if isinstance(leaf, Opaque):
                self.findings.refuse(f"it returns {leaf.kind}, which cannot be sent")
            elif isinstance(leaf, TracedTensor):
                parts.setdefault(leaf.key, []).append(path)
                self.labels[leaf.key] = set()  # it crosses the cut, so whatever it was computed from need not
        for op in self.trace.ops[self.cut.stop :]:
            self._read(op.reads, parts, self.trace.module_of(op.frame))
            for key in op.inplace:  # the server must change a copy: what it received is its caller's
                self.findings.replaced.update(parts.get(key, ()))
                if key in self.inputs:
                    self.findings.replaced.add(self.inputs[key])
        for _, leaf in leaves(self.trace.output):
            if isinstance(leaf, TracedTensor):  # returning counts as reading, by the model's own code
                self._read([leaf.key], parts, "")
        if not self.findings.used:
            self.findings.refuse("nothing after it uses a tensor that it returns")

    def _read(self, keys: Iterable[int], parts: dict[int, list[Path]], reader: str) -> None:
        for key in keys:
            self.findings.used |= dict.fromkeys(parts.get(key, ()))
            # tensors computed after the cut have no label, so a label shows that a tensor is from before it
            if key in self.states:
                self.findings.after |= set(self.states[key])
            elif self.labels.get(key):
                _crossing(self.labels[key], self.findings, self.shared, reader)

    def flops(self) -> tuple[int, int]:
        """Return operations per row on either side of the cut."""
        flops = list(map(attrgetter("flops"), self.trace.ops))
        return sum(flops[: self.cut.stop]) // self.trace.rows, sum(flops[self.cut.stop :]) // self.trace.rows


def _crossing(labels: set[str], findings: Findings, shared: frozenset[str], reader: str) -> None:
    """Record that something other than the cut module's output is read after the cut."""
    inputs = _inputs(labels)
    if len(inputs) == len(labels):
        findings.sides |= dict.fromkeys(sorted(inputs & shared))
        for name in inputs - shared:
            findings.missing.setdefault(name, reader)
    else:
        findings.refuse(
            f"a connection goes around it: {_module(reader)} uses something computed before it from "
            f"{_described(labels)}"
        )


def _explain(findings: Findings, shared: set[str], allow_data_dependent: bool) -> None:
    """Refuse inputs that are not shared, and branches on data."""
    if findings.missing:
        names = sorted(findings.missing)
        findings.refuse(
            f"{_module(findings.missing[names[0]])} after it needs the model's input {_listed(names)}; pass "
            f"shared={_quoted(shared | set(names))} if the server may see that"
        )
    inputs = _inputs(findings.branches)
    findings.sides |= dict.fromkeys(sorted(inputs & shared))
    known = _input_labels(shared.union(findings.missing))  # inputs that are missing were refused above
    if findings.branches <= known or allow_data_dependent:
        return
    remedy = "pass allow_data_dependent=True if the result does not matter after the cut"
    if len(inputs) == len(findings.branches):
        remedy = f"pass shared={_quoted(inputs | shared)} if the server may see that, or {remedy}"
    findings.refuse(f"the code before it branches on data ({_described(findings.branches)}); {remedy}")


def _input_labels(names: Iterable[str]) -> set[str]:
    return {f"input:{name}" for name in names}


def _inputs(labels: set[str]) -> set[str]:
    return set(_named(labels, "input:"))


def _named(labels: set[str], prefix: str) -> list[str]:
    """Return the names behind the labels of one kind, sorted."""
    return sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))


def _described(labels: set[str]) -> str:
    words = []
    if inputs := _named(labels, "input:"):
        words.append(f"input {_listed(inputs)}")
    if states := _named(labels, "state:"):
        words.append(f"state {_listed(states)}")
    if "random" in labels:
        words.append("random numbers")
    return " and ".join(words)


def _module(name: str) -> str:
    return f"module {name!r}" if name else "the model's own code"


def _listed(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _quoted(names: Iterable[str]) -> str:
    return '["' + '", "'.join(sorted(names)) + '"]'
