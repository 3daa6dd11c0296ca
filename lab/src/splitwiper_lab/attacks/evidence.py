"""Evidence that attacks share: the rows of the present uploads, read once in bounded memory, as short vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from splitwiper.numerics import pick_device
from splitwiper.training.cache import CODE, Cache, to_device
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.features import Probe, activations, reduced
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.kmeans import means
from splitwiper_lab.attacks.linkage import Tree
from splitwiper_lab.attacks.view import Place, SeenShard, ServerView

RAW, OUTPUT, JOINT = "activations", "output", "deep layers"
_BYTES = 1 << 27  # read per block
_PLAIN, _WHITE = 64, 16
"""Main axes kept of rows; fewer of whitened rows, because whitening gives small axes the weight of large ones."""


class Evidence:
    """A `ServerView` prepared for attacks. Nothing in it comes from the truth.

    Args:
        view: what the server has.
        device: the device that attacks compute on.
        quick: use fewer depths, restarts and rows.
        seed: the seed of all randomness.
    """

    def __init__(self, view: ServerView, *, device: str = "cpu", quick: bool = False, seed: int = 0) -> None:
        self.view, self.quick, self.seed = view, quick, seed
        self.device = pick_device(device)
        self.restarts = 2 if quick else 4
        self._sizes = [seen.shard.rows for seen in view.present]
        self._reduced: dict[tuple[str, bool], Tensor] = {}
        most = 20_000 if quick else 200_000
        every = np.arange(sum(self._sizes))
        if len(every) > most:
            every = np.sort(np.random.default_rng(seed).choice(every, most, replace=False))
        self.index = every
        """The rows to attack, numbered across the present uploads: all, or a random sample of very many."""

    # --- rows ----------------------------------------------------------------------------------------------

    @cached_property
    def codes(self) -> Tensor:
        """The code of each row, as an index into `numbers`."""
        return torch.from_numpy(np.searchsorted(self.numbers, self._row_codes)).to(self.device)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The codes that occur in present rows, sorted."""
        return tuple(np.unique(self._row_codes).tolist())

    @cached_property
    def owners(self) -> Tensor:
        """The index of the present upload that each row belongs to."""
        owners = np.repeat(np.arange(len(self._sizes)), self._sizes)
        return torch.from_numpy(owners[self.index]).to(self.device)

    @cached_property
    def _row_codes(self) -> Array:
        no_rows = np.empty(0, np.int64)  # concatenating needs one array at least
        return np.concatenate([no_rows, *map(self.view.codes_of, self.view.present)])[self.index]

    @cached_property
    def rows(self) -> dict[str, Tensor]:
        """Rows as vectors, by representation: activations, outputs of the half's layers (shallow first), its output.

        `JOINT` concatenates the last two layers: whitened, they cluster better than either.
        """
        rows = self._read(self.view.present, self.index, deep=True)
        layers = [name for name in rows if name not in (RAW, OUTPUT)][-2:]
        if len(layers) == 2:
            # to the same scale first: else the layer with the larger numbers would decide by itself
            scaled = [rows[name] / rows[name].std().clamp_min(1e-12) for name in layers]
            rows[JOINT] = torch.cat(scaled, dim=1)
        return rows

    @property
    def depths(self) -> tuple[str, ...]:
        """The half's layers and output, shallow first; empty without a half."""
        return tuple(name for name in self.rows if name not in (RAW, JOINT))

    @property
    def views(self) -> tuple[tuple[str, bool], ...]:
        """The most informative representations of rows, each with whether to whiten it."""
        chosen = [(RAW, False)]
        for name in self.depths[-2:]:
            chosen.append((name, False))
        if JOINT in self.rows:
            chosen.append((JOINT, True))
        return tuple(chosen)

    def reduced(self, name: str, *, whiten: bool = False) -> Tensor:
        """Project rows onto their main axes; results are cached."""
        if (name, whiten) not in self._reduced:
            most = _WHITE if whiten else _PLAIN
            self._reduced[name, whiten] = reduced(self.rows[name], most, whiten=whiten)
        return self._reduced[name, whiten]

    def code_means(self, name: str) -> Tensor:
        """Return the mean row of each code, rotated so that few coordinates suffice; distances are unchanged."""
        centres = means(self.rows[name], self.codes, len(self.numbers)).double()  # codes × width
        u, s, _ = torch.linalg.svd(centres - centres.mean(0), full_matrices=False)
        return torch.mul(u, s).float().cpu()  # few points: a GPU would be slower

    def raw_of(self, seen: SeenShard) -> Tensor:
        """Return the activations of one upload, erased or not, as short vectors."""
        return self._read([seen], np.arange(seen.shard.rows), deep=False)[RAW]

    def _read(self, uploads: Sequence[SeenShard], index: Array, *, deep: bool) -> dict[str, Tensor]:
        """Read rows of uploads; if ``deep``, also pass them through the server half."""
        if not len(index):
            return {RAW: torch.empty(0, 1, device=self.device)}
        parts: dict[str, list[Tensor]] = {}
        probe: Probe | None = None
        half = self.view.half if deep else None
        for boundary in self._blocks(self.view.cache(uploads), index):
            parts.setdefault(RAW, []).append(activations(boundary))
            if half is None:
                continue
            if probe is None:
                example = {name: tensor[:8] for name, tensor in boundary.items()}
                probe = Probe(half, self.device, depths=2 if self.quick else 4, example=example)
            layers, logits = probe(boundary)
            # square roots, so that Euclidean distance is Hellinger's, which suits probabilities
            layers[OUTPUT] = torch.softmax(logits, dim=1).sqrt()
            for name, values in layers.items():
                parts.setdefault(name, []).append(values)
        return {name: torch.cat(blocks) for name, blocks in parts.items()}

    def _blocks(self, cache: Cache, index: Array) -> Iterator[dict[str, Tensor]]:
        """Yield the tensors at the cut, a few thousand rows at a time, so that memory is bounded."""
        decode = cache.decoder(self.device)
        step = min(4096, max(64, _BYTES // max(1, cache.width)))
        for start in range(0, len(index), step):
            chosen = index[start : start + step]
            parts = cache.buffers(len(chosen))
            cache.gather(chosen, parts)
            parts.pop(CODE)
            yield decode(to_device(parts, self.device))

    # --- claims --------------------------------------------------------------------------------------------

    def of_codes(self, attack: str, clusters: Array, *, knows: str = "", notes: str = "") -> AttackFinding:
        """Return the finding that codes with the same cluster belong together."""
        members: dict[int, set[int]] = {}
        for code, cluster in zip(self.numbers, clusters.tolist(), strict=True):
            members.setdefault(cluster, set()).add(code)
        groups = tuple(map(frozenset, members.values()))
        return AttackFinding(attack, groups, labels_estimated=None if knows else len(groups), knows=knows, notes=notes)

    def of_tree(self, attack: str, tree: Tree, labels: int | None, *, notes: str = "") -> AttackFinding:
        """Return the finding that a tree of merged codes gives for Q labels; without Q, for its largest jump."""
        return self.of_codes(attack, tree.cut(labels or tree.jump()), knows="Q" if labels else "", notes=notes)

    def of_rows(self, attack: str, clusters: Array, *, knows: str = "", notes: str = "") -> AttackFinding:
        """Return the finding that rows with the same cluster have the same label."""
        return AttackFinding(attack, rows=self.split(clusters), knows=knows, notes=notes)

    def split(self, values: Array) -> dict[Place, Array]:
        """Split one value per row of the index by upload; rows outside the index get -1."""
        every = np.full(sum(self._sizes), -1, np.int64)
        every[self.index] = values
        parts, start = {}, 0
        for seen in self.view.present:
            parts[seen.place] = every[start : start + seen.shard.rows]
            start += seen.shard.rows
        return parts
