"""Compare this machine's bits under portable numerics with those that were recorded on others.

    python scripts/portable.py              # compare; the exit code is 1 if bits differ
    python scripts/portable.py --record     # and add this machine to results/portable.json
    python scripts/portable.py --as-intel   # compare, with MKL told that the processor is Intel's
    python scripts/portable.py --settings   # the nets under other settings of torch, for the record
    python scripts/portable.py --take FILE  # record what --settings printed on another machine

It needs torch and NumPy; with safetensors it also compares federations that learn and forget. Every measurement runs in
a process of its own, because torch reads its switches once. Bits are compared for equal versions of torch only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from portable_record import SETTINGS, compare, database, processor, write

ROOT = Path(__file__).resolve().parent.parent
SHIM = "int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n"


# --- in a process of its own -----------------------------------------------------------------------------------


def child(what: str) -> dict[str, Any]:
    """Measure the package of this repository, whichever one is installed."""
    sys.path.insert(1, str(ROOT / "src"))
    import portable_work as work
    import torch

    if what == "settings":
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        torch.backends.mkldnn.enabled = "NO_ONEDNN" not in os.environ
        torch.backends.nnpack.set_flags("NO_NNPACK" not in os.environ)
        return {"capability": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__, **work.trained()}
    from splitwiper.numerics import fingerprint, prepare, reproducible

    cpu = torch.device("cpu")
    if what == "native functions":
        with reproducible(cpu, 1):
            return work.functions()
    if what.startswith("seconds"):
        with reproducible(cpu, 1, what.split()[1]):
            return work.seconds()
    prepare("portable")
    with reproducible(cpu, 1, "portable"):
        digests = {"functions": work.functions(), "nets": work.trained()}
    if importlib.util.find_spec("safetensors"):
        digests["federations"] = work.federated()
    return {"fingerprint": fingerprint(cpu, 1, "portable"), "digests": digests}


def measured(what: str, switches: dict[str, str] | None = None) -> dict[str, Any]:
    """What a child with these switches, and no others, finds."""
    kept = {k: v for k, v in os.environ.items() if not re.match(r"(MKL|ONEDNN|DNNL|ATEN)_", k)}
    run = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--child", what], env={**kept, **(switches or {})}, capture_output=True, text=True
    )
    if run.returncode:
        sys.exit(f"{what} failed:\n{run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


# --- the command ---------------------------------------------------------------------------------------------


def cost() -> dict[str, float]:
    """How many times more processor time a step takes than with native numerics on one thread."""
    portable, native = measured("seconds portable"), measured("seconds native")
    return {net: round(portable[net] / native[net], 2) for net in portable}


def as_intel() -> tuple[dict[str, str], dict[str, Any]]:
    """Switches under which MKL takes this processor for one of Intel's, and how native functions change with them.

    MKL is the one part of the profile that looks at the vendor. It asks a function of its own, which a small library
    that is loaded first answers in its place. That native functions change shows that MKL believes it.
    """
    folder = Path(tempfile.mkdtemp())
    (folder / "intel.c").write_text(SHIM, encoding="ascii")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "intel.so", "intel.c"], cwd=folder, check=True)  # noqa: S607
    switches = {"LD_PRELOAD": str(folder / "intel.so")}
    before, after = measured("native functions"), measured("native functions", switches)
    return switches, {"changed": [name for name in before if before[name] != after[name]], "of": len(before)}


def profile(*, record: bool, intel: bool) -> int:
    """Measure under the profile, compare, and say what came out."""
    switches, native = as_intel() if intel else ({}, {})
    kept, now = database(), measured("profile", switches)
    here = processor() + ", MKL told that it is Intel's" * intel
    version = " ".join(f"{key} {now['fingerprint'][key]}" for key in ("numerics", "torch", "numpy", "libm"))
    recorded = kept["profile"].get(version)
    odd = compare(now, recorded) if recorded else []
    count = sum(map(len, now["digests"].values()))
    if recorded is None:
        same_torch = [key for key in kept["profile"] if f"torch {now['fingerprint']['torch']} " in key]
        _say(f"not comparable: nothing was recorded for {version}; there is {', '.join(kept['profile']) or 'nothing'}")
        if same_torch:
            _say("the same torch with another NumPy or C library was recorded: bits need not be the same")
    else:
        for line in odd:
            _say(line)
        others = ", ".join(seen["processor"] for seen in recorded["seen"])
        _say(f"{count - len(odd)} of {count} digests equal on {here}, recorded on {others}")
    if "federations" not in now["digests"]:
        _say("federations were left out: safetensors is not installed")
    if native:
        _say(f"with native numerics {len(native['changed'])} of {native['of']} functions change: {native['changed']}")
    if record:
        one = kept["profile"].setdefault(version, {"digests": now["digests"], "seen": []})
        one["digests"] = {**now["digests"], **one["digests"]}  # the first may have been made without safetensors
        one["seen"] = [seen for seen in one["seen"] if seen["processor"] != here]
        date = datetime.now(UTC).date().isoformat()
        known = {"native": native} if intel else {"cost": cost()}
        one["seen"].append({"processor": here, "date": date, "equal": not odd, **known})
        write(kept)
    return 1 if odd else 3 if recorded is None and not record else 0


def settings(*, record: bool) -> int:
    """Train the nets under every setting, and print their digests."""
    found = {"processor": processor(), "settings": {n: measured("settings", s) for n, s in SETTINGS.items()}}
    _say(json.dumps(found, indent=1))
    return take(found) if record else 0


def take(found: dict[str, Any]) -> int:
    """Record what ``--settings`` printed."""
    kept = database()
    name = found["processor"]
    if "(" not in name:  # an earlier form of the file
        name += f" ({found['settings']['as it is']['capability']})"
    kept["settings"][name] = found["settings"]
    write(kept)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> int:
    """Do what the command line asks for; 1 if bits differ, 3 if there is nothing to compare with."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="add this machine to results/portable.json")
    parser.add_argument("--as-intel", action="store_true", help="have MKL take the processor for Intel's (needs cc)")
    parser.add_argument("--settings", action="store_true", help="the nets under other settings of torch")
    parser.add_argument("--take", type=Path, metavar="FILE", help="record what --settings printed elsewhere")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        _say(json.dumps(child(asked.child)))
        return 0
    if asked.take:
        return take(json.loads(asked.take.read_text(encoding="utf-8")))
    if asked.settings:
        return settings(record=asked.record)
    return profile(record=asked.record, intel=asked.as_intel)


if __name__ == "__main__":
    sys.exit(main())
