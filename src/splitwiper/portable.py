"""Portable numerics: the same bits on every x86-64 processor with AVX2, from any vendor.

Torch's results depend on the processor in four ways, and the profile removes each:

| part of torch | chooses by | under the profile |
|---|---|---|
| ATen's own kernels | instruction set | those for AVX2 (``ATEN_CPU_CAPABILITY``): all instructions round exactly |
| MKL (matrix products, some functions) | vendor, instruction set | its documented mode for all vendors (``MKL_CBWR``) |
| oneDNN (convolutions, recurrent layers) | instruction set, sizes of caches | off: ATen and MKL compute instead |
| NNPACK (convolutions, where oneDNN is off) | sizes of caches | off |

There is one thread, attention is computed by its definition, and denormal numbers are kept. The kernels for AVX2 have
their own exp, tanh and the like, where kernels without AVX2 would use the C library's. The remaining uses of the C
library (cosine and powers, for learning rates) are part of the fingerprint, by their results.

ATen and MKL read their variables when they first compute and never again. `ensure` sets them in time if it can, and
asks both libraries what they use. A program that computes before it opens a federation must be started by
``python -m splitwiper.portable program.py``, or with `SWITCHES` in its environment.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import platform
import runpy
import struct
import sys
from pathlib import Path

from splitwiper.errors import ConfigError

PROFILE = "portable 1"
"""The profile and its version, as fingerprints name it. With another version, bits may differ."""
SWITCHES = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE"}
"""Environment variables that must be set before torch computes anything."""
_COMPATIBLE = 3
"""MKL's number of the branch for all vendors (MKL_CBWR_COMPATIBLE)."""
_BRANCH = 1
"""MKL's number of the query for the branch (MKL_CBWR_BRANCH)."""


@functools.cache  # once under the profile, the libraries never leave it
def ensure() -> None:
    """Bring torch's libraries under the profile; once they are, do nothing.

    Raises:
        ConfigError: this processor or this torch cannot, or torch has computed before; the message says how to start.
    """
    import torch

    if platform.machine() not in ("x86_64", "AMD64") or not torch.cpu._is_avx2_supported():
        raise ConfigError(
            "numerics = 'portable' is for x86-64 processors with AVX2, and this is none "
            f"({platform.machine()}); work on such a machine, or start a new run with numerics = 'native'."
        )
    if not torch.backends.mkl.is_available():
        raise ConfigError(
            f"numerics = 'portable' needs a torch that is built with MKL, and {torch.__version__} is not; install "
            "torch from pytorch.org or PyPI, or start a new run with numerics = 'native'."
        )
    before = {name: os.environ.get(name) for name in SWITCHES}
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
    if not _is_on():
        for name, earlier in before.items():
            if earlier is None:
                del os.environ[name]  # later computations are native, and their fingerprint says so
        raise ConfigError(_too_late(before))


def _is_on() -> bool:
    """Ask both libraries. The query also makes them read their variables, if they have not yet."""
    import torch

    return torch.backends.cpu.get_cpu_capability() == "AVX2" and _branch_of_mkl() == _COMPATIBLE


def _branch_of_mkl() -> int | None:
    """Return the branch that MKL computes with; None if it is not known.

    Torch's builds contain MKL and allow the query. Elsewhere, the environment that this process was started with
    decides: torch cannot have computed before.
    """
    import torch

    try:
        ask = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).mkl_serv_cbwr_get
    except (OSError, AttributeError):
        try:
            started = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return None
        return _COMPATIBLE if b"MKL_CBWR=COMPATIBLE" in started else None
    return int(ask(_BRANCH))


def _too_late(before: dict[str, str | None]) -> str:
    others = [f"{name}={value}" for name, value in before.items() if value not in (None, SWITCHES[name])]
    why = (
        f"the environment says otherwise ({' '.join(others)})"
        if others
        else "torch has already computed something in this process, with other settings"
    )
    wanted = " ".join(f"{name}={value}" for name, value in SWITCHES.items())
    return (
        f"numerics = 'portable' can no longer be switched on: {why}. Start the program with "
        f"'python -m splitwiper.portable program.py', or with {wanted} in its environment."
    )


@functools.cache
def libm() -> str:
    """Digest of what the C library makes of some thousand cosines, powers, logarithms and exponentials.

    Learning rates and Adam's corrections are computed with it. C libraries may differ in a last bit; where these
    results are the same, machines are comparable, whatever versions they have.
    """
    values = [math.cos(math.pi * step / 5000) for step in range(5000)]
    for beta in (0.9, 0.95, 0.99, 0.999):
        values += [beta**step for step in range(1, 2000)]
    for function in (math.log, math.exp, math.sin, math.tanh):
        values += [function(step / 97) for step in range(1, 2000)]
    return hashlib.sha256(struct.pack(f"<{len(values)}d", *values)).hexdigest()[:16]


def main() -> None:
    """Run a program, or with ``-m`` a module, with the switches set before anything is imported."""
    arguments = sys.argv[1:]
    if not arguments or arguments == ["-m"]:
        sys.exit("usage: python -m splitwiper.portable [-m MODULE | PROGRAM] [ARGUMENT ...]")
    os.environ.update(SWITCHES)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
