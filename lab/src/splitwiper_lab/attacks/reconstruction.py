"""Reconstruct inputs from cached activations: how much of a picture survives the cut.

The method is ridge regression from a patch of activations to the pixels it covers, or from whole rows where inputs are
not pictures. It learns from public inputs of the same kind, passed through the client half's first weights, which the
server gives to joining clients, or from a colluding client: its inputs, and its uploads of them.
"""

from __future__ import annotations

import copy
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from splitwiper.errors import InputError
from splitwiper.store import files
from splitwiper.training.cache import to_device
from splitwiper.wire.columns import Array
from splitwiper_lab.attacks.evidence import Evidence
from splitwiper_lab.attacks.features import activations
from splitwiper_lab.attacks.finding import AttackFinding
from splitwiper_lab.attacks.view import Place, SeenShard

_PATCHES = 60_000
_LEARNED, _TRIED, _SHOWN = 2000, 256, 16
_PENALTY = 1e-3
_COLUMNS, _ENLARGED = 8, 3
"""Pictures in a line of a contact sheet, and pixels of the sheet per pixel of a picture."""


@dataclass(frozen=True)
class Pictures:
    """What reconstruction needs beyond the server's view.

    Attributes:
        inputs: the input of every row of an upload, in row order: for scoring, and as the colluding client's inputs.
        public: inputs of the same kind that anyone can obtain.
        client: the client half with its first weights, for the public inputs.
        to: a folder for contact sheets; None writes none.
    """

    inputs: Mapping[Place, Array]
    public: Array | None = None
    client: nn.Module | None = None
    to: Path | None = None


def reconstruction(evidence: Evidence, pictures: Pictures) -> Iterator[AttackFinding]:
    """Reconstruct rows of the last client: from public inputs, and from what the first client reveals.

    Raises:
        InputError: the inputs do not fit the uploads.
    """
    titles = ("inputs rebuilt, public inputs", "inputs rebuilt, a client that talks")
    known = []
    for seen in evidence.view.present:
        if seen.place in pictures.inputs:
            known.append(seen)
            if len(pictures.inputs[seen.place]) != seen.shard.rows:
                raise InputError("pictures.inputs has another number of rows than the uploads; give one input per row.")
    if not known or pictures.inputs[known[0].place].dtype.kind not in "fu":  # token ids are signed integers
        notes = "no inputs were given to compare with, or they are not numbers"
        for title in titles:
            yield AttackFinding(title, knows="aux", notes=notes)
        return
    target, teller = known[-1], known[0]
    tried, learned = _halves(evidence, target, teller)
    wanted, seen_at = _inputs(evidence, pictures.inputs[target.place], tried), _boundary(evidence, target, tried)
    if pictures.public is not None and pictures.client is not None:
        public = torch.from_numpy(np.ascontiguousarray(pictures.public[:_LEARNED])).to(evidence.device)
        with torch.no_grad():
            sent = copy.deepcopy(pictures.client).eval().to(evidence.device)(public)
        yield _scored(evidence, titles[0], (sent, public.float()), seen_at, wanted, pictures.to)
    pairs = _boundary(evidence, teller, learned), _inputs(evidence, pictures.inputs[teller.place], learned)
    yield _scored(evidence, titles[1], pairs, seen_at, wanted, pictures.to)


def _halves(evidence: Evidence, target: SeenShard, teller: SeenShard) -> tuple[Array, Array]:
    """Choose rows to reconstruct and rows to learn from; they are disjoint if there is only one client."""
    draw = np.random.default_rng(evidence.seed)
    tried = draw.permutation(target.shard.rows)
    if target is not teller:
        return np.sort(tried[:_TRIED]), np.sort(draw.permutation(teller.shard.rows)[:_LEARNED])
    half = len(tried) // 2
    return np.sort(tried[:half][:_TRIED]), np.sort(tried[half:][:_LEARNED])


def _inputs(evidence: Evidence, inputs: Array, index: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(inputs[index])).float().to(evidence.device)


def _boundary(evidence: Evidence, seen: SeenShard, index: Array) -> dict[str, Tensor]:
    return to_device(evidence.view.cache([seen]).batch(index)[0], evidence.device)


def _scored(
    evidence: Evidence,
    title: str,
    learned: tuple[Mapping[str, Tensor], Tensor],
    seen: Mapping[str, Tensor],
    wanted: Tensor,
    to: Path | None,
) -> AttackFinding:
    """Learn from pairs of activations and inputs, reconstruct others, and compare with the mean of the known inputs."""
    sent, inputs = learned
    rebuilt = rebuild(sent, inputs, seen, seed=evidence.seed)
    low, high = inputs.min(), inputs.max()

    def scaled(values: Tensor) -> Tensor:
        return ((values - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)

    rebuilt, wanted, mean = scaled(rebuilt), scaled(wanted), scaled(inputs.mean(0, keepdim=True).expand_as(wanted))
    scores = {"psnr": psnr(rebuilt, wanted), "psnr_of_mean": psnr(mean, wanted)}
    left = (rebuilt - wanted).square().sum() / (mean - wanted).square().sum().clamp_min(1e-12)
    scores["explained"] = float(1 - left)
    if wanted.ndim == 4:
        scores |= {"ssim": ssim(rebuilt, wanted), "ssim_of_mean": ssim(mean, wanted)}
        if to is not None:
            name = title.split(", ")[1].replace(" ", "-")
            contact_sheet(to / f"{name}.png", wanted[:_SHOWN].cpu().numpy(), rebuilt[:_SHOWN].cpu().numpy())
    return AttackFinding(title, knows="aux", scores=scores, notes=f"learned from {len(inputs)} rows")


def rebuild(sent: Mapping[str, Tensor], inputs: Tensor, seen: Mapping[str, Tensor], *, seed: int = 0) -> Tensor:
    """Reconstruct inputs from the activations seen, by ridge regression learned from known inputs and theirs (sent)."""
    maps, others = next(iter(sent.values())), next(iter(seen.values()))
    # patch by patch only if each activation lies over a square of whole pixels, equally large in both directions
    factor = inputs.shape[2] // maps.shape[2] if maps.ndim == 4 == inputs.ndim else 0
    if not factor or (maps.shape[2] * factor, maps.shape[3] * factor) != inputs.shape[2:]:
        weights = _ridge(activations(sent), inputs.flatten(1))
        return _applied(activations(seen), weights).view(-1, *inputs.shape[1:])
    # the pixels under each position: (pictures · positions) × (channels · factor²)
    targets = functional.pixel_unshuffle(inputs, factor).flatten(2).transpose(1, 2).flatten(0, 1)
    pictures = len(inputs)
    chosen = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))[:_PATCHES].to(targets.device)
    places = len(targets) // pictures
    patches = torch.empty(len(chosen), 9 * maps.shape[1], device=maps.device)
    for part in torch.arange(pictures, device=maps.device).split(64):  # unfolded maps are nine times as large
        here = torch.nonzero((chosen // places >= part[0]) & (chosen // places <= part[-1]))[:, 0]
        patches[here] = _patches(maps[part]).flatten(0, 1)[chosen[here] - part[0] * places]
    weights = _ridge(patches, targets[chosen])
    out = torch.cat([_applied(_patches(part), weights) for part in others.split(64)])
    side = others.shape[2:]
    return functional.pixel_shuffle(out.transpose(1, 2).unflatten(2, side), factor)


def _patches(maps: Tensor) -> Tensor:
    """Return every position of a map with its eight neighbours: rows × positions × (9 · channels)."""
    return functional.unfold(maps.float(), 3, padding=1).transpose(1, 2)


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    """Return the weights (with a last row for the constant) that predict y from x, in double precision."""
    x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1).double()
    gram = x.T @ x
    # relative to the activations' own size, so that one penalty fits every network
    penalty = _PENALTY * gram.diagonal().mean() * torch.eye(len(gram), device=x.device, dtype=x.dtype)
    solved: Tensor = torch.linalg.solve(gram + penalty, x.T @ y.double())
    return solved.float()


def _applied(x: Tensor, weights: Tensor) -> Tensor:
    return torch.matmul(x, weights[:-1]) + weights[-1]


def psnr(found: Tensor, wanted: Tensor) -> float:
    """Return the peak signal-to-noise ratio in decibels, of values from 0 to 1; at most 99."""
    return min(99.0, float(-10 * (found - wanted).square().mean().clamp_min(1e-12).log10()))


def ssim(found: Tensor, wanted: Tensor) -> float:
    """Return the structural similarity of pictures with values from 0 to 1, over windows of seven pixels."""
    window = min(7, *wanted.shape[2:])

    def mean(x: Tensor) -> Tensor:
        return functional.avg_pool2d(x, window, stride=1)

    a, b = mean(found), mean(wanted)
    # Wang et al. 2004, with constants for values from 0 to 1; windows all count alike
    both = mean(found * wanted) - a * b
    spread = mean(found.square()) - a.square() + mean(wanted.square()) - b.square()
    score = (2 * a * b + 1e-4) * (2 * both + 9e-4) / ((a.square() + b.square() + 1e-4) * (spread + 9e-4))
    return float(score.mean())


def png(picture: Array) -> bytes:
    """Encode a picture (height × width, or height × width × 3, of bytes) as a PNG file.

    >>> png(np.zeros((2, 3), np.uint8))[1:4]
    b'PNG'
    """
    colour = 2 if picture.ndim == 3 else 0
    height, width = picture.shape[:2]
    lines = np.ascontiguousarray(picture, np.uint8).reshape(height, -1)
    # each line starts with the number of its filter: 0 for none
    data = np.pad(lines, ((0, 0), (1, 0))).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def contact_sheet(path: Path, originals: Array, reconstructions: Array) -> None:
    """Write pictures (rows × channels × height × width, from 0 to 1) in pairs of lines, originals first."""
    lines = []
    for start in range(0, len(originals), _COLUMNS):
        for pictures in (originals, reconstructions):
            lines.append(_line(pictures[start : start + _COLUMNS]))
    sheet = np.concatenate(lines, axis=0)
    files.write_bytes(path, png(sheet[:, :, 0] if sheet.shape[2] == 1 else sheet))


def _line(pictures: Array) -> Array:
    """Return a line of enlarged pictures: height × width × channels, in bytes."""
    channels = 3 if pictures.shape[1] >= 3 else 1
    shown = np.ones((_COLUMNS, channels, pictures.shape[2] + 1, pictures.shape[3] + 1))  # a white border
    shown[: len(pictures), :, :-1, :-1] = pictures[:, :channels].clip(0, 1)
    large = (255 * shown).round().astype(np.uint8).repeat(_ENLARGED, axis=2).repeat(_ENLARGED, axis=3)
    return np.concatenate(list(large.transpose(0, 2, 3, 1)), axis=1)
