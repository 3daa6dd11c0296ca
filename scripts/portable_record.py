"""What `portable.py` compared: ``results/portable.json``, and the page written from it."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results" / "portable.json"
_DEFAULT, _AVX2 = {"ATEN_CPU_CAPABILITY": "default"}, {"ATEN_CPU_CAPABILITY": "avx2"}
_COMPATIBLE = {"MKL_CBWR": "COMPATIBLE"}
SETTINGS = {
    "as it is": {},
    "aten default": _DEFAULT,
    "aten avx2": _AVX2,
    "aten default, mkl compatible": _DEFAULT | _COMPATIBLE,
    "aten default, mkl compatible, onednn sse41": _DEFAULT | _COMPATIBLE | {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "aten avx2, mkl avx2 strict, onednn avx2": _AVX2 | {"MKL_CBWR": "AVX2,STRICT", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "aten default, mkl compatible, no onednn": _DEFAULT | _COMPATIBLE | {"NO_ONEDNN": "1"},
    "aten avx2, mkl compatible, no onednn": _AVX2 | _COMPATIBLE | {"NO_ONEDNN": "1"},
    "aten avx2, mkl compatible, no onednn, no nnpack": _AVX2 | _COMPATIBLE | {"NO_ONEDNN": "1", "NO_NNPACK": "1"},
}
"""Settings that the nets are compared under, besides the profile: which part of torch makes processors differ."""


def processor() -> str:
    """The processor: its name, family and model, and the widest instruction set torch would use."""
    about = Path("/proc/cpuinfo")
    if not about.exists():
        return platform.processor()
    found = dict(re.findall(r"^(model name|cpu family|model|flags)\s*:\s*(.+)$", about.read_text(), re.MULTILINE))
    wide = "AVX-512" if "avx512f" in found.get("flags", "") else "AVX2"
    return f"{found.get('model name')}, family {found.get('cpu family')} model {found.get('model')} ({wide})"


def compare(now: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """What differs between two measurements under the profile, of what both have."""
    return [
        f"{kind}: {name} was {value}, is {now['digests'][kind][name]}"
        for kind, values in recorded["digests"].items()
        for name, value in values.items()
        if kind in now["digests"] and now["digests"][kind].get(name, value) != value
    ]


def database() -> dict[str, Any]:
    """What is recorded."""
    if RESULTS.exists():
        found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
        return found
    return {"profile": {}, "settings": {}}


def write(kept: dict[str, Any]) -> None:
    """Write the record, and the page that people read."""
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(page(kept), encoding="utf-8")


def table(*rows: list[str]) -> str:
    """A table in Markdown."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(kept: dict[str, Any]) -> str:
    """Return the page, generated only from the record."""
    parts = ["# Portable numerics: the machines that were compared", "Written by `scripts/portable.py --record`.\n"]
    parts.append(
        "## The profile\n\nSmall nets and federations that learn and forget, bit for bit, by version of torch.\n"
    )
    rows = [["versions", "digests", "processor", "bits", "processor time of a step against native, one thread each"]]
    for version, one in kept["profile"].items():
        count = sum(map(len, one["digests"].values()))
        for seen in one["seen"]:
            ratios = ", ".join(f"{k} {v:.1f} ×" for k, v in seen.get("cost", {}).items())
            if native := seen.get("native"):
                ratios = f"(native: {len(native['changed'])} of {native['of']} functions get other bits)"
            rows.append([version, str(count), seen["processor"], "equal" if seen["equal"] else "**differ**", ratios])
    parts += [table(*rows) + "\n", "## Nets under other settings of torch\n"]
    parts.append("How many of the digests of five nets under two optimisers are the same on all processors below.\n")
    names = list(kept["settings"])
    parts.append("\n".join(f"- {name}" for name in names) + "\n")
    rows = [["setting", "processors", "equal digests"]]
    for setting in SETTINGS:
        made = [kept["settings"][name][setting] for name in names if setting in kept["settings"][name]]
        keys = [key for key in made[0] if key not in ("capability", "torch")] if made else []
        same = sum(len({one[key] for one in made}) == 1 for key in keys)
        shown = f"{same} of {len(keys)}" if len(made) > 1 else "not compared"
        rows.append([setting, str(len(made)), shown])
    return "\n".join([*parts, table(*rows)]) + "\n"
